"""What models answer to inference jobs, while they write it: shown some ten times a second to those who watch, and
whole lines go to the log of the site, as the lines of any job do."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import Final

import anyio

from homeport.core.jobs.job import JOB, Job
from homeport.jobs.node.output import OutputReader
from homeport.jobs.site.live import LiveOutput
from homeport.lazy_dataclass import dataclass
from homeport.ports import Clock, LogLine, Logs
from homeport.vocabulary import JobId

SHOW_SECONDS: Final = 0.1
"""A model writes up to hundreds of tokens a second; each of them would cost every watcher a request."""


@dataclass(slots=True, eq=False)
class _Answer:
    job: Job
    output: OutputReader
    texts: list[str] = field(default_factory=list)
    """Not shown yet."""
    shown: int = 0
    """Bytes."""


class Answers:
    def __init__(self, live: LiveOutput, clock: Clock, put_lines: Callable[[Sequence[LogLine]], None]) -> None:
        self._live = live
        self._clock = clock
        self._put_lines = put_lines
        self._answers: dict[JobId, _Answer] = {}
        self._written = anyio.Event()

    def begin(self, job: Job) -> Callable[[str], None]:
        """What takes the answer to this attempt, as it is generated."""
        output = OutputReader(f"{JOB}/{job.id}", job.generation, (), self._clock, self._put_logs)
        answer = self._answers[job.id] = _Answer(job, output)
        return partial(self._write, answer)

    def end(self, job_id: JobId) -> None:
        """Nothing more comes: what there is is shown, and is in the log."""
        answer = self._answers.pop(job_id, None)
        if answer is not None:
            self._show(answer)
            answer.output.end()

    async def run(self) -> None:
        while True:
            await self._written.wait()
            self._written = anyio.Event()
            for answer in self._answers.values():
                self._show(answer)
            self._live.wake()
            await anyio.sleep(SHOW_SECONDS)

    def _write(self, answer: _Answer, text: str) -> None:
        answer.texts.append(text)
        self._written.set()

    def _show(self, answer: _Answer) -> None:
        if not answer.texts:
            return
        text, answer.texts = "".join(answer.texts), []
        content = text.encode()
        self._live.put(answer.job.id, answer.job.generation, answer.shown, text)
        answer.shown += len(content)
        answer.output.feed(content)

    def _put_logs(self, logs: Logs, positions: Mapping[str, str]) -> None:
        """Where an answer goes on is not kept: one that is interrupted is asked for again, as another attempt."""
        self._put_lines(logs.lines)
