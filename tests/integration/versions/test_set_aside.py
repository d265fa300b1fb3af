"""A report that an older central could not read is not lost: the next version takes it."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from homeport.ports import SetAside
from homeport.vocabulary import SiteName
from homeport.wire.reports import UNKNOWN_KIND
from tests.support.running_central import FakeSite, running_central

pytestmark = pytest.mark.anyio

AT = datetime(2026, 1, 1, tzinfo=UTC)


def an_aside(sequence: int, kind: str, body: str, why: str = f'kind: "x" {UNKNOWN_KIND}') -> SetAside:
    return SetAside(SiteName("home"), "epoch-0", sequence, kind, why, body, AT)


async def test_what_was_set_aside_for_its_kind_is_read_again_in_order_and_once(tmp_path: Path) -> None:
    async with running_central(tmp_path) as (central, client):
        await FakeSite(client).join()
        waiting = [
            an_aside(1, "sync-failed", '{"kind":"sync-failed","message":"one"}'),
            an_aside(2, "sync-failed", '{"kind":"sync-failed","message":"two"}'),
            an_aside(3, "sync-failed", '{"kind":"sync-failed","message":5}'),
            an_aside(4, "still-unknown", '{"kind":"still-unknown"}'),
            an_aside(5, "sync-failed", '{"kind":"sync-failed","message":"three"}', why="it could not be applied"),
        ]
        await central.parts.store.write(lambda tx: tx.put_aside(waiting))
    async with running_central(tmp_path) as (central, client):
        assert (await client.get("/api/v1/sites/home")).body["problem"] == "two"
        async with central.parts.store.read() as reader:
            assert [each.sequence for each in await reader.set_aside()] == [3, 4, 5]
