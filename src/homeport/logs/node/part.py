"""Puts the logs of a node together: its buffer, the followers of containers, and its own lines."""

from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Final

from homeport.adapters.logs.sqlite import LogFile
from homeport.core.logs.line import SourceKind
from homeport.core.logs.rates import RateRules
from homeport.core.logs.settings import NodeLogSettings
from homeport.logs.node.collector import LogCollector
from homeport.logs.node.spool import LogSpool
from homeport.logs.role_lines import keep_own_lines
from homeport.ports import Clock, InThread, Logs, Runtime

FILE: Final = "logs.sqlite3"


class NodeLogs:
    def __init__(
        self,
        settings: NodeLogSettings,
        *,
        data: Path,
        runtime: Runtime,
        clock: Clock,
        in_thread: InThread,
        send: Callable[[Logs], None],
    ) -> None:
        self._settings = settings
        self._file = LogFile(data / FILE)
        rules = RateRules(settings.lines_per_second, settings.bytes_per_second)
        self.spool = LogSpool(self._file, clock, send, in_thread=in_thread, rules=rules, bytes_max=settings.bytes_max)
        self.collector = LogCollector(runtime, self.spool, clock)

    @property
    def loops(self) -> Sequence[Callable[[], Coroutine[Any, Any, None]]]:
        own = (self._own_lines,) if self._settings.own else ()
        return (self.spool.write, self.spool.send, self.collector.run, *own)

    def close(self) -> None:
        self._file.close()

    async def _own_lines(self) -> None:
        await keep_own_lines(SourceKind.NODE, lambda line: self.spool.put_logs(Logs((line,))))
