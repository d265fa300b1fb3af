"""What a caller gets whose rights end during a response, at each of its moments. Nothing is logged as a fault."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import anyio.lowlevel
import pytest
from starlette.routing import BaseRoute
from starlette.types import Receive, Scope, Send

from homeport.adapters.store.open import open_store
from homeport.adapters.system import SystemClock
from homeport.core.access.actions import Action, Audit, Level
from homeport.core.access.actions import Scope as Reach
from homeport.core.model.caller import INTERNAL, Role
from homeport.identity.accepted_clients import AcceptedClients
from homeport.identity.audit import open_auditor
from homeport.identity.tokens import Tokens
from homeport.ports import Store
from homeport.serving.capability import Routes
from homeport.serving.middleware.authentication import REVOKED, Authenticator
from homeport.serving.middleware.guards import GuardSettings
from homeport.serving.routes.health import Metrics
from homeport.serving.routing import RawRoute, Router
from homeport.serving.server.limits import Limits
from homeport.serving.server.run import Stopping, bind, http_server
from homeport.serving.web import build_web

pytestmark = pytest.mark.anyio

READ = Action("things.read", Level.VIEWER, Reach.NONE, Audit.NONE)
CHANGE = Action("things.change", Level.VIEWER, Reach.NONE, Audit.WAIT)


class Answering:
    """Begins a response, ends the caller's rights at its moment `when`, and goes on as if nothing had happened."""

    def __init__(self) -> None:
        self.authenticator: Authenticator
        self.key = ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        when, _, length = scope["query_string"].decode().partition("&length=")
        headers = [(b"content-type", b"text/plain")] + ([(b"content-length", length.encode())] if length else [])
        for moment, message in (
            ("before", {"type": "http.response.start", "status": 200, "headers": headers}),
            ("begun", {"type": "http.response.body", "body": b"one", "more_body": True}),
            ("part", {"type": "http.response.body", "body": b"two", "more_body": False}),
            ("complete", None),
        ):
            if moment == when:
                self._end_rights()
                if scope["method"] == "GET":
                    await anyio.lowlevel.checkpoint()
            if message is not None:
                await send(message)
        await anyio.lowlevel.checkpoint()

    def _end_rights(self) -> None:
        """As a revocation by somebody else does; `end` would spare the request that it is called in."""
        for request in self.authenticator._open[self.key]:
            request.end(REVOKED)


@asynccontextmanager
async def serving(tmp_path: Path) -> AsyncIterator[tuple[str, aiohttp.ClientSession, Store]]:
    clock, answering = SystemClock(), Answering()
    async with open_store(str(tmp_path / "role.db")) as store, open_auditor(store, clock) as auditor:
        authenticator = Authenticator(Tokens(store, clock), AcceptedClients(), clock)
        created = await authenticator.tokens.create(INTERNAL, name="somebody", role=Role.VIEWER)
        answering.authenticator, answering.key = authenticator, created.token.id
        router = Router()
        routes: list[BaseRoute] = [
            RawRoute("/thing", answering, methods=["GET", "POST"], operation={"operationId": "thing"})
        ]
        router.routes.extend(routes)
        app = build_web(
            role="test",
            description="",
            routes=[Routes(router, {("GET", "/thing"): READ, ("POST", "/thing"): CHANGE})],
            metrics=Metrics("test", store, clock),
            guards=GuardSettings(),
            auditor=auditor,
            authenticator=authenticator,
        )
        listener = bind("127.0.0.1", 0)
        async with (
            http_server(app, [listener], Stopping(), limits=Limits()),
            aiohttp.ClientSession(headers={"Authorization": f"Bearer {created.text}"}) as session,
        ):
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/thing", session, store


@pytest.mark.parametrize(
    ("query", "status", "body"),
    [
        ("before", 401, None),
        ("begun", 200, b""),
        ("part", 200, b"one"),
        ("complete", 200, b"onetwo"),
        ("complete&length=6", 200, b"onetwo"),
    ],
)
async def test_a_response_ends_where_the_rights_ended(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, query: str, status: int, body: bytes | None
) -> None:
    async with serving(tmp_path) as (url, session, _), session.get(f"{url}?{query}") as answer:
        assert answer.status == status
        content = await answer.read()
        assert content == body or (body is None and b"revoked" in content)
    assert faults(caplog) == []


async def test_a_response_of_known_length_ends_with_its_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path) as (url, session, _), session.get(f"{url}?part&length=6") as answer:
        with pytest.raises(aiohttp.ClientPayloadError):
            await answer.read()
    assert faults(caplog) == []


async def test_a_change_that_was_made_is_recorded_and_answered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its entry is written while the response waits: the rights end at that moment."""
    async with serving(tmp_path) as (url, session, store), session.post(f"{url}?begun") as answer:
        assert answer.status == 200
        async with store.read() as reader:
            entries = await reader.audit(after=0, limit=100)
        assert [each.entry.action for each in entries] == ["things.change"]
    assert faults(caplog) == []


def faults(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
