"""Older contents of deployments, and pins."""

from datetime import UTC, datetime, timedelta

import pytest

from homeport.core.model.deployment import Pin, Revision
from homeport.ports import Store
from homeport.vocabulary import Commit, DeploymentId, Digest

pytestmark = pytest.mark.anyio

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
ONE, TWO = DeploymentId("one"), DeploymentId("two")


def a_revision(number: int, deployment_id: DeploymentId = ONE, *, minutes: int | None = None) -> Revision:
    at = NOW + timedelta(minutes=number if minutes is None else minutes)
    return Revision(
        deployment_id, Digest(f"sha256:{number}"), f"1.{number}", b"\x00%d" % number, Commit("c" * 40), "ada", at
    )


async def kept(store: Store, deployment_id: DeploymentId = ONE) -> list[Revision]:
    async with store.read() as reader:
        return list(await reader.revisions(deployment_id))


async def test_the_newest_revisions_are_kept_newest_first(store: Store) -> None:
    for number in range(1, 6):
        await store.write(lambda tx, n=number: tx.put_revisions([a_revision(n), a_revision(n, TWO)], keep=3))  # type: ignore[misc]
    assert await kept(store) == [a_revision(5), a_revision(4), a_revision(3)]
    assert await kept(store, TWO) == [a_revision(n, TWO) for n in (5, 4, 3)]


async def test_those_of_several_deployments_are_one_question(store: Store) -> None:
    many = [DeploymentId(f"d{number:04}") for number in range(1_200)]
    await store.write(lambda tx: tx.put_revisions([a_revision(n, each) for each in many for n in (1, 2)], keep=2))
    async with store.read() as reader:
        found = await reader.revisions_of([*many[100:], DeploymentId("unknown")])
        assert await reader.revisions_of([]) == []
    assert len(found) == 2 * 1_100
    assert set(found) == {a_revision(n, each) for each in many[100:] for n in (1, 2)}


async def test_one_that_comes_again_is_the_newest_again(store: Store) -> None:
    await store.write(lambda tx: tx.put_revisions([a_revision(1), a_revision(2)], keep=3))
    await store.write(lambda tx: tx.put_revisions([a_revision(1, minutes=9)], keep=3))
    assert await kept(store) == [a_revision(1, minutes=9), a_revision(2)]


async def test_those_of_a_deployment_can_be_dropped_alone(store: Store) -> None:
    await store.write(lambda tx: tx.put_revisions([a_revision(1), a_revision(1, TWO)], keep=3))
    await store.write(lambda tx: tx.drop_revisions([ONE]))
    assert await kept(store) == []
    assert await kept(store, TWO) == [a_revision(1, TWO)]


async def test_a_pin_takes_the_place_of_the_one_before_over_the_same_revision(store: Store) -> None:
    first = Pin(ONE, Digest("sha256:a"), b"old", Digest("sha256:b"), "it broke", "ada", NOW)
    second = Pin(ONE, Digest("sha256:0"), b"older", Digest("sha256:b"), "that too", "bob", NOW)
    third = Pin(ONE, Digest("sha256:a"), b"old", Digest("sha256:c"), "again", "ada", NOW + timedelta(minutes=1))
    other = Pin(TWO, Digest("sha256:a"), b"x", Digest("sha256:b"), "", "ada", NOW)
    for pin in (first, third, other, second):
        await store.write(lambda tx, pin=pin: tx.put_pin(pin))  # type: ignore[misc]
    async with store.read() as reader:
        assert list(await reader.pins()) == [second, third, other]
    await store.write(lambda tx: tx.drop_pins([ONE]))
    async with store.read() as reader:
        assert list(await reader.pins()) == [other]


async def test_contents_are_found_at_their_revision_and_not_at_another(store: Store) -> None:
    given = [a_revision(1), a_revision(2), a_revision(2, TWO)]
    await store.write(lambda tx: tx.put_revisions(given, keep=3))
    wanted = {ONE: given[0].revision, TWO: given[2].revision, DeploymentId("three"): given[0].revision}
    async with store.read() as reader:
        assert await reader.revision_contents(wanted) == {ONE: given[0].content, TWO: given[2].content}
        assert await reader.revision_contents({TWO: given[0].revision}) == {}
        assert await reader.revision_contents({}) == {}
