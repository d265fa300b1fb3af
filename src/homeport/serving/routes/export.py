"""Exports as JSON lines for other programs: the history of deployments, which is kept forever, and the event log, of
which the newest part is kept.

Page by page, each from a short read: a slow client holds no database snapshot, and nothing is buffered.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass  # FastAPI reads its signature
from datetime import datetime
from typing import Annotated, Any, Final

from fastapi import Depends, Query
from fastapi.responses import StreamingResponse

from homeport.core.access.actions import Action, Actions, Audit, Level, Scope
from homeport.core.model.event import Event, HistoryLine
from homeport.fleet.shared.overview import find_deployment
from homeport.fleet.shared.scope import ReadOnly
from homeport.ports import SeenReader
from homeport.serving.bodies.body import AnyMoment
from homeport.serving.bodies.revisions import HistoryLineBody
from homeport.serving.capability import Routes
from homeport.serving.middleware.callers import CallerOf
from homeport.serving.routes.audit import JSON_LINES
from homeport.serving.routes.read import Reading
from homeport.serving.routing import Router
from homeport.serving.to_bodies import event_body, history_body
from homeport.vocabulary import DeploymentId

PAGE: Final = 500
LINES: dict[int | str, dict[str, Any]] = {
    200: {"description": "One JSON object a line.", "content": {JSON_LINES: {"schema": {"type": "string"}}}}
}


@dataclass(frozen=True, slots=True)
class ExportFilter:
    """The filters of both exports."""

    deployment: Annotated[
        str | None, Query(max_length=200, description="Only this deployment: its id, a prefix of it, or `name@site`.")
    ] = None
    site: Annotated[str | None, Query(max_length=200, description="Only what happened at this site.")] = None
    since: Annotated[AnyMoment | None, Query(description="Only from this time on; without a zone it is UTC.")] = None
    until: Annotated[AnyMoment | None, Query(description="Only before this time; without a zone it is UTC.")] = None
    after: Annotated[int, Query(ge=0, le=2**53, description="Only lines after this one: its `id`.")] = 0


@dataclass(frozen=True, slots=True)
class Wanted:
    """The requested lines."""

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


# fmt: off
ACTIONS: Final[Actions] = {
    ("GET", "/api/v1/history/export"): Action("deployments.read", Level.VIEWER, Scope.SEEN, Audit.NONE),
    ("GET", "/api/v1/events/export"): Action("events.read", Level.VIEWER, Scope.SEEN, Audit.NONE),
}
# fmt: on


def exporting_routes(reading: Reading) -> Routes:
    router = Router()

    @router.get(
        "/api/v1/history/export",
        tags=["deployments"],
        summary="Every step of deployments as JSON lines: when, on which node, by whom and why",
        response_class=StreamingResponse,
        responses={**LINES, 404: {}, 409: {}},
    )
    async def export_history(caller: CallerOf, asked: Annotated[ExportFilter, Depends()]) -> StreamingResponse:
        """In the order in which it was recorded here, including long deleted deployments."""
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
    async def export_events(caller: CallerOf, asked: Annotated[ExportFilter, Depends()]) -> StreamingResponse:
        """The stored events, oldest first; ends with the newest."""
        store = reading.of(caller)
        wanted = await _wanted(store, asked)
        return StreamingResponse(_events(store, wanted, asked.after), media_type=JSON_LINES)

    return Routes(router, ACTIONS)


async def _wanted(store: ReadOnly, asked: ExportFilter) -> Wanted:
    found = None
    if asked.deployment is not None:
        async with store.read() as reader:
            found = (await find_deployment(reader, asked.deployment)).id
    return Wanted(found, asked.site, asked.since, asked.until)


async def _history(store: ReadOnly, wanted: Wanted, after: int) -> AsyncIterator[bytes]:
    while True:
        async with store.read() as reader:
            lines = await reader.history_after(after, limit=PAGE, deployment_id=wanted.deployment_id)
            bodies = await _history_bodies(reader, lines, wanted)
        if not lines:
            return
        yield b"".join(body.model_dump_json().encode() + b"\n" for body in bodies)
        after = lines[-1].id


async def _history_bodies(reader: SeenReader, lines: Sequence[HistoryLine], wanted: Wanted) -> list[HistoryLineBody]:
    """Without lines of deployments that the caller may not see."""
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
