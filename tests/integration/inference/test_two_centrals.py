"""Two centrals on one PostgreSQL: each runs its own tasks, leaves the other's alone while that one lives, and adopts
them when it is gone."""

import time
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest
from aiohttp import web

from homeport.adapters.git import create_bare
from homeport.central.app import CentralApp, open_central
from homeport.central.settings import CentralSettings
from homeport.core.inference.settings import InferenceSettings
from homeport.core.model.caller import INTERNAL, Role
from tests.integration.inference.conftest import TASK, bind, handoff
from tests.support.postgres import PostgresServer
from tests.support.running_central import Client
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio
LEASE_SECONDS = 1.0


@asynccontextmanager
async def stalling_engine() -> AsyncIterator[str]:
    """Healthy, and never gets to a token."""

    async def answer(request: web.Request) -> web.Response:
        if request.path == "/completion":
            await anyio.sleep_forever()
        return web.json_response({"status": "ok"}, status=200 if request.path == "/health" else 404)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def a_central(folder: Path, name: str, store_url: str, **more: Any) -> AsyncIterator[CentralApp]:
    settings = CentralSettings(
        data=folder / name,
        store_url=store_url,
        git_url=str(folder / "deployments.git"),
        keys=folder / "keys",
        http_address=("127.0.0.1", 0),
        grpc_address=None,
        lease_seconds=LEASE_SECONDS,
        allowed_hosts=("127.0.0.1",),
        **more,
    )
    async with open_central(settings) as central:
        yield central


def a_task() -> dict[str, Any]:
    return {**TASK, "task_id": str(uuid.uuid4()), "session_id": str(uuid.uuid4())}


async def test_a_central_runs_its_own_tasks_and_adopts_those_of_one_that_is_gone(
    tmp_path: Path, postgres: PostgresServer, llama: str
) -> None:
    name = await postgres.copy_database()
    create_bare(tmp_path / "deployments.git", "main")
    async with AsyncExitStack() as stack:
        stack.push_async_callback(postgres.drop_database, name)
        url = postgres.url(name)
        stalled = await stack.enter_async_context(stalling_engine())
        session = await stack.enter_async_context(aiohttp.ClientSession())
        other = await stack.enter_async_context(a_central(tmp_path, "other", url))
        made = await other.parts.authenticator.tokens.create(INTERNAL, name="ada", role=Role.ADMIN)
        session.headers["Authorization"] = f"Bearer {made.text}"
        at_other = Client(f"http://127.0.0.1:{other.http_port}", session)
        running, waiting = a_task(), a_task()
        async with a_central(tmp_path, "one", url) as one:
            at_one = Client(f"http://127.0.0.1:{one.http_port}", session)
            await bind(at_one, one, handoff(stalled, slots_total=1))
            await bind(at_other, other, handoff(llama))
            for task in (running, waiting):
                assert (await at_one.post("/v2/tasks", task)).status == 202
            # The other one looks several times, and leaves both alone.
            await anyio.sleep(2 * LEASE_SECONDS)
            for path in ("events", "why"):
                elsewhere = await at_other.get(f"/v2/tasks/{waiting['task_id']}/{path}")
                assert (elsewhere.status, elsewhere.body["retriable"]) == (503, True), elsewhere.body
            cancelled = await at_other.post(f"/v2/tasks/{waiting['task_id']}/cancel", {})
            assert (cancelled.status, "another replica" in cancelled.body["message"]) == (503, True)
            again = await at_other.post("/v2/tasks", waiting)
            assert (again.status, again.body["task_id"]) == (202, waiting["task_id"]), "the answer it has had"

        async def ended(task: dict[str, Any]) -> str:
            answer = await at_other.call("GET", f"/v2/tasks/{task['task_id']}/events")
            return str(answer.body) if answer.status == 200 else ""

        said = await eventually(lambda: ended(waiting), what="the waiting task to be run by the other central")
        assert '"tokens_out":8' in said.replace(" ", "") and "event: end" in said
        lost = await eventually(lambda: ended(running), what="the running task to be ended")
        assert "WORKER_RESET" in lost and '"retriable": true' in lost.replace('":true', '": true')


async def test_limits_of_a_key_and_budgets_of_a_session_hold_for_both(
    tmp_path: Path, postgres: PostgresServer, llama: str
) -> None:
    name = await postgres.copy_database()
    create_bare(tmp_path / "deployments.git", "main")
    limits = InferenceSettings(key_requests_per_minute=60, session_tokens_max=20)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(postgres.drop_database, name)
        session = await stack.enter_async_context(aiohttp.ClientSession())
        at: list[Client] = []
        for each in ("one", "other"):
            central = await stack.enter_async_context(a_central(tmp_path, each, postgres.url(name), inference=limits))
            if not at:
                made = await central.parts.authenticator.tokens.create(INTERNAL, name="ada", role=Role.ADMIN)
                session.headers["Authorization"] = f"Bearer {made.text}"
            at.append(Client(f"http://127.0.0.1:{central.http_port}", session))
            await bind(at[-1], central, handoff(llama))

        first = {**a_task(), "max_tokens": 15}
        assert (await at[0].post("/v2/tasks", first)).status == 202
        path = f"/v2/sessions/{first['session_id']}"

        async def left() -> bool:
            return bool((await at[1].get(path)).body.get("tokens_budget_remaining") == 5)

        await eventually(left, what="the other central to know what the session has spent")
        second = {**a_task(), "session_id": first["session_id"], "max_tokens": 6}
        refused = await at[1].post("/v2/tasks", second)
        assert (refused.status, refused.body["code"]) == (400, "INVALID_PARAMS")
        assert "budget of 5 tokens left" in refused.body["message"]

        began, admitted = time.monotonic(), [0, 0]
        for index, client in enumerate(at):
            for _ in range(30):
                answer = await client.post("/v2/tasks", {**a_task(), "max_tokens": 1})
                if answer.status != 202:
                    assert (answer.status, answer.body["policy_label"]) == (429, "key.rate"), answer.body
                    break
                admitted[index] += 1
        # Ten seconds' worth at once, one a second, and what the news of the last ones takes.
        assert sum(admitted) <= 10 + (time.monotonic() - began) + 2, admitted
        assert admitted[0] >= 8, admitted


async def test_a_session_cannot_promise_its_budget_twice_nor_get_it_anew_from_a_central_that_starts(
    tmp_path: Path, postgres: PostgresServer, llama: str
) -> None:
    name = await postgres.copy_database()
    create_bare(tmp_path / "deployments.git", "main")
    limits = InferenceSettings(session_tokens_max=20)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(postgres.drop_database, name)
        url = postgres.url(name)
        stalled = await stack.enter_async_context(stalling_engine())
        session = await stack.enter_async_context(aiohttp.ClientSession())
        one = await stack.enter_async_context(a_central(tmp_path, "one", url, inference=limits))
        made = await one.parts.authenticator.tokens.create(INTERNAL, name="ada", role=Role.ADMIN)
        session.headers["Authorization"] = f"Bearer {made.text}"
        at_one = Client(f"http://127.0.0.1:{one.http_port}", session)
        await bind(at_one, one, handoff(stalled))
        running = {**a_task(), "max_tokens": 15}
        assert (await at_one.post("/v2/tasks", running)).status == 202

        other = await stack.enter_async_context(a_central(tmp_path, "other", url, inference=limits))
        at_other = Client(f"http://127.0.0.1:{other.http_port}", session)
        await bind(at_other, other, handoff(llama))

        async def is_known() -> bool:
            path = f"/v2/sessions/{running['session_id']}"
            return bool((await at_other.get(path)).body.get("turns") == 1)

        await eventually(is_known, what="a central that starts later to know the session")
        second = {**a_task(), "session_id": running["session_id"], "max_tokens": 6}
        refused = await at_other.post("/v2/tasks", second)
        assert (refused.status, refused.body["code"]) == (400, "INVALID_PARAMS"), refused.body
        assert "20 tokens left, 15 of them for tasks under way" in refused.body["message"]
        assert (await at_other.post("/v2/tasks", {**second, "max_tokens": 5})).status == 202
        assert (await at_one.post(f"/v2/tasks/{running['task_id']}/cancel", {})).status == 204

        async def is_free() -> bool:
            again = {**a_task(), "session_id": running["session_id"], "max_tokens": 15}
            return (await at_other.post("/v2/tasks", again)).status == 202

        await eventually(is_free, what="what a cancelled task has not used to be free again")


async def test_what_one_central_drains_or_retires_holds_at_the_others(
    tmp_path: Path, postgres: PostgresServer, llama: str
) -> None:
    name = await postgres.copy_database()
    create_bare(tmp_path / "deployments.git", "main")
    async with AsyncExitStack() as stack:
        stack.push_async_callback(postgres.drop_database, name)
        url = postgres.url(name)
        stalled = await stack.enter_async_context(stalling_engine())
        session = await stack.enter_async_context(aiohttp.ClientSession())
        two = await stack.enter_async_context(a_central(tmp_path, "two", url))
        made = await two.parts.authenticator.tokens.create(INTERNAL, name="ada", role=Role.ADMIN)
        session.headers["Authorization"] = f"Bearer {made.text}"
        at_two = Client(f"http://127.0.0.1:{two.http_port}", session)
        await bind(at_two, two, handoff(stalled), handoff(llama, pool_id="other"))
        async with a_central(tmp_path, "one", url) as one:
            at_one = Client(f"http://127.0.0.1:{one.http_port}", session)
            await bind(at_one, one, handoff(stalled))
            await _drained_at_one_is_drained_at_two(at_one, at_two)
            await _retired_at_one_is_refused_at_two(at_one, at_two)

        async with a_central(tmp_path, "three", url) as three:
            at_three = Client(f"http://127.0.0.1:{three.http_port}", session)
            pools = three.parts.inference.pools
            assert pools is not None
            pools.bind(handoff(stalled))
            await eventually(lambda: _is_idle_and_drained(at_three), what="a central that starts later to know it")
            assert (await at_three.delete("/v2/pools/default/drain")).status == 202

        async def takes_tasks() -> bool:
            return (await at_two.get("/v2/pools/default/health")).body["ready"] is True

        await eventually(takes_tasks, what="the other central to hear that the drain was taken back")


PINNED = {"placement": {"mode": "pin", "pin_pool_id": "default"}}


async def _is_idle_and_drained(at: Client) -> bool:
    health = (await at.get("/v2/pools/default/health")).body
    return bool(health.get("draining")) and not health["metrics"]["active_leases"]


async def _drained_at_one_is_drained_at_two(at_one: Client, at_two: Client) -> None:
    running = {**a_task(), **PINNED}
    assert (await at_two.post("/v2/tasks", running)).status == 202
    assert (await at_one.post("/v2/pools/default/drain", {"deadline_ms": 0})).status == 202
    await eventually(
        lambda: _is_idle_and_drained(at_two), what="the other central to drain it, and to end what runs there"
    )
    ended = await at_two.get(f"/v2/tasks/{running['task_id']}/events")
    assert '"canceled":true' in ended.body.replace(" ", "")
    refused = await at_two.post("/v2/tasks", {**a_task(), **PINNED})
    assert (refused.status, refused.body["code"]) == (503, "POOL_UNREADY")
    assert (await at_two.post("/v2/tasks", a_task())).status == 202, "there is another pool"


async def _retired_at_one_is_refused_at_two(at_one: Client, at_two: Client) -> None:
    added = await at_one.post("/v2/catalog/models", {"id": "tiny", "source_url": "hf:org/repo/tiny.gguf"})
    assert added.status == 201, added.body
    assert (await at_two.get("/v2/catalog/models/tiny")).body["source_url"] == "hf:org/repo/tiny.gguf"
    assert (await at_two.post("/v2/tasks", a_task())).status == 202
    assert (await at_one.post("/v2/catalog/models/tiny/state", {"state": "Retired"})).status == 202

    async def is_refused() -> bool:
        answer = await at_two.post("/v2/tasks", a_task())
        return answer.status == 400 and answer.body["code"] == "MODEL_DEPRECATED"

    await eventually(is_refused, what="the other central to hear of it")
    assert (await at_two.delete("/v2/catalog/models/tiny")).status == 204
    assert (await at_one.get("/v2/catalog/models")).body["models"] == []
