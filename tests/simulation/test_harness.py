"""The simulation itself: that its time is virtual, that a seed repeats, and that it finds what is broken."""

import os
import subprocess
import sys
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from tests.simulation.loop import Stalled, run
from tests.simulation.seeds import SHOWN
from tests.simulation.simulate import never_happened, report, simulate
from tests.simulation.stories import Wish
from tests.simulation.world import Sabotage

ROOT = Path(__file__).parents[2]
SEEDS_MAX = 12
"""Within so many seeds each sabotage has shown."""


def test_waiting_takes_no_time() -> None:
    async def wait_a_year() -> float:
        await anyio.sleep(365 * 86_400)
        return anyio.current_time()

    assert run(wait_a_year) == pytest.approx(365 * 86_400)


def test_a_world_that_stands_still_is_told_and_not_waited_for() -> None:
    async def wait_for_nobody() -> None:
        await anyio.Event().wait()

    with pytest.raises(Stalled):
        run(wait_for_nobody)


def test_a_thread_cannot_spoil_a_story_unnoticed() -> None:
    with pytest.raises(AssertionError, match="wants a real thread"):
        run(lambda: anyio.to_thread.run_sync(len, ""))


def test_a_file_cannot_spoil_a_story_either() -> None:
    """What is there to be read would be told by a thread, in real time."""

    async def wait_for(file: int) -> float:
        with anyio.move_on_after(5.0):
            await anyio.wait_readable(file)
        return anyio.current_time()

    read, write = os.pipe()
    with os.fdopen(read, "rb"), os.fdopen(write, "wb"):
        os.write(write, b"x")
        assert run(lambda: wait_for(read)) == pytest.approx(5.0)


@pytest.mark.parametrize("seed", [13])
def test_a_seed_tells_the_same_story_in_every_process(seed: int) -> None:
    command = [sys.executable, str(ROOT / "scripts" / "simulate"), "--seed", str(seed), "--digest"]
    told = [subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(2)]
    assert len(told[0].strip()) == 64
    assert told[0] == told[1]


@pytest.mark.parametrize("sabotage", list(Sabotage))
def test_a_bug_put_in_on_purpose_is_found_and_can_be_seen_again(sabotage: Sabotage) -> None:
    wish = Wish(sabotage)
    # The recorded seed shows it at once; where the simulation has changed since, another one has to be recorded.
    seeds = dict.fromkeys([SHOWN[sabotage], *range(SEEDS_MAX)])
    outcome = next((each for seed in seeds if (each := simulate(seed, wish)).problems), None)
    assert outcome is not None, f"{sabotage} was not found"
    told = report(outcome, 30, wish)
    assert told[-1].endswith(f"make simulate SEED={outcome.seed} SABOTAGE={sabotage}")
    assert len(told) > 30


def test_a_fleet_in_which_nothing_happens_is_not_taken_for_one_that_works() -> None:
    happened = simulate(0).happened
    assert happened["happening healthy"] > 0
    assert never_happened(happened), "one seed cannot have seen everything"
