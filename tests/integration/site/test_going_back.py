"""A site rolls back by itself and at a person's word, alone, and remembers it over a restart."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import pytest

from homeport.core.model.deployment import Hold
from homeport.core.model.instance import Failure, Instance
from homeport.core.model.order import Order
from homeport.errors import Conflict, NotFound
from homeport.fleet.shared.answers.why import why
from homeport.fleet.shared.overview import Reachability
from homeport.fleet.site.maintenance import asked, older_revision, roll_back_as, roll_back_to, set_hold
from homeport.ports import RollBack
from homeport.site.app import SiteApp
from homeport.vocabulary import Code, DeploymentId, SiteName, State
from tests.integration.site.conftest import OpenSite
from tests.integration.site.test_site import link, only, reaches
from tests.support.deployment_files import deployment_file
from tests.support.git import Person, move
from tests.support.local import local_key
from tests.support.running_central import Client
from tests.support.scripted_node import Answer, scripted_node
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio

KEY = DeploymentId("6f9619ff-8b86-4d01-b42d-00c04fc964ff")
BAD = "2.0.0"


def push(person: Person, version: str, *, policy: str = "{retries: 1, backoff: 1s}") -> None:
    path, text = deployment_file(version=version, deployment_id=KEY)
    person.write(path, f"{text}  x-homeport-extensions:\n    policy: {policy}\n")
    person.push()


def rejects(version: str, code: Code) -> Failure | None:
    return Failure(code, f"{version} does not work", "web") if version == BAD else None


def instance(site: SiteApp) -> Instance:
    (found,) = site.parts.conductor.memory.instances.values()
    return found


def at(site: SiteApp, version: str) -> bool:
    """Whether this version runs and nothing is under way."""
    found = instance(site)
    wanted = site.parts.conductor.memory.wanted_of(found)
    is_there = wanted is not None and wanted.app_version == version and found.running_revision == wanted.revision
    return is_there and found.state is State.INSTALLED


def answers(code: Code) -> Answer:
    def answer(order: Order) -> Failure | None:
        return None if order.release is None else rejects(order.release.app_version, code)

    return answer


async def test_a_bad_release_is_rolled_back_once_and_stays_so_over_a_restart(person: Person, start: OpenSite) -> None:
    push(person, "1.0.0")
    async with start() as site, scripted_node(link(site), answer=answers(Code.HEALTH_CHECK_FAILED)) as node:
        await reaches(site, State.INSTALLED)
        push(person, BAD)
        await eventually(lambda: instance(site).rejected_revision is not None and at(site, "1.0.0"))
        versions = [order.release.app_version for order in node.orders if order.release]
        assert versions == ["1.0.0", BAD, "1.0.0"]
        failure = instance(site).failure
        assert failure is not None and failure.code == Code.HEALTH_CHECK_FAILED
    async with (
        start() as site,
        scripted_node(link(site), answer=answers(Code.EXITED), held=tuple(node.held.values())) as again,
    ):
        await again.welcomed.wait()
        await site.parts.conductor.sweep()
        assert at(site, "1.0.0")
        assert again.orders == []
        push(person, "3.0.0")
        await eventually(lambda: at(site, "3.0.0"))
        assert instance(site).rejected_revision is None


async def test_what_touched_nothing_is_tried_again_first_and_says_when(person: Person, start: OpenSite) -> None:
    push(person, "1.0.0")
    async with start() as site, scripted_node(link(site), answer=answers(Code.IMAGE_PULL_FAILED)) as node:
        await reaches(site, State.INSTALLED)
        push(person, BAD)
        await eventually(lambda: "attempt 2 of 2 in" in instance(site).step)
        await eventually(lambda: instance(site).rejected_revision is not None and at(site, "1.0.0"))
        versions = [order.release.app_version for order in node.orders if order.release]
        assert versions == ["1.0.0", BAD, BAD, "1.0.0"]


async def test_a_person_goes_back_at_the_site_alone_until_git_has_something_newer(
    person: Person, start: OpenSite
) -> None:
    push(person, "1.0.0")
    async with start() as site, scripted_node(link(site)) as node:
        await reaches(site, State.INSTALLED)
        memory, store = site.parts.conductor.memory, site.parts.store
        with pytest.raises(Conflict, match="nothing to go back to"):
            await older_revision(store, memory, KEY, None)
        push(person, "1.1.0")
        await eventually(lambda: at(site, "1.1.0"))
        with pytest.raises(NotFound, match="has no revision 7"):
            await older_revision(store, memory, KEY, "7")
        target = await older_revision(store, memory, KEY, None)
        await site.parts.conductor.alter(roll_back_to(target, reason="too loud", author="ada"))
        await eventually(lambda: at(site, "1.0.0"))
    async with start() as site, scripted_node(link(site), held=tuple(node.held.values())):
        await site.parts.conductor.sweep()
        assert at(site, "1.0.0")
        assert list(site.parts.conductor.memory.pins) == [KEY]
        async with aiohttp.ClientSession(headers=local_key(site)) as session:
            client = Client(f"http://127.0.0.1:{site.http_port}", session)
            (shown,) = (await client.get("/api/v1/deployments")).body["deployments"]
        assert (shown["state"], shown["running_versions"]) == ("INSTALLED", ["1.0.0"])
        assert "too loud" in shown["note"], "its own list says that it is not what Git asks for"
        push(person, "1.2.0")
        await eventually(lambda: at(site, "1.2.0"))
        assert site.parts.conductor.memory.pins == {}
        person.remove(deployment_file(deployment_id=KEY)[0])
        person.push()
        await reaches(site, State.DELETED)
        assert await only(site.parts.store) is None
        async with site.parts.store.read() as reader:
            assert list(await reader.revisions(KEY)) == []


async def test_git_wins_also_when_it_says_the_same_again(person: Person, start: OpenSite, remote: Path) -> None:
    """Somebody changed the file and took that back while the site could not look: newer than what is pinned."""
    push(person, "1.0.0")
    async with start() as site, scripted_node(link(site)):
        await reaches(site, State.INSTALLED)
        push(person, "1.1.0")
        await eventually(lambda: at(site, "1.1.0"))
        away = move(remote, "away.git")
        target = await older_revision(site.parts.store, site.parts.conductor.memory, KEY, None)
        await site.parts.conductor.alter(roll_back_to(target, reason="too loud", author="ada"))
        await eventually(lambda: at(site, "1.0.0"))
        person.remote(away)
        push(person, "1.2.0")
        push(person, "1.1.0")
        move(away, remote.name)
        await eventually(lambda: at(site, "1.1.0"))
        assert site.parts.conductor.memory.pins == {}


async def test_a_hold_keeps_centrals_word_waiting_and_not_that_of_who_is_there(
    person: Person, start: OpenSite
) -> None:
    push(person, "1.0.0")
    async with start() as site, scripted_node(link(site)):
        await reaches(site, State.INSTALLED)
        push(person, "1.1.0")
        await eventually(lambda: at(site, "1.1.0"))
        conductor, now = site.parts.conductor, datetime.now(UTC)
        hold = Hold(SiteName("home"), None, "night shift", "anna", now, now + timedelta(hours=8))
        await conductor.alter(set_hold(hold))
        target = await older_revision(site.parts.store, conductor.memory, KEY, None)
        call = RollBack(KEY, target.revision, "too loud", "central")
        await conductor.alter(roll_back_as(await asked(call, conductor.memory, site.parts.store, site.parts.git)))
        assert [each.status for each in await conductor.outlook()] == ["held"]
        async with site.parts.store.read() as reader:
            told = await why(reader, KEY, Reachability(), now)
        assert told.chain[-1].what.startswith("waits until"), told.chain
        await conductor.alter(roll_back_to(target, reason="too loud", author="ada"))
        await eventually(lambda: at(site, "1.0.0"))
        async with site.parts.store.read() as reader:
            said = [event.event.message for event in await reader.events(after=0, limit=1000)]
            told = await why(reader, KEY, Reachability(), now)
        assert any("(when that ends: held until" in message for message in said)
        assert any("(immediately, although it is held until" in message for message in said)
        assert told.chain[-1].what == "nothing: it is as wanted"
    async with start() as site:
        assert site.parts.conductor.memory.by_hand == {KEY}
        assert len(site.parts.conductor.memory.holds) == 1
