"""Rollouts come back as they were put, newest first, and are guarded by their version."""

from dataclasses import replace
from datetime import timedelta

import pytest

from homeport.core.model.rollout import RolloutRow
from homeport.errors import Conflict
from homeport.ports import Store
from homeport.vocabulary import RolloutId, RolloutState
from tests.conformance.store import records

pytestmark = pytest.mark.anyio


def a_rollout(number: int, state: RolloutState = RolloutState.RUNNING) -> RolloutRow:
    return RolloutRow(
        id=RolloutId(f"rollout-{number}"),
        name="hello",
        state=state,
        intent={"name": "hello", "waves": [{"size": "25%", "sites": ["ä"]}], "parameters": {"on": True, "n": 1.5}},
        progress={"baking_since": None, "refused": {}},
        version=1,
        created_at=records.NOW + timedelta(minutes=number),
        updated_at=records.NOW,
        created_by="ann",
    )


async def test_rollouts_are_found_newest_first_and_by_state(store: Store) -> None:
    first, second = a_rollout(1, RolloutState.DONE), a_rollout(2)
    await store.write(lambda tx: tx.put_rollouts([first, second]))
    async with store.read() as reader:
        assert await reader.rollouts() == [second, first]
        assert await reader.rollouts([RolloutState.DONE, RolloutState.ABORTED]) == [first]
        assert await reader.rollouts([]) == []
        assert await reader.rollouts(name="hello") == [second, first]
        assert await reader.rollouts([RolloutState.DONE], name="other") == []
        assert await reader.rollout(first.id) == first
        assert await reader.rollout(RolloutId("unknown")) is None


async def test_a_write_that_saw_an_older_version_is_refused_and_changes_nothing(store: Store) -> None:
    row = a_rollout(1)
    await store.write(lambda tx: tx.put_rollouts([row]))
    newer = replace(row, state=RolloutState.PAUSED, version=2)
    await store.write(lambda tx: tx.put_rollouts([newer]))
    for late in (replace(row, state=RolloutState.DONE, version=2), row):
        with pytest.raises(Conflict):
            await store.write(lambda tx, late=late: tx.put_rollouts([late]))  # type: ignore[misc]
    async with store.read() as reader:
        assert await reader.rollouts() == [newer]
