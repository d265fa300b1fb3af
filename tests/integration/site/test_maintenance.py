"""Draining nodes and holding updates at a site, with no central at all: real store, repository, protocol and HTTP."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from homeport.core.model.instance import Failure
from homeport.core.model.order import Order
from homeport.site.app import SiteApp
from homeport.vocabulary import UNPLACED, Code, NodeId, OrderKind, State
from tests.integration.site.conftest import OpenSite
from tests.integration.site.test_site import link, reaches
from tests.support.deployment_files import deployment_file
from tests.support.git import Person, move
from tests.support.local import local_key
from tests.support.running_central import Client
from tests.support.scripted_node import scripted_node
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def asking(site: SiteApp) -> AsyncIterator[Client]:
    async with aiohttp.ClientSession(headers=local_key(site)) as session:
        yield Client(f"http://127.0.0.1:{site.http_port}", session)


def placed(site: SiteApp) -> dict[NodeId, State]:
    return {key[1]: item.state for key, item in site.parts.conductor.memory.instances.items()}


async def knows(client: Client, *names: str) -> None:
    """A node is welcomed a moment before it is written down."""

    async def all_there() -> bool:
        return {*names} <= {node["id"] for node in (await client.get("/api/v1/nodes")).body["nodes"]}

    await eventually(all_there, what=f"nodes {names}")


async def drain(client: Client, node: str, reason: str = "new disk") -> None:
    await knows(client, node)
    answer = await client.post(f"/api/v1/nodes/{node}/drain", {"reason": reason})
    assert answer.status == 200, answer.body
    assert answer.body["drain"] == reason


async def first(client: Client) -> Any:
    (found,) = (await client.get("/api/v1/deployments")).body["deployments"]
    return found


async def test_a_drain_moves_what_runs_once_and_leaves_nothing_behind(person: Person, start: OpenSite) -> None:
    person.write(*deployment_file(placement="{mode: one}"))
    person.push()
    async with start() as site, asking(site) as client, scripted_node(link(site), "a") as a:
        await reaches(site, State.INSTALLED)
        async with scripted_node(link(site), "b") as b:
            await knows(client, "b")
            await drain(client, "a")
            await eventually(lambda: placed(site) == {"b": State.INSTALLED})
            assert [order.kind for order in a.orders] == [OrderKind.APPLY, OrderKind.REMOVE]
            assert [order.kind for order in b.orders] == [OrderKind.APPLY]
            assert b.orders[0].generation < a.orders[1].generation, "it ran on b before it was taken from a"
            assert "a is drained: new disk" in a.orders[1].reason
            undrained = await client.delete("/api/v1/nodes/a/drain")
            assert (undrained.status, undrained.body["drain"]) == (200, None)
            await site.parts.conductor.reconcile()
            assert placed(site) == {"b": State.INSTALLED}, "what has moved stays where it is"


async def test_what_does_not_become_healthy_elsewhere_stays_on_the_drained_node(
    person: Person, start: OpenSite
) -> None:
    def fails(order: Order) -> Failure | None:
        return Failure(Code.IMAGE_PULL_FAILED, "no such image", "web") if order.kind is OrderKind.APPLY else None

    person.write(*deployment_file(placement="{mode: one}"))
    person.push()
    async with start() as site, asking(site) as client, scripted_node(link(site), "a") as a:
        await reaches(site, State.INSTALLED)
        async with scripted_node(link(site), "b", answer=fails) as b:
            await knows(client, "b")
            await drain(client, "a")
            await eventually(lambda: b.orders)
            await reaches(site, State.FAILED)
            await site.parts.conductor.reconcile()
            assert placed(site)[NodeId("a")] is State.INSTALLED
            assert [order.kind for order in a.orders] == [OrderKind.APPLY]


async def test_what_runs_on_each_node_leaves_the_drained_one_and_comes_back(person: Person, start: OpenSite) -> None:
    person.write(*deployment_file())
    person.push()
    async with (
        start() as site,
        asking(site) as client,
        scripted_node(link(site), "a"),
        scripted_node(link(site), "b"),
    ):
        await eventually(lambda: placed(site) == {"a": State.INSTALLED, "b": State.INSTALLED})
        await drain(client, "a")
        await eventually(lambda: placed(site) == {"b": State.INSTALLED})
        await client.delete("/api/v1/nodes/a/drain")
        await eventually(lambda: placed(site) == {"a": State.INSTALLED, "b": State.INSTALLED})


async def test_a_drain_that_nobody_can_follow_leaves_what_runs_and_is_said_with_the_reasons(
    person: Person, start: OpenSite
) -> None:
    person.write(*deployment_file(placement="{mode: one, selector: zone=x}"))
    person.push()
    async with (
        start() as site,
        asking(site) as client,
        scripted_node(link(site), "a", labels={"zone": "x"}) as a,
        scripted_node(link(site), "b", labels={"zone": "y"}),
    ):
        await reaches(site, State.INSTALLED)
        await knows(client, "b")
        await drain(client, "a")
        await eventually(lambda: placed(site) == {"a": State.INSTALLED, UNPLACED: State.FAILED})
        found = await first(client)
        (instance,) = [item for item in found["instances"] if item["state"] == "FAILED"]
        assert instance["failure"]["code"] == Code.NO_ELIGIBLE_NODE
        assert "a is drained: new disk" in instance["failure"]["message"]
        assert "b does not meet the selector zone=x" in instance["failure"]["message"]
        assert found["state"] == "INSTALLED"
        assert "a is drained: new disk" in found["note"]
        assert [order.kind for order in a.orders] == [OrderKind.APPLY]


async def test_an_update_that_fits_no_node_leaves_the_release_that_runs_until_one_can_take_it(
    person: Person, start: OpenSite
) -> None:
    key = "6a0c7a52-2c67-4a0e-8b52-5a1f0c7e9d11"
    person.write(*deployment_file(deployment_id=key))
    person.push()
    async with start() as site, asking(site) as client, scripted_node(link(site), "a") as a:
        await reaches(site, State.INSTALLED)
        before = await first(client)
        nowhere = "{mode: each, selector: zone=x}"
        person.write(*deployment_file(deployment_id=key, placement=nowhere, version="1.1.0"))
        person.push()
        await reaches(site, State.FAILED)
        shown = await first(client)
        (instance,) = shown["instances"]
        assert instance["failure"]["code"] == Code.NO_ELIGIBLE_NODE
        assert instance["running_revision"] == before["revision"]
        assert (shown["app_version"], shown["running_versions"]) == ("1.1.0", ["1.0.0"])
        assert "1.0.0 keeps running on a" in shown["note"]
        assert [order.kind for order in a.orders] == [OrderKind.APPLY]
        async with scripted_node(link(site), "b", labels={"zone": "x"}) as b:
            await eventually(lambda: placed(site) == {"b": State.INSTALLED})
            assert [order.kind for order in b.orders] == [OrderKind.APPLY]
            assert [order.kind for order in a.orders] == [OrderKind.APPLY, OrderKind.REMOVE]


async def test_a_drain_survives_restarts_of_site_and_node(person: Person, start: OpenSite) -> None:
    person.write(*deployment_file())
    person.push()
    async with start() as site, asking(site) as client, scripted_node(link(site), "a"):
        await reaches(site, State.INSTALLED)
        await drain(client, "a")
        await eventually(lambda: UNPLACED in placed(site))
    async with start() as site, asking(site) as client, scripted_node(link(site), "b"):
        await eventually(lambda: placed(site).get(NodeId("b")) is State.INSTALLED)
        async with scripted_node(link(site), "a") as a:
            await eventually(lambda: placed(site) == {"b": State.INSTALLED})
            shown = {node["id"]: node["drain"] for node in (await client.get("/api/v1/nodes")).body["nodes"]}
            assert shown == {"a": "new disk", "b": None}
            assert a.orders[-1].kind is OrderKind.REMOVE


@pytest.mark.parametrize(
    ("method", "path", "status", "says"),
    [
        ("POST", "/api/v1/nodes/ghost/drain", 404, 'There is no node "ghost"'),
        ("DELETE", "/api/v1/nodes/ghost/drain", 404, 'There is no node "ghost"'),
        ("DELETE", "/api/v1/nodes/a/drain", 409, "Node a is not drained"),
        ("DELETE", "/api/v1/sites/home/holds", 404, "Site home is not held"),
        ("DELETE", "/api/v1/sites/nowhere/holds", 404, 'There is no site "nowhere"'),
        ("DELETE", "/api/v1/sites/home/holds?deployment=ghost", 404, 'There is no deployment "ghost"'),
    ],
)
async def test_a_mistake_is_answered_with_a_sentence(
    person: Person, start: OpenSite, method: str, path: str, status: int, says: str
) -> None:
    async with start() as site, asking(site) as client, scripted_node(link(site), "a"):
        await eventually(lambda: site.parts.conductor.memory.applied)
        await knows(client, "a")
        answer = await client.call(method, path, json={} if method == "POST" else None)
        assert answer.status == status
        assert says in answer.body["detail"]


async def test_a_node_is_drained_once(start: OpenSite) -> None:
    async with start() as site, asking(site) as client, scripted_node(link(site), "a"):
        await drain(client, "a")
        again = await client.post("/api/v1/nodes/a/drain", {"reason": "again"})
        assert again.status == 409
        assert "drained already: new disk" in again.body["detail"]
        assert again.body["hint"] == "Take it back:  homeport nodes undrain a"


async def test_a_hold_keeps_a_newer_revision_waiting_until_it_is_released(person: Person, start: OpenSite) -> None:
    path, text = deployment_file()
    person.write(path, text)
    person.push()
    async with start() as site, asking(site) as client, scripted_node(link(site)) as node:
        await reaches(site, State.INSTALLED)
        held = await client.post("/api/v1/sites/home/holds", {"reason": "a shift is running", "lasts_seconds": 3600})
        assert held.status == 200, held.body
        person.write(path, text.replace("Ahoy", "Moin"))
        commit = person.push()
        await eventually(lambda: site.parts.conductor.memory.applied == commit)
        await site.parts.conductor.reconcile()
        assert len(node.orders) == 1
        found = await first(client)
        assert found["hold"]["reason"] == "a shift is running"
        assert found["note"].endswith("by local: a shift is running")
        (shown,) = (await client.get("/api/v1/sites")).body["sites"]
        assert [hold["author"] for hold in shown["holds"]] == ["local"]
        released = await client.delete("/api/v1/sites/home/holds")
        assert (released.status, released.body["holds"]) == (200, [])
        await eventually(lambda: len(node.orders) == 2)
        await reaches(site, State.INSTALLED)


async def test_a_hold_on_one_deployment_keeps_its_removal_waiting_over_a_restart_and_ends_by_itself(
    person: Person, start: OpenSite
) -> None:
    path, text = deployment_file()
    person.write(path, text)
    person.push()
    async with start() as site, asking(site) as client, scripted_node(link(site)) as node:
        await reaches(site, State.INSTALLED)
        body = {"reason": "a shift", "deployment": "hello", "lasts_seconds": 3600}
        assert (await client.post("/api/v1/sites/home/holds", body)).status == 200
        person.remove(path)
        commit = person.push()
        await eventually(lambda: site.parts.conductor.memory.applied == commit)
        held = tuple(node.held.values())
    async with start() as site, asking(site) as client, scripted_node(link(site), held=held) as node:
        await site.parts.conductor.reconcile()
        assert placed(site) == {"one": State.INSTALLED}
        assert node.orders == []
        soon = (datetime.now(UTC) + timedelta(seconds=1)).isoformat()
        body = {"reason": "nearly over", "deployment": "hello", "expires_at": soon}
        assert (await client.post("/api/v1/sites/home/holds", body)).status == 200
        await reaches(site, State.DELETED)
        assert (await client.get("/api/v1/sites/home/holds")).body["holds"] == []
        async with site.parts.store.read() as reader:
            kinds = [event.event.kind for event in await reader.events(after=0, limit=1000)]
        assert [kind for kind in kinds if kind.startswith("hold.")] == ["hold.set", "hold.set", "hold.lifted"]


LONG_AGO, FAR_AWAY = "2020-01-01T00:00:00Z", "2999-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("body", "field", "says"),
    [
        ({"lasts_seconds": 60}, "reason", "is required, so that others can see why"),
        ({"reason": "  ", "lasts_seconds": 60}, "reason", "is required, so that others can see why"),
        ({"reason": "x"}, "lasts_seconds", "give a duration"),
        ({"reason": "x", "lasts_seconds": 60, "expires_at": FAR_AWAY}, "lasts_seconds", "give a duration"),
        ({"reason": "x", "lasts_seconds": -60}, "expires_at", "has passed"),
        ({"reason": "x", "expires_at": LONG_AGO}, "expires_at", "has passed"),
        ({"reason": "x", "expires_at": FAR_AWAY}, "expires_at", "at most 90 days"),
    ],
)
async def test_a_hold_that_cannot_be_names_the_field(
    person: Person, start: OpenSite, body: dict[str, object], field: str, says: str
) -> None:
    async with start() as site, asking(site) as client:
        await eventually(lambda: site.parts.conductor.memory.applied)
        answer = await client.post("/api/v1/sites/home/holds", body)
        assert (answer.status, answer.fields) == (422, [field])
        assert says in answer.body["errors"][0]["message"]
        assert (await client.get("/api/v1/sites/home/holds")).body["holds"] == []


async def test_why_tells_the_whole_chain_at_a_site(person: Person, start: OpenSite) -> None:
    deployment_id = "ab3e5c1d-90f2-4c6b-8f0a-1d2e3f405162"
    person.write(*deployment_file(placement="{mode: one}", deployment_id=deployment_id))
    commit = person.push()
    async with start() as site, asking(site) as client, scripted_node(link(site), "a"):
        await reaches(site, State.INSTALLED)
        for name in ("hello", "hello@home", deployment_id, "ab3e"):
            answer = await client.get(f"/api/v1/why/{name}")
            assert answer.status == 200, answer.body
            told = {each["step"]: each for each in answer.body["chain"]}
            assert told["commit"]["what"] == f"commit {commit[:8]} by Pat Person"
            assert told["placement"]["what"] == "a is chosen"
            assert told["instance"]["what"].startswith("a: INSTALLED at revision")
            assert told["next"]["what"] == "nothing: it is as wanted"
        for name in ("a", "a@home"):
            node = await client.get(f"/api/v1/why/{name}")
            assert (node.body["kind"], node.body["name"]) == ("node", "a@home"), "though an id begins with it"
        assert (await client.get("/api/v1/why/ab")).status == 404
        missing = await client.get("/api/v1/why/helo")
        assert missing.status == 404
        assert missing.body["detail"] == 'There is no deployment and no node "helo".'
        assert "hello" in missing.body["hint"]


async def test_a_restart_leaves_what_cannot_be_read_as_it_is(person: Person, start: OpenSite, remote: Path) -> None:
    """Its file is broken, then its node is drained, and at the restart nobody can look at the file again."""
    path, text = deployment_file()
    person.write(path, text)
    person.push()
    async with start() as site, asking(site) as client, scripted_node(link(site), "a") as node:
        await reaches(site, State.INSTALLED)
        person.write(path, "id: [this is\n")
        person.push()
        await eventually(lambda: bool(site.parts.conductor.memory.unreadable))
        await drain(client, "a")
        held = tuple(node.held.values())
    move(remote, "away.git")
    async with start() as site, scripted_node(link(site), "a", held=held) as node:
        await site.parts.conductor.sweep()
        assert site.parts.conductor.memory.unreadable
        assert (placed(site), node.orders) == ({"a": State.INSTALLED}, [])
