"""Holds and drains, alike on both databases."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from homeport.core.model.deployment import Hold
from homeport.ports import Store
from homeport.vocabulary import DeploymentId, SiteName
from tests.support.builders import a_node

pytestmark = pytest.mark.anyio

AT = datetime(2026, 5, 4, 3, 2, 1, 123456, tzinfo=UTC)
HOME, LINE = SiteName("home"), SiteName("line-7")


def hold(site: SiteName, on: str | None = None) -> Hold:
    deployment_id = None if on is None else DeploymentId(on)
    return Hold(site, deployment_id, "a shift is running", "anna", AT, AT + timedelta(hours=8))


async def test_the_holds_of_a_site_are_written_as_a_whole(store: Store) -> None:
    whole, one, there = hold(HOME), hold(HOME, "d-1"), hold(LINE)
    await store.write(lambda tx: tx.put_holds(HOME, [one, whole]))
    await store.write(lambda tx: tx.put_holds(LINE, [there]))
    async with store.read() as reader:
        assert await reader.holds(HOME) == [whole, one]
        assert await reader.holds() == [whole, one, there]
    longer = replace(one, expires_at=AT + timedelta(days=2), reason="an audit")
    await store.write(lambda tx: tx.put_holds(HOME, [longer]))
    async with store.read() as reader:
        assert await reader.holds() == [longer, there]
    await store.write(lambda tx: tx.put_holds(HOME, []))
    async with store.read() as reader:
        assert await reader.holds() == [there]


async def test_a_node_remembers_why_it_is_drained(store: Store) -> None:
    node = a_node("pi", drain="new disk")
    await store.write(lambda tx: tx.put_node(node))
    async with store.read() as reader:
        assert await reader.nodes(HOME) == [node]
    await store.write(lambda tx: tx.put_node(replace(node, drain=None)))
    async with store.read() as reader:
        assert (await reader.nodes(HOME))[0].drain is None
