"""What a client that asks for too much, reads too slowly or guesses is told, over HTTP."""

import asyncio
import json
import re
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import pytest
from aiohttp import web
from prometheus_client.parser import text_string_to_metric_families

from homeport.adapters.engine.fake import FakeEngine, Faults
from homeport.central.app import CentralApp
from homeport.core.inference.breaker import FAILURES_MAX
from homeport.core.inference.engines.handoff import EngineName, HandoffModel
from homeport.core.inference.queue import FullPolicy
from homeport.core.inference.settings import InferenceSettings
from homeport.inference.pools.registry import PoolRegistry
from tests.integration.inference.conftest import TASK, bind, handoff
from tests.support.contract import CheckedClient
from tests.support.engines_on_wire import Break, serve_broken, served
from tests.support.local import local_key
from tests.support.running_central import Client, running_central
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio
CHUNK = b'data: {"choices":[{"index":0,"text":"' + b"x" * 4096 + b'"}]}\n\n'


def a_task(**changes: Any) -> dict[str, Any]:
    ids = {"task_id": str(uuid.uuid4()), "session_id": str(uuid.uuid4())}
    return {**TASK, "engine": "openai", "model_ref": "m", **ids, **changes}


@asynccontextmanager
async def central_with(folder: Path, **settings: Any) -> AsyncIterator[tuple[CentralApp, Client]]:
    given = InferenceSettings(**settings)
    async with running_central(folder / "central", inference=given) as (app, client):
        yield app, CheckedClient(client.url, client.session)


async def fill(app: CentralApp, client: Client, url: str) -> None:
    """The only slot is taken, and one task of the lower priority waits."""
    await bind(client, app, handoff(url, engine=EngineName.OPENAI, model=HandoffModel("m"), slots_total=1))
    assert (await client.post("/v2/tasks", a_task())).status == 202


async def test_a_full_queue_rejects_with_the_time_to_wait(tmp_path: Path) -> None:
    async with central_with(tmp_path, queue_capacity=1) as (app, client), serve_broken(Break.HANGS) as engine:
        before = await counted(client)
        await fill(app, client, engine.url)
        late = await client.post("/v2/tasks", a_task(deadline_ms=1))
        assert (late.status, late.body["code"]) == (400, "DEADLINE_UNMET"), "no slot will be free in time"
        waiting = a_task(priority="batch")
        assert (await client.post("/v2/tasks", waiting)).status == 202
        refused = await client.post("/v2/tasks", a_task())
        body = refused.body
        assert (refused.status, body["code"]) == (429, "ADMISSION_REJECT")
        assert (body["policy_label"], body["retriable"]) == ("reject", True)
        assert int(refused.headers["X-Backoff-Ms"]) == body["retry_after_ms"] >= 1
        assert int(refused.headers["Retry-After"]) == max(1, -(-body["retry_after_ms"] // 1000))
        chat = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
        as_openai = await client.post("/v1/chat/completions", chat)
        assert (as_openai.status, as_openai.body["error"]["type"]) == (429, "rate_limit_error")
        assert as_openai.headers["Retry-After"]
        assert (await counted(client)) - before == {
            ("tasks_enqueued_total", "openai", "default", "r0", "interactive"): 1,
            ("tasks_enqueued_total", "openai", "default", "r0", "batch"): 1,
            ("tasks_started_total", "openai", "default", "r0", "interactive"): 1,
            ("tasks_rejected_total", "openai", "DEADLINE_UNMET"): 1,
            ("tasks_rejected_total", "openai", "ADMISSION_REJECT"): 1,
            ("tasks_rejected_total", "", "ADMISSION_REJECT"): 1,
            ("queue_depth", "openai", "default", "batch"): 1,
        }
        assert (await client.post(f"/v2/tasks/{waiting['task_id']}/cancel", None)).status == 204

        async def is_counted() -> bool:
            now = await counted(client)
            canceled = now["tasks_canceled_total", "openai", "default", "r0", "client"]
            return (canceled, now["queue_depth", "openai", "default", "batch"]) == (1, 0)

        await eventually(is_counted, what="the cancel to be counted where the task was")


async def counted(client: Client) -> Counter[tuple[str, ...]]:
    """What the page of metrics counts of tasks, by its labels, without versions of engines."""
    found: Counter[tuple[str, ...]] = Counter()
    for family in text_string_to_metric_families(str((await client.get("/metrics")).body)):
        for sample in family.samples:
            if re.fullmatch("tasks_[a-z]+_total|queue_depth", sample.name):
                order = ("engine", "pool_id", "replica_id", "priority", "reason")
                labels = (sample.labels[name] for name in order if name in sample.labels)
                found[sample.name, *labels] += int(sample.value)
    return found


async def test_a_pool_is_unready_and_says_why_until_its_engine_has_its_model_and_when_it_has_failed(
    tmp_path: Path,
) -> None:
    status = 503

    async def answer(request: web.Request) -> web.Response:
        if request.path == "/health":
            said = {} if status == 200 else {"error": {"code": status, "message": "Loading model"}}
            return web.json_response(said, status=status)
        props = {"total_slots": 1, "default_generation_settings": {"n_ctx": 512}, "data": [{"id": "tiny"}]}
        return web.json_response(props if request.path in {"/props", "/v1/models"} else [])

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    async with central_with(tmp_path, health_seconds=0.05) as (central, client), served(app) as url:
        pools = central.parts.inference.pools
        assert isinstance(pools, PoolRegistry)
        pools.bind(handoff(url))

        async def told() -> tuple[bool, bool, bool]:
            health = (await client.get("/v2/pools/default/health")).body
            return health["live"], health["ready"], "503: Loading model" in (health["last_error"] or "")

        async def is_told(*wanted: bool) -> bool:
            return await told() == wanted

        for status, wanted in ((503, (True, False, True)), (200, (True, True, False)), (503, (True, False, True))):
            await eventually(partial(is_told, *wanted), what=f"its health after {status}")
            admitted = await client.post("/v2/tasks", {**a_task(), "engine": "llamacpp", "model_ref": "tiny"})
            refused = (503, "POOL_UNREADY") if status == 503 else (202, None)
            assert (admitted.status, admitted.body.get("code")) == refused


async def test_a_worker_is_registered_only_where_the_fake_engine_is_allowed(tmp_path: Path) -> None:
    async with central_with(tmp_path, allow_fake=True) as (_, client):
        answer = await client.post("/v2/workers/register", {"pool_id": "dev"})
        assert (answer.status, answer.body["ok"], answer.body["identity"]) == (200, True, "localhost")
        assert (answer.body["pool_id"], answer.body["replica_id"]) == ("dev", "r0")

        async def is_ready() -> bool:
            return bool((await client.get("/v2/pools/dev/health")).body["ready"])

        await eventually(is_ready, what="the fake engine to be ready")
        admitted = await client.post("/v2/tasks", a_task(engine="fake", model_ref="fake"))
        assert [each async for each in client.events(admitted.body["streams"]["sse"])][-1].event == "end"
        wrong = await client.post("/v2/workers/register", {}, headers={"Authorization": "Bearer wrong"})
        assert wrong.status == 401
        purged = await client.post("/v2/pools/dev/purge", {"purge_engine": True})
        assert (purged.status, purged.body["code"]) == (409, "CONFLICT"), "it was not deployed from here"
        assert (await client.get("/v2/pools/dev/health")).body["draining"] is False
        assert (await client.post("/v2/pools/nowhere/purge", {})).status == 404
        assert (await client.post("/v2/pools/dev/purge", {"force": 5})).status == 400
    async with central_with(tmp_path / "other") as (_, client):
        assert (await client.post("/v2/workers/register", {})).body["code"] == "INVALID_PARAMS"


@pytest.mark.parametrize(
    ("faults", "code", "is_retriable", "status"),
    [
        (Faults(hangs_before_first=True), "DECODE_TIMEOUT", True, None),
        (Faults(dies_after=2), "WORKER_RESET", True, 502),
        (Faults(has_bug=True), "INTERNAL", False, 500),
    ],
)
async def test_what_goes_wrong_in_an_engine_ends_the_stream_with_its_code(
    tmp_path: Path, faults: Faults, code: str, status: int | None, *, is_retriable: bool
) -> None:
    """Nothing follows the error, and nobody learns what a fault of ours was."""
    async with central_with(tmp_path, allow_fake=True, idle_seconds=0.3) as (app, client):
        assert (await client.post("/v2/workers/register", {})).status == 200
        pools = app.parts.inference.pools
        assert isinstance(pools, PoolRegistry)
        (replica,) = pools.replicas()
        assert isinstance(replica.engine, FakeEngine)
        await eventually(lambda: replica.ready, what="the fake engine to be ready")
        replica.engine.faults = faults
        admitted = await client.post("/v2/tasks", a_task(engine="fake", model_ref="fake"))
        assert admitted.status == 202
        events = [each async for each in client.events(admitted.body["streams"]["sse"])]
        assert [each.event for each in events if each.event not in {"token", "metrics"}] == ["started", "error"]
        assert (events[-1].data["code"], events[-1].data["retriable"]) == (code, is_retriable)
        assert "a fault of ours" not in str(events[-1].data)
        if status is not None:
            as_openai = await client.post("/v1/completions", {"model": "fake", "prompt": "x", "max_tokens": 9})
            assert (as_openai.status, as_openai.body["error"]["type"]) == (status, "server_error")
            assert "a fault of ours" not in str(as_openai.body)


async def test_a_silent_engine_is_a_timeout_and_a_fault_of_ours_an_internal_error_of_any_route(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with central_with(tmp_path, idle_seconds=0.3) as (app, client), serve_broken(Break.HANGS) as engine:
        await bind(client, app, engine.handoff())
        silent = await client.post("/v1/completions", {"model": "m", "prompt": "x"})
        assert (silent.status, silent.body["error"]["code"]) == (504, "decode_timeout")

        def fail(*arguments: Any, **options: Any) -> None:
            raise RuntimeError("a fault of ours")

        monkeypatch.setattr(PoolRegistry, "health", fail)
        broken = await client.get("/v2/pools/default/health")
        assert (broken.status, broken.body["code"], broken.body["retriable"]) == (500, "INTERNAL", False)
        assert "a fault of ours" not in broken.body["message"]


@pytest.mark.parametrize("is_stream", [True, False])
async def test_a_drain_ends_requests_of_v1_at_its_deadline_and_says_so(tmp_path: Path, *, is_stream: bool) -> None:
    how = Break.STALLS_IN_THE_MIDDLE if is_stream else Break.HANGS
    async with central_with(tmp_path) as (app, client), serve_broken(how) as engine:
        await bind(client, app, engine.handoff())
        answers: list[tuple[int, str]] = []

        async def ask() -> None:
            body = {"model": "m", "prompt": "x", "stream": is_stream}
            async with client.session.post(f"{client.url}/v1/completions", json=body) as answer:
                answers.append((answer.status, (await answer.text()).strip().splitlines()[-1].removeprefix("data: ")))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await eventually(lambda: engine.running == 1, what="the engine to be asked")
            assert (await client.post("/v2/pools/default/drain", {"deadline_ms": 50})).status == 202
            with anyio.fail_after(30):
                await engine.cancelled.wait()
        ((status, said),) = answers
        assert (status, json.loads(said)["error"]["code"]) == (200 if is_stream else 503, "pool_unready")
        health = (await client.get("/v2/pools/default/health")).body
        assert (health["draining"], health["metrics"]["active_leases"]) == (True, 0)


@pytest.mark.parametrize("is_canceled", [True, False])
async def test_whether_a_closed_stream_cancels_its_task_can_be_chosen(tmp_path: Path, *, is_canceled: bool) -> None:
    async with (
        central_with(tmp_path, cancel_on_disconnect=is_canceled) as (app, client),
        serve_broken(Break.STALLS_IN_THE_MIDDLE) as engine,
    ):
        await bind(client, app, engine.handoff())
        admitted = await client.post("/v2/tasks", a_task())
        async with client.session.get(client.url + admitted.body["streams"]["sse"]) as answer:
            await answer.content.readany()
            await eventually(lambda: engine.running == 1, what="the engine to be asked")
            answer.close()
        if is_canceled:
            with anyio.fail_after(30):
                await engine.cancelled.wait()
        else:
            await anyio.sleep(0.3)
            assert engine.running == 1
            assert (await client.post(f"/v2/tasks/{admitted.body['task_id']}/cancel", None)).status == 204


async def test_a_task_ends_with_the_last_of_its_readers_and_not_with_one_who_only_looks(tmp_path: Path) -> None:
    async with central_with(tmp_path) as (app, client), serve_broken(Break.STALLS_IN_THE_MIDDLE) as engine:
        await bind(client, app, engine.handoff())
        made = await client.post("/api/v1/tokens", {"name": "ann", "role": "viewer"})
        ann = {"Authorization": f"Bearer {made.body['token']}"}
        admitted = await client.post("/v2/tasks", a_task(), headers=ann)
        stream = client.url + admitted.body["streams"]["sse"]
        async with client.session.get(stream, headers=ann) as last:
            await last.content.readuntil(b"event: token")
            for headers in (ann, {}):  # another of hers, and an operator's
                async with client.session.get(stream, headers=headers) as other:
                    await other.content.readuntil(b"event: token")
                    other.close()
            await anyio.sleep(0.3)
            assert engine.running == 1, "she still reads"
            last.close()
        with anyio.fail_after(30):
            await engine.cancelled.wait()


async def test_where_nothing_may_wait_a_task_without_a_slot_is_told_so(tmp_path: Path) -> None:
    async with central_with(tmp_path, queue_capacity=0) as (app, client), serve_broken(Break.HANGS) as engine:
        await fill(app, client, engine.url)
        refused = await client.post("/v2/tasks", a_task())
        assert (refused.status, refused.body["code"]) == (503, "REPLICA_EXHAUSTED")
        assert refused.body["retriable"] is True
        assert int(refused.headers["Retry-After"]) >= 1
        as_openai = await client.post("/v1/completions", {"model": "m", "prompt": "x"})
        assert (as_openai.status, as_openai.body["error"]["code"]) == (503, "replica_exhausted")


@pytest.mark.parametrize(
    ("how", "status", "code", "words"),
    [
        (Break.IS_FULL, 503, "REPLICA_EXHAUSTED", "overloaded"),
        (Break.LACKS_IT, 400, "INVALID_PARAMS", "no embeddings here"),
        (Break.SENDS_ELSEWHERE, 502, "WORKER_RESET", "answered 302"),
    ],
)
async def test_an_engine_that_is_full_or_lacks_something_stays_there_for_others(
    tmp_path: Path, how: Break, status: int, code: str, words: str
) -> None:
    """Who asks for what an engine does not have must not have its breaker take it from everybody else."""
    async with central_with(tmp_path) as (app, client), serve_broken(how) as engine:
        await bind(client, app, engine.handoff())
        for _ in range(6):
            as_openai = await client.post("/v1/embeddings", {"model": "m", "input": "x"})
            assert (as_openai.status, words in as_openai.body["error"]["message"]) == (status, True)
        admitted = await client.post("/v2/tasks", a_task(workload="embedding", prompt="", inputs=["x"]))
        events = [each async for each in client.events(admitted.body["streams"]["sse"])]
        assert [each.event for each in events] == ["started", "error"]
        assert (events[1].data["code"], words in events[1].data["message"]) == (code, True)
        (replica,) = (await client.get("/v2/pools/default")).body["replicas"]
        assert (replica["circuit"], replica["ready"]) == ("closed", True)


async def test_requests_that_an_engine_fails_at_take_it_from_nobody_else(tmp_path: Path, llama: str) -> None:
    """llama.cpp answers 500 to some wrong requests: five of them had its breaker open for everybody."""
    wrong = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "tools": True, "max_tokens": 2}
    async with central_with(tmp_path) as (app, client):
        await bind(client, app, handoff(llama))
        for _ in range(FAILURES_MAX + 1):
            refused = await client.post("/v1/chat/completions", wrong)
            assert (refused.status, "tools" in refused.body["error"]["message"]) == (502, True), refused.body
        (replica,) = (await client.get("/v2/pools/default")).body["replicas"]
        assert (replica["circuit"], replica["ready"]) == ("closed", True)
        assert (await client.post("/v1/chat/completions", {**wrong, "tools": None})).status == 200


@pytest.mark.parametrize("route", ["/v1/completions", "/v2/tasks"])
async def test_an_engine_that_fails_at_what_another_can_do_gets_no_more_tasks(
    tmp_path: Path, llama: str, route: str
) -> None:
    async with central_with(tmp_path) as (app, client), serve_broken(Break.ANSWERS_500) as engine:
        good = handoff(llama, engine=EngineName.OPENAI, model=HandoffModel("m"), replica_id="z", slots_total=1)
        await bind(client, app, engine.handoff(replica_id="a"), good)

        async def ask() -> None:
            if route == "/v2/tasks":
                admitted = await client.post("/v2/tasks", a_task())
                events = [each async for each in client.events(admitted.body["streams"]["sse"])]
                assert events[-1].event == "end", events[-1].data
            else:
                answer = await client.post(route, {"model": "m", "prompt": "x", "max_tokens": 2})
                assert answer.status == 200, answer.body

        async def is_open() -> bool:
            async with anyio.create_task_group() as tasks:
                for _ in range(3):  # more than the good one has slots
                    tasks.start_soon(ask)
            replicas = (await client.get("/v2/pools/default")).body["replicas"]
            return bool(replicas[0]["circuit"] == "open")

        await eventually(is_open, what="the breaker of the broken engine to open")
        assert engine.asked >= FAILURES_MAX


async def test_with_drop_lru_the_evicted_stream_and_the_caller_that_finds_nothing_to_evict_are_told(
    tmp_path: Path,
) -> None:
    settings = {"queue_capacity": 1, "full_policy": FullPolicy.DROP_LRU}
    async with central_with(tmp_path, **settings) as (app, client), serve_broken(Break.HANGS) as engine:
        await fill(app, client, engine.url)
        dropped = (await client.post("/v2/tasks", a_task(priority="batch"))).body
        assert (await client.post("/v2/tasks", a_task())).status == 202
        events = [each async for each in client.events(dropped["streams"]["sse"])]
        assert [each.event for each in events] == ["error"], "and nothing behind it"
        assert (events[0].data["code"], events[0].data["policy_label"]) == ("QUEUE_FULL_DROP_LRU", "drop-lru")
        refused = await client.post("/v2/tasks", a_task(priority="batch"))
        assert (refused.status, refused.body["code"]) == (429, "QUEUE_FULL_DROP_LRU")
        assert (refused.body["policy_label"], refused.body["retriable"]) == ("drop-lru", True)


async def test_who_guesses_tokens_gets_the_contracts_429(tmp_path: Path) -> None:
    async with central_with(tmp_path) as (_, client):
        wrong: dict[str, str] = {}
        for _ in range(40):
            wrong = {"Authorization": f"Bearer hp_{uuid.uuid4().hex[:12]}_{uuid.uuid4().hex * 2}"}
            await client.post("/v2/tasks", a_task(), headers=wrong)
        answer = await client.post("/v2/tasks", a_task(), headers=wrong)
        assert answer.status == 429
        assert answer.body["retriable"] is True
        assert answer.body["policy_label"]
        assert int(answer.headers["X-Backoff-Ms"]) == answer.body["retry_after_ms"]


async def test_numbers_and_names_have_no_hidden_meaning(tmp_path: Path) -> None:
    async with central_with(tmp_path) as (app, client), serve_broken(Break.HANGS) as engine:
        await bind(client, app, handoff(engine.url, engine=EngineName.OPENAI, model=HandoffModel("m"), slots_total=9))
        for changes in ({"expected_tokens": 2_000_000}, {"output_mode": "unheard-of"}, {"output_mode": "json"}):
            assert (await client.post("/v2/tasks", a_task(**changes))).status == 202
        wrong = await client.post("/v2/tasks", a_task(), headers={"Authorization": "", "X-API-Key": "valid"})
        assert wrong.status == 401


@asynccontextmanager
async def endless_engine() -> AsyncIterator[tuple[str, dict[str, int]]]:
    """It streams for as long as somebody reads."""
    counts = {"running": 0, "chunks": 0}

    async def complete(request: web.Request) -> web.StreamResponse:
        await request.read()
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        counts["running"] += 1
        try:
            while True:
                await answer.write(CHUNK)
                counts["chunks"] += 1
        finally:
            counts["running"] -= 1

    async def models(request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "m"}]})

    app = web.Application()
    app.router.add_get("/v1/models", models)
    app.router.add_post("/v1/{path:.*}", complete)
    async with served(app) as url:
        yield url, counts


@pytest.mark.parametrize("route", ["/v2/tasks", "/v1/completions"])
async def test_a_reader_of_one_byte_a_second_holds_back_the_engine_and_then_loses_its_slot(
    tmp_path: Path, route: str
) -> None:
    async with (
        central_with(tmp_path, slow_client_seconds=2.0) as (app, client),
        endless_engine() as (url, counts),
    ):
        await bind(client, app, handoff(url, engine=EngineName.OPENAI, model=HandoffModel("m"), slots_total=1))
        method, path, body = "POST", route, json.dumps({"model": "m", "prompt": "x", "stream": True})
        if route == "/v2/tasks":
            admitted = await client.post("/v2/tasks", a_task())
            method, path, body = "GET", admitted.body["streams"]["sse"], ""
        address = urlsplit(client.url)
        reader, writer = await asyncio.open_connection(address.hostname, address.port, limit=1)
        head = f"{method} {path} HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Type: application/json\r\n"
        key = f"Authorization: {local_key(app)['Authorization']}\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write((head + key + body).encode())
        await eventually(lambda: counts["running"] == 1, what="the engine to be asked")
        began, slowest = time.monotonic(), 0.0
        while counts["running"] and time.monotonic() - began < 30:
            assert len(await reader.read(1)) == 1
            await anyio.sleep(1)
            asked = time.monotonic()
            assert (await client.get("/v2/pools/default/health")).body["live"]
            slowest = max(slowest, time.monotonic() - asked)
        assert counts["running"] == 0, "the slot is free again"
        assert slowest < 5, "others are answered all the time"
        assert counts["chunks"] * len(CHUNK) < 64 * 1024 * 1024, "the engine was held back, and memory stayed flat"
        writer.transport.abort()

        async def is_free() -> bool:
            return bool((await client.get("/v2/pools/default/health")).body["metrics"]["active_leases"] == 0)

        await eventually(is_free, what="the lease to end")
        page = (await client.get("/metrics")).body.splitlines()
        canceled = [line for line in page if line.startswith("tasks_canceled_total{")]
        assert [('reason="slow_client"' in line, line.rpartition(" ")[2]) for line in canceled] == [(True, "1.0")]
