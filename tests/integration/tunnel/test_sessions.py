"""Who may open a session, what is recorded, and what a node or a server refuses, over real TLS without an engine."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from homeport.adapters.tunnel.connection import MuxConnection
from homeport.adapters.tunnel.dial import Door, UpgradeRefused, dial
from homeport.adapters.tunnel.websocket import WebSocketCodec
from homeport.core.tunnel.targets import ExecTarget
from homeport.errors import HomeportError
from homeport.vocabulary import DeploymentId, NodeId, SiteName
from tests.support.joining import running_fleet
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio

NORTH, N1 = SiteName("north"), NodeId("n1")
EXEC = ExecTarget(DeploymentId("d"), N1, ("ls",))


async def test_a_node_permits_commands_only_where_its_owner_does_and_says_so(tmp_path: Path) -> None:
    async with running_fleet(tmp_path) as fleet, fleet.site() as site, fleet.node(site, "n1"):
        tunnels = fleet.central.parts.tunnels
        await eventually(lambda: NORTH in tunnels.connected, what="the site's tunnel")

        async def refusal(target: ExecTarget) -> str:
            try:
                async with tunnels.open(NORTH, target):
                    return "accepted"
            except HomeportError as error:
                return f"{error} {error.hint}"

        async def is_refused_by_its_owner() -> bool:
            return "does not allow commands in its containers" in await refusal(EXEC)

        await eventually(is_refused_by_its_owner, what="the node's tunnel")
        assert "--allow exec" in await refusal(EXEC)


async def test_volumes_of_a_node_without_containers_are_refused_with_a_reason(tmp_path: Path) -> None:
    async with running_fleet(tmp_path) as fleet, fleet.site() as site, fleet.node(site, "n1"):

        async def has_answered() -> bool:
            return "has no containers" in str((await fleet.client.get("/api/v1/nodes/n1/volumes")).body)

        await eventually(has_answered, what="the node's own reason")
        missing = await fleet.client.get("/api/v1/nodes/nowhere/volumes")
        assert (missing.status, missing.body["detail"]) == (404, 'There is no node "nowhere".')


async def test_a_removed_node_loses_its_tunnel(tmp_path: Path) -> None:
    async with running_fleet(tmp_path) as fleet, fleet.site() as site, fleet.node(site, "n1"):
        tunnels = fleet.central.parts.tunnels

        async def answers() -> str:
            try:
                async with tunnels.open(NORTH, EXEC):
                    return ""
            except HomeportError as error:
                return str(error)

        async def has_tunnel() -> bool:
            return "does not allow" in await answers()

        await eventually(has_tunnel, what="the node's tunnel")
        assert (await site.client.delete("/api/v1/identities/n1")).status == 200

        async def is_gone() -> bool:
            return "has no tunnel to its site" in await answers()

        await eventually(is_gone, what="its end")


@asynccontextmanager
async def websocket(url: str, path: str, tls: Any, **headers: str) -> AsyncIterator[MuxConnection]:
    connection = MuxConnection(peer="the server", is_opener=True, codec=WebSocketCodec(is_client=True))
    port = int(url.rpartition(":")[2])
    door = Door(host="127.0.0.1", port=port, path=path, headers=headers, tls=tls, is_websocket=True)
    await dial(door, connection)
    try:
        yield connection
    finally:
        await connection.aclose("over")


async def test_a_session_needs_a_login_the_role_operator_and_a_deployment(tmp_path: Path) -> None:
    async with running_fleet(tmp_path) as fleet:
        tls = fleet.central.parts.identity.credentials.client_context(present=False)
        made = await fleet.client.post("/api/v1/tokens", {"name": "guest", "role": "viewer"})
        assert made.status in {200, 201}, made.body
        viewer = {"Authorization": f"Bearer {made.body['token']}"}
        path = "/api/v1/deployments/hello@north/exec"

        async def refused(path: str, **headers: str) -> int:
            with pytest.raises(UpgradeRefused) as error:
                async with websocket(fleet.url, path, tls, **headers):
                    pass
            return error.value.status

        local = dict(fleet.session.headers)
        assert await refused(path) == 401
        assert await refused(path, **viewer) == 403
        assert await refused(path, **local) == 404
        assert await refused("/api/v1/deployments/hello@north/port-forward", **local) == 422
        assert await refused(f"{path}?{'&'.join(['a=1'] * 99)}", **local) == 422
        assert await refused("/api/v1/sites/north/tunnel", **local) == 403, "not even an administrator is a site"
        async with fleet.session.get(f"{fleet.url}{path}", headers={"Origin": "https://evil.example"}) as answer:
            assert answer.status == 403
        entries = (await fleet.client.get("/api/v1/audit?limit=100")).body["entries"]
        assert [each["actor"] for each in entries if each["action"] == "deployments.exec"].count("guest") == 1
