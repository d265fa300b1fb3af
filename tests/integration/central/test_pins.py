"""A site that went back to an older revision: central writes to Git what it has seen there, nothing else."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from homeport.central.app import CentralApp
from homeport.core.model.deployment import Pin, digest_of_bytes
from homeport.core.model.report import Pinned, SyncFailed
from homeport.fleet.central.rollback import settle_pins
from homeport.vocabulary import DeploymentId, Digest
from tests.support.git import git
from tests.support.running_central import Client, FakeSite, running_central, write_app
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def shown(data: Path, *arguments: str) -> str:
    return git(*arguments, cwd=data / "deployments.git")


async def two_revisions(central: CentralApp, client: Client) -> tuple[DeploymentId, Pin]:
    """A deployment that was at 1.0.0 and is at 1.1.0, and the pin of somebody who goes back."""
    (id_,) = (await client.deploy(version="1.0.0")).body["deployment_ids"]
    assert (await client.deploy(version="1.1.0")).body["deployment_ids"] == [id_]
    async with central.parts.store.read() as reader:
        newer, older = await reader.revisions(id_)
    assert (newer.app_version, older.app_version) == ("1.1.0", "1.0.0")
    return id_, Pin(id_, older.revision, older.content, newer.revision, "it leaks", "ada", NOW)


def changed(pin: Pin, **values: object) -> Pin:
    given = {name: getattr(pin, name) for name in Pin.__slots__} | values
    return Pin(**given)


async def events(central: CentralApp, kind: str) -> list[str]:
    async with central.parts.store.read() as reader:
        return [each.event.message for each in await reader.events(after=0, limit=1000) if each.event.kind == kind]


async def test_a_pin_is_written_as_the_site_on_behalf_of_the_person(
    tmp_path: Path, central: CentralApp, client: Client, home: FakeSite
) -> None:
    id_, pin = await two_revisions(central, client)
    await home.say(Pinned(pin))
    await settle_pins(central.parts.git_writer, central.parts.clock)
    author, message = shown(tmp_path / "central", "log", "-1", "--format=%an%x00%B", "main").split("\0")
    assert author == "site/home"
    assert "it leaks (on behalf of ada)" in message
    assert shown(tmp_path / "central", "show", f"main:deployments/home/{id_}.yaml") == pin.content.decode().strip()
    trail = (await client.get("/api/v1/audit", params={"action": "deployments.rollback"})).body["entries"]
    assert [(each["actor"], each["role"], each["target"]) for each in trail] == [("site/home", "machine", id_)]


async def test_content_that_is_not_the_revision_is_refused(
    tmp_path: Path, central: CentralApp, client: Client, home: FakeSite
) -> None:
    _, pin = await two_revisions(central, client)
    before = shown(tmp_path / "central", "rev-parse", "main")
    evil = pin.content.replace(b"oci://127.0.0.1:5000/web", b"oci://evil.example/backdoor")
    assert evil != pin.content
    await home.say(
        Pinned(changed(pin, content=evil)),
        Pinned(changed(pin, content=evil, revision=digest_of_bytes(evil))),
        Pinned(changed(pin, revision=Digest("sha256:" + "0" * 64))),
        SyncFailed("behind them"),
    )
    async with central.parts.store.read() as reader:
        assert await reader.pins() == []
    refused = await events(central, "deployment.refused")
    assert ["its content is not the revision" in each for each in refused] == [True, False, True]
    assert "central keeps no revision" in refused[1]
    await settle_pins(central.parts.git_writer, central.parts.clock)
    assert shown(tmp_path / "central", "rev-parse", "main") == before
    assert (await client.get("/api/v1/sites/home")).body["problem"] == "behind them"


@pytest.mark.parametrize("author", ["\\", "", "\0", "<>", "a" * 500, "\ud800"])
async def test_an_author_that_git_cannot_write_spoils_nothing(
    author: str, central: CentralApp, client: Client, home: FakeSite
) -> None:
    _, pin = await two_revisions(central, client)
    await home.say(Pinned(changed(pin, author=author)))
    await settle_pins(central.parts.git_writer, central.parts.clock)
    async with central.parts.store.read() as reader:
        assert await reader.pins() == []
    assert await events(central, "deployment.pinned")


async def test_a_poisoned_pin_in_the_database_is_dropped_and_the_others_are_written(tmp_path: Path) -> None:
    data = tmp_path / "central"
    registry = tmp_path / "registry"
    write_app(registry, version="1.0.0")
    write_app(registry, version="1.1.0")
    async with running_central(data) as (central, client):
        assert (await client.post("/api/v1/apps", {"repository": str(registry)})).status == 201
        for name in ("home", "north"):
            await FakeSite(client, name).join()
        bad, pin = await two_revisions(central, client)
        body = {"app_name": "hello", "sites": [{"site_id": "north"}]}
        (good,) = (await client.post("/api/v1/deployments", {**body, "version": "1.0.0"})).body["deployment_ids"]
        assert (await client.post("/api/v1/deployments", {**body, "version": "1.1.0"})).status == 202
        async with central.parts.store.read() as reader:
            newer, older = await reader.revisions(good)
        digits = pin.content + b"\n# timeout: " + b"1" * 400
        evil = pin.content.replace(b"id: ", b"id: [[[[", 1) + digits
        poisoned = changed(pin, content=evil, revision=digest_of_bytes(evil))
        fine = Pin(good, older.revision, older.content, newer.revision, "it leaks", "ada", NOW)
        await central.parts.store.write(lambda tx: tx.put_pin(poisoned))
        await central.parts.store.write(lambda tx: tx.put_pin(fine))
    async with running_central(data, sweep_seconds=0.1) as (central, client):

        async def is_settled() -> bool:
            async with central.parts.store.read() as reader:
                return not await reader.pins()

        await eventually(is_settled, what="the pins to be settled")
        assert (await client.get("/readyz")).status == 200
        assert older.content.decode().strip() == shown(data, "show", f"main:deployments/north/{good}.yaml")
        assert evil.decode().strip() != shown(data, "show", f"main:deployments/home/{bad}.yaml")
        given_up = [each for each in await events(central, "deployment.pinned") if "given up" in each]
        assert len(given_up) == 1
