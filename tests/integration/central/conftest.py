"""A running central for each test, with two apps in its catalog where a test asks for them."""

from collections.abc import AsyncIterator
from pathlib import Path

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
    root = tmp_path / "registry"
    write_app(root, version="1.0.0")
    write_app(root, version="1.1.0")
    return root


@pytest.fixture
async def home(client: Client, registry: Path) -> FakeSite:
    """A central with the apps of `registry` and a site `home` that has joined."""
    added = await client.post("/api/v1/apps", {"repository": str(registry)})
    assert added.status == 201, added.body
    site = FakeSite(client)
    await site.join()
    return site
