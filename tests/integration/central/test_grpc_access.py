"""Central's gRPC port as a program on another machine uses it: TLS, the access tokens of the HTTP API in the
`authorization` metadata, and the same roles, limits to sites, revocation and audit trail."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import grpc
import grpc.aio
import pytest

from homeport.adapters.identity.keys import key_pem, make_csr, new_key
from homeport.cli.local.issuing import anchors_pem
from homeport.core.identity.spiffe import SERVER_NAME
from homeport.core.logs.line import LogLine, Origin, SourceKind, StoredLine
from homeport.core.model.caller import INTERNAL, Role
from homeport.vocabulary import SiteName
from homeport.wire.logs import encode_batch
from homeport.wire.orchion.v1 import orchestrator_pb2 as orchion
from homeport.wire.v1 import jobs_pb2, logs_pb2, nodes_pb2
from tests.integration.central.test_tokens import make
from tests.support.joining import Fleet, running_fleet
from tests.support.running_central import AT, FakeSite, node_changed
from tests.support.stubs import jobs_pb2_grpc, logs_pb2_grpc, nodes_pb2_grpc, orchestrator_pb2_grpc
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio

Metadata = Sequence[tuple[str, str]]
PATIENT: dict[str, Any] = {"wait_for_ready": True, "timeout": 60}
ECHO = jobs_pb2.JobSpec(image="app:1", command=["echo", "hi"])


class Program:
    """The clients of the .proto files, on one channel."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.jobs: Any = jobs_pb2_grpc.JobsStub(channel)  # type: ignore[no-untyped-call]
        self.nodes: Any = nodes_pb2_grpc.NodesStub(channel)  # type: ignore[no-untyped-call]
        self.logs: Any = logs_pb2_grpc.LogStreamerStub(channel)  # type: ignore[no-untyped-call]
        self.orchion: Any = orchestrator_pb2_grpc.OrchestratorStub(channel)  # type: ignore[no-untyped-call]
        self.orchion_logs: Any = orchestrator_pb2_grpc.LogStreamerStub(channel)  # type: ignore[no-untyped-call]


@asynccontextmanager
async def program(fleet: Fleet, **options: Any) -> AsyncIterator[Program]:
    async with certified_channel(fleet, **options) as channel:
        yield Program(channel)


@asynccontextmanager
async def certified_channel(
    fleet: Fleet, *, certificate_of: str | None = None, anchors: bytes | None = None, name: str = SERVER_NAME
) -> AsyncIterator[grpc.aio.Channel]:
    """With TLS; with a certificate of its own where one is named."""
    key, chain = None, None
    if certificate_of is not None:
        made = new_key()
        grant = await fleet.central.parts.registrar.issue(certificate_of, make_csr(made, certificate_of), INTERNAL)
        key, chain = key_pem(made), grant.svid.chain
    roots = anchors or anchors_pem(fleet.central.parts.identity.authority.bundle())
    credentials = grpc.ssl_channel_credentials(roots, key, chain)
    address, options = f"127.0.0.1:{fleet.central.grpc_port}", [("grpc.ssl_target_name_override", name)]
    async with grpc.aio.secure_channel(address, credentials, options) as channel:
        yield channel


@asynccontextmanager
async def two_sites(folder: Path, **settings: Any) -> AsyncIterator[Fleet]:
    """With one node each, and a log line."""
    async with running_fleet(folder, grpc_address="0.0.0.0:0", **settings) as fleet:
        for site, node in (("north", "n1"), ("south", "s1")):
            fake = FakeSite(fleet.client, site)
            await fake.join()
            await fake.say(node_changed(node, site))
            await send_line(fleet, site, 1)
        yield fleet


async def send_line(fleet: Fleet, site: str, number: int) -> None:
    line = LogLine(AT, SourceKind.NODE, "info", f"line {number} of {site}")
    stored = StoredLine(number, Origin("", f"{site}-node", SourceKind.NODE), line)
    await fleet.central.link.call(SiteName(site), "logs", encode_batch("b", number - 1, [stored]))


async def token(fleet: Fleet, name: str, role: str, **other: Any) -> Metadata:
    headers = await make(fleet.client, name, role, **other)
    return (("authorization", headers["Authorization"]),)


async def code_of(call: Any) -> tuple[str, str]:
    """The status with which a call is refused, and its text. A stream is refused with its first message."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        if hasattr(call, "__aiter__"):
            async for _ in call:
                pytest.fail("answered")
        else:
            await call
    return caught.value.code().name, str(caught.value.details())


def every_call(program: Program, metadata: Metadata | None) -> dict[str, Any]:
    """All that people may call."""
    chat = orchion.SubmitJobRequest(job_id="c", job_type=orchion.JOB_TYPE_CHAT_COMPLETION)
    return {
        "jobs.submit": program.jobs.SubmitJob(
            jobs_pb2.SubmitJobRequest(id="x", spec=ECHO), metadata=metadata, **PATIENT
        ),
        "jobs.cancel": program.jobs.CancelJob(jobs_pb2.CancelJobRequest(id="x"), metadata=metadata, **PATIENT),
        "jobs.read": program.jobs.GetJob(jobs_pb2.GetJobRequest(id="x"), metadata=metadata, **PATIENT),
        "jobs.read of a list": program.jobs.ListJobs(jobs_pb2.ListJobsRequest(), metadata=metadata, **PATIENT),
        "nodes.read": program.nodes.ListNodes(nodes_pb2.ListNodesRequest(), metadata=metadata, **PATIENT),
        "nodes.read of orchion": program.orchion.ListNodes(orchion.ListNodesRequest(), metadata=metadata, **PATIENT),
        "tasks.submit": program.orchion.SubmitJob(chat, metadata=metadata, **PATIENT),
        "jobs.read of orchion": program.orchion.GetJobStatus(
            orchion.GetJobStatusRequest(job_id="x"), metadata=metadata, **PATIENT
        ),
        "logs.read": program.logs.StreamLogs(logs_pb2.StreamLogsRequest(), metadata=metadata, **PATIENT),
        "logs.read of orchion": program.orchion_logs.StreamLogs(
            orchion.StreamLogsRequest(), metadata=metadata, **PATIENT
        ),
    }


async def trail(fleet: Fleet) -> list[tuple[str, str, str, str]]:
    entries = (await fleet.client.get("/api/v1/audit?limit=200")).body["entries"]
    return [(each["action"], each["target"], each["actor"], each["result"]) for each in entries]


async def test_every_call_is_refused_without_a_token_and_with_a_wrong_one(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as fleet, program(fleet) as stranger:
        for name, call in every_call(stranger, None).items():
            code, text = await code_of(call)
            assert (code, "authorization: Bearer" in text) == ("UNAUTHENTICATED", True), name
        wrong = (("authorization", "Bearer hp_00000000_" + "0" * 48),)
        for given in (wrong, (("authorization", "Basic YWRtaW46YWRtaW4="),)):
            code, _ = await code_of(stranger.jobs.ListJobs(jobs_pb2.ListJobsRequest(), metadata=given, **PATIENT))
            assert code == "UNAUTHENTICATED"
        refused = {entry[0] for entry in await trail(fleet) if entry[2:] == ("anonymous", "refused")}
        assert refused >= {"jobs.submit", "jobs.cancel", "jobs.read", "nodes.read", "tasks.submit", "logs.read"}
        address = f"127.0.0.1:{fleet.central.grpc_port}"
        async with grpc.aio.insecure_channel(address) as plain:
            code, _ = await code_of(Program(plain).jobs.ListJobs(jobs_pb2.ListJobsRequest(), timeout=30))
            assert code in {"UNAVAILABLE", "DEADLINE_EXCEEDED"}, "nothing is said without TLS"


async def test_guessing_tokens_is_slowed_down_and_a_valid_one_still_works(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as fleet, program(fleet) as stranger:
        good = await token(fleet, "anna", "viewer")

        async def is_slowed_down() -> bool:
            wrong = (("authorization", "Bearer hp_00000000_" + "0" * 48),)
            call = stranger.jobs.ListJobs(jobs_pb2.ListJobsRequest(), metadata=wrong, **PATIENT)
            return (await code_of(call))[0] == "RESOURCE_EXHAUSTED"

        await eventually(is_slowed_down, what="wrong tokens to be slowed down")
        await stranger.jobs.ListJobs(jobs_pb2.ListJobsRequest(), metadata=good, **PATIENT)


async def test_a_role_may_do_over_grpc_what_it_may_do_over_http(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as fleet, program(fleet) as anywhere:
        jobs = anywhere.jobs
        viewer, operator = await token(fleet, "vera", "viewer"), await token(fleet, "oscar", "operator")
        submit = jobs_pb2.SubmitJobRequest(id="one", site="north", spec=ECHO)
        assert await code_of(jobs.SubmitJob(submit, metadata=viewer, **PATIENT)) == (
            "PERMISSION_DENIED",
            "This needs the role operator, and vera has the role viewer. "
            "Ask an administrator for a token with this right.",
        )
        made = await jobs.SubmitJob(submit, metadata=operator, **PATIENT)
        assert (made.job.site, made.job.created_by) == ("north", "oscar")
        seen = await jobs.GetJob(jobs_pb2.GetJobRequest(id="one"), metadata=viewer, **PATIENT)
        assert seen.job.state == "PENDING"
        cancel = jobs_pb2.CancelJobRequest(id="one")
        assert (await code_of(jobs.CancelJob(cancel, metadata=viewer, **PATIENT)))[0] == "PERMISSION_DENIED"
        await jobs.CancelJob(cancel, metadata=operator, **PATIENT)
        bad = jobs_pb2.SubmitJobRequest(site="nowhere", spec=ECHO)
        assert (await code_of(jobs.SubmitJob(bad, metadata=operator, **PATIENT)))[0] == "NOT_FOUND"
        listed = await anywhere.nodes.ListNodes(nodes_pb2.ListNodesRequest(), metadata=viewer, **PATIENT)
        assert {node.id for node in listed.nodes} == {"n1", "s1"}
        alias = await anywhere.orchion.ListNodes(orchion.ListNodesRequest(), metadata=viewer, **PATIENT)
        assert {node.id for node in alias.nodes} == {"n1", "s1"}
        status = orchion.GetJobStatusRequest(job_id="one")
        assert (await anywhere.orchion.GetJobStatus(status, metadata=viewer, **PATIENT)).job_id == "one"
        entries = await trail(fleet)
        assert set(entries) >= {
            ("jobs.submit", "one", "oscar", "done"),
            ("jobs.cancel", "one", "oscar", "done"),
            ("jobs.submit", "", "vera", "refused"),
            ("jobs.cancel", "", "vera", "refused"),
            ("jobs.submit", "", "oscar", "failed"),
        }
        assert not [entry for entry in entries if entry[0] == "jobs.read"], "reading is not recorded"


async def test_a_token_for_one_site_sees_and_changes_nothing_of_another(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as fleet, program(fleet) as anywhere:
        jobs = anywhere.jobs
        admin = await token(fleet, "ada", "admin")
        south = await token(fleet, "sam", "operator", sites=["south"])
        await jobs.SubmitJob(jobs_pb2.SubmitJobRequest(id="far", site="north", spec=ECHO), metadata=admin, **PATIENT)
        code, text = await code_of(
            jobs.SubmitJob(jobs_pb2.SubmitJobRequest(site="north", spec=ECHO), metadata=south, **PATIENT)
        )
        assert (code, "limited to site south" in text) == ("PERMISSION_DENIED", True)
        own = await jobs.SubmitJob(jobs_pb2.SubmitJobRequest(id="near", spec=ECHO), metadata=south, **PATIENT)
        assert own.job.site == "south", "the only site that it may choose"
        listed = await jobs.ListJobs(jobs_pb2.ListJobsRequest(), metadata=south, **PATIENT)
        assert [job.id for job in listed.jobs] == ["near"]
        for call in (
            jobs.GetJob(jobs_pb2.GetJobRequest(id="far"), metadata=south, **PATIENT),
            jobs.CancelJob(jobs_pb2.CancelJobRequest(id="far"), metadata=south, **PATIENT),
            anywhere.orchion.GetJobStatus(orchion.GetJobStatusRequest(job_id="far"), metadata=south, **PATIENT),
        ):
            assert (await code_of(call))[0] == "NOT_FOUND"
        nodes = await anywhere.nodes.ListNodes(nodes_pb2.ListNodesRequest(), metadata=south, **PATIENT)
        assert [node.id for node in nodes.nodes] == ["s1"]
        request = logs_pb2.StreamLogsRequest(tail=100, no_follow=True)
        lines = [reply.entry.text async for reply in anywhere.logs.StreamLogs(request, metadata=south, **PATIENT)]
        assert lines == ["line 1 of south"]
        request = logs_pb2.StreamLogsRequest(tail=100, no_follow=True, site="north")
        assert not [reply async for reply in anywhere.logs.StreamLogs(request, metadata=south, **PATIENT)]


async def test_a_stream_of_logs_ends_when_its_token_is_revoked(tmp_path: Path) -> None:
    async with two_sites(tmp_path) as fleet, program(fleet) as anywhere:
        made = (await fleet.client.post("/api/v1/tokens", {"name": "vera", "role": "viewer"})).body
        metadata = (("authorization", f"Bearer {made['token']}"),)
        seen: list[str] = []
        ended: list[str] = []

        async def follow() -> None:
            try:
                request = logs_pb2.StreamLogsRequest(tail=100, site="north")
                async for reply in anywhere.logs.StreamLogs(request, metadata=metadata, wait_for_ready=True):
                    seen.append(reply.entry.text)
            except grpc.aio.AioRpcError as error:
                ended.append(f"{error.code().name} {error.details()}")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follow)
            await eventually(lambda: seen == ["line 1 of north"], what="the line from before")
            await send_line(fleet, "north", 2)
            await eventually(lambda: len(seen) == 2, what="the new line")
            assert (await fleet.client.delete(f"/api/v1/tokens/{made['id']}")).status in {200, 204}
            await eventually(lambda: bool(ended), what="the stream to end")
        assert ended[0].startswith("UNAUTHENTICATED The access token was revoked.")
        code, _ = await code_of(anywhere.jobs.ListJobs(jobs_pb2.ListJobsRequest(), metadata=metadata, **PATIENT))
        assert code == "UNAUTHENTICATED"


async def test_machines_and_people_keep_to_their_own_calls(tmp_path: Path) -> None:
    """A site's certificate runs no jobs and reads no logs; an administrator's token registers no node."""
    async with two_sites(tmp_path) as fleet, program(fleet, certificate_of="north") as machine:
        for name, call in every_call(machine, None).items():
            if name.startswith("nodes.read"):
                assert [node.id for node in (await call).nodes] == ["n1"], "its own site"
            else:
                code, text = await code_of(call)
                assert (code, "is a machine" in text) == ("PERMISSION_DENIED", True), name
        async with program(fleet) as anywhere:
            admin = await token(fleet, "ada", "admin")
            node = nodes_pb2.Node(id="new", hostname="new", capabilities=nodes_pb2.Capabilities(cpu_cores=1))
            for call in (
                anywhere.nodes.RegisterNode(nodes_pb2.RegisterNodeRequest(node=node), metadata=admin, **PATIENT),
                anywhere.nodes.UnregisterNode(
                    nodes_pb2.UnregisterNodeRequest(node_id="n1"), metadata=admin, **PATIENT
                ),
                anywhere.orchion.Heartbeat(orchion.HeartbeatRequest(node_id="n1"), metadata=admin, **PATIENT),
                anywhere.nodes.Connect(metadata=admin, **PATIENT),
            ):
                code, text = await code_of(call)
                assert (code, "is for machines" in text) == ("PERMISSION_DENIED", True)


async def test_people_are_shown_the_certificate_that_was_given_for_them(tmp_path: Path) -> None:
    async with running_fleet(tmp_path / "other") as other:
        anchors = anchors_pem(other.central.parts.identity.authority.bundle())
    folder = tmp_path / "other/central/identity/central"
    files = (folder / "chain.pem", folder / "key.pem")
    async with (
        running_fleet(tmp_path / "mine", grpc_address="0.0.0.0:0", tls_files=files) as fleet,
        program(fleet, anchors=anchors, name="localhost") as person,
        program(fleet) as machine,
    ):
        made = await fleet.central.parts.authenticator.tokens.create(INTERNAL, name="vera", role=Role.VIEWER)
        viewer = (("authorization", f"Bearer {made.text}"),)
        for each in (person, machine):
            await each.jobs.ListJobs(jobs_pb2.ListJobsRequest(), metadata=viewer, **PATIENT)
