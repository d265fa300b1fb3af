"""Jobs over gRPC with the clients of the .proto files: `homeport.v1.Jobs` and the job calls of `orchion.v1`."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import grpc
import grpc.aio
import pytest

from homeport.adapters.link.inprocess import InProcessLink
from homeport.adapters.runtime.fake import NullRuntime
from homeport.capability.site import SiteCapability, SitePart
from homeport.core.inference.engines.handoff import EngineName, Handoff, HandoffModel
from homeport.fleet.site.platform import SitePlatform
from homeport.inference.capability import SITE_INFERENCE
from homeport.jobs.site.capability import JOBS
from homeport.node.app import run_node
from homeport.node.settings import NodeSettings
from homeport.ports import InferencePorts
from homeport.site.app import SiteApp
from homeport.vocabulary import Liveness, NodeId
from homeport.wire.orchion.v1 import orchestrator_pb2 as orchion
from homeport.wire.v1 import jobs_pb2 as pb
from tests.integration.site.conftest import OpenSite
from tests.support.local import local_channel, local_key
from tests.support.running_central import FakeSite, node_changed, running_central
from tests.support.stubs import jobs_pb2_grpc, orchestrator_pb2_grpc
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio

ECHO = pb.JobSpec(image="app:1", command=["echo", "hi"])
OURS = partial(jobs_pb2_grpc.JobsStub)
THEIRS = partial(orchestrator_pb2_grpc.OrchestratorStub)


@asynccontextmanager
async def site_with_node(start: OpenSite, folder: Path, **settings: Any) -> AsyncIterator[SiteApp]:
    """Also with an engine that answers with the words it was asked."""
    found: list[InferencePorts] = []

    def look(platform: SitePlatform) -> SitePart:
        found.append(platform.inference)
        return SitePart()

    brought = [JOBS, SITE_INFERENCE, SiteCapability("engine", look)]
    async with start(capabilities=brought, **settings) as site, anyio.create_task_group() as tasks:
        node = NodeSettings(data=folder / "n1", node_id=NodeId("n1"), http_address=None, runtime="null")
        tasks.start_soon(run_node, node, InProcessLink(site.parts.reception), NullRuntime(node.data / "runtime"))
        nodes = site.parts.conductor.memory.nodes
        await eventually(
            lambda: NodeId("n1") in nodes and nodes[NodeId("n1")].liveness is Liveness.LIVE,
            what="the node to be live",
        )
        bind_engine(found[0])
        yield site
        tasks.cancel_scope.cancel()


def bind_engine(ports: InferencePorts) -> None:
    assert ports.pools is not None
    ports.pools.bind(
        Handoff(engine=EngineName.FAKE, url="http://127.0.0.1:1", model=HandoffModel("words"), slots_total=2)
    )


async def refusal(call: Awaitable[Any]) -> tuple[str, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code().name, str(caught.value.details())


async def submitted(stub: Any, request: orchion.SubmitJobRequest) -> Any:
    """Repeats it while the engine is not known to be well yet, as UNAVAILABLE asks for."""
    answers: list[Any] = []

    async def is_taken() -> bool:
        try:
            answers[:] = [await stub.SubmitJob(request)]
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise
        return bool(answers)

    await eventually(is_taken, what="the job to be taken")
    return answers[0]


async def settled(ask: Callable[[], Awaitable[Any]], name: str, ended: set[Any]) -> Any:
    found: list[Any] = []

    async def is_settled() -> bool:
        found[:] = [await ask()]
        answer = found[0].job.state if name == "state" else found[0].status
        return answer in ended

    await eventually(is_settled, what="the job to end")
    return found[0]


def chat(text: str, *, model: str = "words", max_tokens: int = 4) -> bytes:
    message = orchion.ChatMessage(role="user", content=text)
    return orchion.ChatCompletionRequest(
        model=model, messages=[message] if text else [], max_tokens=max_tokens
    ).SerializeToString()


async def test_a_job_is_submitted_followed_and_listed(person: object, start: OpenSite, tmp_path: Path) -> None:
    async with site_with_node(start, tmp_path) as site, local_channel(site) as channel:
        jobs = OURS(channel)
        made = await jobs.SubmitJob(pb.SubmitJobRequest(id="one", spec=ECHO))
        assert (made.job.id, made.job.site, made.job.created_by) == ("one", "home", "local")
        again = await jobs.SubmitJob(pb.SubmitJobRequest(id="one", spec=ECHO))
        assert again.job.created_unix_ms == made.job.created_unix_ms, "the same id is the same job"
        ended = await settled(lambda: jobs.GetJob(pb.GetJobRequest(id="one")), "state", {"COMPLETED"})
        assert (ended.output, ended.job.node, ended.job.has_exit_code, ended.job.exit_code) == (
            "echo hi\n",
            "n1",
            True,
            0,
        )
        assert 0 < ended.job.created_unix_ms <= ended.job.started_unix_ms <= ended.job.finished_unix_ms
        late = await jobs.CancelJob(pb.CancelJobRequest(id="one"))
        assert late.job.state == "COMPLETED", "what has ended stays as it is"
        sleeping = pb.JobSpec(image="app:1", environment={"HOMEPORT_NULL_SECONDS": "60"})
        await jobs.SubmitJob(pb.SubmitJobRequest(id="two", spec=sleeping))
        await settled(lambda: jobs.GetJob(pb.GetJobRequest(id="two")), "state", {"RUNNING"})
        await jobs.CancelJob(pb.CancelJobRequest(id="two"))
        await settled(lambda: jobs.GetJob(pb.GetJobRequest(id="two")), "state", {"CANCELLED"})
        listed = await jobs.ListJobs(pb.ListJobsRequest(limit=10))
        assert [job.id for job in listed.jobs] == ["two", "one"]
        asked = pb.JobInference(model="words", prompt="red blue", max_tokens=2, seed=7)
        made = await jobs.SubmitJob(pb.SubmitJobRequest(id="poem", spec=pb.JobSpec(inference=asked)))
        assert (made.job.spec.type, made.job.spec.inference.seed) == ("inference", 7)
        answered = await settled(lambda: jobs.GetJob(pb.GetJobRequest(id="poem")), "state", {"COMPLETED"})
        assert (answered.output, answered.job.node) == ("red blue \n", "")
        failed = await jobs.ListJobs(pb.ListJobsRequest(states=["CANCELLED"]))
        assert [job.id for job in failed.jobs] == ["two"]
        alias = await THEIRS(channel).GetJobStatus(orchion.GetJobStatusRequest(job_id="one"))
        assert (alias.status, alias.assigned_node, alias.result) == (orchion.JOB_STATUS_COMPLETED, "n1", b"echo hi\n")
        gone = await THEIRS(channel).GetJobStatus(orchion.GetJobStatusRequest(job_id="two"))
        assert (gone.status, gone.error_message) == (orchion.JOB_STATUS_FAILED, "cancelled by local")
        never = pb.JobSpec(
            image="app:1", memory_bytes=2**20 * 512, retries=1, environment={"HOMEPORT_NULL_EXIT": "1"}
        )
        await jobs.SubmitJob(pb.SubmitJobRequest(id="three", spec=never))
        url = f"http://127.0.0.1:{site.http_port}/metrics"
        async with aiohttp.ClientSession(headers=local_key(site)) as session, session.get(url) as got:
            text = await got.text()
        assert 'homeport_job_results_total{outcome="completed"} 2.0' in text
        assert 'homeport_job_results_total{outcome="cancelled"} 1.0' in text
        assert "homeport_job_run_seconds_count 3.0" in text
        states = [int(count) for count in re.findall(r'^homeport_jobs{state="[A-Z]+"} (\d+)', text, re.M)]
        assert sum(states) == 1, "the third has another attempt"
        url = f"http://127.0.0.1:{site.http_port}/api/v1/jobs/two/why"
        async with aiohttp.ClientSession(headers=local_key(site)) as session, session.get(url) as got:
            why = await got.json()
        assert (why["kind"], why["state"]) == ("job", "CANCELLED")
        assert why["chain"][-1]["what"] == "nothing: it is CANCELLED, cancelled by local"
        url = f"http://127.0.0.1:{site.http_port}/api/v1/audit"
        async with aiohttp.ClientSession(headers=local_key(site)) as session, session.get(url) as got:
            trail = [(each["action"], each["target"], each["actor"]) for each in (await got.json())["entries"]]
        assert {("jobs.submit", "two", "local"), ("jobs.cancel", "two", "local")} <= set(trail)


def bad_calls() -> Iterator[tuple[str, Any, str, str]]:
    huge = pb.JobSpec(image="app:1", memory_bytes=2**50)
    yield "SubmitJob", pb.SubmitJobRequest(), "INVALID_ARGUMENT", "spec"
    yield "SubmitJob", pb.SubmitJobRequest(spec=pb.JobSpec()), "INVALID_ARGUMENT", "command"
    yield "SubmitJob", pb.SubmitJobRequest(spec=pb.JobSpec(type="opera")), "INVALID_ARGUMENT", "spec.type"
    yield "SubmitJob", pb.SubmitJobRequest(id="a b", spec=ECHO), "INVALID_ARGUMENT", "id"
    yield "SubmitJob", pb.SubmitJobRequest(id="x" * 201, spec=ECHO), "INVALID_ARGUMENT", "id"
    yield "SubmitJob", pb.SubmitJobRequest(spec=pb.JobSpec(image="app:1", selector="=")), "INVALID_ARGUMENT", ""
    yield "SubmitJob", pb.SubmitJobRequest(spec=pb.JobSpec(image="app:1", retries=-1)), "INVALID_ARGUMENT", "retries"
    nan = pb.JobSpec(image="app:1", cpu_cores=float("nan"))
    yield "SubmitJob", pb.SubmitJobRequest(spec=nan), "INVALID_ARGUMENT", "cpu"
    yield "SubmitJob", pb.SubmitJobRequest(spec=huge), "FAILED_PRECONDITION", "n1"
    missing = pb.JobSpec(image="app:1", node="n9")
    yield "SubmitJob", pb.SubmitJobRequest(spec=missing), "FAILED_PRECONDITION", "n1"
    yield "SubmitJob", pb.SubmitJobRequest(site="cabin", spec=ECHO), "INVALID_ARGUMENT", "site"
    yield "GetJob", pb.GetJobRequest(), "INVALID_ARGUMENT", "id"
    yield "GetJob", pb.GetJobRequest(id="nothing"), "NOT_FOUND", "nothing"
    yield "CancelJob", pb.CancelJobRequest(), "INVALID_ARGUMENT", "id"
    yield "CancelJob", pb.CancelJobRequest(id="nothing"), "NOT_FOUND", "nothing"
    yield "ListJobs", pb.ListJobsRequest(limit=-1), "INVALID_ARGUMENT", "limit"
    yield "ListJobs", pb.ListJobsRequest(limit=1001), "INVALID_ARGUMENT", "limit"
    yield "ListJobs", pb.ListJobsRequest(states=["SLEEPY"]), "INVALID_ARGUMENT", "states"


def bad_orchion_calls() -> Iterator[tuple[Any, str, str]]:
    submit, kind = orchion.SubmitJobRequest, orchion.JOB_TYPE_CHAT_COMPLETION
    yield submit(job_type=kind, payload=chat("hi")), "INVALID_ARGUMENT", "job_id"
    yield submit(job_id="x" * 201, job_type=kind, payload=chat("hi")), "INVALID_ARGUMENT", "job_id"
    yield submit(job_id="a", payload=chat("hi")), "INVALID_ARGUMENT", "job_type"
    yield submit(job_id="a", job_type=9, payload=chat("hi")), "INVALID_ARGUMENT", "job_type"  # type: ignore[arg-type]
    yield submit(job_id="a", job_type=kind, payload=b"\xff\xff"), "INVALID_ARGUMENT", "payload"
    yield submit(job_id="a", job_type=kind, payload=chat("hi", model="")), "INVALID_ARGUMENT", "payload.model"
    yield submit(job_id="a", job_type=kind, payload=chat("")), "INVALID_ARGUMENT", "payload.messages"
    yield submit(job_id="a", job_type=kind, payload=chat("x", max_tokens=-1)), "INVALID_ARGUMENT", "max_tokens"
    yield submit(job_id="a", job_type=kind, payload=chat("x" * 1_100_000)), "INVALID_ARGUMENT", "prompt"
    yield submit(job_id="a", job_type=kind, payload=chat("hi", model="nothing")), "NOT_FOUND", "nothing"
    empty = orchion.EmbeddingRequest(model="words").SerializeToString()
    yield submit(job_id="a", job_type=orchion.JOB_TYPE_EMBEDDINGS, payload=empty), "INVALID_ARGUMENT", "payload.input"


async def test_bad_input_gets_its_status_and_names_the_field(person: object, start: OpenSite, tmp_path: Path) -> None:
    async with site_with_node(start, tmp_path) as site, local_channel(site) as channel:
        for call, request, code, words in bad_calls():
            found, details = await refusal(getattr(OURS(channel), call)(request))
            assert (found, words in details) == (code, True), (call, request, details)
        for request, code, words in bad_orchion_calls():
            found, details = await refusal(THEIRS(channel).SubmitJob(request))
            assert (found, words in details) == (code, True), (details, found)
        large = pb.SubmitJobRequest(spec=pb.JobSpec(image="app:1", environment={"X": "x" * (5 * 2**20)}))
        assert (await refusal(OURS(channel).SubmitJob(large)))[0] == "RESOURCE_EXHAUSTED"
        assert not (await OURS(channel).ListJobs(pb.ListJobsRequest())).jobs, "nothing of it was taken"
        await OURS(channel).SubmitJob(pb.SubmitJobRequest(id="one", spec=ECHO))
        other = pb.SubmitJobRequest(id="one", spec=pb.JobSpec(image="app:2"))
        assert (await refusal(OURS(channel).SubmitJob(other)))[0] == "FAILED_PRECONDITION"
        async with grpc.aio.insecure_channel(f"127.0.0.1:{site.grpc_port}") as open_channel:
            keyless = await refusal(OURS(open_channel).ListJobs(pb.ListJobsRequest()))
            assert (keyless[0], "authorization" in keyless[1]) == ("UNAUTHENTICATED", True)
            keyless = await refusal(THEIRS(open_channel).GetJobStatus(orchion.GetJobStatusRequest(job_id="one")))
            assert (keyless[0], "authorization" in keyless[1]) == ("UNAUTHENTICATED", True)


async def test_a_client_of_orchion_submits_inference_and_gets_its_result(
    person: object, start: OpenSite, tmp_path: Path
) -> None:
    """Without credentials, on the port that the operator opened; its results survive a restart."""
    chatting = orchion.SubmitJobRequest(
        job_id="my chat", job_type=orchion.JOB_TYPE_CHAT_COMPLETION, payload=chat("red blue")
    )
    request = orchion.EmbeddingRequest(model="words", input=["a", "four"])
    embedding = orchion.SubmitJobRequest(
        job_id="numbers", job_type=orchion.JOB_TYPE_EMBEDDINGS, payload=request.SerializeToString()
    )
    opened = {"orchion_address": "127.0.0.1:0", "orchion_anonymous": True}
    ends = {orchion.JOB_STATUS_COMPLETED, orchion.JOB_STATUS_FAILED}

    def status_of(stub: Any, job_id: str) -> Callable[[], Awaitable[Any]]:
        return lambda: stub.GetJobStatus(orchion.GetJobStatusRequest(job_id=job_id))

    async with (
        site_with_node(start, tmp_path, **opened) as site,
        grpc.aio.insecure_channel(f"127.0.0.1:{site.orchion_port}") as channel,
        local_channel(site) as ours,
    ):
        stub = THEIRS(channel)
        for each in (chatting, embedding):
            assert (await submitted(stub, each)).status == orchion.JOB_STATUS_PENDING
        ended = await settled(status_of(stub, "my chat"), "status", ends)
        assert (ended.status, ended.assigned_node) == (orchion.JOB_STATUS_COMPLETED, "default/r0"), ended
        said = orchion.ChatCompletionResponse.FromString(ended.result)
        assert (said.id, said.model, said.choices[0].message.content) == (
            "my chat",
            "words",
            "user: red blue assistant: ",
        )
        await stub.SubmitJob(chatting)
        twice = orchion.SubmitJobRequest(job_id="my chat", job_type=chatting.job_type, payload=chat("green"))
        assert await refusal(stub.SubmitJob(twice)) == (
            "FAILED_PRECONDITION",
            'There is already a job "my chat" with another request. Choose another id.',
        )
        typed = orchion.SubmitJobRequest(job_id="my chat", job_type=embedding.job_type, payload=embedding.payload)
        assert (await refusal(stub.SubmitJob(typed)))[0] == "FAILED_PRECONDITION"
        await settled(status_of(stub, "numbers"), "status", ends)
        await OURS(ours).SubmitJob(pb.SubmitJobRequest(id="secret-job", spec=ECHO))
        assert (await refusal(status_of(stub, "secret-job")()))[0] == "NOT_FOUND", "only what came through this port"
    async with (
        site_with_node(start, tmp_path, **opened) as site,
        grpc.aio.insecure_channel(f"127.0.0.1:{site.orchion_port}") as channel,
    ):
        ended = await settled(status_of(THEIRS(channel), "numbers"), "status", ends)
        found = orchion.EmbeddingResponse.FromString(ended.result)
        assert [(each.index, list(each.embedding)) for each in found.data] == [(0, [1.0, 1.0]), (1, [4.0, 1.0])]
        assert (found.model, ended.assigned_node) == ("words", "default/r0")


async def test_central_serves_the_same_calls(tmp_path: Path) -> None:
    """A job waits there for its site; a node that no site has is named."""
    async with (
        running_central(tmp_path / "central", grpc_address="127.0.0.1:0") as (central, client),
        local_channel(central) as channel,
    ):
        jobs, home = OURS(channel), FakeSite(client)
        none = await refusal(jobs.SubmitJob(pb.SubmitJobRequest(spec=ECHO)))
        assert none[0] == "FAILED_PRECONDITION"
        await home.join()
        await home.say(node_changed("node-a"))
        made = await jobs.SubmitJob(pb.SubmitJobRequest(id="one", spec=ECHO))
        assert (made.job.site, made.job.state, made.job.reason) == ("home", "PENDING", "waits for its site")
        overview = (await client.get("/api/v1/overview")).body
        assert (overview["jobs"], overview["nodes"]["live"]) == ({"PENDING": 1, "ASSIGNED": 0, "RUNNING": 0}, 1)
        away = await refusal(jobs.SubmitJob(pb.SubmitJobRequest(site="cabin", spec=ECHO)))
        assert away == ("NOT_FOUND", 'There is no site "cabin".')
        lost = await refusal(jobs.SubmitJob(pb.SubmitJobRequest(spec=pb.JobSpec(image="app:1", node="n9"))))
        assert lost[0] == "FAILED_PRECONDITION"
        huge = await refusal(jobs.SubmitJob(pb.SubmitJobRequest(spec=pb.JobSpec(image="app:1", memory_bytes=2**40))))
        assert (huge[0], "node-a" in huge[1]) == ("FAILED_PRECONDITION", True)
        asked = pb.JobSpec(inference=pb.JobInference(model="words", prompt="red"))
        old = await refusal(jobs.SubmitJob(pb.SubmitJobRequest(spec=asked)))
        assert (old[0], "upgrade it first" in old[1]) == ("FAILED_PRECONDITION", True), "it would refuse the job"
        bind_engine(central.parts.inference)
        submit = orchion.SubmitJobRequest(
            job_id="chat", job_type=orchion.JOB_TYPE_CHAT_COMPLETION, payload=chat("red")
        )
        await submitted(THEIRS(channel), submit)
        ended = await settled(
            lambda: THEIRS(channel).GetJobStatus(orchion.GetJobStatusRequest(job_id="chat")),
            "status",
            {orchion.JOB_STATUS_COMPLETED, orchion.JOB_STATUS_FAILED},
        )
        assert ended.status == orchion.JOB_STATUS_COMPLETED, ended
        pools = (await client.get("/v2/pools?limit=1000")).body["pools"]
        assert [each["pool_id"] for each in pools] == ["default"], "as completion asks for them"
        waiting = await THEIRS(channel).GetJobStatus(orchion.GetJobStatusRequest(job_id="one"))
        assert waiting.status == orchion.JOB_STATUS_PENDING
