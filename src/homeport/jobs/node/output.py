"""The output of an attempt: its end is kept with the result, and all of it goes to the log as lines.

Output may have to be read again from its beginning: the engine or the node was restarted. How far the lines went to
the log is durable with them, so that none goes there again.
"""

import codecs
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Final

from homeport.core.jobs.job import JobOutput
from homeport.core.jobs.rules import OUTPUT_BYTES_MAX
from homeport.core.secrets import masked
from homeport.ports import Clock, LogLine, Logs

LINE_CHARACTERS_MAX: Final = 8 * 1024
"""A longer line is cut into several: a program may print a megabyte without a line break."""
LINES_MAX: Final = 200
FIELD_OFFSET: Final = "offset"
"""The position of a line in the whole output, in bytes of UTF-8: a reader notices what is missing."""
FIELD_ATTEMPT: Final = "generation"
FIELD_CUT: Final = "cut"
"""On a line without a line break at its end: it goes on in the next one, or the output ended there."""

BOOKKEEPING: Final = frozenset({FIELD_OFFSET, FIELD_ATTEMPT, FIELD_CUT})
"""Fields of the lines of jobs that say nothing to a person."""

PutLogs = Callable[[Logs, Mapping[str, str]], None]
"""`LogBuffer.put_logs`, and where the output goes on after them."""


class OutputReader:
    def __init__(
        self,
        source: str,
        generation: int,
        secrets: Iterable[str],
        clock: Clock,
        put_logs: PutLogs,
        *,
        sent: int = 0,
    ) -> None:
        """`sent` is the position up to which lines went to the log before."""
        self._source = source
        self._generation = generation
        self._secrets = tuple(secrets)
        self._clock = clock
        self._put_logs = put_logs
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._line = ""
        self._tail: list[str] = []
        """The end of the output, and before it what is cut off when there is enough of it to be worth the copy."""
        self._tail_length = 0
        self._total = 0
        self._sent = sent

    def feed(self, chunk: bytes) -> None:
        """Binary output becomes replacement characters."""
        self._take(self._line + self._decoder.decode(chunk), is_end=False)

    def end(self) -> JobOutput:
        self._take(self._line + self._decoder.decode(b"", final=True), is_end=True)
        return JobOutput(end_of("".join(self._tail)), self._total)

    def restart(self) -> None:
        """The output is read again from its beginning."""
        self._decoder.reset()
        self._line, self._tail, self._tail_length, self._total = "", [], 0, 0

    def _take(self, text: str, *, is_end: bool) -> None:
        lines: list[LogLine] = []
        start, now = 0, self._clock.now()
        while start < len(text):
            end = text.find("\n", start, start + LINE_CHARACTERS_MAX)
            if end < 0 and len(text) - start < LINE_CHARACTERS_MAX and not is_end:
                break
            stop = end + 1 if end >= 0 else min(len(text), start + LINE_CHARACTERS_MAX)
            line = self._logged(text[start:stop], now)
            if line is not None:
                lines.append(line)
            start = stop
        self._line = text[start:]
        for start in range(0, len(lines), LINES_MAX):
            some = lines[start : start + LINES_MAX]
            self._put_logs(Logs(tuple(some)), {position_of(self._source, self._generation): str(self._sent)})

    def _logged(self, line: str, now: datetime) -> LogLine | None:
        """None for a line that went to the log before. Secrets are masked by line, as one line is printed at once."""
        shown = masked(line, self._secrets) if self._secrets else line
        fields = {FIELD_OFFSET: str(self._total), FIELD_ATTEMPT: str(self._generation)}
        if not shown.endswith("\n"):
            fields[FIELD_CUT] = "yes"
        self._total += len(shown.encode())
        self._keep(shown)
        if self._total <= self._sent:
            return None
        self._sent = self._total
        return LogLine(now, self._source, "info", shown.removesuffix("\n"), fields)

    def _keep(self, shown: str) -> None:
        self._tail.append(shown)
        self._tail_length += len(shown)
        if self._tail_length > 4 * OUTPUT_BYTES_MAX:
            # A character has one byte at least.
            kept = "".join(self._tail)[-OUTPUT_BYTES_MAX:]
            self._tail, self._tail_length = [kept], len(kept)


def position_of(source: str, generation: int) -> str:
    """The name of the output of an attempt in the node's log buffer."""
    return f"{source}.{generation}"


def end_of(text: str) -> str:
    """The last OUTPUT_BYTES_MAX bytes, without half a character."""
    if len(text) * 4 <= OUTPUT_BYTES_MAX:
        return text
    content = text.encode()
    return text if len(content) <= OUTPUT_BYTES_MAX else content[-OUTPUT_BYTES_MAX:].decode(errors="ignore")
