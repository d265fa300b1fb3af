"""Lines reach the site once, in order and without a silent hole, whatever the link and the node's process do."""

import random
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from homeport.adapters.logs.sqlite import LogFile
from homeport.adapters.system import SystemClock
from homeport.core.logs.gaps import count_of
from homeport.core.logs.intake import LogArrival
from homeport.core.logs.line import LogBatch, LogLine, Origin
from homeport.core.logs.rates import RateRules
from homeport.logs.node import spool as spool_module
from homeport.logs.node.spool import LogSpool
from homeport.ports import InThread, Logs, LogsStored
from tests.support.examples import examples

LINES = 120
CONTAINER = "c1"


async def in_place(work: Callable[..., object], /, *arguments: object) -> object:
    await anyio.lowlevel.checkpoint()
    return work(*arguments)


class Link:
    """Loses, repeats and delays what a node sends; the site stores what arrives."""

    def __init__(self, site: LogFile, chance: random.Random) -> None:
        self._site = site
        self._chance = chance
        self.waiting: list[Logs] = []
        self.answered: list[LogsStored] = []
        self.is_calm = False

    def send(self, logs: Logs) -> None:
        if self.is_calm or self._chance.random() > 0.2:
            self.waiting.append(logs)
        if not self.is_calm and self._chance.random() < 0.1:
            self.waiting.append(logs)

    def deliver(self) -> None:
        waiting, self.waiting = self.waiting, []
        for logs in waiting:
            batch = LogBatch(logs.buffer, logs.previous, [("n1", line) for line in logs.lines])
            (last,) = self._site.take([LogArrival("node/n1", "north", [batch])])
            if self.is_calm or self._chance.random() > 0.2:
                self.answered.append(LogsStored(logs.buffer, last))


async def live(folder: Path, link: Link, chance: random.Random, *, until: int) -> None:
    """One life of a node: it reads its container from where its buffer ends, and is killed at some point."""
    file = LogFile(folder / "node.sqlite3")
    thread: InThread = in_place  # type: ignore[assignment]
    spool = LogSpool(
        file, SystemClock(), link.send, in_thread=thread, rules=RateRules(lines_per_second=0), bytes_max=10**9
    )
    written = int(spool.positions().get(CONTAINER, "0"))
    steps = 400 if link.is_calm else chance.randint(5, 60)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(spool.write)
        tasks.start_soon(spool.send)
        spool.opened()
        for _ in range(steps):
            if written < until and chance.random() < 0.7:
                count = min(chance.randint(1, 12), until - written)
                numbers = range(written + 1, written + count + 1)
                at = SystemClock().now()
                spool.put(
                    [LogLine(at, "job/1", "info", str(number)) for number in numbers], {CONTAINER: str(numbers[-1])}
                )
                written += count
            for _ in range(chance.randint(1, 5)):
                await anyio.lowlevel.checkpoint()
            link.deliver()
            for answer in link.answered:
                spool.stored(answer)
            link.answered.clear()
            if not link.is_calm and chance.random() < 0.1:
                spool.closed()
                link.waiting.clear()
                spool.opened()
        tasks.cancel_scope.cancel()
    file.close()


@settings(max_examples=examples(12), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_every_line_arrives_once_in_order(seed: int) -> None:
    chance = random.Random(seed)

    async def run(folder: Path) -> list[str]:
        site = LogFile(folder / "site.sqlite3")
        link = Link(site, chance)
        for _ in range(4):
            await live(folder, link, chance, until=LINES)
        link.is_calm = True
        await live(folder, link, chance, until=LINES)
        found = [each.line.text for each in site.after(0, 10 * LINES)]
        site.close()
        return found

    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as folder:
        patch.setattr(spool_module, "FLUSH_SECONDS", 0.0)
        found = anyio.run(run, Path(folder))
    assert found == [str(number) for number in range(1, LINES + 1)]


@settings(max_examples=examples(12), deadline=None)
@given(
    batches=st.lists(st.lists(st.sampled_from(["job/1", "job/2", "node"]), min_size=1, max_size=30), max_size=12),
    sent=st.integers(0, 100),
    trims=st.integers(1, 3),
)
def test_what_is_removed_before_it_was_sent_is_counted_to_the_line(
    batches: list[list[str]], sent: int, trims: int
) -> None:
    """The sum of what is there and of what the gaps say is what was written after the consumer's cursor."""
    with TemporaryDirectory() as folder:
        file = LogFile(Path(folder) / "logs.sqlite3")
        file.cursor("central")
        now, number = SystemClock().now(), 0
        for position, sources in enumerate(batches):
            lines = [(Origin("north", "n1", source), LogLine(now, source, "info", "x")) for source in sources]
            file.append(lines)
            number += len(sources)
            file.advance("central", min(sent, number))
            if position % trims == 0:
                file.trim(days=-1, bytes_max=10**9)
        cursor = min(sent, number)
        left = file.after(cursor, 10_000)
        total = sum(count_of(each.line) for each in left)
        assert total >= number - cursor, "nothing disappears without being counted"
        assert [each.id for each in left] == sorted(each.id for each in left)
        file.close()
