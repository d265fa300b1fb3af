"""Who writes with an old version in hand is refused, and nothing changes."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import pytest
from anyio import create_task_group

from homeport.core.model.instance import Instance
from homeport.errors import Conflict
from homeport.ports import DeploymentFilter, Store, Transaction
from homeport.vocabulary import Incarnation, State
from tests.conformance.store import records

pytestmark = pytest.mark.anyio


async def all_instances(store: Store) -> Sequence[Instance]:
    async with store.read() as reader:
        return await reader.instances()


async def test_an_instance_is_updated_by_who_has_seen_its_version(store: Store) -> None:
    first = records.instance()
    second = replace(first, version=2, state=State.INSTALLING, step="pulling", revision=records.REVISION)
    await store.write(lambda tx: tx.put_instances([first]))
    await store.write(lambda tx: tx.put_instances([second]))
    assert await all_instances(store) == [second]


@pytest.mark.parametrize("version", [1, 2, 4, 9])
async def test_an_instance_that_moved_on_is_a_conflict(store: Store, version: int) -> None:
    stored = records.instance(version=1)
    await store.write(lambda tx: tx.put_instances([stored, replace(stored, version=2)]))
    fresh = records.instance("d-2")
    with pytest.raises(Conflict, match="have changed since they were read"):
        await store.write(lambda tx: tx.put_instances([fresh, replace(stored, version=version)]))
    assert await all_instances(store) == [replace(stored, version=2)]


async def test_an_update_of_an_instance_that_is_not_there_is_a_conflict(store: Store) -> None:
    with pytest.raises(Conflict):
        await store.write(lambda tx: tx.put_instances([records.instance(version=2)]))
    assert await all_instances(store) == []


async def test_two_steps_of_one_instance_fit_into_one_call(store: Store) -> None:
    steps = [records.instance(version=version, step=str(version)) for version in (1, 2, 3)]
    await store.write(lambda tx: tx.put_instances([*steps, records.instance("d-2")]))
    assert await all_instances(store) == [steps[2], records.instance("d-2")]


async def test_a_newer_incarnation_takes_the_place_of_an_older_one(store: Store) -> None:
    old = records.instance(state=State.DELETED)
    new = records.instance(incarnation=Incarnation(2))
    await store.write(lambda tx: tx.put_instances([old, replace(old, version=2)]))
    await store.write(lambda tx: tx.put_instances([new]))
    assert await all_instances(store) == [new]
    with pytest.raises(Conflict):
        await store.write(lambda tx: tx.put_instances([old]))
    assert await all_instances(store) == [new]


async def test_deployments_are_guarded_alike(store: Store) -> None:
    first = records.deployment()
    second = replace(first, version=2, state=State.INSTALLED, parameters={"greeting": "Moin"}, problem="x")
    other = records.deployment(name="other")
    await store.write(lambda tx: tx.put_deployments([first]))
    await store.write(lambda tx: tx.put_deployments([second, other]))
    for late in (first, second, replace(second, version=5)):
        with pytest.raises(Conflict):
            await store.write(lambda tx, late=late: tx.put_deployments([replace(other, version=2), late]))  # type: ignore[misc]
    async with store.read() as reader:
        assert await reader.deployments(DeploymentFilter()) == [second, other]


async def test_a_swallowed_conflict_still_changes_nothing(store: Store) -> None:
    async def swallow(tx: Transaction) -> None:
        await tx.set_value("key", "value")
        with suppress(Conflict):
            await tx.put_instances([records.instance(version=7)])

    with pytest.raises(Conflict):
        await store.write(swallow)
    async with store.read() as reader:
        assert await reader.value("key") is None


async def test_of_many_who_have_seen_the_same_version_one_wins(store: Store) -> None:
    await store.write(lambda tx: tx.put_instances([records.instance()]))
    won: list[int] = []

    async def race(number: int) -> None:
        try:
            await store.write(lambda tx: tx.put_instances([records.instance(version=2, step=str(number))]))
        except Conflict:
            return
        won.append(number)

    async with create_task_group() as tasks:
        for number in range(50):
            tasks.start_soon(race, number)
    assert [instance.step for instance in await all_instances(store)] == [str(number) for number in won]
