"""Reading the audit trail: the newest lines, all of it as JSON lines, and whether it holds."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Annotated, Final

from fastapi import APIRouter, Depends, Query
from fastapi.responses import StreamingResponse

from homeport.core.audit import Check
from homeport.core.model.access import AuditEntry
from homeport.core.model.caller import Caller
from homeport.ports import Store
from homeport.serving.bodies.audit import AuditBody, AuditEntryBody, AuditVerdictBody
from homeport.serving.callers import allowed

PAGE: Final = 500
JSON_LINES: Final = "application/x-ndjson"

Reader = Annotated[Caller, Depends(allowed("audit.read"))]
After = Annotated[int, Query(ge=0, le=2**62, description="Only entries behind this position.")]
Since = Annotated[datetime | None, Query(description="Only entries from this time on; without a zone it is UTC.")]
Name = Annotated[str | None, Query(max_length=300)]


def audit_router(store: Store) -> APIRouter:
    router = APIRouter(tags=["audit"])

    @router.get("/api/v1/audit", summary="Show who did what")
    async def list_audit(
        caller: Reader,
        *,
        after: Annotated[int | None, Query(ge=0, le=2**62)] = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        actor: Name = None,
        action: Name = None,
        since: Since = None,
    ) -> AuditBody:
        """Oldest first: those behind `after`, or without it the newest. `action` may be a noun: `deployments`."""
        async with store.read() as reader:
            entries = await reader.audit(
                after=after or 0,
                limit=limit,
                actor=actor,
                action=action,
                since=in_utc(since),
                newest=after is None,
            )
        return AuditBody(entries=[_body(entry) for entry in entries])

    @router.get(
        "/api/v1/audit/export",
        summary="The whole trail as JSON lines",
        response_class=StreamingResponse,
        responses={200: {"content": {JSON_LINES: {"schema": {"type": "string"}}}}},
    )
    async def export_audit(caller: Reader, after: After = 0) -> StreamingResponse:
        """One entry a line, oldest first. `homeport audit verify FILE` checks what was saved of it."""
        return StreamingResponse(_lines(store, after), media_type=JSON_LINES)

    @router.get("/api/v1/audit/verify", summary="Whether the trail is whole and unchanged")
    async def verify_audit(caller: Reader) -> AuditVerdictBody:
        """Checked here, where somebody may have tampered: `homeport audit verify` checks it once more itself."""
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
            ok=fault is None, fault=fault, count=check.count, base=str(ends.base), head=str(ends.head)
        )

    return router


async def _lines(store: Store, after: int) -> AsyncIterator[bytes]:
    """A page at a time, each from a short read: a slow client must not hold the database's snapshot."""
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


def in_utc(moment: datetime | None) -> datetime | None:
    if moment is None:
        return None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
