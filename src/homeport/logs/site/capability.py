"""The logs capability of a site: it stores what its nodes send and what it says itself, answers questions from that,
also with central gone, and sends everything on to central."""

from collections.abc import Sequence
from functools import partial
from typing import Final

import anyio

from homeport.adapters.logs.sqlite import LogFile, SqliteLogs
from homeport.capability.late import late_service
from homeport.capability.site import SiteCapability, SitePart
from homeport.core.logs.intake import LogArrival
from homeport.core.logs.line import LogBatch, LogLine, Origin, SourceKind
from homeport.core.logs.text import clean, read_line_of_job
from homeport.fleet.site.platform import SitePlatform
from homeport.logs.outputs.running import run_outputs
from homeport.logs.role_lines import keep_own_lines
from homeport.logs.serving.reading import LogReading
from homeport.logs.serving.routes import alias_log_routes, log_routes
from homeport.logs.site.forwarding import Forwarder
from homeport.logs.storing import Storing
from homeport.ports import Logs, LogsStored, Telemetry
from homeport.vocabulary import NodeId

FILE: Final = "logs.sqlite3"
_RUNS_ON_NODES: Final = (f"{SourceKind.DEPLOYMENT}/", f"{SourceKind.JOB}/")


class SiteLogs:
    def __init__(self, site: SitePlatform, file: LogFile) -> None:
        self._site = site
        self._file = file
        self.store = SqliteLogs(file, in_thread=site.in_thread)
        self.storing = Storing(self.store)

    def on_stream(self, node_id: NodeId, message: Logs | Telemetry) -> None:
        if not isinstance(message, Logs) or not message.buffer:
            return
        batch = LogBatch(message.buffer, message.previous, [(str(node_id), _of_node(line)) for line in message.lines])

        def done(last: int | None) -> None:
            if last is not None:
                self._site.logs_stored(node_id, LogsStored(message.buffer, last))

        self.storing.put(LogArrival(f"node/{node_id}", self._site.site, [batch]), done)

    def put_lines(self, lines: Sequence[LogLine]) -> None:
        for line in lines:
            self.storing.put_own(Origin(self._site.site, "", line.source), read_line_of_job(line))

    async def run(self) -> None:
        site, settings = self._site, self._site.logs
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.storing.run)
                tasks.start_soon(self.storing.trim, settings, site.store, site.clock)
                if settings.own:
                    own = Origin(site.site, "", SourceKind.SITE)
                    tasks.start_soon(keep_own_lines, SourceKind.SITE, partial(self.storing.put_own, own))
                if site.central is not None:
                    forwarder = Forwarder(self.store, site.central, site.site, self._file.buffer, site.in_thread)
                    tasks.start_soon(forwarder.run)
                tasks.start_soon(run_outputs, self.store, settings)
        finally:
            self._file.close()


def _part(site: SitePlatform) -> SitePart:
    if site.data is None:
        return SitePart()
    logs = SiteLogs(site, LogFile(site.data / FILE))
    reading = LogReading(logs.store, site.store, here=site.site)
    return SitePart(
        routes=(log_routes(reading), alias_log_routes(reading)),
        services=(late_service("homeport.logs.serving.grpc", "log_service", reading),),
        on_stream=logs.on_stream,
        put_lines=logs.put_lines,
        loops=(partial(logs.run),),
    )


def _of_node(line: LogLine) -> LogLine:
    """A node speaks for itself and for what runs on it, never as its site or as central."""
    found = clean(read_line_of_job(line))
    is_its_own = found.source == SourceKind.NODE or found.source.startswith(_RUNS_ON_NODES)
    return found if is_its_own else found._replace(source=SourceKind.NODE)


LOGS: Final = SiteCapability("logs", _part)
