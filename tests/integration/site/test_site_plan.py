"""What a site answers when somebody asks what it would do next."""

from datetime import UTC, datetime, timedelta

import pytest

from homeport.core.model.deployment import Hold
from homeport.fleet.site.maintenance import set_hold
from homeport.vocabulary import SiteName, State
from tests.integration.site.conftest import OpenSite
from tests.integration.site.test_maintenance import asking
from tests.integration.site.test_site import link, reaches
from tests.support.deployment_files import deployment_file
from tests.support.git import Person
from tests.support.running_central import Client
from tests.support.scripted_node import scripted_node
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio

KEY = "3c9e1f64-7f1b-4c0e-9d53-0d6a1b1f5e77"


async def planned(client: Client) -> list[tuple[str, str, str, str]]:
    answer = await client.get("/api/v1/plan")
    assert answer.status == 200
    return [(move["action"], move["name"], move["node_id"], move["status"]) for move in answer.body["moves"]]


async def test_what_is_installed_stays_and_what_a_node_works_on_is_under_way(person: Person, start: OpenSite) -> None:
    person.write(*deployment_file(deployment_id=KEY))
    person.push()
    async with start() as site, asking(site) as client, scripted_node(link(site), "a") as node:
        await reaches(site, State.INSTALLED)
        assert await planned(client) == [("no-op", "hello", "a", "stays")]
        node.is_wedged = True
        person.write(*deployment_file(deployment_id=KEY, version="1.1.0"))
        person.push()
        await reaches(site, State.UPDATING)
        assert await planned(client) == [("update", "hello", "a", "under way")]


async def test_an_update_that_a_hold_keeps_waiting_is_shown_as_held(person: Person, start: OpenSite) -> None:
    person.write(*deployment_file(deployment_id=KEY))
    person.push()
    async with start() as site, asking(site) as client, scripted_node(link(site), "a"):
        await reaches(site, State.INSTALLED)
        now = datetime.now(UTC)
        hold = Hold(SiteName("home"), None, "night shift", "anna", now, now + timedelta(hours=8))
        await site.parts.conductor.alter(set_hold(hold))
        person.write(*deployment_file(deployment_id=KEY, version="1.1.0"))
        person.push()

        async def is_held() -> bool:
            return await planned(client) == [("update", "hello", "a", "held")]

        await eventually(is_held)
        (move,) = (await client.get("/api/v1/plan")).body["moves"]
        assert move["why"].endswith("by anna: night shift")


async def test_what_no_node_can_take_waits(person: Person, start: OpenSite) -> None:
    person.write(*deployment_file(deployment_id=KEY, placement="{mode: each, selector: gpu}"))
    person.push()
    async with start() as site, asking(site) as client, scripted_node(link(site), "a"):
        await reaches(site, State.FAILED)
        assert await planned(client) == [("wait", "hello", "", "waits")]
