"""`/v1` with the official client, unchanged, against the real llama.cpp."""

import json
import socket
import uuid
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import openai
import pytest
from aiohttp import web
from yarl import URL

from homeport.central.app import CentralApp
from homeport.core.inference.engines.handoff import EngineName, HandoffModel
from homeport.core.inference.settings import InferenceSettings
from tests.integration.inference.conftest import TASK, bind, handoff
from tests.support.engines_on_wire import Break, serve_broken, served
from tests.support.llama_server import llama_server
from tests.support.local import local_key
from tests.support.running_central import Client, running_central
from tests.support.tiny_model import write_tiny_model
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio
HELLO: list[Any] = [{"role": "user", "content": "Hello"}]


@pytest.fixture
async def sdk(empty: tuple[CentralApp, Client], client: Client) -> AsyncIterator[openai.AsyncOpenAI]:
    key = local_key(empty[0])["Authorization"].removeprefix("Bearer ")
    async with openai.AsyncOpenAI(base_url=f"{client.url}/v1", api_key=key, max_retries=0) as sdk:
        yield sdk


async def test_the_official_client_chats(sdk: openai.AsyncOpenAI) -> None:
    answer = await sdk.chat.completions.create(model="tiny", messages=HELLO, max_tokens=5)
    assert answer.choices[0].finish_reason in {"length", "stop"}, "its weights are random: it may end by itself"
    assert answer.usage is not None
    assert 1 <= answer.usage.completion_tokens <= 5


async def test_the_official_client_streams_and_sees_usage_only_when_it_asks(
    sdk: openai.AsyncOpenAI, client: Client
) -> None:
    stream = await sdk.chat.completions.create(model="tiny", messages=HELLO, max_tokens=5, stream=True)
    chunks = [chunk async for chunk in stream]
    assert chunks[-1].choices[0].finish_reason in {"length", "stop"}
    assert all(chunk.usage is None for chunk in chunks)
    queue = await client.get("/v2/queue")
    (request,) = (each for each in queue.body["placed"] if each["task_id"] == stream.response.headers["x-task-id"])
    assert request["running"] is False
    why = (await client.get(f"/v2/tasks/{request['task_id']}/why")).body
    assert (why["state"], why["placement"]) == ("ended", request["why"])
    asked = await sdk.chat.completions.create(
        model="tiny", messages=HELLO, max_tokens=5, stream=True, stream_options={"include_usage": True}
    )
    last = [chunk async for chunk in asked][-1]
    assert last.usage is not None
    assert 1 <= last.usage.completion_tokens <= 5


async def test_the_official_client_streams_responses_and_what_they_used_is_counted(
    sdk: openai.AsyncOpenAI, client: Client
) -> None:
    """Their stream ends without the last word of a completion, and names its usage in another way."""
    stream = await sdk.responses.create(model="tiny", input="Hello", max_output_tokens=4, stream=True)
    events = [event async for event in stream]
    last = events[-1]
    assert last.type == "response.completed"
    assert last.response.usage is not None
    whole = await sdk.responses.create(model="tiny", input="Hello", max_output_tokens=4)
    assert whole.usage is not None

    async def usage() -> Any:
        return (await client.get("/v2/usage")).body["usage"]

    (row,) = await eventually(usage, what="usage to be written")
    used = (last.response.usage, whole.usage)
    assert row["tokens_in"] == sum(each.input_tokens for each in used)
    assert row["tokens_out"] == sum(each.output_tokens for each in used)


async def test_completions_and_models(sdk: openai.AsyncOpenAI) -> None:
    answer = await sdk.completions.create(model="tiny", prompt="Once", max_tokens=3)
    assert answer.usage is not None
    assert 1 <= answer.usage.completion_tokens <= 3
    assert [model.id async for model in sdk.models.list()] == ["tiny"]
    assert (await sdk.models.retrieve("tiny")).id == "tiny"


async def test_texts_are_embedded_by_the_official_client_and_by_a_task(
    empty: tuple[CentralApp, Client], tmp_path: Path
) -> None:
    central, client = empty
    key = local_key(central)["Authorization"].removeprefix("Bearer ")
    with llama_server(write_tiny_model(tmp_path / "tiny.gguf"), slots=1, embeds=True) as (address, _):
        started = {"provisioning_mode": "package", "flags": ("--embeddings", "--pooling", "mean")}
        await bind(client, central, handoff(address, slots_total=1, **started))
        async with openai.AsyncOpenAI(base_url=f"{client.url}/v1", api_key=key, max_retries=0) as sdk:
            found = await sdk.embeddings.create(model="tiny", input=["one", "two"])
        assert [len(each.embedding) for each in found.data] == [64, 64]
        assert found.usage.prompt_tokens > 0
        many = ["two " * 60, *["one " * 60] * 23]
        task = {**TASK, "workload": "embedding", "inputs": many, "prompt": "", "task_id": str(uuid.uuid4())}
        assert sum(map(len, many)) > 4 * 1024, "together more than the context, which each fits"
        admitted = await client.post("/v2/tasks", task)
        assert admitted.status == 202, admitted.body
        events = [each async for each in client.events(admitted.body["streams"]["sse"])]
        assert [each.event for each in events].count("token") == 24, events[-1].data
        too_long = await client.post("/v2/tasks", {**task, "inputs": ["x" * 5000], "task_id": str(uuid.uuid4())})
        assert (too_long.status, too_long.body["code"]) == (400, "INVALID_PARAMS")
        assert "Send it in parts" in too_long.body["message"]
        task = {**TASK, "workload": "embedding", "inputs": ["one", "two"], "prompt": ""}
        admitted = await client.post("/v2/tasks", task)
        events = [each async for each in client.events(admitted.body["streams"]["sse"])]
        vectors = [json.loads(each.data["t"]) for each in events if each.event == "token"]
        assert [len(vector) for vector in vectors] == [64, 64]
        assert vectors[0] == pytest.approx(found.data[0].embedding, rel=1e-4)
        assert events[-1].event == "end"


async def test_documents_are_ranked_by_v1_and_by_a_task(empty: tuple[CentralApp, Client], model_file: Path) -> None:
    """Both pass on what the real engine says, each with its usage."""
    central, client = empty
    query, documents = "one", ["two three", "one", "four"]
    with llama_server(model_file, slots=1, ranks=True) as (address, _):
        started = {"provisioning_mode": "package", "flags": ("--reranking",)}
        await bind(client, central, handoff(address, slots_total=1, **started))
        async with client.session.post(f"{address}/v1/rerank", json={"query": query, "documents": documents}) as own:
            expected = {each["index"]: each["relevance_score"] for each in (await own.json())["results"]}
        asked = {"model": "tiny", "query": query, "documents": documents}
        answer = await client.post("/v1/rerank", asked)
        assert answer.status == 200, answer.body
        scores = {each["index"]: each["relevance_score"] for each in answer.body["results"]}
        assert scores == pytest.approx(expected, rel=1e-4)
        assert set(scores) == {0, 1, 2}
        assert answer.body["usage"]["prompt_tokens"] > 0
        admitted = await client.post(
            "/v2/tasks", {**TASK, "workload": "rerank", "inputs": documents, "prompt": query}
        )
        events = [each async for each in client.events(admitted.body["streams"]["sse"])]
        ranked = [float(each.data["t"]) for each in events if each.event == "token"]
        assert ranked == pytest.approx([expected[index] for index in range(3)], rel=1e-4)
        assert events[-1].event == "end"
        used = (await client.get("/v2/usage")).body["usage"]
        assert [(each["model"], each["requests"]) for each in used] == [("tiny", 2)]


async def test_errors_have_openais_shape(sdk: openai.AsyncOpenAI, client: Client) -> None:
    with pytest.raises(openai.NotFoundError) as unknown:
        await sdk.chat.completions.create(model="gpt-9", messages=HELLO)
    assert unknown.value.code == "model_not_found"
    with pytest.raises(openai.AuthenticationError):
        await sdk.with_options(api_key="wrong").models.list()
    with pytest.raises(openai.BadRequestError):
        await sdk.post("/chat/completions", body={"messages": []}, cast_to=object)
    broken = await client.call(
        "POST", "/v1/chat/completions", data=b"\xff{", headers={"Content-Type": "application/json"}
    )
    assert broken.status == 400
    assert broken.body["error"]["type"] == "invalid_request_error"
    with pytest.raises(openai.BadRequestError) as refused:
        await sdk.post("/chat/completions", body={"model": "tiny", "messages": "Hello"}, cast_to=object)
    assert (refused.value.code, refused.value.param) == ("invalid_params", None), "the engine says it in other words"
    assert "messages" in refused.value.message


async def test_what_cannot_be_looked_up_is_404(sdk: openai.AsyncOpenAI, client: Client) -> None:
    with pytest.raises(openai.NotFoundError):
        await sdk.files.list()
    with pytest.raises(openai.NotFoundError):
        await sdk.responses.retrieve("resp_1")
    gone = await client.get("/v1/replicasets")
    assert (gone.status, gone.body["error"]["code"]) == (404, "not_found")


async def test_what_curl_sends_without_a_content_type_is_read_as_json_and_a_form_needs_its_model(
    client: Client,
) -> None:
    body = json.dumps({"model": "tiny", "prompt": "Once", "max_tokens": 2}).encode()
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    assert (await client.call("POST", "/v1/completions", data=body, headers=form)).status == 200
    upload = {"Content-Type": "multipart/form-data; boundary=x"}
    without = await client.call("POST", "/v1/audio/transcriptions", data=b"--x--\r\n", headers=upload)
    assert (without.status, "field model" in without.body["error"]["message"]) == (400, True)
    part = b'--x\r\nContent-Disposition: form-data; name="model"\r\n\r\nnone-such\r\n--x--\r\n'
    unknown = await client.call("POST", "/v1/audio/transcriptions", data=part, headers=upload)
    assert (unknown.status, unknown.body["error"]["code"]) == (404, "model_not_found")


async def test_other_paths_of_the_engine_are_passed_through(client: Client) -> None:
    answer = await client.post("/v1/messages/count_tokens", {"model": "tiny", "messages": HELLO})
    assert answer.status in {200, 404}  # as this build of the engine has it
    tokenized = await client.post("/v1/nothing-like-this", {"model": "tiny"})
    assert tokenized.status == 404


@pytest.mark.parametrize(
    "path", ["../props", "%2e%2e/props", "%2E%2E%2Fslots/0", "./x", "x%3Faction=erase", "x%23y", "/x"]
)
async def test_no_path_leads_out_of_what_an_engine_offers_to_everybody(
    empty: tuple[CentralApp, Client], path: str
) -> None:
    """An engine has no access control of its own: whoever may chat must not reach what changes it."""
    central, client = empty
    asked: list[str] = []

    async def handle(request: web.Request) -> web.Response:
        asked.append(f"{request.method} {request.raw_path}")
        return web.json_response({"data": [{"id": "m"}]})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    async with served(app) as url:
        await bind(client, central, handoff(url, engine=EngineName.OPENAI, model=HandoffModel("m")))
        target = URL(f"{client.url}/v1/{path}", encoded=True)
        headers = {"content-type": "application/json"}
        async with client.session.post(target, data=b'{"model": "m"}', headers=headers) as answer:
            assert answer.status == 400
    assert not [each for each in asked if each.startswith("POST")]


@pytest.mark.parametrize("prompt", [5, None, True, {}])
async def test_a_prompt_that_is_no_text_is_refused(empty: tuple[CentralApp, Client], prompt: Any) -> None:
    central, client = empty
    await bind(client, central, handoff("http://fake.invalid", engine=EngineName.FAKE, model=HandoffModel("m")))
    answer = await client.post("/v1/completions", {"model": "m", "prompt": prompt})
    assert (answer.status, answer.body["error"]["message"]) == (400, "prompt must be a text.")


async def test_usage_is_counted_by_key(sdk: openai.AsyncOpenAI, client: Client) -> None:
    await sdk.chat.completions.create(model="tiny", messages=HELLO, max_tokens=5)

    async def usage() -> Any:
        return (await client.get("/v2/usage")).body["usage"]

    (row,) = await eventually(usage, what="usage to be written")
    assert (row["key"], row["model"], row["requests"], row["tokens_out"]) == ("local", "tiny", 1, 5)
    assert row["tokens_in"] > 0


async def test_the_queue_says_who_waits_and_what_was_placed_where_and_why(empty: tuple[CentralApp, Client]) -> None:
    central, client = empty
    async with serve_broken(Break.HANGS) as engine:
        await bind(client, central, engine.handoff())
        body = json.dumps({"model": "m", "messages": HELLO}).encode()
        with _raw_request(client, central, "/v1/chat/completions", body):
            await eventually(lambda: engine.running == 1, what="the engine to be asked")
            with _raw_request(client, central, "/v1/chat/completions", body):
                await eventually(lambda: _depth(client, 1), what="the second to wait")
                found = (await client.get("/v2/queue")).body
                (waits,) = found["waiting"]
                assert (waits["position"], waits["priority"], waits["from"]) == (1, "interactive", "local")
                why = (await client.get(f"/v2/tasks/{waits['task_id']}/why")).body
                assert (why["state"], why["queue_position"]) == ("active", 0)
                assert why["waits_for"] == waits["why"] == "All slots of pool default are in use, 1 of 1."
                (placed,) = found["placed"]
                assert placed["why"].startswith(f"placed on {placed['pool_id']}/{placed['replica_id']}")


@pytest.mark.parametrize("is_stream", [True, False])
async def test_each_decision_is_narrated_without_what_was_asked(
    client: Client, caplog: pytest.LogCaptureFixture, *, is_stream: bool
) -> None:
    caplog.set_level("INFO", logger="homeport.inference")
    asked = [{"role": "user", "content": "my-secret-prompt"}]
    wanted = {"model": "tiny", "messages": asked, "max_tokens": 3, "stream": is_stream}
    assert (await client.post("/v1/chat/completions", wanted)).status == 200
    lines = [record for record in caplog.records if record.getMessage().startswith("task ")]
    started = ["task started"] if is_stream else []
    assert [line.getMessage() for line in lines] == ["task admitted", "task placed", *started, "task ended"]
    fields = [line.__dict__["fields"] for line in lines]
    assert len({each["job_id"] for each in fields}) == 1
    assert (fields[0]["route"], fields[-1]["tokens_out"]) == ("/v1/chat/completions", 3)
    assert "my-secret-prompt" not in json.dumps([line.__dict__ for line in caplog.records], default=str)


async def test_what_the_engine_refuses_is_narrated_as_an_error_and_not_as_a_cancel(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="homeport.inference")
    assert (await client.post("/v1/chat/completions", {"model": "tiny", "messages": "x"})).status == 400
    (ended,) = [each.__dict__["fields"] for each in caplog.records if each.getMessage() == "task ended"]
    assert (ended["action"], ended["canceled"], ended["code"]) == ("end", False, "INVALID_PARAMS")


async def test_a_follower_of_the_queue_hears_when_it_changed(client: Client) -> None:
    async with aclosing(client.events("/v2/queue/events")) as frames:
        assert (await anext(frames)).event == "changed", "what there is now"
        await client.post("/v1/chat/completions", {"model": "tiny", "messages": HELLO, "max_tokens": 2})
        told = await anext(frames)
        assert (told.event, told.data) == ("changed", {})


async def test_sessions_and_artifacts_are_listed_with_a_bound(sdk: openai.AsyncOpenAI, client: Client) -> None:
    made = await client.post("/v2/artifacts", {"kind": "plan", "content": {"text": "hi"}})
    listed = (await client.get("/v2/artifacts?limit=1")).body["artifacts"]
    assert [each["id"] for each in listed] == [made.body["id"]]
    assert (await client.get("/v2/sessions")).body == {"sessions": []}
    for path in ("/v2/sessions", "/v2/artifacts"):
        assert (await client.get(f"{path}?limit=0")).body["code"] == "INVALID_PARAMS"
        assert (await client.get(f"{path}?limit=many")).status == 400


# --- clients that go away, and engines that fail ------------------------------------------------------------------


@pytest.mark.parametrize("is_stream", [True, False])
async def test_a_vanished_client_frees_the_slot(empty: tuple[CentralApp, Client], *, is_stream: bool) -> None:
    """The engine never answers, so that only the cancellation can free its slot."""
    central, client = empty
    async with serve_broken(Break.HANGS) as engine:
        await bind(client, central, engine.handoff())
        body = json.dumps({"model": "m", "messages": HELLO, "stream": is_stream}).encode()
        with _raw_request(client, central, "/v1/chat/completions", body):
            await eventually(lambda: engine.running == 1, what="the engine to be asked")
        with anyio.fail_after(30):
            await engine.cancelled.wait()
        await eventually(lambda: _idle(client), what="the slot to be free")
        (row,) = (await client.get("/v2/usage")).body["usage"]
        assert (row["requests"], row["tokens_in"], row["tokens_out"]) == (1, 3, 0), "what the engine was given"


async def test_a_client_that_goes_while_it_waits_leaves_the_queue(empty: tuple[CentralApp, Client]) -> None:
    central, client = empty
    async with serve_broken(Break.HANGS) as engine:
        await bind(client, central, engine.handoff())
        body = json.dumps({"model": "m", "messages": HELLO}).encode()
        with _raw_request(client, central, "/v1/chat/completions", body):
            await eventually(lambda: engine.running == 1, what="the engine to be asked")
            with _raw_request(client, central, "/v1/chat/completions", body):
                await eventually(lambda: _depth(client, 1), what="the second to wait")
            await eventually(lambda: _depth(client, 0), what="the second to leave the queue")
            assert engine.running == 1


@pytest.mark.parametrize("is_stream", [True, False])
async def test_a_request_takes_no_longer_than_a_task_may(tmp_path: Path, *, is_stream: bool) -> None:
    """Neither in the engine nor in the queue: an engine that says something now and then would keep its slot."""
    settings = InferenceSettings(wall_seconds=1.0)
    async with (
        serve_broken(Break.HANGS) as engine,
        running_central(tmp_path / "central", inference=settings) as (central, client),
    ):
        await bind(client, central, engine.handoff())
        asked = {"model": "m", "messages": HELLO, "stream": is_stream}
        answers: list[Any] = []

        async def ask() -> None:
            answers.append(await client.post("/v1/chat/completions", asked))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await eventually(lambda: engine.running == 1, what="the engine to be asked")
            tasks.start_soon(ask)
        said = {(each.status, each.body["error"]["code"]) for each in answers}
        assert said in ({(504, "decode_timeout")}, {(504, "decode_timeout"), (503, "replica_exhausted")})
        await eventually(lambda: _idle(client), what="the slot to be free")
        await eventually(lambda: engine.running == 0, what="the engine to hear of it")


async def test_an_answer_that_has_begun_takes_no_longer_either(tmp_path: Path) -> None:
    settings = InferenceSettings(wall_seconds=1.0)
    async with (
        serve_broken(Break.STALLS_IN_THE_MIDDLE) as engine,
        running_central(tmp_path / "central", inference=settings) as (central, client),
    ):
        await bind(client, central, engine.handoff())
        answer = await client.post("/v1/chat/completions", {"model": "m", "messages": HELLO, "stream": True})
        last = [line for line in answer.body.split("\n\n") if line][-1]
        assert json.loads(last.removeprefix("data: "))["error"]["code"] == "decode_timeout"


@pytest.mark.parametrize("how", [Break.SENDS_ELSEWHERE, Break.WRONG_JSON])
async def test_what_an_engine_answers_instead_of_an_answer_is_its_failure(
    empty: tuple[CentralApp, Client], how: Break
) -> None:
    central, client = empty
    async with serve_broken(how) as engine:
        await bind(client, central, engine.handoff())
        answer = await client.post("/v1/chat/completions", {"model": "m", "messages": HELLO})
        assert (answer.status, answer.body["error"]["code"]) == (502, "worker_reset")


@pytest.mark.parametrize("how", [Break.ANSWERS_500, Break.CLOSES_AT_ONCE, Break.GARBAGE])
async def test_another_replica_answers_when_one_fails_before_the_first_token(
    empty: tuple[CentralApp, Client], llama: str, how: Break
) -> None:
    central, client = empty
    async with serve_broken(how) as broken:
        await bind(client, central, broken.handoff(replica_id="a", model="tiny"), handoff(llama, replica_id="b"))
        for _ in range(4):
            answer = await client.post(
                "/v1/chat/completions", {"model": "tiny", "messages": HELLO, "max_tokens": 2, "stream": True}
            )
            assert answer.status == 200, answer.body
            assert "[DONE]" in answer.body
            assert "error" not in answer.body


async def test_an_engine_that_dies_in_the_middle_ends_the_stream_with_an_error(
    empty: tuple[CentralApp, Client],
) -> None:
    central, client = empty
    async with serve_broken(Break.DIES_IN_THE_MIDDLE) as engine:
        await bind(client, central, engine.handoff())
        answer = await client.post("/v1/chat/completions", {"model": "m", "messages": HELLO, "stream": True})
        assert answer.status == 200
        lines = [line for line in answer.body.split("\n\n") if line]
        assert json.loads(lines[-1].removeprefix("data: "))["error"]["code"] == "worker_reset"
        assert "[DONE]" not in answer.body
        await eventually(lambda: _idle(client), what="the slot to be free")


class _raw_request:  # noqa: N801 - used like a function
    """A request on a socket of its own, which is cut at the end."""

    def __init__(self, client: Client, central: CentralApp, path: str, body: bytes) -> None:
        address = urlsplit(client.url)
        key = local_key(central)["Authorization"]
        head = f"POST {path} HTTP/1.1\r\nHost: {address.netloc}\r\nAuthorization: {key}\r\n"
        self._bytes = f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
        self._address = (address.hostname or "", address.port or 0)

    def __enter__(self) -> None:
        self._socket = socket.create_connection(self._address)
        self._socket.sendall(self._bytes)

    def __exit__(self, *error: object) -> None:
        self._socket.close()


async def _idle(client: Client) -> bool:
    return bool((await client.get("/v2/pools/default")).body["metrics"]["active_leases"] == 0)


async def _depth(client: Client, wanted: int) -> bool:
    return bool((await client.get("/v2/pools/default")).body["metrics"]["queue_depth"] == wanted)
