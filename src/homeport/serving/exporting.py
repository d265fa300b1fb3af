"""Everything that happened, as lines of JSON for other programs: the steps of deployments, which are kept for ever,
and the event log, of which the newest part is.

A page at a time, each from a short read: a slow client holds no snapshot of the database, and nothing is gathered.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Query
from fastapi.responses import StreamingResponse

from homeport.core.model.caller import Caller
from homeport.core.model.event import Event, HistoryLine
from homeport.fleet.overview import find_deployment
from homeport.fleet.scope import ReadOnly
from homeport.ports import Reader
from homeport.serving.bodies.revisions import HistoryLineBody
from homeport.serving.callers import allowed
from homeport.serving.reading import Reading
from homeport.serving.showing import event_body, history_body
from homeport.serving.trail import JSON_LINES, in_utc
from homeport.vocabulary import DeploymentId

PAGE: Final = 500
LINES: dict[int | str, dict[str, Any]] = {
    200: {"description": "One JSON object a line.", "content": {JSON_LINES: {"schema": {"type": "string"}}}}
}


@dataclass(frozen=True, slots=True)
class Asked:
    """The filters of both exports."""

    deployment: Annotated[
        str | None, Query(max_length=200, description="Only this deployment: its id, a prefix of it, or `name@site`.")
    ] = None
    site: Annotated[str | None, Query(max_length=200, description="Only what happened at this site.")] = None
    since: Annotated[datetime | None, Query(description="Only from this time on; without a zone it is UTC.")] = None
    until: Annotated[datetime | None, Query(description="Only before this time; without a zone it is UTC.")] = None
    after: Annotated[int, Query(ge=0, le=2**53, description="Only behind this line: its `id`.")] = 0


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which lines are asked for."""

    deployment_id: DeploymentId | None
    site: str | None
    since: datetime | None
    until: datetime | None

    def holds(self, site: str | None, at: datetime) -> bool:
        return (
            self.site in (None, site)
            and (self.since is None or at >= self.since)
            and (self.until is None or at < self.until)
        )


def exporting_router(reading: Reading) -> APIRouter:
    router = APIRouter()

    @router.get(
        "/api/v1/history/export",
        tags=["deployments"],
        summary="Every step of deployments as JSON lines: when, on which node, by whom and why",
        response_class=StreamingResponse,
        responses={**LINES, 404: {}, 409: {}},
    )
    async def export_history(
        caller: Annotated[Caller, Depends(allowed("deployments.read"))], asked: Annotated[Asked, Depends()]
    ) -> StreamingResponse:
        """In the order in which it became known here, deployments that are long gone included."""
        store = reading.of(caller)
        wanted = await _wanted(store, asked)
        return StreamingResponse(_history(store, wanted, asked.after), media_type=JSON_LINES)

    @router.get(
        "/api/v1/events/export",
        tags=["events"],
        summary="The event log as JSON lines",
        response_class=StreamingResponse,
        responses={**LINES, 404: {}, 409: {}},
    )
    async def export_events(
        caller: Annotated[Caller, Depends(allowed("events.read"))], asked: Annotated[Asked, Depends()]
    ) -> StreamingResponse:
        """What is still in the log, oldest first; ends with what is newest now."""
        store = reading.of(caller)
        wanted = await _wanted(store, asked)
        return StreamingResponse(_events(store, wanted, asked.after), media_type=JSON_LINES)

    return router


async def _wanted(store: ReadOnly, asked: Asked) -> Wanted:
    found = None
    if asked.deployment is not None:
        async with store.read() as reader:
            found = (await find_deployment(reader, asked.deployment)).id
    return Wanted(found, asked.site, in_utc(asked.since), in_utc(asked.until))


async def _history(store: ReadOnly, wanted: Wanted, after: int) -> AsyncIterator[bytes]:
    while True:
        async with store.read() as reader:
            lines = await reader.history_after(after, limit=PAGE, deployment_id=wanted.deployment_id)
            bodies = await _history_bodies(reader, lines, wanted)
        if not lines:
            return
        yield b"".join(body.model_dump_json().encode() + b"\n" for body in bodies)
        after = lines[-1].id


async def _history_bodies(reader: Reader, lines: Sequence[HistoryLine], wanted: Wanted) -> list[HistoryLineBody]:
    """What belongs to a deployment that the caller may not see is left out with it."""
    rows = await reader.deployments_by_ids(sorted({line.entry.deployment_id for line in lines}))
    known = {row.id: row for row in rows}
    return [
        HistoryLineBody(
            id=line.id,
            deployment_id=line.entry.deployment_id,
            name=known[line.entry.deployment_id].name,
            site=known[line.entry.deployment_id].site,
            **history_body(line.entry).model_dump(),
        )
        for line in lines
        if line.entry.deployment_id in known and wanted.holds(known[line.entry.deployment_id].site, line.entry.at)
    ]


async def _events(store: ReadOnly, wanted: Wanted, after: int) -> AsyncIterator[bytes]:
    async with store.read() as reader:
        last = await reader.last_event_id()
    while after < last:
        async with store.read() as reader:
            found: Sequence[Event] = await reader.events(after=after, limit=PAGE, deployment_id=wanted.deployment_id)
        if not found:
            return
        kept = [each for each in found if each.id <= last and wanted.holds(each.event.site, each.event.at)]
        yield b"".join(event_body(each).model_dump_json().encode() + b"\n" for each in kept)
        after = found[-1].id
