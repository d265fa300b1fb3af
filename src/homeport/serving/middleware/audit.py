"""Audit middleware: an entry of the audit trail for every change and for every refusal.

The outermost middleware, so that it also sees what the guards refuse, and each response as it is sent. The action's
row in the access table says how it is recorded. With `wait`, the response is held until the entry is durable:
whatever was acknowledged is in the trail, even after a crash, and a change that cannot be recorded is not
acknowledged.

Request bodies, queries, tokens and secrets are never recorded; of a response only a few names and ids are.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from homeport.core.access.actions import ActionTable, Audit
from homeport.core.model.access import AuditResult, NewAudit
from homeport.core.model.caller import Caller
from homeport.errors import HomeportError
from homeport.identity.audit import Auditor, role_of
from homeport.log import get_log
from homeport.serving.middleware.authorization import look_up
from homeport.serving.middleware.callers import ACTION, DETAIL, PLAN
from homeport.serving.problems import REQUEST_ID, refusal

CHANGING: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})
REFUSED: Final = frozenset({401, 403, 421, 429})
REFUSED_CODES: Final = frozenset({"token-in-url"})
"""Codes that count as refusals although their status only says that the request is invalid."""
ANSWER_BYTES_MAX: Final = 64 * 1024
INTERRUPTED_SECONDS: Final = 2.0
AUDITOR: Final = "auditor"
"""Where a request stores the trail, for an action that records itself (`Audit.OWN`) when it begins and ends."""
_NAMING: Final = ("deployment_ids", "added", "name", "id", "site")
"""Fields of a response that name what was changed, the best first."""
_DETAILS: Final = ("rollout_id", "commit")

log = get_log("homeport.audit")


class Auditing:
    def __init__(self, app: ASGIApp, auditor: Auditor, table: ActionTable) -> None:
        self._app = app
        self._auditor = auditor
        self._table = table

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        look_up(scope, self._table)
        scope["state"][AUDITOR] = self._auditor
        response = _AuditedResponse(self._auditor, self._table, scope, receive, send)
        try:
            await self._app(scope, receive, response)
        finally:
            await response.leave()


class _AuditedResponse:
    """Forwards a response, and holds it while its entry is written."""

    def __init__(self, auditor: Auditor, table: ActionTable, scope: Scope, receive: Receive, send: Send) -> None:
        self._auditor = auditor
        self._found = look_up(scope, table)
        self._scope = scope
        self._receive = receive
        self._send = send
        self._held: Message | None = None
        self._has_decided = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._has_decided = True
            rule = self._rule(message["status"])
            if rule is Audit.ASYNC:
                await self._record_soon(message)
            elif rule is Audit.WAIT:
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
        if self._has_decided or not self._is_change():
            return
        with anyio.move_on_after(INTERRUPTED_SECONDS, shield=True):
            try:
                await self._auditor.record(self._entry(0, {}, {"code": "interrupted"}))
            except HomeportError as error:
                log.warning("interrupted request missing from the audit log", why=str(error))

    def _rule(self, status: int) -> Audit:
        """How the response that begins with `status` is recorded. A refusal always waits: repeats are only counted,
        so an attacker cannot delay others for long."""
        state = self._scope.get("state", {})
        if state.get("recorded"):
            return Audit.NONE
        if status in REFUSED or status == 400:
            return Audit.WAIT
        if state.get(PLAN):
            return Audit.NONE
        rule = self._found.action.audit if self._found is not None else Audit.NONE
        if rule in {Audit.NONE, Audit.OWN}:
            return Audit.WAIT if self._is_change() and status >= 300 else Audit.NONE
        return rule

    def _is_change(self) -> bool:
        """A plan changes nothing, whatever its method."""
        return self._scope["method"] in CHANGING and not self._scope.get("state", {}).get(PLAN)

    async def _record_soon(self, start: Message) -> None:
        try:
            await self._auditor.record_soon(self._entry(int(start["status"]), {}, _request_id(start)))
        except HomeportError as error:
            log.warning("request missing from the audit log", why=str(error), status=start["status"])

    async def _record(self, start: Message, body: Message) -> bool:
        """Whether the response may be sent."""
        answer = _json_answer(start, body)
        status = int(start["status"])
        result = _result(status, answer)
        if status == 400 and result is AuditResult.FAILED and not self._is_change():
            return True
        detail = _request_id(start)
        if result is AuditResult.DONE:
            detail |= {name: str(answer[name]) for name in _DETAILS if answer.get(name)}
        elif isinstance(answer.get("code"), str):
            detail["code"] = answer["code"]
        try:
            await self._auditor.record(self._entry(status, answer, detail))
        except HomeportError as error:
            log.warning("request missing from the audit log", why=str(error), status=status)
            if result is AuditResult.DONE:
                await _unrecorded(self._scope, self._receive, self._send)
                return False
        return True

    def _entry(self, status: int, answer: Mapping[str, Any], detail: Mapping[str, Any]) -> NewAudit:
        result = _result(status, answer) if status else AuditResult.FAILED
        state = self._scope.get("state", {})
        client, caller = self._scope.get("client"), state.get("caller")
        is_known = isinstance(caller, Caller)
        return self._auditor.entry(
            action="unknown" if self._found is None else state.get(ACTION, self._found.action.name),
            target=self._target(answer if result is AuditResult.DONE else {}),
            result=result,
            actor=caller.name if is_known else "anonymous",
            role=role_of(caller) if is_known else "",
            address=(caller.address if is_known else "") or (str(client[0]) if client else ""),
            detail={
                "status": status,
                **detail,
                **({"key": caller.key} if is_known and caller.key else {}),
                **({PLAN: True} if state.get(PLAN) else {}),
                **(state.get(DETAIL, {}) if result is AuditResult.DONE else {}),
            },
        )

    def _target(self, answer: Mapping[str, Any]) -> str:
        if self._found is None:
            return str(self._scope["path"])
        if "{" in self._found.template:
            return "/".join(self._found.params.values())
        for name in _NAMING:
            if answer.get(name):
                value = answer[name]
                return ",".join(map(_named, value)) if isinstance(value, list) else _named(value)
        return ""


def _result(status: int, answer: Mapping[str, Any]) -> AuditResult:
    if status < 400:
        return AuditResult.DONE
    return AuditResult.REFUSED if status in REFUSED or answer.get("code") in REFUSED_CODES else AuditResult.FAILED


def _request_id(start: Message) -> dict[str, Any]:
    return {"request_id": _header(start, REQUEST_ID)}


def _json_answer(start: Message, body: Message) -> Mapping[str, Any]:
    """The response's JSON, where it is a small, complete document."""
    content = body.get("body", b"")
    if body.get("more_body") or len(content) > ANSWER_BYTES_MAX or "json" not in _header(start, "content-type"):
        return {}
    try:
        answer = json.loads(content)
    except (RecursionError, ValueError):
        return {}
    return answer if isinstance(answer, dict) else {}


def _named(thing: Any) -> str:
    """An app in a response is named as users name it; everything else is a name or an id already."""
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
        hint="Check the current state before you repeat it; the log says what is wrong with the database.",
    )
    await answer(scope, receive, send)
