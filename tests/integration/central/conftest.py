"""A running central for each test, with two apps in its catalog where a test asks for them."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from homeport.central.app import CentralApp
from tests.support.running_central import Client, FakeSite, running_central, write_app


@pytest.fixture
async def started(tmp_path: Path) -> AsyncIterator[tuple[CentralApp, Client]]:
    async with running_central(tmp_path / "central") as started:
        yield started


@pytest.fixture
async def central(started: tuple[CentralApp, Client]) -> CentralApp:
    return started[0]


@pytest.fixture
async def client(started: tuple[CentralApp, Client]) -> Client:
    return started[1]


@pytest.fixture
def registry(tmp_path: Path) -> Path:
    return two_versions(tmp_path / "registry")


@pytest.fixture
async def home(client: Client, registry: Path) -> FakeSite:
    """A central with the apps of `registry` and a site `home` that has joined."""
    return await furnished(client, registry)


@pytest.fixture(scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client]:
    """Furnished like the central of `home`, one for all tests of a file: `unchanged` is how a test gets it."""
    folder = tmp_path_factory.mktemp("shared")
    async with running_central(folder / "central") as (_, client):
        await furnished(client, two_versions(folder / "registry"))
        yield client


@pytest.fixture
async def unchanged(shared: Client) -> AsyncIterator[Client]:
    """For a test that is refused in everything: no app, deployment, commit or event may come of it."""

    async def look() -> tuple[Any, ...]:
        overview = (await shared.get("/api/v1/overview")).body
        apps = (await shared.get("/api/v1/apps")).body["apps"]
        deployments = (await shared.get("/api/v1/deployments")).body["deployments"]
        return overview["commit"], overview["last_event_id"], len(apps), len(deployments)

    before = await look()
    yield shared
    assert await look() == before


def two_versions(root: Path) -> Path:
    write_app(root, version="1.0.0")
    write_app(root, version="1.1.0")
    return root


async def furnished(client: Client, registry: Path) -> FakeSite:
    added = await client.post("/api/v1/apps", {"repository": str(registry)})
    assert added.status == 201, added.body
    site = FakeSite(client)
    await site.join()
    return site
