"""Who did what: an entry of the audit trail for every change and for every refusal.

The outermost middleware, so that it sees what the guards refuse as well, and each answer as it leaves. The answer
to a change is held back until its entry is durable: whatever was acknowledged is in the trail, also after a crash
right behind it. A change that cannot be recorded is not acknowledged.

Bodies of requests, queries, tokens and secrets never get here; of an answer only a few names and ids are taken.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import anyio
import structlog
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from homeport.core.model.access import AuditResult
from homeport.core.model.caller import Caller
from homeport.errors import HomeportError
from homeport.fleet.audit import Auditor, role_of
from homeport.serving.callers import caller_of, declared_action
from homeport.serving.problems import REQUEST_ID, refusal

CHANGING: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})
REFUSED: Final = frozenset({401, 403, 421, 429})
REFUSED_CODES: Final = frozenset({"token-in-url"})
"""Refusals among the answers that otherwise only say that a request is wrong."""
ROUTINE: Final = frozenset({"sites.join", "sites.report", "sites.watch", "sites.secrets", "sites.renew", "git.nudge"})
"""What machines and Git servers say all day. It is recorded when it is refused."""
OF_THE_REGISTRAR: Final = frozenset(
    {"enrolment.join", "sites.join-command", "nodes.join-command"}
    | {"identity.issue", "identity.approve", "identity.remove"}
)
"""What the registrar records itself, before it answers."""
TOLD_BYTES_MAX: Final = 64 * 1024
INTERRUPTED_SECONDS: Final = 2.0
_VERBS: Final[Mapping[str, str]] = {"POST": "create", "PUT": "update", "PATCH": "update", "DELETE": "delete"}
_NAMING: Final = ("deployment_ids", "added", "name", "id", "site")
"""Fields of an answer that name what was changed, the best first."""
_TELLING: Final = ("rollout_id", "commit")

log = structlog.get_logger("homeport.audit")


class Auditing:
    def __init__(self, app: ASGIApp, auditor: Auditor, routes: Sequence[BaseRoute] = ()) -> None:
        self._app = app
        self._auditor = auditor
        self._routes = [route for route in routes if isinstance(route, APIRoute)]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        witness = _Witness(self._auditor, self._routes, scope, receive, send)
        try:
            await self._app(scope, receive, witness)
        finally:
            await witness.leave()


class _Witness:
    """Sends on, and holds an answer back while its entry is written."""

    def __init__(
        self, auditor: Auditor, routes: Sequence[APIRoute], scope: Scope, receive: Receive, send: Send
    ) -> None:
        self._auditor = auditor
        self._routes = routes
        self._scope = scope
        self._receive = receive
        self._send = send
        self._held: Message | None = None
        self._has_decided = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._has_decided = True
            if self._concerns_us(message["status"]):
                self._held = message
                return
        elif self._held is not None and message["type"] == "http.response.body":
            start, self._held = self._held, None
            if not await self._record(start, message):
                return
            await self._send(start)
        await self._send(message)

    async def leave(self) -> None:
        """A change that was begun and never answered is recorded as such, as far as there is time."""
        if self._has_decided or self._scope["method"] not in CHANGING:
            return
        with anyio.move_on_after(INTERRUPTED_SECONDS, shield=True):
            try:
                await self._note(AuditResult.FAILED, 0, {"code": "interrupted"}, self._target({}))
            except HomeportError as error:
                log.warning("an interrupted request is not in the audit trail", why=str(error))

    def _concerns_us(self, status: int) -> bool:
        if self._scope.get("state", {}).get("recorded"):
            return False
        if status in REFUSED or status == 400:
            return True
        if self._scope["method"] not in CHANGING:
            return False
        return status >= 300 or self._action() not in ROUTINE | OF_THE_REGISTRAR

    async def _record(self, start: Message, body: Message) -> bool:
        """Whether the answer may leave."""
        told = _told(start, body)
        status = int(start["status"])
        result = _result(status, told)
        if status == 400 and result is AuditResult.FAILED and self._scope["method"] not in CHANGING:
            return True
        detail = {"request_id": _header(start, REQUEST_ID)}
        if result is AuditResult.DONE:
            detail |= {name: str(told[name]) for name in _TELLING if told.get(name)}
        elif isinstance(told.get("code"), str):
            detail["code"] = told["code"]
        try:
            await self._note(result, status, detail, self._target(told if result is AuditResult.DONE else {}))
        except HomeportError as error:
            log.warning("a request is not in the audit trail", why=str(error), status=status)
            if result is AuditResult.DONE:
                await _unrecorded(self._scope, self._receive, self._send)
                return False
        return True

    async def _note(self, result: AuditResult, status: int, detail: Mapping[str, Any], target: str) -> None:
        caller, address = _caller(self._scope, is_refused=result is AuditResult.REFUSED)
        query = self._scope.get("query_string", b"")
        await self._auditor.note(
            action=self._action(),
            target=target,
            result=result,
            actor="anonymous" if caller is None else caller.name,
            role="" if caller is None else role_of(caller),
            address=address,
            detail={
                "status": status,
                **detail,
                **({"key": caller.key} if caller is not None and caller.key else {}),
                **({"plan": True} if b"plan=true" in query else {}),
            },
        )

    def _target(self, told: Mapping[str, Any]) -> str:
        given = self._scope.get("path_params") or {}
        if given:
            return "/".join(str(value) for value in given.values())
        for name in _NAMING:
            if told.get(name):
                value = told[name]
                return ",".join(map(_named, value)) if isinstance(value, list) else _named(value)
        return "" if self._route() is not None else str(self._scope["path"])

    def _action(self) -> str:
        """What the route says that it does; for one that says nothing, its noun and the method's verb."""
        said = self._scope.get("state", {}).get("action")
        if isinstance(said, str):
            return said
        route = self._route()
        if route is None:
            return "unknown"
        noun = str(route.tags[0]) if route.tags else route.path.strip("/").partition("/")[0]
        return declared_action(route.dependant) or f"{noun}.{_VERBS.get(self._scope['method'], 'read')}"

    def _route(self) -> APIRoute | None:
        """The route that was taken, or that a refused request would have taken."""
        taken = self._scope.get("route")
        if taken is None:
            taken = next((route for route in self._routes if route.matches(self._scope)[0] is Match.FULL), None)
        return taken if isinstance(taken, APIRoute) else None


def _caller(scope: Scope, *, is_refused: bool) -> tuple[Caller | None, str]:
    """Who asked and from where. Whom the guards refused before they knew who it was is nobody."""
    client = scope.get("client")
    address = str(client[0]) if client else ""
    known = scope.get("state", {}).get("caller")
    if not isinstance(known, Caller):
        known = None if is_refused else caller_of(Request(scope))
    return known, (known.address if known is not None else "") or address


def _result(status: int, told: Mapping[str, Any]) -> AuditResult:
    if status < 400:
        return AuditResult.DONE
    return AuditResult.REFUSED if status in REFUSED or told.get("code") in REFUSED_CODES else AuditResult.FAILED


def _told(start: Message, body: Message) -> Mapping[str, Any]:
    """The answer's own words, where it is a small JSON document and complete."""
    content = body.get("body", b"")
    if body.get("more_body") or len(content) > TOLD_BYTES_MAX or "json" not in _header(start, "content-type"):
        return {}
    try:
        told = json.loads(content)
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def _named(thing: Any) -> str:
    """An app of an answer is called as people call it; everything else is a name or an id already."""
    is_app = isinstance(thing, dict) and "app_name" in thing
    return f"{thing['app_name']}@{thing.get('version')}" if is_app else str(thing)


def _header(start: Message, name: str) -> str:
    wanted = name.encode()
    return next((value.decode("latin-1") for key, value in start.get("headers", ()) if key.lower() == wanted), "")


async def _unrecorded(scope: Scope, receive: Receive, send: Send) -> None:
    answer = refusal(
        503,
        "The request was carried out, but it could not be written to the audit trail.",
        code="not-recorded",
        hint="Look at what is there before you repeat it; the log of this role says what is wrong with its database.",
    )
    await answer(scope, receive, send)
