"""Sites that go: silent ones age with their nodes, and closed ones can be removed."""

from pathlib import Path

import pytest

from homeport.central.settings import CentralSettings
from tests.support.git import git
from tests.support.running_central import Client, FakeSite, node_changed, running_central, write_app
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio


def test_a_killed_site_is_shown_within_fifteen_seconds() -> None:
    assert CentralSettings(data=Path("x")).site_silence_seconds <= 15


async def test_nodes_of_a_silent_site_are_unknown_on_every_surface(tmp_path: Path) -> None:
    async with running_central(tmp_path, site_silence_seconds=1.5, sweep_seconds=0.1) as (_, client):
        site = FakeSite(client)
        await site.join()
        await site.say(node_changed())

        async def is_unknown() -> bool:
            (node,) = (await client.get("/api/v1/nodes")).body["nodes"]
            return bool(node["liveness"] == "unknown")

        await eventually(is_unknown, what="the node of a silent site to be unknown")
        node = (await client.get("/api/v1/nodes/node-a")).body
        assert node["liveness_since"] is not None
        overview = (await client.get("/api/v1/overview")).body
        assert overview["nodes"] == {"live": 0, "stale": 0, "lost": 0, "unknown": 1}
        assert overview["sites"] == {"count": 1, "reachable": 0}
        (wrong,) = overview["attention"]
        assert (wrong["kind"], wrong["name"], wrong["why"][:12]) == ("site", "home", "site offline")
        assert (await client.get("/api/v1/sites/home")).body["nodes_live"] == 0
        metrics = (await client.get("/metrics")).body
        assert 'homeport_nodes{liveness="live"} 0.0' in metrics
        assert 'homeport_nodes{liveness="unknown"} 1.0' in metrics
        await site.say()
        assert (await client.get("/api/v1/nodes/node-a")).body["liveness"] == "live"


async def test_a_site_is_removed_only_when_it_is_empty_and_silent_or_by_force(tmp_path: Path) -> None:
    write_app(tmp_path / "registry")
    async with running_central(tmp_path / "central", site_silence_seconds=1.5) as (_, client):
        assert (await client.post("/api/v1/apps", {"repository": str(tmp_path / "registry")})).status == 201
        site = FakeSite(client)
        await site.join()
        await site.say(node_changed())
        await client.deploy()
        refused = await client.delete("/api/v1/sites/home")
        assert (refused.status, "hello" in refused.body["detail"]) == (409, True)
        await FakeSite(client, "typo").join()
        assert "in reach" in (await client.delete("/api/v1/sites/typo")).body["detail"]

        async def is_silent() -> bool:
            return (await client.get("/api/v1/sites/typo")).body["reachable"] is False

        await eventually(is_silent, what="the site to be silent")
        gone = await client.delete("/api/v1/sites/typo")
        assert (gone.status, gone.body) == (200, {"name": "typo", "identity_removed": False})
        assert (await client.delete("/api/v1/sites/home", params={"force": "true"})).status == 200
        assert (await client.get("/api/v1/sites")).body["sites"] == []
        assert (await client.get("/api/v1/nodes")).body["nodes"] == []
        assert (await client.get("/api/v1/deployments")).body["deployments"] == []
        assert git("ls-tree", "-r", "--name-only", "main", cwd=tmp_path / "central" / "deployments.git") == ""
        entries = (await client.get("/api/v1/audit", params={"action": "sites.remove"})).body["entries"]
        assert [each["target"] for each in entries if each["result"] == "done"] == ["typo", "home"]
        await _joins_again(client)


async def _joins_again(client: Client) -> None:
    assert (await FakeSite(client, epoch="epoch-2").join()).body["last_sequence"] == 0
    assert [each["name"] for each in (await client.get("/api/v1/sites")).body["sites"]] == ["home"]
