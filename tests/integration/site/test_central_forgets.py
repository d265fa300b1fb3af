"""A central that lost its database, or got an older copy of it, shows the truth again; nothing is touched."""

import shutil
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from homeport.adapters.link.inprocess import InProcessLink
from homeport.central.app import CentralApp
from homeport.core.model.instance import Failure
from homeport.core.model.order import Order
from homeport.site.app import SiteApp
from homeport.vocabulary import Code
from tests.integration.site.conftest import OpenSite
from tests.support.deployment_files import deployment_file
from tests.support.git import Person
from tests.support.ports import free_port
from tests.support.running_central import Client, running_central
from tests.support.scripted_node import scripted_node
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio

OpenCentral = Callable[[], AbstractAsyncContextManager[tuple[CentralApp, Client]]]


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def central(tmp_path: Path, remote: Path, port: int) -> OpenCentral:
    """Each that is started has the folder, the repository and the port of the one before."""
    return partial(running_central, tmp_path / "central", git_url=str(remote), http_address=("127.0.0.1", port))


@pytest.fixture
def site(start: OpenSite, port: int) -> Callable[[], AbstractAsyncContextManager[SiteApp]]:
    return partial(start, central_url=f"http://127.0.0.1:{port}", report_seconds=0.1)


def fails_broken(order: Order) -> Failure | None:
    is_broken = order.release is not None and order.release.name == "broken"
    return Failure(Code.IMAGE_PULL_FAILED, "there is no such image", "web") if is_broken else None


async def told(client: Client) -> dict[str, Any]:
    """What central shows of each deployment that is not gone."""
    rows = (await client.get("/api/v1/deployments")).body["deployments"]
    return {row["name"]: (row["state"], [standing(item) for item in row["instances"]]) for row in rows}


def known(site: SiteApp) -> dict[str, Any]:
    memory = site.parts.conductor.memory
    return {
        memory.files[item.deployment_id].name: (
            item.state.value,
            [
                {
                    "node_id": item.node_id,
                    "state": item.state.value,
                    "revision": item.revision,
                    "running_revision": item.running_revision,
                    "generation": item.generation,
                    "attempt": item.attempt,
                    "failure": None if item.failure is None else item.failure.message,
                }
            ],
        )
        for item in memory.instances.values()
    }


def standing(item: dict[str, Any]) -> dict[str, Any]:
    names = ("node_id", "state", "revision", "running_revision", "generation", "attempt")
    failure = item["failure"]
    return {**{name: item[name] for name in names}, "failure": None if failure is None else failure["message"]}


async def shows_the_truth(client: Client, site: SiteApp) -> None:
    async def is_shown() -> bool:
        return bool(known(site)) and await told(client) == known(site)

    await eventually(is_shown, what="central to show what the site knows")


async def events(central: CentralApp) -> list[str]:
    async with central.parts.store.read() as reader:
        return [event.event.kind.value for event in await reader.events(after=0, limit=10_000)]


async def test_a_central_without_its_database_shows_everything_again(
    person: Person, central: OpenCentral, site: Callable[[], AbstractAsyncContextManager[SiteApp]], tmp_path: Path
) -> None:
    path, text = deployment_file(name="hello")
    broken, words = deployment_file(name="broken")
    person.write(path, text)
    person.write(broken, words)
    person.push()
    async with site() as here, scripted_node(InProcessLink(here.parts.reception), answer=fails_broken) as node:
        async with central() as (_, client):
            await eventually(lambda: {row[0] for row in known(here).values()} == {"INSTALLED", "FAILED"})
            await shows_the_truth(client, here)
        orders = [order for order in node.orders if order.release is not None and order.release.name == "hello"]
        for file in (tmp_path / "central").glob("central.db*"):
            file.unlink()
        async with central() as (started, client):
            await shows_the_truth(client, here)
            assert [each["id"] for each in (await client.get("/api/nodes")).body] == ["one"]
            assert (await client.get("/api/v1/sites/home")).body[
                "applied_commit"
            ] == here.parts.conductor.memory.applied
            rows = (await client.get("/api/v1/deployments")).body["deployments"]
            row = next(row for row in rows if row["name"] == "hello")  # the broken one is tried again meanwhile
            (entry,) = (await client.get(f"/api/v1/deployments/{row['id']}/history")).body["history"]
            assert (entry["verdict"], entry["trigger"], entry["actor"]) == ("restated", "restated", "site")
            person.write(path, text.replace("Ahoy", "Hello"))
            person.push()
            await eventually(lambda: len([o for o in node.orders if o.release and o.release.name == "hello"]) == 2)
            await shows_the_truth(client, here)
            seen = await events(started)
        assert orders == [order for order in node.orders if order.release and order.release.name == "hello"][:1]
        assert seen.count("site.restated") == 1
        assert "deployment.refused" not in seen
        assert "instance.stale" not in seen


async def test_an_older_copy_of_centrals_database_catches_up(
    person: Person, central: OpenCentral, site: Callable[[], AbstractAsyncContextManager[SiteApp]], tmp_path: Path
) -> None:
    gone, text = deployment_file(name="gone")
    person.write(gone, text)
    person.push()
    data, copy = tmp_path / "central", tmp_path / "copy"
    async with site() as here, scripted_node(InProcessLink(here.parts.reception)) as node:
        async with central() as (_, client):
            await shows_the_truth(client, here)
        shutil.copytree(data, copy)
        async with central() as (_, client):
            person.remove(gone)
            stays, words = deployment_file(name="stays")
            person.write(stays, words)
            person.push()
            await eventually(lambda: [*known(here)] == ["stays"] and known(here)["stays"][0] == "INSTALLED")
            await shows_the_truth(client, here)
        heard = len(node.orders)
        shutil.rmtree(data)
        shutil.copytree(copy, data)
        async with central() as (started, client):
            await shows_the_truth(client, here)
            archived = (await client.get("/api/v1/deployments?archived=true")).body["deployments"]
            assert [(row["name"], row["state"]) for row in archived] == [("gone", "DELETED")]
            seen = await events(started)
        assert len(node.orders) == heard
        assert "deployment.refused" not in seen
        assert seen.count("site.restated") == 1


async def test_a_deployment_that_was_elsewhere_while_its_site_was_away_is_shown_as_it_stands(
    person: Person, central: OpenCentral, site: Callable[[], AbstractAsyncContextManager[SiteApp]]
) -> None:
    """For its site nothing has happened, and it reports nothing by itself."""
    path, text = deployment_file(name="hello")
    elsewhere, moved = path.replace("/home/", "/away/"), text.replace("deviceId: home", "deviceId: away")
    person.write("deployments/away/site.yaml", "site: away\n")
    person.write(path, text)
    person.push()
    async with central() as (started, client):
        async with site() as here, scripted_node(InProcessLink(here.parts.reception)):
            await shows_the_truth(client, here)
        for gone, come, content in ((path, elsewhere, moved), (elsewhere, path, text)):
            person.remove(gone)
            person.write(come, content)
            person.push()

            async def is_there(name: str = come.split("/")[1]) -> bool:
                rows = (await client.get("/api/v1/deployments")).body["deployments"]
                return [(row["site"], row["state"]) for row in rows] == [(name, "PENDING")]

            await eventually(is_there, what=f"central to show it at {come}")
        async with site() as here:
            await shows_the_truth(client, here)
        assert "deployment.refused" not in await events(started)
