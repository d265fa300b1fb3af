"""Draining and holding through central: it asks the site over the stream that the site keeps open, and believes its
report."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from homeport.adapters.link.inprocess import InProcessLink
from homeport.adapters.runtime.fake import NullRuntime
from homeport.core.model.deployment import Hold
from homeport.core.model.report import HoldsChanged
from homeport.node.app import run_node
from homeport.node.settings import NodeSettings
from homeport.site.app import SiteApp, open_site
from homeport.site.settings import SiteSettings
from homeport.vocabulary import NodeId, SiteName
from tests.support.running_central import AT, Client, FakeSite, node_changed, running_central
from tests.support.scripted_node import scripted_node
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def fleet(tmp_path: Path) -> AsyncIterator[tuple[Client, SiteApp]]:
    """Central and a site that reaches it over HTTP, both real."""
    async with running_central(tmp_path / "central") as (central, client):
        settings = SiteSettings(
            name=SiteName("home"),
            data=tmp_path / "site",
            git_url=central.parts.git.url,
            central_url=client.url,
            http_address=None,
            grpc_address=None,
        )
        async with open_site(settings) as site:
            yield client, site


async def knows(client: Client, node: str) -> None:
    async def there() -> bool:
        return (await client.get(f"/api/v1/nodes/{node}")).status == 200

    await eventually(there, what=f"node {node} at central")


async def test_a_node_is_drained_and_taken_back_through_central(tmp_path: Path) -> None:
    async with fleet(tmp_path) as (client, site), scripted_node(InProcessLink(site.parts.reception), "a"):
        await knows(client, "a")
        drained = await client.post("/api/v1/nodes/a/drain", {"reason": "new disk"})
        assert (drained.status, drained.body["drain"]) == (200, "new disk")
        assert [node.drain for node in site.parts.conductor.memory.nodes.values()] == ["new disk"]
        assert (await client.post("/api/v1/nodes/a/drain", {})).status == 409
        assert (await client.get("/api/v1/why/a")).body["state"] == "drained"
        back = await client.delete("/api/v1/nodes/a/drain")
        assert (back.status, back.body["drain"]) == (200, None)
        assert (await client.delete("/api/v1/nodes/a/drain")).status == 409


async def test_settings_set_at_central_reach_a_running_node_and_last(tmp_path: Path) -> None:
    node = NodeSettings(data=tmp_path / "node", node_id=NodeId("a"), http_address=None, labels={"zone": "a"})
    logger = logging.getLogger("homeport")
    level = logger.level
    async with fleet(tmp_path) as (client, site), anyio.create_task_group() as tasks:
        link = InProcessLink(site.parts.reception)
        tasks.start_soon(run_node, node, link, NullRuntime(tmp_path / "node"))
        await knows(client, "a")
        body = {"heartbeat_seconds": 0.5, "log_level": "error", "labels": {"rack": "7"}}
        changed = await client.call("PATCH", "/api/v1/nodes/a/settings", json=body)
        assert (changed.status, changed.body["labels"]["rack"], changed.body["labels"]["zone"]) == (200, "7", "a")
        await eventually(lambda: logger.level == logging.ERROR, what="the log level of the running node")
        bad = await client.call(
            "PATCH", "/api/v1/nodes/a/settings", json={"labels": {"homeport.allow": "privileged"}}
        )
        assert bad.status == 422
        last_heartbeat = site.parts.conductor.memory.last_heartbeat[NodeId("a")]
        await eventually(
            lambda: site.parts.conductor.memory.last_heartbeat[NodeId("a")] > last_heartbeat, what="a beat"
        )
        async with site.parts.store.read() as reader:
            (kept,) = await reader.nodes()
        assert (kept.tunable.heartbeat_seconds, kept.labels["rack"]) == (0.5, "7")
        started = {"heartbeat_seconds": 0, "log_level": "", "labels": {"rack": None}}
        back = await client.call("PATCH", "/api/v1/nodes/a/settings", json=started)
        assert "rack" not in back.body["labels"]
        await eventually(lambda: logger.level == level, what="the log level as it was started")
        tasks.cancel_scope.cancel()


async def test_a_site_is_held_and_released_through_central(tmp_path: Path) -> None:
    async with fleet(tmp_path) as (client, site):

        async def listens() -> bool:
            body = {"reason": "a shift is running", "lasts_seconds": 3600}
            return (await client.post("/api/v1/sites/home/holds", body)).status == 200

        await eventually(listens, what="the site to listen")
        (hold,) = site.parts.conductor.memory.holds
        assert (hold.reason, hold.author) == ("a shift is running", "local")
        (shown,) = (await client.get("/api/v1/sites/home/holds")).body["holds"]
        assert shown["reason"] == "a shift is running"
        assert (await client.delete("/api/v1/sites/home/holds")).body["holds"] == []
        assert site.parts.conductor.memory.holds == ()
        assert (await client.delete("/api/v1/sites/home/holds")).status == 404


async def test_a_site_that_is_away_cannot_be_asked(client: Client, home: FakeSite) -> None:
    await home.say(node_changed("a"))
    for answer in (
        await client.post("/api/v1/nodes/a/drain", {"reason": "x"}),
        await client.post("/api/v1/sites/home/holds", {"reason": "x", "lasts_seconds": 60}),
    ):
        assert answer.status == 503
        assert "Site home is not connected" in answer.body["detail"]
        assert "--url" in answer.body["hint"]


async def test_a_site_cannot_report_the_hold_of_another(client: Client, home: FakeSite) -> None:
    await home.say(HoldsChanged((Hold(SiteName("line-7"), None, "x", "eve", AT, AT.replace(year=2999)),)))
    assert (await client.get("/api/v1/sites/home/holds")).body["holds"] == []


async def test_a_placement_that_cannot_be_names_the_field(client: Client, home: FakeSite) -> None:
    for placement, field in (
        ({"mode": "count"}, "placement.count"),
        ({"mode": "one", "count": 2}, "placement.count"),
        ({"selector": "zone=a b"}, "placement.selector"),
    ):
        answer = await client.deploy(placement=placement)
        assert (answer.status, answer.fields) == (422, [field])
    (id_,) = (await client.deploy(placement={"mode": "count", "count": 2, "selector": "zone=a"})).body[
        "deployment_ids"
    ]
    told = (await client.get(f"/api/v1/why/{id_}")).body["chain"]
    assert any("on 2 nodes with zone=a" in each["why"] for each in told), told
