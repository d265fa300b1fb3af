"""The newest output of jobs that run, for those who watch: lines as nodes send them, and answers as models write
them, bounded in memory. The end of the output is kept with the job; the log has all of it."""

from collections import deque
from collections.abc import Callable
from dataclasses import field
from itertools import takewhile
from typing import Final

import anyio

from homeport.core.jobs.job import JOB
from homeport.jobs.node.output import FIELD_ATTEMPT, FIELD_CUT, FIELD_OFFSET
from homeport.lazy_dataclass import dataclass
from homeport.ports import LogLine, Logs, Telemetry
from homeport.vocabulary import JobId, NodeId

BYTES_MAX: Final = 256 * 1024
JOBS_MAX: Final = 1_000
ENDED_BYTES_MAX: Final = 8 * 1024 * 1024
"""Of all jobs that have just ended: who follows one that prints faster than it is read still gets what it printed."""
DIGITS_MAX: Final = 16


@dataclass(slots=True)
class _Buffer:
    generation: int
    parts: deque[tuple[int, str]] = field(default_factory=deque)
    """Each with its place in the output, in bytes."""
    size: int = 0


@dataclass(frozen=True, slots=True)
class Shown:
    """A part of the output of one attempt."""

    text: str
    start: int
    """Where the text begins, in bytes; beyond what was asked for where the part before it is gone."""
    generation: int

    @property
    def next(self) -> int:
        return self.start + len(self.text.encode())


class LiveOutput:
    def __init__(self) -> None:
        self._buffers: dict[JobId, _Buffer] = {}
        self.owner_of: Callable[[JobId], NodeId | None] = lambda job_id: None
        """The node that runs a job; the board says."""
        self._ended: dict[JobId, NodeId | None] = {}
        """Jobs that have just ended, the oldest first, and whose lines may still be on their way."""
        self._changed = anyio.Event()

    def take(self, node_id: NodeId, message: Logs | Telemetry) -> None:
        """A node is believed about the jobs that it runs, and about no other."""
        if not isinstance(message, Logs):
            return
        owned: dict[str, JobId | None] = {}
        for line in message.lines:
            source = line.source
            if source not in owned:
                kind, _, job_id = source.partition("/")
                is_owned = kind == JOB and job_id and node_id in self._owners(JobId(job_id))
                owned[source] = JobId(job_id) if is_owned else None
            if (job := owned[source]) is not None:
                self._add(job, line)
        self.wake()

    def wake(self) -> None:
        """There is something new, or a job has changed its state."""
        self._changed.set()
        self._changed = anyio.Event()

    async def wait(self) -> None:
        await self._changed.wait()

    def read(self, job_id: JobId, generation: int, after: int) -> Shown | None:
        """What an attempt has printed after a position, up to where something is missing, as what a node left out
        because it was too much; None where nothing of it is here."""
        buffer = self._buffers.get(job_id)
        if buffer is None or buffer.generation != generation:
            return None
        # From the newest: most readers have seen all but the last parts.
        new = list(takewhile(lambda part: part[0] >= after, reversed(buffer.parts)))
        if not new:
            return None
        start = end = new[-1][0]
        texts: list[str] = []
        for place, text in reversed(new):
            if place != end:
                break
            texts.append(text)
            end += len(text.encode())
        return Shown("".join(texts), start, generation)

    def end(self, job_id: JobId, generation: int) -> Shown | None:
        """The newest output of an attempt, from behind whatever is missing."""
        buffer = self._buffers.get(job_id)
        if buffer is None or buffer.generation != generation or not buffer.parts:
            return None
        start, text = buffer.parts[-1]
        texts = [text]
        for place, before in reversed(list(buffer.parts)[:-1]):
            if place + len(before.encode()) != start:
                break
            start = place
            texts.append(before)
        return Shown("".join(reversed(texts)), start, generation)

    def ended(self, job_id: JobId, node_id: NodeId | None) -> None:
        """What it has printed stays for a while, and what comes late is taken."""
        self._ended[job_id] = node_id
        size = sum(self._buffers[each].size for each in self._ended if each in self._buffers)
        while len(self._ended) > JOBS_MAX or size > ENDED_BYTES_MAX:
            oldest = next(iter(self._ended))
            del self._ended[oldest]
            gone = self._buffers.pop(oldest, None)
            size -= 0 if gone is None else gone.size

    def forget(self, job_id: JobId) -> None:
        """A job begins: an earlier one of its id is another."""
        self._ended.pop(job_id, None)
        self._buffers.pop(job_id, None)

    def _owners(self, job_id: JobId) -> tuple[NodeId | None, ...]:
        return self.owner_of(job_id), self._ended.get(job_id)

    def _add(self, job_id: JobId, line: LogLine) -> None:
        offset, generation = line.fields.get(FIELD_OFFSET, ""), line.fields.get(FIELD_ATTEMPT, "")
        if not (_is_number(offset) and _is_number(generation)):
            return
        self.put(job_id, int(generation), int(offset), line.text if FIELD_CUT in line.fields else line.text + "\n")

    def put(self, job_id: JobId, generation: int, offset: int, text: str) -> None:
        """A part of the output of an attempt, and its place. Call `wake` after it."""
        buffer = self._buffers.get(job_id)
        if buffer is None or buffer.generation < generation:
            self._buffers.pop(job_id, None)
            buffer = self._buffers[job_id] = _Buffer(generation)
            while len(self._buffers) > JOBS_MAX:
                del self._buffers[next(iter(self._buffers))]
        if buffer.generation != generation or (buffer.parts and buffer.parts[-1][0] >= offset):
            return  # Of an attempt that was given up, or sent again.
        buffer.parts.append((offset, text))
        buffer.size += len(text)
        while buffer.size > BYTES_MAX and len(buffer.parts) > 1:
            buffer.size -= len(buffer.parts.popleft()[1])


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < DIGITS_MAX
