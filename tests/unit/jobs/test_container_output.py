"""The output of a job's container, from an engine whose stream ends too early."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from homeport.adapters.jobs.containers import ContainerJobs
from homeport.adapters.runtime.docker_api.client import EngineApi
from homeport.adapters.runtime.docker_api.engine import ContainerEngine
from homeport.vocabulary import NodeId

pytestmark = pytest.mark.anyio

LINES = [f"line {number}\n".encode() for number in range(1, 101)]
ENDED = {"StartedAt": "2026-05-01T12:00:00Z", "FinishedAt": "2026-05-01T12:00:01Z", "Running": False, "ExitCode": 0}


class ScriptedEngine:
    """The answers of an engine: what it streams while the container runs, and what it has in full."""

    def __init__(self, followed: Sequence[bytes], whole: Sequence[bytes], *, is_running: bool = True) -> None:
        self._followed = followed
        self._whole = whole
        self._is_running = is_running

    def output_file(self, inspected: dict[str, Any]) -> Path | None:
        return None

    async def inspect(self, name: str) -> dict[str, Any]:
        return {"State": {**ENDED, "Running": self._is_running}}

    async def logs(self, name: str, *, follow: bool = False, **options: Any) -> AsyncIterator[bytes]:
        if follow:
            self._is_running = False
        for chunk in self._followed if follow else self._whole:
            yield chunk


def runner_of(engine: ScriptedEngine) -> ContainerJobs:
    return ContainerJobs(cast(ContainerEngine, None), cast(EngineApi, engine), NodeId("n1"))


async def read(runner: ContainerJobs) -> bytes:
    return b"".join([chunk async for chunk in runner.output("one.1")])


@pytest.mark.parametrize("missing", [0, 1, 30, 100])
async def test_a_stream_that_ended_too_early_is_completed(missing: int) -> None:
    followed = LINES[: len(LINES) - missing]
    assert await read(runner_of(ScriptedEngine(followed, LINES))) == b"".join(LINES)
    in_parts = [b"".join(LINES)[start : start + 7] for start in range(0, len(b"".join(LINES)), 7)]
    assert await read(runner_of(ScriptedEngine(followed, in_parts))) == b"".join(LINES)


async def test_a_log_that_its_engine_has_shortened_is_no_reason_to_read_again() -> None:
    assert await read(runner_of(ScriptedEngine(LINES, LINES[50:]))) == b"".join(LINES)
