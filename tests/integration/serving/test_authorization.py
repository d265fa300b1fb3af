"""No route is reached without a row in the table of actions, whatever kind of route it is and whoever asks."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import BaseRoute, Match, Mount, Route
from starlette.types import Receive, Scope, Send

from homeport.adapters.git import create_bare
from homeport.adapters.store.open import open_store
from homeport.adapters.system import SystemClock
from homeport.central.app import web as central_web
from homeport.core.access.actions import Action, Actions, Audit, Level
from homeport.core.access.actions import Scope as Reach
from homeport.core.model.access import AuditEntry
from homeport.core.model.caller import INTERNAL, Role
from homeport.errors import TransientError
from homeport.identity.accepted_clients import AcceptedClients
from homeport.identity.audit import Auditor, open_auditor
from homeport.identity.tokens import Tokens
from homeport.ports import Store
from homeport.serving.capability import Routes, rows_of
from homeport.serving.middleware.authentication import Authenticator
from homeport.serving.middleware.guards import GuardSettings
from homeport.serving.routes.health import Metrics
from homeport.serving.routing import Router
from homeport.serving.server.run import Stopping
from homeport.serving.web import build_web
from homeport.site.app import _web as site_web
from homeport.site.app import open_site
from homeport.site.settings import SiteSettings
from homeport.vocabulary import SiteName
from tests.support.asgi import ask
from tests.support.routes import routes_of, table_of
from tests.support.running_central import running_central
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio

READ = Action("things.read", Level.VIEWER, Reach.NONE, Audit.NONE)
HOT = Action("things.infer", Level.OPERATOR, Reach.NONE, Audit.ASYNC)
CHANGE = Action("things.change", Level.OPERATOR, Reach.NONE, Audit.WAIT)


async def raw(scope: Scope, receive: Receive, send: Send) -> None:
    await PlainTextResponse("raw")(scope, receive, send)


async def plain(request: Request) -> PlainTextResponse:
    return PlainTextResponse("plain")


@asynccontextmanager
async def serving(
    tmp_path: Path, routes: list[BaseRoute], actions: Actions
) -> AsyncIterator[tuple[FastAPI, Store, Auditor]]:
    clock = SystemClock()
    async with open_store(str(tmp_path / "role.db")) as store, open_auditor(store, clock) as auditor:
        router = Router()
        router.routes.extend(routes)
        app = build_web(
            role="test",
            description="",
            routes=[Routes(router, actions)],
            metrics=Metrics("test", store, clock),
            guards=GuardSettings(),
            auditor=auditor,
            authenticator=Authenticator(Tokens(store, clock), AcceptedClients(), clock),
        )
        yield app, store, auditor


async def token(store: Store, role: Role) -> str:
    made = await Tokens(store, SystemClock()).create(INTERNAL, name=role.value, role=role)
    return made.text


async def trail(store: Store) -> list[AuditEntry]:
    async with store.read() as reader:
        return list(await reader.audit(after=0, limit=100))


def sample(template: str) -> str:
    return re.sub(r"\{\w+(:path)?\}", "x", template)


def check_every_route(app: FastAPI) -> None:
    """Each route has its rows, each row its route, and the framework takes the route that the table means."""
    table, routes = table_of(app), routes_of(app)
    served = {row: route for route in routes for row in rows_of(route, table)}
    assert set(served) == set(table.rows)
    for (method, template), route in served.items():
        path = sample(template)
        found = table.find(method, path)
        assert found is not None
        assert found.template == template
        scope: dict[str, Any] = {"type": "http", "method": method, "path": path, "headers": []}
        taken = next(each for each in routes if each.matches(scope)[0] is Match.FULL)
        assert taken is route, (method, template)


async def test_every_route_of_central_has_its_action(tmp_path: Path) -> None:
    async with running_central(tmp_path / "central") as (central, _):
        parts = central.parts
        check_every_route(central_web(parts, Stopping(), Metrics("central", parts.store, parts.clock)))


async def test_every_route_of_a_site_has_its_action(tmp_path: Path) -> None:
    create_bare(tmp_path / "deployments.git", "main")
    settings = SiteSettings(
        name=SiteName("home"),
        data=tmp_path / "site",
        git_url=str(tmp_path / "deployments.git"),
        http_address=None,
        grpc_address=None,
    )
    async with open_site(settings) as site:
        check_every_route(site_web(site.parts, Stopping()))


@pytest.mark.parametrize(
    "route", [Route("/raw", plain), Mount("/raw", raw), Route("/raw", plain, methods=["DELETE"])]
)
async def test_a_route_without_an_action_ends_the_start(tmp_path: Path, route: BaseRoute) -> None:
    with pytest.raises(ValueError, match="routes without an action"):
        async with serving(tmp_path, [route], {}):
            pass


async def test_an_action_without_a_route_ends_the_start(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="actions without a route"):
        async with serving(tmp_path, [], {("GET", "/nothing"): READ}):
            pass


async def test_a_route_that_was_added_behind_the_table_is_served_to_nobody(tmp_path: Path) -> None:
    async with serving(tmp_path, [], {}) as (app, store, _):
        app.router.routes.append(Route("/late", plain))
        app.router.routes.append(Mount("/mounted", raw))
        admin = await token(store, Role.ADMIN)
        paths = ("/late", "/mounted/x")
        assert [(await ask(app, "GET", path, token=admin)).status for path in paths] == [404, 404]
        assert [(await ask(app, "GET", path)).status for path in paths] == [401, 401]


async def test_raw_and_mounted_routes_ask_for_the_role_of_their_row(tmp_path: Path) -> None:
    routes: list[BaseRoute] = [Route("/plain", plain), Mount("/infer", raw)]
    actions = {("GET", "/plain"): READ, ("POST", "/infer/v1/{path:path}"): HOT}
    async with serving(tmp_path, routes, actions) as (app, store, _):
        viewer, operator = await token(store, Role.VIEWER), await token(store, Role.OPERATOR)
        asked = [("", "GET", "/plain"), (viewer, "GET", "/plain"), (viewer, "POST", "/infer/v1/chat")]
        asked += [(operator, "POST", "/infer/v1/chat"), (operator, "POST", "/infer/admin")]
        asked += [(operator, "DELETE", "/infer/v1/chat")]
        answers = [(await ask(app, method, path, token=text)).status for text, method, path in asked]
        assert answers == [401, 200, 403, 200, 404, 405]
        refused = [each.entry for each in await trail(store) if each.entry.action == "things.infer"]
        assert [(entry.actor, entry.result.value) for entry in refused] == [("viewer", "refused")]


async def test_a_websocket_is_closed(tmp_path: Path) -> None:
    sent = []

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    async with serving(tmp_path, [], {}) as (app, _, _):
        await app({"type": "websocket", "path": "/", "headers": [], "scheme": "ws"}, receive, send)
    assert [message["type"] for message in sent] == ["websocket.close"]


class Stuck:
    """A database that writes only when it is let."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.free = anyio.Event()

    async def write(self, work: Any) -> Any:
        await self.free.wait()
        return await self._store.write(work)


async def test_a_hot_action_does_not_wait_for_the_disk_and_is_recorded_behind(tmp_path: Path) -> None:
    async with serving(tmp_path, [Mount("/hot", raw)], {("POST", "/hot/{path:path}"): HOT}) as (app, store, auditor):
        text = await token(store, Role.OPERATOR)
        stuck = Stuck(store)
        auditor._store = stuck  # type: ignore[assignment]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(auditor.write_behind)
            with anyio.fail_after(60):
                assert (await ask(app, "POST", "/hot/a", token=text)).status == 200
            assert await trail(store) == []
            stuck.free.set()

            async def is_recorded() -> bool:
                entries = [each.entry for each in await trail(store)]
                return [(e.action, e.actor, e.result.value, e.target) for e in entries] == [
                    ("things.infer", "operator", "done", "a")
                ]

            await eventually(is_recorded, what="the entry of a hot action")
            tasks.cancel_scope.cancel()


class Broken:
    """A database that fails as often as it is told to."""

    def __init__(self, store: Store, times: int) -> None:
        self._store = store
        self._times = times

    async def write(self, work: Any) -> Any:
        self._times -= 1
        if self._times >= 0:
            raise TransientError("The disk is full.")
        return await self._store.write(work)


async def test_what_is_recorded_behind_is_tried_again_and_written_once(tmp_path: Path) -> None:
    async with serving(tmp_path, [Mount("/hot", raw)], {("POST", "/hot/{path:path}"): HOT}) as (app, store, auditor):
        text = await token(store, Role.OPERATOR)
        auditor._store = Broken(store, 1)  # type: ignore[assignment]
        assert (await ask(app, "POST", "/hot/a", token=text)).status == 200
        with pytest.raises(TransientError):
            await auditor.write_counted()
        await auditor.write_counted()
        assert [each.entry.target for each in await trail(store)] == ["a"]


async def test_a_change_is_answered_only_when_its_entry_is_durable(tmp_path: Path) -> None:
    routes: list[BaseRoute] = [Route("/change", plain, methods=["POST"])]
    async with serving(tmp_path, routes, {("POST", "/change"): CHANGE}) as (app, store, auditor):
        text = await token(store, Role.OPERATOR)
        stuck = Stuck(store)
        auditor._store = stuck  # type: ignore[assignment]
        statuses: list[int] = []

        async def change() -> None:
            statuses.append((await ask(app, "POST", "/change", token=text)).status)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(change)
            await anyio.wait_all_tasks_blocked()
            assert statuses == []
            stuck.free.set()
        assert statuses == [200]
        assert [each.entry.action for each in await trail(store)] == ["things.change"]


@pytest.mark.parametrize("path", ["/plain\n", "/plain\x00", "/pl\x1bain"])
async def test_a_path_that_cannot_be_shown_is_malformed_and_reaches_no_route(tmp_path: Path, path: str) -> None:
    async with serving(tmp_path, [Route("/plain", plain)], {("GET", "/plain"): READ}) as (app, store, _):
        answer = await ask(app, "GET", path, token=await token(store, Role.ADMIN))
    assert answer.status == 400


async def test_two_host_headers_are_malformed(tmp_path: Path) -> None:
    async with serving(tmp_path, [], {}) as (app, _, _):
        answer = await ask(app, "GET", "/docs", headers=[("host", "evil.example"), ("host", "127.0.0.1")])
        assert answer.status == 400
        assert (await ask(app, "GET", "/docs")).status == 200


async def test_one_token_has_a_bound_on_what_it_keeps_open_and_others_are_not_harmed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("homeport.serving.middleware.authentication.OPEN_MAX", 2)
    let_go = anyio.Event()

    async def stream(scope: Scope, receive: Receive, send: Send) -> None:
        await let_go.wait()
        await PlainTextResponse("done")(scope, receive, send)

    async with serving(tmp_path, [Mount("/s", stream)], {("GET", "/s/{path:path}"): READ}) as (app, store, _):
        greedy, other = await token(store, Role.VIEWER), await token(store, Role.OPERATOR)
        statuses: dict[str, list[int]] = {greedy: [], other: []}

        async def follow(text: str) -> None:
            statuses[text].append((await ask(app, "GET", "/s/x", token=text)).status)

        async with anyio.create_task_group() as tasks:
            for text in (greedy, greedy, greedy, other):
                tasks.start_soon(follow, text)
            await eventually(lambda: statuses[greedy] == [429], what="the third of them to be refused")
            let_go.set()
        await follow(greedy)
    assert statuses == {greedy: [429, 200, 200, 200], other: [200]}
