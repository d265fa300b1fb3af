"""In a large fleet central reads what a question is about: those of three sites for three of thousands."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from homeport.adapters.store.databases.errors import SqlConnection
from homeport.central.app import CentralApp
from homeport.central.loops import SILENT_AT_ONCE, sweep_silence
from homeport.ports import Transaction
from homeport.vocabulary import SiteName
from tests.conformance.store import records
from tests.support.running_central import Client, running_central, write_app

pytestmark = pytest.mark.anyio

SITES = 2_000
FEW = 300
"""What a question about three sites may read, with all that central does beside it."""


@asynccontextmanager
async def large_central(folder: Path) -> AsyncIterator[tuple[CentralApp, Client]]:
    write_app(folder / "apps")
    # Its own rounds would read beside the question.
    async with running_central(folder / "central", sweep_seconds=3_600.0, site_silence_seconds=3_600.0) as (
        central,
        client,
    ):
        added = await client.post("/api/v1/apps", {"repository": str(folder / "apps")})
        assert added.status == 201, added.body
        now = datetime.now(UTC)

        async def work(tx: Transaction) -> None:
            for number in range(SITES):
                name = SiteName(f"site-{number:04}")
                await tx.put_site(records.site(name, last_seen=now, labels={"region": f"r{number % 1000}"}))
                await tx.put_node(records.node("n1", name))

        await central.parts.store.write(work)
        yield central, client


@contextmanager
def rows_read(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], int]]:
    """Counts the rows that every query of this process answers."""
    count, rows = 0, SqlConnection.rows

    async def counted(self: SqlConnection, *arguments: Any) -> Any:
        nonlocal count
        found = await rows(self, *arguments)
        count += len(found)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(SqlConnection, "rows", counted)
        yield lambda: count


async def test_a_rollout_reads_its_own_sites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with large_central(tmp_path) as (_, client):
        app = {"app_name": "hello", "version": "1.0.0", "waves": ["100%"]}
        begun = await client.post(
            "/api/v1/deployments", {**app, "selector": "region=r7", "sites": [{"site_id": "site-0001"}]}
        )
        assert begun.status == 202, begun.body
        path = f"/api/v1/rollouts/{begun.body['rollout_id']}"
        read = []
        for _ in range(3):
            with rows_read(monkeypatch) as count:
                await client.get(path)
                read.append(count())
        shown = await client.get(path)
        assert min(read) < FEW, "beside one of them central may have had a round of its own"
        assert [each["site"] for each in shown.body["members"]] == ["site-0001", "site-0007", "site-1007"]


async def test_a_job_for_any_site_reads_until_one_can_run_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with large_central(tmp_path) as (_, client):
        read = []
        for site in ("site-0000", "site-0001", "site-0002"):
            with rows_read(monkeypatch) as count:
                made = await client.post("/api/v1/jobs", {"command": ["true"], "image": "app:1"})
                read.append(count())
            assert made.status == 201, made.body
            assert made.body["site"] == site, "the least busy, by name"
        assert min(read) < FEW, "beside one of them central may have had a round of its own"
        gpus = await client.post("/api/v1/jobs", {"command": ["true"], "image": "app:1", "gpus": 64})
        assert gpus.status == 422
        assert gpus.body["detail"].count("site-") == 10, "the first reasons, not two thousand"


async def test_silence_is_noticed_without_reading_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with large_central(tmp_path) as (central, _):
        store, long_ago = central.parts.store, datetime.now(UTC) - timedelta(days=1)
        silent = [SiteName(f"site-{number:04}") for number in range(SILENT_AT_ONCE + 10)]
        await store.write(lambda tx: tx.touch_sites(silent, long_ago))
        rounds = [await sweep_silence(central.parts) for _ in range(3)]  # Central's own first one may come between.
        assert rounds[0] == 0.0, "not all at once"
        assert rounds[-1] > 3_000.0, "until the next could become one"
        async with store.read() as reader:
            found = [site.name for site in await reader.sites() if site.silent_since is not None]
        assert found == silent
