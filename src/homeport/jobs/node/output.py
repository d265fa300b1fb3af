"""The output of an attempt: its end is kept with the result, and all of it goes to the log as lines.

Output may have to be read again from its beginning: the engine was restarted, or has left out a part while it was
followed. Lines that went to the log before are recognised and not sent again; those that were left out are.
"""

import codecs
import zlib
from array import array
from collections.abc import Callable, Iterable
from typing import Final

from homeport.core.jobs.job import JobOutput
from homeport.core.jobs.rules import OUTPUT_BYTES_MAX
from homeport.core.secrets import masked
from homeport.ports import Clock, LogLine, Logs

LINE_CHARACTERS_MAX: Final = 8 * 1024
"""A longer line is cut into several: a program may print a megabyte without a line break."""
LINES_MAX: Final = 200
REMEMBERED_MAX: Final = 500_000
"""How many lines of an attempt are recognised one by one, with 4 bytes each; later ones by their position alone."""
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
        self._tail: list[str] = []
        """The end of the output, and before it what is cut off when there is enough of it to be worth the copy."""
        self._tail_length = 0
        self._total = 0
        self._sent = 0
        """The position up to which lines were sent."""
        self._remembered = array("I")
        """Checksums of the lines that were sent, in their order in the output."""
        self._seen = 0
        """How many of them were read, this time."""

    def feed(self, chunk: bytes) -> None:
        """Binary output becomes replacement characters."""
        self._take(self._line + self._decoder.decode(chunk), is_end=False)

    def end(self) -> JobOutput:
        self._take(self._line + self._decoder.decode(b"", final=True), is_end=True)
        return JobOutput(_end_of("".join(self._tail)), self._total)

    def restart(self) -> None:
        """The output is read again from its beginning."""
        self._decoder.reset()
        self._line, self._tail, self._tail_length, self._total, self._seen = "", [], 0, 0, 0

    def _take(self, text: str, *, is_end: bool) -> None:
        lines: list[LogLine] = []
        start = 0
        while start < len(text):
            end = text.find("\n", start, start + LINE_CHARACTERS_MAX)
            if end < 0 and len(text) - start < LINE_CHARACTERS_MAX and not is_end:
                break
            stop = end + 1 if end >= 0 else min(len(text), start + LINE_CHARACTERS_MAX)
            line = self._logged(text[start:stop])
            if line is not None:
                lines.append(line)
            start = stop
        self._line = text[start:]
        for start in range(0, len(lines), LINES_MAX):
            self._logs(Logs(tuple(lines[start : start + LINES_MAX])))

    def _logged(self, line: str) -> LogLine | None:
        """None for a line that went to the log before. Secrets are masked by line, as one line is printed at once."""
        shown = masked(line, self._secrets)
        fields = {FIELD_OFFSET: str(self._total), FIELD_ATTEMPT: str(self._generation)}
        if not shown.endswith("\n"):
            fields[FIELD_CUT] = "yes"
        content = shown.encode()
        is_new = self._is_new(zlib.crc32(content))
        self._total += len(content)
        self._sent = max(self._sent, self._total)
        self._keep(shown)
        if not is_new:
            return None
        return LogLine(self._clock.now(), self._source, "info", shown.removesuffix("\n"), fields)

    def _is_new(self, checksum: int) -> bool:
        """Whole lines are left out, so those that were sent are found in the whole output, in their order."""
        is_again = self._seen < len(self._remembered)
        if is_again and self._remembered[self._seen] == checksum:
            self._seen += 1
            return False
        if len(self._remembered) >= REMEMBERED_MAX:
            return is_again or self._total >= self._sent
        self._remembered.insert(self._seen, checksum)
        self._seen += 1
        return True

    def _keep(self, shown: str) -> None:
        self._tail.append(shown)
        self._tail_length += len(shown)
        if self._tail_length > 4 * OUTPUT_BYTES_MAX:
            # A character has one byte at least.
            kept = "".join(self._tail)[-OUTPUT_BYTES_MAX:]
            self._tail, self._tail_length = [kept], len(kept)


def _end_of(text: str) -> str:
    """The last OUTPUT_BYTES_MAX bytes, without half a character."""
    if len(text) * 4 <= OUTPUT_BYTES_MAX:
        return text
    content = text.encode()
    return text if len(content) <= OUTPUT_BYTES_MAX else content[-OUTPUT_BYTES_MAX:].decode(errors="ignore")
