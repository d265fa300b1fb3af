"""A role that has started looks for garbage again: what its work leaves behind has a bound."""

import gc
from collections.abc import Iterator

import anyio
import pytest

from homeport.cli.main import COLLECT_AFTER as WHILE_STARTING
from homeport.cli.roles.running import Lifetime, run_role

SURVIVE = WHILE_STARTING[0] + 10_000
"""So many at once are taken for used by the first collection, with either setting."""


@pytest.fixture(autouse=True)
def _collector_as_it_was() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


class Cycle:
    alive = 0

    def __init__(self) -> None:
        self.me = self
        Cycle.alive += 1

    def __del__(self) -> None:
        Cycle.alive -= 1


def test_cycles_that_outlive_one_collection_are_found_soon() -> None:
    gc.set_threshold(*WHILE_STARTING)
    most = 0

    async def work(lifetime: Lifetime) -> None:
        nonlocal most
        lifetime.ready()
        for _ in range(6):
            kept = [Cycle() for _ in range(SURVIVE)]
            most = max(most, Cycle.alive)
            del kept
        await anyio.lowlevel.checkpoint()

    run_role("a role is up", work, address="nowhere")
    assert most < 4 * SURVIVE
