"""Reports that could not be taken."""

from datetime import UTC, datetime, timedelta

import pytest

from homeport.ports import SetAside, Store
from homeport.vocabulary import SiteName

pytestmark = pytest.mark.anyio

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def an_aside(sequence: int, site: str = "home", epoch: str = "e") -> SetAside:
    at = NOW + timedelta(seconds=sequence)
    return SetAside(SiteName(site), epoch, sequence, "nonsense", "it is unknown", '{"kind":"nonsense"}', at)


async def kept(store: Store, site: str | None = None) -> list[SetAside]:
    async with store.read() as reader:
        return list(await reader.set_aside(None if site is None else SiteName(site)))


async def test_they_are_kept_as_they_came_in_their_order(store: Store) -> None:
    await store.write(lambda tx: tx.put_aside([an_aside(1), an_aside(2)]))
    await store.write(lambda tx: tx.put_aside([an_aside(2), an_aside(3, epoch="f"), an_aside(1, "north")]))
    assert await kept(store, "home") == [an_aside(1), an_aside(2), an_aside(3, epoch="f")]
    assert await kept(store) == [an_aside(1), an_aside(2), an_aside(3, epoch="f"), an_aside(1, "north")]


async def test_what_is_dropped_is_gone_and_nothing_else(store: Store) -> None:
    await store.write(lambda tx: tx.put_aside([an_aside(1), an_aside(2), an_aside(1, "north")]))
    await store.write(lambda tx: tx.drop_aside([an_aside(1)]))
    assert await kept(store) == [an_aside(2), an_aside(1, "north")]
