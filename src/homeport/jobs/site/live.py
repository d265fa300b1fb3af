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
                is_owned = kind == JOB and job_id and self.owner_of(JobId(job_id)) == node_id
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
        """What an attempt has printed after a position; None where nothing of it is here."""
        buffer = self._buffers.get(job_id)
        if buffer is None or buffer.generation != generation:
            return None
        # From the newest: most readers have seen all but the last parts.
        new = list(takewhile(lambda part: part[0] >= after, reversed(buffer.parts)))
        if not new:
            return None
        return Shown("".join(text for _, text in reversed(new)), new[-1][0], generation)

    def forget(self, job_id: JobId) -> None:
        self._buffers.pop(job_id, None)

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
