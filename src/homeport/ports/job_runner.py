"""The interface of what runs jobs on a node: container engines, and the machine itself."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from typing import Protocol, runtime_checkable

from homeport.lazy_dataclass import dataclass
from homeport.ports.runtime import OnProgress


@dataclass(frozen=True, slots=True)
class JobRunRequest:
    """One attempt of a job."""

    id: str
    """Unique per attempt: letters, digits, dots, dashes and underscores."""
    command: tuple[str, ...]
    image: str = ""
    entrypoint: str = ""
    """In place of the image's own."""
    environment: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Variables with the values of secrets: they are on no command line and in no file."""
    cpu_cores: float = 0.0
    memory_bytes: int = 0
    gpus: int = 0


@dataclass(frozen=True, slots=True)
class RunStatus:
    is_running: bool
    exit_code: int | None = None
    """None while it runs, and where its end was not observed: the machine was restarted."""
    started_at: datetime | None = None
    finished_at: datetime | None = None


class JobRunner(Protocol):
    """Runs attempts that outlive the node's process. Failures are WorkFailed with a code, or EngineUnavailable."""

    async def prepare(self, request: JobRunRequest, on_progress: OnProgress) -> None:
        """Pulls what `start` needs."""
        ...

    async def start(self, request: JobRunRequest) -> None:
        """Starts it, unless it was already started, whether it still runs or not."""
        ...

    async def look(self, run_id: str) -> RunStatus | None:
        """None for one that was never started."""
        ...

    def output(self, run_id: str) -> AsyncIterator[bytes]:
        """Everything it has printed, then what it prints, until it ends."""
        ...

    async def stop(self, run_id: str) -> None:
        """Ends it and everything it has started: asks first, then kills. Returns when it has ended."""
        ...

    async def collect(self, run_id: str, path: str, *, bytes_max: int) -> bytes:
        """A file that it has left. Raises WorkFailed where it is missing, not a plain file, or too large."""
        ...

    async def remove(self, run_id: str) -> None:
        """Removes what is left of it, its files too. It has ended."""
        ...

    async def runs(self) -> Sequence[str]:
        """Every attempt of this node that exists in any form."""
        ...


@runtime_checkable
class RunsJobs(Protocol):
    """A runtime whose engine can run jobs in containers."""

    def job_runner(self) -> JobRunner: ...
