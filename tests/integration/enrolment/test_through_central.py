"""An administrator at central decides about the nodes of a site, which is asked through the stream that it keeps
open; and what else holds from the moment of a decision on."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from homeport.adapters.identity.keys import make_csr, new_key
from homeport.core.model.identity import IdentityKind
from homeport.node.link.identity import open_identity
from homeport.ports import Transaction
from homeport.vocabulary import NodeId
from tests.support.joining import Fleet, JoinedSite, running_fleet
from tests.support.running_central import Client
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio

IDENTITIES = "/api/v1/sites/north/nodes/identities"


async def standing(client: Client, name: str) -> str | None:
    answer = await client.get(IDENTITIES)
    known = answer.body["identities"] if answer.status == 200 else []
    return next((str(each["standing"]) for each in known if each["name"] == name), None)


async def is_standing(client: Client, name: str, expected: str) -> bool:
    return await standing(client, name) == expected


async def test_a_waiting_node_is_listed_and_let_in_at_central(tmp_path: Path) -> None:
    async with running_fleet(tmp_path) as fleet, fleet.site() as site:
        settings = waiting_node(fleet, site)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(open_identity, settings)
            await eventually(lambda: is_standing(fleet.client, "n1", "pending"), what="the node that waits")
            approved = await fleet.client.post(f"{IDENTITIES}/n1/approve", {})
            assert (approved.status, approved.body["standing"], approved.body["name"]) == (200, "accepted", "n1")
        assert (tmp_path / "n1/identity/chain.pem").exists(), "it has joined"
        trail = (await site.client.get("/api/v1/audit")).body["entries"]
        assert ("local", "identities.approve", "central") in {
            (each["actor"], each["action"], each["address"]) for each in trail
        }, "the site knows on whose word it acted"


def waiting_node(fleet: Fleet, site: JoinedSite) -> Any:
    identity = site.app.parts.identity
    assert identity is not None
    ticket = {"api": f"https://127.0.0.1:{site.app.http_port}", "token": None, "pin": identity.server.pin}
    return fleet.node_settings("n1", ticket, f"127.0.0.1:{site.app.grpc_port}")


async def test_a_node_removed_at_central_is_gone_at_once(tmp_path: Path) -> None:
    """Its beats would be missed only after an hour here."""
    slow: dict[str, Any] = {"stale_seconds": 3600.0, "lost_seconds": 7200.0}
    async with running_fleet(tmp_path) as fleet, fleet.site(**slow) as site, fleet.node(site, "n1"):
        await eventually(lambda: is_alive(site.client), what="a live node")
        removed = await fleet.client.delete(f"{IDENTITIES}/n1")
        assert (removed.status, removed.body["standing"]) == (200, "removed")
        assert NodeId("n1") not in site.app.parts.sessions.connected
        assert not await is_alive(site.client), "nor at the site from that moment on"
        await site.app.parts.conductor.sweep()
        assert not await is_alive(site.client), "and it stays so"
        await eventually(lambda: is_gone(fleet.client), what="central to hear of it")


async def test_a_token_for_a_node_is_stored_at_the_site_when_it_is_handed_out(tmp_path: Path) -> None:
    """A node may use it at once, however busy the site's store is."""
    async with running_fleet(tmp_path) as fleet, fleet.site() as site, anyio.create_task_group() as tasks:
        await eventually(lambda: answers(fleet.client), what="the site's stream")
        store, is_written_to = site.app.parts.store, anyio.Event()

        async def write_slowly(_: Transaction) -> None:
            is_written_to.set()
            await anyio.sleep(0.5)

        tasks.start_soon(store.write, write_slowly)
        await is_written_to.wait()
        await fleet.node_ticket()
        async with store.read() as reader:
            assert [token.kind for token in await reader.join_tokens()] == [IdentityKind.NODE]


async def is_alive(client: Client) -> bool:
    nodes = (await client.get("/api/v1/nodes")).body["nodes"]
    return [node["liveness"] for node in nodes] == ["live"]


async def is_gone(client: Client) -> bool:
    return not await is_alive(client)


async def test_what_the_site_refuses_reaches_the_one_who_asked(tmp_path: Path) -> None:
    async with running_fleet(tmp_path) as fleet, fleet.site():
        await eventually(lambda: answers(fleet.client), what="the site's stream")
        missing = await fleet.client.post(f"{IDENTITIES}/nobody/approve", {})
        assert missing.status == 404
        assert missing.body["detail"] == '"nobody" has not joined and has not asked to join.'
        assert (await fleet.client.get("/api/v1/sites/south/nodes/identities")).status == 404
        stray = await fleet.client.post("/api/v1/sites/north/answers/made-up", {"identities": []})
        assert stray.status == 404, "nobody answers what was not asked"
    async with running_fleet(tmp_path) as fleet:
        away = await fleet.client.get(IDENTITIES)
        assert away.status == 503
        assert "Site north is not connected" in away.body["detail"]


async def answers(client: Client) -> bool:
    return (await client.get(IDENTITIES)).status == 200


async def test_a_refused_request_to_join_leaves_one_line_in_the_trail(tmp_path: Path) -> None:
    async with running_fleet(tmp_path) as fleet:
        body = {
            "spiffe_id": "spiffe://homeport.internal/margo/wfm/central/client/north",
            "csr": make_csr(new_key(), "x").decode(),
        }
        assert (await fleet.client.post("/api/v1/identity/renew", body)).status == 403
        entries = (await fleet.client.get("/api/v1/audit")).body["entries"]
        assert [each["action"] for each in entries if each["result"] == "refused"] == ["identities.renew"]


async def test_a_removed_site_loses_its_identity_and_does_not_come_back(tmp_path: Path) -> None:
    async with running_fleet(tmp_path) as fleet, fleet.site():
        await eventually(lambda: answers(fleet.client), what="the site's stream")
        refused = await fleet.client.delete("/api/v1/sites/north")
        assert (refused.status, "in reach" in refused.body["detail"]) == (409, True)
        removed = await fleet.client.delete("/api/v1/sites/north", params={"force": "true"})
        assert (removed.status, removed.body) == (200, {"name": "north", "identity_removed": True})
        standings = {each["standing"] for each in (await fleet.client.get("/api/v1/identities")).body["identities"]}
        assert standings == {"removed"}

        async def was_refused() -> bool:
            trail = (await fleet.client.get("/api/v1/audit", params={"result": "refused"})).body["entries"]
            return any("north" in each["actor"] for each in trail)

        await eventually(was_refused, what="the site to have called again")
        assert (await fleet.client.get("/api/v1/sites")).body["sites"] == []
