"""A site that lost its database, or got an older copy of it back, is true again: with its node, with central, and to
what was rolled back. Everything is real: the stores, the repository, the node with its journal, central's HTTP."""

import json
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import pytest

from homeport.adapters.link.inprocess import InProcessLink
from homeport.adapters.runtime.fake import NullRuntime
from homeport.core.model.instance import Instance
from homeport.node.app import run_node
from homeport.node.settings import NodeSettings
from homeport.ports import Ahead
from homeport.site.app import SiteApp
from homeport.vocabulary import DeploymentId, EventKind, Generation, Incarnation, NodeId, State
from tests.integration.site.conftest import OpenSite
from tests.integration.site.test_central_forgets import (  # noqa: F401 - fixtures
    OpenCentral,
    central,
    events,
    port,
    shows_the_truth,
)
from tests.support.deployment_files import deployment_file
from tests.support.git import Person
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio

KEY = "6f9619ff-8b86-4d01-b42d-00c04fc964ff"
BAD = '      - name: web\n        x-homeport-extensions: {"null": {unhealthy: true}}\n'

StartSite = Callable[[], AbstractAsyncContextManager[SiteApp]]


@pytest.fixture
def home(start: OpenSite, port: int) -> StartSite:  # noqa: F811 - a fixture of the other module
    return partial(start, central_url=f"http://127.0.0.1:{port}", report_seconds=0.1)


class RealNode:
    """A node with its journal in a folder of its own. It outlives the site it was started with."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runtime = NullRuntime(folder)

    @asynccontextmanager
    async def at(self, site: SiteApp) -> AsyncIterator[None]:
        settings = NodeSettings(
            data=self.folder, node_id=NodeId("one"), http_address=None, observe_seconds=0.1, steady_seconds=0.1
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run_node, settings, InProcessLink(site.parts.reception), NullRuntime(self.folder))
            yield
            tasks.cancel_scope.cancel()

    def running(self) -> dict[str, str]:
        """The id of what runs of each deployment; it changes whenever something is started."""
        found: dict[str, str] = {}
        for line in (self.folder / "null.jsonl").read_text().splitlines():
            deployment, _, held = json.loads(line)
            found.pop(deployment, None)
            if held is not None:
                found[deployment] = held["id"]
        return found


@pytest.fixture
def node(tmp_path: Path) -> RealNode:
    return RealNode(tmp_path / "node")


def push(person: Person, version: str, *, key: str = KEY, name: str = "hello", is_bad: bool = False) -> None:
    path, text = deployment_file(name=name, version=version, deployment_id=key)
    policy = "  x-homeport-extensions:\n    policy: {retries: 0, backoff: 1s}\n"
    person.write(path, (text.replace("      - name: web\n", BAD) if is_bad else text) + policy)
    person.push()


def instance(site: SiteApp, key: str = KEY) -> Instance | None:
    return site.parts.conductor.memory.instances.get((DeploymentId(key), NodeId("one")))


def runs(site: SiteApp, version: str, *, is_back: bool = False, key: str = KEY) -> bool:
    found = instance(site, key)
    wanted = None if found is None else site.parts.conductor.memory.wanted_of(found)
    return (
        found is not None
        and wanted is not None
        and (found.state, found.running_revision, wanted.app_version) == (State.INSTALLED, wanted.revision, version)
        and (found.rejected_revision is not None) == is_back
    )


def copy_of(data: Path, into: Path) -> None:
    """The database alone, as a backup would have it; not the clone of the repository, and no key."""
    into.mkdir()
    for file in data.glob("site.db*"):
        shutil.copy(file, into)


def put_back(copy: Path, data: Path) -> None:
    for file in data.glob("site.db*"):
        file.unlink()
    for file in copy.glob("site.db*") if copy.exists() else ():
        shutil.copy(file, data)


async def test_an_older_copy_of_a_sites_database_is_true_again(
    person: Person,
    central: OpenCentral,  # noqa: F811
    home: StartSite,
    node: RealNode,
    tmp_path: Path,
) -> None:
    data, copy = tmp_path / "site", tmp_path / "copy"
    other, later = "6f9619ff-8b86-4d01-b42d-000000000002", "6f9619ff-8b86-4d01-b42d-000000000003"
    push(person, "1.0.0")
    push(person, "1.0.0", key=other, name="gone")
    async with central() as (started, client):
        async with home() as site, node.at(site):
            await eventually(lambda: runs(site, "1.0.0") and runs(site, "1.0.0", key=other))
            await shows_the_truth(client, site)
        copy_of(data, copy)
        async with home() as site, node.at(site):
            push(person, "1.1.0")
            await eventually(lambda: runs(site, "1.1.0"))
            push(person, "2.0.0", is_bad=True)
            person.remove(deployment_file(deployment_id=other)[0])
            push(person, "1.0.0", key=later, name="later")
            await eventually(lambda: runs(site, "1.1.0", is_back=True) and runs(site, "1.0.0", key=later))
            await eventually(lambda: instance(site, other) is None)
            await shows_the_truth(client, site)
        before = node.running()
        put_back(copy, data)
        async with home() as site, node.at(site):
            await eventually(lambda: runs(site, "1.1.0", is_back=True) and runs(site, "1.0.0", key=later))
            await eventually(lambda: instance(site, other) is None)
            await shows_the_truth(client, site)
            assert node.running() == before, "nothing was started again"
            push(person, "3.0.0")
            await eventually(lambda: runs(site, "3.0.0"))
            await shows_the_truth(client, site)
        seen = await events(started)
    assert seen.count("site.restated") == 1
    assert "deployment.refused" not in seen


async def test_a_rollback_outlives_the_sites_database(
    person: Person, start: OpenSite, node: RealNode, tmp_path: Path
) -> None:
    """With no central at all: the node remembers it."""
    push(person, "1.0.0")
    async with start() as site, node.at(site):
        await eventually(lambda: runs(site, "1.0.0"))
        push(person, "2.0.0", is_bad=True)
        await eventually(lambda: runs(site, "1.0.0", is_back=True))
        failure = instance(site).failure  # type: ignore[union-attr]
    before = node.running()
    put_back(tmp_path / "none", tmp_path / "site")
    async with start() as site, node.at(site):
        await eventually(lambda: runs(site, "1.0.0", is_back=True))
        found = instance(site)
        assert found is not None and found.failure == failure
        assert node.running() == before
        push(person, "3.0.0", is_bad=True)
        await eventually(lambda: runs(site, "1.0.0", is_back=True) and instance(site) != found)
        assert found.rejected_revision != instance(site).rejected_revision  # type: ignore[union-attr]


async def test_a_rollback_outlives_the_databases_of_site_and_node(
    person: Person,
    central: OpenCentral,  # noqa: F811
    home: StartSite,
    node: RealNode,
    tmp_path: Path,
) -> None:
    """Central alone remembers it, and the site asks before it orders anything."""
    push(person, "1.0.0")
    async with central() as (_, client):
        async with home() as site, node.at(site):
            await eventually(lambda: runs(site, "1.0.0"))
            push(person, "2.0.0", is_bad=True)
            await eventually(lambda: runs(site, "1.0.0", is_back=True))
            before = instance(site)
            await shows_the_truth(client, site)
        put_back(tmp_path / "none", tmp_path / "site")
        shutil.rmtree(node.folder)
        async with home() as site:
            await eventually(lambda: bool(site.parts.conductor.memory.rolled_back))
        async with home() as site, node.at(site):
            await eventually(lambda: runs(site, "1.0.0", is_back=True))
            found = instance(site)
            assert before is not None and found is not None
            assert (found.rejected_revision, found.failure) == (before.rejected_revision, before.failure)
            async with site.parts.store.read() as reader:
                history = await reader.history(DeploymentId(KEY))
            assert before.rejected_revision not in {each.revision for each in history}, "it was never ordered again"
            await shows_the_truth(client, site)
            push(person, "3.0.0")
            await eventually(lambda: runs(site, "3.0.0"))
            await shows_the_truth(client, site)


async def test_a_restart_does_not_forget_which_numbers_central_has_seen(start: OpenSite) -> None:
    """A database that was lost, a clock that is behind, and a restart before anything was ordered: with lower numbers
    than before, central would take all that follows for older than what it knows."""
    far = 10**15
    async with start() as site:
        await site.parts.conductor.start_epoch("another", Ahead(Generation(far), Incarnation(far + 1)))
    async with start() as site:
        memory = site.parts.conductor.memory
        assert (memory.generation, memory.incarnation) == (far, far + 1)
        assert memory.is_new, "its nodes may still know more than it does"


async def test_two_sites_of_one_name_are_noticed(
    person: Person,
    central: OpenCentral,  # noqa: F811
    start: OpenSite,
    port: int,  # noqa: F811
    tmp_path: Path,
) -> None:
    data, clone = tmp_path / "site", tmp_path / "clone"
    settings = {"central_url": f"http://127.0.0.1:{port}", "report_seconds": 0.05}
    async with central() as (started, client):
        async with start(**settings):
            await eventually((data / "site.db").exists)
        shutil.copytree(data, clone)
        async with start(**settings), start(**settings, data=clone):

            async def is_said() -> bool:
                problem = (await client.get("/api/v1/sites/home")).body["problem"]
                return problem is not None and "Two sites report as home" in problem

            await eventually(is_said, what="central to notice")
            async with started.parts.store.read() as reader:
                told = [each.event for each in await reader.events(after=0, limit=10_000)]
            assert sum(each.kind is EventKind.SITE_PROBLEM and "Two sites" in each.message for each in told) == 1
