"""What sites report: in order, once, and nothing of what is not theirs."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import grpc
import pytest

from homeport.central.app import CentralApp
from homeport.core.model.protocol import OWN
from homeport.core.model.report import NodeGone, PlanSetAside, Synced, SyncFailed
from homeport.ports import JoinAnswer, Moved, Outgoing
from homeport.vocabulary import Commit, DeploymentId, Liveness, NodeId, SiteName, Trigger
from homeport.wire.reports import encode
from homeport.wire.v1 import nodes_pb2 as pb
from tests.support.builders import NOW
from tests.support.local import local_channel
from tests.support.running_central import Client, FakeSite, node_changed, running_central, transition
from tests.support.stubs import nodes_pb2_grpc as pb_grpc
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio


async def kinds(client: Client, after: int) -> list[str]:
    """The kinds of all events after one, read as the log has them now."""
    last = (await client.get("/api/v1/overview")).body["last_event_id"]
    found: list[str] = []
    if last == after:
        return found
    async for sent in client.events(f"/api/v1/events?after={after}"):
        found.append(sent.event)
        if sent.id == str(last):
            break
    return found


async def test_repeats_are_harmless_and_a_gap_is_refused(client: Client, home: FakeSite) -> None:
    (id_,) = (await client.deploy()).body["deployment_ids"]
    await home.say(transition(id_, Trigger.SCHEDULED))
    home.sequence = 0
    await home.say(transition(id_, Trigger.SCHEDULED), transition(id_, Trigger.HEALTHY))
    assert len((await client.get(f"/api/v1/deployments/{id_}/history")).body["history"]) == 2
    home.sequence = 7
    answer = await home.say(transition(id_, Trigger.UNWANTED), expect=409)
    assert "Report 3 is expected" in answer.body["detail"]
    joined = await home.join()
    assert joined.body["last_sequence"] == 2


async def test_a_site_with_a_new_database_begins_its_numbers_anew(client: Client, home: FakeSite) -> None:
    await home.say(node_changed("a"), node_changed("b"))
    fresh = FakeSite(client, epoch="epoch-2")
    assert (await fresh.say(node_changed("c"), expect=409)).body["code"] == "conflict"
    assert (await fresh.join()).body["last_sequence"] == 0
    await fresh.say(node_changed("c"))
    assert len((await client.get("/api/v1/nodes")).body["nodes"]) == 3


async def test_what_cannot_be_is_refused_and_spoils_nothing_else(client: Client, home: FakeSite) -> None:
    await FakeSite(client, "line-7").join()
    (own,) = (await client.deploy()).body["deployment_ids"]
    (foreign,) = (await client.deploy("line-7")).body["deployment_ids"]
    after = (await client.get("/api/v1/overview")).body["last_event_id"]
    await home.say_bodies(
        [
            encode(transition("00000000-0000-4000-8000-000000000000", Trigger.SCHEDULED)),
            encode(transition(foreign, Trigger.SCHEDULED)),
            encode(transition(own, Trigger.REMOVED)),
            {"kind": "nonsense"},
            encode(node_changed(site="line-7")),
            encode(transition(own, Trigger.SCHEDULED)),
            encode(transition(own, Trigger.HEALTHY)),
            encode(transition(own, Trigger.HEALTHY)),
        ]
    )
    assert (await client.get(f"/api/v1/deployments/{own}")).body["state"] == "INSTALLED"
    assert (await client.get(f"/api/v1/deployments/{foreign}")).body["state"] == "PENDING"
    seen = await kinds(client, after)
    assert seen.count("deployment.refused") == 4
    assert seen.count("report.set-aside") == 1
    assert seen.count("instance.stale") == 1
    history = (await client.get(f"/api/v1/deployments/{own}/history")).body["history"]
    assert [entry["verdict"] for entry in history] == ["stepped", "stepped", "stale"]


async def test_nodes_come_change_and_go_and_every_surface_shows_them(client: Client, home: FakeSite) -> None:
    after = (await client.get("/api/v1/overview")).body["last_event_id"]
    await home.say(node_changed(), node_changed(liveness=Liveness.LOST))
    (node,) = (await client.get("/api/nodes")).body
    assert (node["id"], node["hostname"], node["liveness"]) == ("node-a", "node-a.local", "lost")
    assert node["capabilities"]["cpu_cores"] == 4
    assert (node["capabilities"]["cpu"], node["capabilities"]["os"]) == ("4 cores", "linux/amd64")
    assert node["last_seen_unix"] == int(datetime.fromisoformat(node["last_seen"]).timestamp())
    shown = (await client.get("/api/v1/nodes/node-a")).body
    assert {**node, "capabilities": None} == {
        **shown,
        "capabilities": None,
        "last_seen_unix": node["last_seen_unix"],
    }
    assert (await client.get("/api/v1/nodes?site=home")).body["nodes"] == [shown]
    assert (await client.call("OPTIONS", "/api/nodes")).status == 200
    assert (await client.call("POST", "/api/nodes")).status == 405
    assert (await client.get("/api/v1/nodes?site=other")).status == 404
    site = (await client.get("/api/v1/sites/home")).body
    assert (site["nodes"], site["nodes_live"], site["reachable"]) == (1, 0, True)
    await home.say(NodeGone(NodeId("node-a")))
    assert (await client.get("/api/nodes")).body == []
    assert await kinds(client, after) == ["node.joined", "node.liveness", "node.left"]


async def test_a_sites_own_complaint_is_shown_until_it_syncs(client: Client, home: FakeSite) -> None:
    await home.say(SyncFailed("deployments/home/site.yaml is missing"))
    assert (await client.get("/api/v1/sites/home")).body["problem"] == "deployments/home/site.yaml is missing"
    await home.say(Synced(Commit("a" * 40), ()))
    site = (await client.get("/api/v1/sites/home")).body
    assert (site["problem"], site["applied_commit"]) == (None, "a" * 40)


async def test_a_plan_that_a_site_set_aside_is_seen_at_central_until_it_can_be_made(
    client: Client, home: FakeSite
) -> None:
    (id_,) = (await client.deploy()).body["deployment_ids"]
    why = "a plan was refused: two orders for node-a"
    await home.say(PlanSetAside(DeploymentId(id_), why, NOW), PlanSetAside(DeploymentId(id_), why, NOW))
    shown = (await client.get(f"/api/v1/deployments/{id_}")).body
    assert shown["problem"] == why
    chain = (await client.get(f"/api/v1/why/{id_}")).body["chain"]
    assert ("site home leaves it as it is", why) in [(each["what"], each["why"]) for each in chain]
    assert (await kinds(client, 0)).count("deployment.refused") == 1, "it is said once"
    await home.say(PlanSetAside(DeploymentId(id_), None, NOW))
    assert (await client.get(f"/api/v1/deployments/{id_}")).body["problem"] is None


async def test_a_site_in_the_same_process_uses_the_same_ways(central: CentralApp, client: Client) -> None:
    link = central.link
    assert await link.join(SiteName("home"), epoch="e", software_version="1") == JoinAnswer(0, protocol=OWN)
    report = Outgoing(1, encode(node_changed()))
    assert await link.report(SiteName("home"), [report], epoch="e", seen={}) == 1
    async for call in link.watch(SiteName("home")):
        assert call == Moved((await client.get("/api/v1/overview")).body["commit"])
        break


async def test_a_silent_site_is_unreachable_and_that_is_said_once(tmp_path: Path) -> None:
    async with running_central(tmp_path, site_silence_seconds=0.2, sweep_seconds=0.05) as (_, client):
        await FakeSite(client).join()

        async def is_silent() -> bool:
            return (await client.get("/api/v1/sites/home")).body["reachable"] is False

        async def is_said() -> bool:
            return "site.problem" in await kinds(client, 0)

        await eventually(is_silent)
        await eventually(is_said)
        await anyio.sleep(0.2)  # several sweeps
        assert (await kinds(client, 0)).count("site.problem") == 1


async def test_a_central_that_was_away_does_not_take_that_for_the_silence_of_sites(tmp_path: Path) -> None:
    async with running_central(tmp_path) as (central, client):
        await FakeSite(client).join()
        long_ago = datetime.now(UTC) - timedelta(hours=1)
        await central.parts.store.write(lambda tx: tx.touch_sites([SiteName("home")], long_ago))
    async with running_central(tmp_path, site_silence_seconds=5.0, sweep_seconds=0.05) as (_, client):
        await anyio.sleep(0.3)  # several sweeps
        await FakeSite(client).join()
        assert "site.problem" not in await kinds(client, 0)


async def test_grpc_lists_the_nodes_of_the_whole_fleet_and_takes_none(tmp_path: Path) -> None:
    async with running_central(tmp_path, grpc_address="127.0.0.1:0") as (central, client):
        for name in ("home", "line-7"):
            site = FakeSite(client, name)
            await site.join()
            await site.say(node_changed(f"node-{name}", name))
        async with local_channel(central) as channel:
            nodes = pb_grpc.NodesStub(channel)  # type: ignore[no-untyped-call]
            answer = await nodes.ListNodes(pb.ListNodesRequest())
            assert {(node.id, node.site) for node in answer.nodes} == {
                ("node-home", "home"),
                ("node-line-7", "line-7"),
            }
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await nodes.Heartbeat(pb.HeartbeatRequest(node_id="node-home"))
            assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
