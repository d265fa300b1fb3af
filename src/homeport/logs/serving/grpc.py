"""Log lines over gRPC: `homeport.v1.LogStreamer`, and its alias for clients of Orchion.

For people and their programs, who see the lines of the sites that their tokens are for, as over HTTP. A certificate
is a machine's, and machines read no logs.
"""

from typing import TYPE_CHECKING, Any, Final

from homeport.core.logs.query import LogFilter
from homeport.core.model.caller import Caller
from homeport.errors import InvalidInput, Problem
from homeport.logs.serving.reading import LogReading
from homeport.logs.serving.routes import READ
from homeport.logs.serving.tail import follow
from homeport.wire.logs import entry_of, filter_of
from homeport.wire.orchion.v1 import orchestrator_pb2 as orchion
from homeport.wire.v1 import logs_pb2 as pb

if TYPE_CHECKING:
    from homeport.adapters.link.grpc_calls import GrpcCalls, SendMessage
    from homeport.adapters.link.grpc_services import Service

TAIL_MAX: Final = 1_000
OURS: Final = "/homeport.v1.LogStreamer/StreamLogs"
ORCHION: Final = "/orchion.v1.LogStreamer/StreamLogs"


def log_service(reading: LogReading) -> "Service":
    def calls(calls: "GrpcCalls") -> dict[str, Any]:
        streams = _Streams(reading)
        ours = calls.person_stream(READ, streams.ours, pb.StreamLogsRequest, pb.StreamLogsResponse)
        theirs = calls.person_stream(READ, streams.orchion, orchion.StreamLogsRequest, orchion.StreamLogsResponse)
        return {OURS: ours, ORCHION: theirs}

    return calls


class _Streams:
    def __init__(self, reading: LogReading) -> None:
        self._reading = reading

    async def ours(self, request: Any, caller: Caller, send: "SendMessage") -> None:
        if request.tail > TAIL_MAX:
            raise InvalidInput(problems=[Problem("tail", f"may be {TAIL_MAX} at most")])
        query = await self._reading.as_seen(filter_of(request), caller)
        newest = await self._reading.tail.newest()
        cursor = min(int(request.after), newest) if request.after else newest
        if request.tail and not request.after:
            for stored in await self._reading.last(query, request.tail, before=newest + 1):
                await send(pb.StreamLogsResponse(entry=entry_of(stored)))
        missed = 0
        async for news in follow(self._reading.tail, query, cursor, until=newest if request.no_follow else None):
            missed += news.missed
            for stored in news.lines:
                await send(pb.StreamLogsResponse(entry=entry_of(stored), missed=missed))
                missed = 0

    async def orchion(self, request: Any, caller: Caller, send: "SendMessage") -> None:
        query = await self._reading.as_seen(LogFilter(), caller)
        async for news in follow(self._reading.tail, query, await self._reading.tail.newest()):
            for stored in news.lines:
                line = stored.line
                entry = orchion.LogEntry(
                    id=str(stored.id),
                    timestamp=int(line.at.timestamp() * 1000),
                    level=entry_of(stored).level,
                    source=stored.origin.source,
                    message=line.text,
                    fields=line.fields,
                )
                await send(orchion.StreamLogsResponse(entry=entry))
