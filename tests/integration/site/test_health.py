"""A deployment that turns unhealthy after its installation says so, at its site and at central."""

from dataclasses import replace
from datetime import timedelta

import aiohttp
import pytest

from homeport.adapters.link.inprocess import InProcessLink
from homeport.core.model.instance import Unhealthy
from homeport.core.model.order import Progress
from homeport.core.model.report import Progressed
from homeport.ports import News
from homeport.vocabulary import Step
from tests.integration.site.conftest import OpenSite
from tests.integration.site.test_reports import Notebook
from tests.support.builders import NOW
from tests.support.deployment_files import deployment_file
from tests.support.git import Person
from tests.support.local import local_key
from tests.support.running_central import Client
from tests.support.scripted_node import scripted_node
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio

WHY = "web: GET /healthz answered 500"


async def test_an_unhealthy_instance_stays_installed_and_says_so_until_it_is_well(
    person: Person, start: OpenSite
) -> None:
    central = Notebook()
    person.write(*deployment_file())
    person.push()
    async with start(central) as site, aiohttp.ClientSession() as session:
        client = Client(f"http://127.0.0.1:{site.http_port}", session, local_key(site))
        async with scripted_node(InProcessLink(site.parts.reception)) as node:
            await eventually(lambda: central.steps() == ["scheduled", "healthy"])
            (order,) = node.orders
            sick = Progress(order.deployment_id, order.generation, Step.DRIFTED, "web", WHY, NOW, healthy=False)
            await node.say(News(7, sick))
            await eventually(lambda: node.acknowledged == 7)
            shown = (await client.get(f"/api/v1/deployments/{order.deployment_id}")).body
            (instance,) = shown["instances"]
            assert (shown["state"], instance["state"]) == ("INSTALLED", "INSTALLED")
            assert (instance["health"], instance["health_reason"]) == ("unhealthy", WHY)
            assert instance["health_since"].startswith(NOW.isoformat()[:19])
            assert WHY in shown["note"]
            why = (await client.get(f"/api/v1/why/{order.deployment_id}")).body
            assert [(each["step"], each["why"]) for each in why["chain"] if each["step"] == "health"] == [
                ("health", WHY)
            ]
            await node.say(News(8, replace(sick, step=Step.RESTORED, message="healthy again", healthy=True)))
            await eventually(lambda: node.acknowledged == 8)
            shown = (await client.get(f"/api/v1/deployments/{order.deployment_id}")).body
            assert (shown["instances"][0]["health"], shown["note"]) == ("healthy", "")
        async with site.parts.store.read() as reader:
            kinds = [each.event.kind.value for each in await reader.events(after=0, limit=100)]
        assert [kind for kind in kinds if "healthy" in kind] == ["instance.unhealthy", "instance.healthy"]
        told = [each.progress.healthy for each in central.reports if isinstance(each, Progressed)]
        assert [each for each in told if each is not None] == [False, True]


async def test_a_site_that_missed_how_healthy_something_is_learns_it_when_the_node_connects(
    person: Person, start: OpenSite
) -> None:
    person.write(*deployment_file())
    person.push()
    async with start() as site:
        link, memory = InProcessLink(site.parts.reception), site.parts.conductor.memory
        async with scripted_node(link) as node:
            await eventually(lambda: any(each.state == "INSTALLED" for each in memory.instances.values()))
            (held,) = node.held.values()
        since = NOW - timedelta(hours=1)
        async with scripted_node(link, held=(replace(held, unhealthy=Unhealthy(since, WHY)),)):
            await eventually(
                lambda: [each.unhealthy for each in memory.instances.values()] == [Unhealthy(since, WHY)]
            )
        async with scripted_node(link, held=(held,)):
            await eventually(lambda: [each.unhealthy for each in memory.instances.values()] == [None])
