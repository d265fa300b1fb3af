"""The output of an attempt: its end is kept with the result, and all of it goes to the log as lines."""

import codecs
from collections.abc import Callable, Iterable
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


class Output:
    def __init__(
        self,
        source: str,
        generation: int,
        secrets: Iterable[str],
        clock: Clock,
        logs: Callable[[Logs], None],
    ) -> None:
        self._source = source
        self._generation = generation
        self._secrets = tuple(secrets)
        self._clock = clock
        self._logs = logs
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._line = ""
        self._tail = ""
        self._total = 0
        self._sent = 0
        """The position up to which lines were sent: they are not sent again when the output is read again."""

    def feed(self, chunk: bytes) -> None:
        """Binary output becomes replacement characters."""
        self._take(self._line + self._decoder.decode(chunk), is_end=False)

    def end(self) -> JobOutput:
        self._take(self._line + self._decoder.decode(b"", final=True), is_end=True)
        return JobOutput(self._tail, self._total)

    def restart(self) -> None:
        """The output is read again from its beginning."""
        self._decoder.reset()
        self._line, self._tail, self._total = "", "", 0

    def _take(self, text: str, *, is_end: bool) -> None:
        lines: list[LogLine] = []
        sent = self._sent
        while text:
            end = text.find("\n", 0, LINE_CHARACTERS_MAX)
            if end < 0 and len(text) < LINE_CHARACTERS_MAX and not is_end:
                break
            size = end + 1 if end >= 0 else min(len(text), LINE_CHARACTERS_MAX)
            is_new = self._total >= sent
            line = self._logged(text[:size])
            lines += [line] if is_new else []
            text = text[size:]
        self._line = text
        self._sent = max(sent, self._total)
        for start in range(0, len(lines), LINES_MAX):
            self._logs(Logs(tuple(lines[start : start + LINES_MAX])))

    def _logged(self, line: str) -> LogLine:
        """Secrets are masked by line, as one line is printed at once."""
        shown = masked(line, self._secrets)
        fields = {FIELD_OFFSET: str(self._total), FIELD_ATTEMPT: str(self._generation)}
        if not shown.endswith("\n"):
            fields[FIELD_CUT] = "yes"
        size = len(shown.encode())
        self._total += size
        self._tail = _end_of(self._tail + shown)
        return LogLine(self._clock.now(), self._source, "info", shown.removesuffix("\n"), fields)


def _end_of(text: str) -> str:
    """The last OUTPUT_BYTES_MAX bytes, without half a character."""
    if len(text) * 4 <= OUTPUT_BYTES_MAX:
        return text
    content = text.encode()
    return text if len(content) <= OUTPUT_BYTES_MAX else content[-OUTPUT_BYTES_MAX:].decode(errors="ignore")
