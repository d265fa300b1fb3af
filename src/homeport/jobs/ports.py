"""What others may do with jobs, at central and at a site alike: submit, look, follow the output, cancel."""

from typing import Final, Protocol

from homeport.core.jobs.job import Job, JobSpec
from homeport.core.model.caller import Caller
from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import JobId, SiteName

SYNC: Final = "jobs.sync"
"""The topic of a site's exchange with central."""
WAKE: Final = "jobs.wake"
OUTPUT: Final = "jobs.output"
"""Topics of central's questions to a site."""
WAIT_SECONDS_MAX: Final = 5.0
"""How long a request for output waits for more."""


@dataclass(frozen=True, slots=True)
class JobRequest:
    spec: JobSpec
    id: JobId | None = None
    """Chosen by the client, so that it may submit again after an answer that was lost."""
    site: SiteName | None = None
    """None lets central choose; at a site it is the site itself."""


@dataclass(frozen=True, slots=True)
class OutputPart:
    """What a job has printed after a position."""

    job: Job
    text: str
    start: int
    """Where the text begins, in bytes of the attempt's output. Beyond what was asked for where the part before it is
    no longer there."""
    generation: int
    """Of the attempt; another attempt begins at 0 again."""
    is_complete: bool
    """Whether nothing more will come."""

    @property
    def next(self) -> int:
        return self.start + len(self.text.encode())


class Jobs(Protocol):
    async def submit(self, request: JobRequest, caller: Caller) -> Job:
        """The job, durable. The same id with the same content is the same job. Raises InvalidInput, Conflict,
        NoNodeFits, QueueFull and NotFound for an unknown site."""
        ...

    async def find(self, text: str, caller: Caller, site: SiteName | None = None) -> Job:
        """By id, or by a prefix that fits only one. Raises NotFound and Conflict."""
        ...

    async def shown(self, job: Job) -> Job:
        """With what a pending job waits for, as its site says now."""
        ...

    async def cancel(self, job: Job, caller: Caller) -> Job:
        """Asks for it. The job's state changes when its node has stopped it."""
        ...

    async def output(self, job: Job, *, after: int, generation: int, wait_seconds: float) -> OutputPart:
        """Waits for something new, for so long at most. `generation` is the attempt that `after` belongs to."""
        ...

    async def result(self, job: Job, *, seconds: float) -> Job:
        """Waits until it has ended, for so long at most; returns it as it is then."""
        ...
