"""What is written down stays true: a cut audit trail does not heal, an address holds no password, and events of
another version can be read."""

import sqlite3
import uuid
from contextlib import closing
from pathlib import Path

import pytest

from homeport.central.app import CentralApp
from tests.support.git import git
from tests.support.running_central import Client, FakeSite, write_app

pytestmark = pytest.mark.anyio

TOKEN = "ghp_LEAKEDTOKEN"


def tamper(data: Path, statement: str) -> None:
    with closing(sqlite3.connect(data / "central.db", timeout=60)) as database, database:
        database.execute(statement)


async def some_changes(client: Client) -> None:
    for _ in range(3):
        assert (await client.post("/api/v1/tokens", {"name": f"{uuid.uuid4()}", "role": "viewer"})).status == 201


@pytest.mark.parametrize("cut", ["position > 1", "1 = 1"])
async def test_a_cut_tail_is_reported_for_ever(tmp_path: Path, client: Client, cut: str) -> None:
    await some_changes(client)
    tamper(tmp_path / "central", f"DELETE FROM audit WHERE {cut}")
    await some_changes(client)
    verdict = (await client.get("/api/v1/audit/verify")).body
    assert verdict["ok"] is False
    assert "missing at the end" in verdict["fault"]
    entries = (await client.get("/api/v1/audit", params={"action": "audit.broken"})).body["entries"]
    assert len(entries) == 1
    await some_changes(client)
    assert (await client.get("/api/v1/audit/verify")).body["fault"] == verdict["fault"]


async def test_a_trail_that_nobody_cut_verifies(client: Client) -> None:
    await some_changes(client)
    assert (await client.get("/api/v1/audit/verify")).body["ok"] is True


async def test_a_token_in_the_address_of_an_app_is_kept_and_shown_nowhere(
    tmp_path: Path, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_app(tmp_path / "work")
    work = tmp_path / "work"
    for command in (("init", "-q", "-b", "main"), ("add", "."), ("commit", "-qm", "x")):
        git(*command, cwd=work)
    address = f"https://git:{TOKEN}@git.invalid/apps.git"
    # git itself is told to go to the folder instead, so the address is used as it is given.
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", f"url.file://{work}.insteadOf")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", address)
    missing = await client.post("/api/v1/apps", {"repository": address, "app_name": "nope"})
    added = await client.post("/api/v1/apps", {"repository": address})
    listed = await client.get("/api/v1/apps")
    assert TOKEN not in str(missing.body) + str(added.body) + str(listed.body)
    files = [path for path in (tmp_path / "central").rglob("*") if path.is_file() and "central.db" in path.name]
    assert all(TOKEN.encode() not in path.read_bytes() for path in files)
    assert added.status == 201, added.body
    assert listed.body["apps"][0]["repository"] == "https://***@git.invalid/apps.git"


async def test_an_event_of_a_kind_that_is_not_known_is_read(tmp_path: Path, home: FakeSite, client: Client) -> None:
    await client.deploy()
    tamper(tmp_path / "central", "UPDATE events SET kind = 'engine.warmed' WHERE id = 1")
    async for sent in client.events("/api/v1/events?after=0"):
        assert (sent.event, sent.data["kind"]) == ("engine.warmed", "engine.warmed")
        break


async def test_a_newer_site_may_say_more_than_central_knows(central: CentralApp, client: Client) -> None:
    body = {"epoch": "e", "software_version": "9", "colour": "blue"}
    assert (await client.put("/api/v1/sites/home", body)).status == 200
    report = {"sequence": 1, "body": {"kind": "sync-failed", "message": "it", "mood": 3}, "trace": "x"}
    said = {"epoch": "e", "reports": [report], "seen": {}, "weather": "rain"}
    assert (await client.post("/api/v1/sites/home/reports", said)).status == 200
    assert (await client.get("/api/v1/sites/home")).body["problem"] == "it"
