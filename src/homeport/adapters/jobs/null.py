"""Jobs that run nothing: the fake, for tests, simulations and measurements.

Variables of the job say how it goes: HOMEPORT_NULL_EXIT its exit code, HOMEPORT_NULL_SECONDS how long it runs. It
prints its command, and every start is a line of `jobs.jsonl`, so that a test can count them.
"""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import anyio

from homeport.errors import WorkFailed
from homeport.lazy_dataclass import dataclass
from homeport.ports import Clock, JobRunRequest, OnProgress, RunStatus
from homeport.vocabulary import Code


@dataclass(frozen=True, slots=True)
class _Run:
    id: str
    command: tuple[str, ...]
    exit_code: int
    seconds: float
    started: float
    """Unix time."""
    is_stopped: bool = False


class NullJobs:
    def __init__(self, data: Path, clock: Clock) -> None:
        self._path = data / "jobs.jsonl"
        self._clock = clock
        self._runs: dict[str, _Run] | None = None

    async def prepare(self, request: JobRunRequest, on_progress: OnProgress) -> None:
        pass

    async def start(self, request: JobRunRequest) -> None:
        if request.id in self._known():
            return
        run = _Run(
            request.id,
            request.command,
            _whole(request.environment, "HOMEPORT_NULL_EXIT"),
            float(request.environment.get("HOMEPORT_NULL_SECONDS", "0")),
            self._clock.now().timestamp(),
        )
        self._known()[request.id] = run
        self._note("start", run)

    async def look(self, run_id: str) -> RunStatus | None:
        run = self._known().get(run_id)
        if run is None:
            return None
        started, now = datetime.fromtimestamp(run.started, UTC), self._clock.now()
        if run.is_stopped:
            return RunStatus(False, 137, started, now)
        if now.timestamp() - run.started < run.seconds:
            return RunStatus(True, started_at=started)
        return RunStatus(False, run.exit_code, started, now)

    async def output(self, run_id: str) -> AsyncIterator[bytes]:
        run = self._known().get(run_id)
        if run is None:
            return
        yield (" ".join(run.command) + "\n").encode()
        while (status := await self.look(run_id)) is not None and status.is_running:
            left = run.started + run.seconds - self._clock.now().timestamp()
            await anyio.sleep(max(0.01, min(left, 0.5)))

    async def stop(self, run_id: str) -> None:
        run = self._known().get(run_id)
        if run is not None:
            self._known()[run_id] = _Run(**{**asdict(run), "is_stopped": True})
            self._note("stop", run)

    async def collect(self, run_id: str, path: str, *, bytes_max: int) -> bytes:
        raise WorkFailed(Code.INTERNAL, f"{path} was not kept: the null runtime runs nothing.")

    async def remove(self, run_id: str) -> None:
        run = self._known().pop(run_id, None)
        if run is not None:
            self._note("remove", run)

    async def runs(self) -> Sequence[str]:
        return sorted(self._known())

    def _known(self) -> dict[str, _Run]:
        """Read at the first use: what was started before a crash is still there."""
        if self._runs is None:
            self._runs = {}
            for line in self._path.read_text().splitlines() if self._path.is_file() else ():
                self._replay(line, self._runs)
        return self._runs

    def _replay(self, line: str, runs: dict[str, _Run]) -> None:
        try:
            what, body = json.loads(line)
            run = _Run(**body)
        except (RecursionError, ValueError, TypeError):
            return  # A line truncated by a crash is the last one.
        if what == "start":
            runs[run.id] = run
        elif what == "remove":
            runs.pop(run.id, None)
        else:
            runs[run.id] = _Run(**{**body, "is_stopped": True})

    def _note(self, what: str, run: _Run) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            file.write(json.dumps([what, asdict(run)]) + "\n")


def _whole(environment: Mapping[str, str], name: str) -> int:
    text = environment.get(name, "0")
    return int(text) if text.isdigit() else 1
