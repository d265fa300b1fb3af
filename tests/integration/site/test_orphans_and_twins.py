"""What a node finds on its engine that is not its own, and two machines under one node's id."""

import aiohttp
import pytest

from homeport.adapters.link.inprocess import InProcessLink
from homeport.core.model.protocol import VERSION, PeerProtocol
from homeport.errors import PeerUnavailable
from homeport.ports import FoundWorkloads, Owned
from homeport.vocabulary import DeploymentId, NodeId
from tests.integration.site.conftest import OpenSite
from tests.support.deployment_files import deployment_file
from tests.support.git import Person
from tests.support.local import local_key
from tests.support.running_central import Client
from tests.support.scripted_node import scripted_node
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio

SOMEBODY = DeploymentId("0b9c1c52-6d0e-4f4e-8a52-1f8b3f1f0000")


def owned(node: str, deployment_id: DeploymentId) -> Owned:
    return Owned(NodeId(node), deployment_id, "web")


async def test_only_what_belongs_to_nobody_any_more_is_called_an_orphan(person: Person, start: OpenSite) -> None:
    person.write(*deployment_file())
    person.push()
    async with start(orphan_grace_seconds=0.0) as site:
        link, memory = InProcessLink(site.parts.reception), site.parts.conductor.memory
        async with scripted_node(link, "one") as one, scripted_node(link, "two") as two:
            await eventually(lambda: len(memory.instances) == 2 and one.orders and two.orders)
            ours = one.orders[0].deployment_id
            await two.say(
                FoundWorkloads((owned("one", ours), owned("gone", ours), owned("gone", SOMEBODY), owned("two", ours)))
            )
            await eventually(lambda: two.orphans)
            assert two.orphans == (owned("gone", ours),), "not a live node's, not another site's, not what is wanted"


async def test_what_a_deleted_deployment_left_on_a_node_that_lost_its_journal_is_an_orphan(
    person: Person, start: OpenSite
) -> None:
    path, text = deployment_file()
    person.write(path, text)
    person.push()
    async with start(orphan_grace_seconds=0.0) as site:
        link, memory = InProcessLink(site.parts.reception), site.parts.conductor.memory
        async with scripted_node(link, "one") as one:
            await eventually(lambda: one.orders)
            person.remove(path)
            person.push()
            await eventually(lambda: not memory.instances and not memory.wanted)
            await one.say(FoundWorkloads((owned("one", one.orders[0].deployment_id),)))
            await eventually(lambda: one.orphans)


async def test_what_was_moved_to_another_site_is_left_to_its_node_on_the_same_engine(
    person: Person, start: OpenSite
) -> None:
    path, text = deployment_file()
    person.write(path, text)
    person.push()
    async with start(orphan_grace_seconds=0.0) as site:
        link, memory = InProcessLink(site.parts.reception), site.parts.conductor.memory
        async with scripted_node(link, "one") as one, scripted_node(link, "two") as two:
            await eventually(lambda: len(memory.instances) == 2 and one.orders and two.orders)
            ours = one.orders[0].deployment_id
            person.remove(path)
            person.push()
            await eventually(lambda: not memory.instances and not memory.wanted)
            await site.parts.reception.unregister(NodeId("two"))
            conductor = site.parts.conductor
            found = [owned("another", ours), owned("two", ours)]
            assert await conductor.orphans_of(NodeId("one"), found) == (owned("two", ours),), "it was placed there"


async def test_what_was_deleted_while_site_and_node_were_older_copies_is_an_orphan(
    person: Person, start: OpenSite
) -> None:
    """Neither of their databases knows it; Git had it in the site's folder once."""
    path, text = deployment_file()
    person.write(path, text)
    person.push()
    person.remove(path)
    person.push()
    async with start(orphan_grace_seconds=0.0) as site:
        ours = DeploymentId(path.rpartition("/")[2].removesuffix(".yaml"))
        async with scripted_node(InProcessLink(site.parts.reception), "one") as one:
            await eventually(lambda: site.parts.conductor.memory.applied is not None)
            await one.say(FoundWorkloads((owned("one", ours), owned("one", SOMEBODY))))
            await eventually(lambda: one.orphans)
            assert one.orphans == (owned("one", ours),), "Git never had the other one here"


async def test_a_site_that_has_just_begun_calls_nobody_gone(person: Person, start: OpenSite) -> None:
    person.write(*deployment_file())
    person.push()
    async with start() as site, scripted_node(InProcessLink(site.parts.reception), "one") as one:
        await eventually(lambda: one.orders)
        assert (
            await site.parts.conductor.orphans_of(NodeId("one"), [owned("gone", one.orders[0].deployment_id)]) == ()
        )


async def test_the_second_machine_under_one_id_is_refused_and_shown(person: Person, start: OpenSite) -> None:
    async with start() as site, aiohttp.ClientSession(headers=local_key(site)) as session:
        link = InProcessLink(site.parts.reception)
        client = Client(f"http://127.0.0.1:{site.http_port}", session)
        async with (
            scripted_node(link, "one", boot_id="a", hostname="old"),
            scripted_node(link, "one", boot_id="b", hostname="new") as second,
        ):
            with pytest.RaisesGroup(PeerUnavailable, flatten_subgroups=True) as refused:
                async with scripted_node(link, "one", boot_id="a", hostname="old"):
                    pass
            assert "two machines" in str(refused.value.exceptions)
            await second.beat()
            assert "one" in site.parts.sessions.connected, "the one that was there stays"
            node = (await client.get("/api/v1/nodes/one")).body
            assert "two machines connect as node one" in node["problem"]
            async with site.parts.store.read() as reader:
                events = [each.event for each in await reader.events(after=0, limit=100)]
            (notice,) = [each for each in events if each.kind == "node.notice"]
            assert notice.data["code"] == "twin"


async def test_a_node_too_many_releases_apart_is_shown_once_as_a_problem_until_its_upgrade(start: OpenSite) -> None:
    async with start() as site:
        link, memory = InProcessLink(site.parts.reception), site.parts.conductor.memory
        async with scripted_node(link, "one"):
            await eventually(lambda: NodeId("one") in memory.nodes)
        for _ in range(2):
            with pytest.RaisesGroup(PeerUnavailable, flatten_subgroups=True) as refused:
                async with scripted_node(link, "one", protocol=PeerProtocol(VERSION + 2)):
                    pass
            assert "Upgrade site" in str(refused.value.exceptions)
        assert str(memory.nodes[NodeId("one")].problem).startswith(f"Node one speaks protocol {VERSION + 2}")
        async with site.parts.store.read() as reader:
            events = [each.event for each in await reader.events(after=0, limit=100)]
        assert [each.data["code"] for each in events if each.kind == "node.notice"] == ["version-skew"]
        async with scripted_node(link, "one", protocol=PeerProtocol(VERSION + 1, ("new",))):
            await eventually(lambda: memory.nodes[NodeId("one")].problem is None)
            assert memory.nodes[NodeId("one")].info.protocol == PeerProtocol(VERSION + 1, ("new",))
