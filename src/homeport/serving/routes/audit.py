"""Reading the audit trail: the newest entries, all of it as JSON lines, and its verification."""

from collections.abc import AsyncIterator
from datetime import UTC
from typing import Annotated, Final

from fastapi import Depends, Query, Response
from fastapi.responses import StreamingResponse

from homeport.core.access.actions import Action, Actions, Audit, Level, Scope
from homeport.core.audit.chain import Check
from homeport.core.model.access import AuditEntry
from homeport.ports import AUDIT, AuditFilter, Store
from homeport.serving.bodies.audit import AuditBody, AuditEntryBody, AuditVerdictBody
from homeport.serving.bodies.body import AnyMoment
from homeport.serving.capability import Routes
from homeport.serving.middleware.callers import CallerOf
from homeport.serving.pages import PageRequest, asked
from homeport.serving.routing import Router

PAGE: Final = 500
JSON_LINES: Final = "application/x-ndjson"

After = Annotated[int, Query(ge=0, le=2**62, description="Only entries after this position.")]
Since = Annotated[AnyMoment | None, Query(description="Only entries from this time on; without a zone it is UTC.")]
Name = Annotated[str | None, Query(max_length=300)]


_READ: Final = Action("audit.read", Level.ADMIN, Scope.FLEET, Audit.NONE)  # it names people and addresses
# fmt: off
ACTIONS: Final[Actions] = {
    ("GET", "/api/v1/audit"): _READ,
    ("GET", "/api/v1/audit/export"): _READ,
    ("GET", "/api/v1/audit/verify"): _READ,
}
# fmt: on


def audit_routes(store: Store) -> Routes:
    router = Router(tags=["audit"])

    @router.get("/api/v1/audit", summary="Show who did what", response_model=AuditBody)
    async def list_audit(
        caller: CallerOf,
        page: Annotated[PageRequest, Depends(asked(AUDIT, AuditEntryBody))],
        *,
        after: Annotated[int | None, Query(ge=0, le=2**62)] = None,
        actor: Name = None,
        action: Name = None,
        since: Since = None,
    ) -> Response:
        """Oldest first: those after `after`, or without it the newest; then the next page has older ones. `action`
        may be a noun: `deployments`."""
        if after is not None:
            page = page.sorted_by("oldest", (after,))
        where = AuditFilter(actor=actor, action=action, since=since)
        async with store.read() as reader:
            found = await reader.page(AUDIT, where, page.cut)
        entries = found.items if page.cut.order == "oldest" else reversed(found.items)
        return page.answer("entries", [_body(entry) for entry in entries], found.next)

    @router.get(
        "/api/v1/audit/export",
        summary="The whole trail as JSON lines",
        response_class=StreamingResponse,
        responses={200: {"content": {JSON_LINES: {"schema": {"type": "string"}}}}},
    )
    async def export_audit(caller: CallerOf, after: After = 0) -> StreamingResponse:
        """One entry per line, oldest first. `homeport audit verify FILE` verifies a saved copy."""
        return StreamingResponse(_lines(store, after), media_type=JSON_LINES)

    @router.get("/api/v1/audit/verify", summary="Whether the trail is whole and unchanged")
    async def verify_audit(caller: CallerOf) -> AuditVerdictBody:
        """Verified by this role, where the trail may have been tampered with: `homeport audit verify` verifies it
        again."""
        async with store.read() as reader:
            ends = await reader.audit_ends()
            check, fault, after = Check(ends.base, ends.head), None, ends.base.position
            while fault is None:
                entries = await reader.audit(after=after, limit=PAGE)
                if not entries:
                    fault = check.finish()
                    break
                fault = next((found for found in map(check.follow, entries) if found is not None), None)
                after = entries[-1].position
        return AuditVerdictBody(
            ok=(fault or ends.fault) is None,
            fault=fault or ends.fault,
            count=check.count,
            base=str(ends.base),
            head=str(ends.head),
        )

    return Routes(router, ACTIONS)


async def _lines(store: Store, after: int) -> AsyncIterator[bytes]:
    """Page by page, each from a short read: a slow client must not hold a database snapshot."""
    while True:
        async with store.read() as reader:
            entries = await reader.audit(after=after, limit=PAGE)
        if not entries:
            return
        yield b"".join(_body(entry).model_dump_json().encode() + b"\n" for entry in entries)
        after = entries[-1].position


def _body(item: AuditEntry) -> AuditEntryBody:
    entry = item.entry
    return AuditEntryBody(
        position=item.position,
        at=entry.at.astimezone(UTC),
        actor=entry.actor,
        role=entry.role,
        address=entry.address,
        action=entry.action,
        target=entry.target,
        result=entry.result.value,
        detail=entry.detail,
        previous=item.previous,
        hash=item.hash,
    )
