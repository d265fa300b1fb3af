"""A fleet that joins as people do, in one process over real TLS sockets: central, a site, nodes."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import anyio

from homeport.capability.site import SiteCapability
from homeport.central.app import CentralApp, open_central
from homeport.central.settings import CentralSettings
from homeport.node.app import open_default_runtime, run_node
from homeport.node.link.identity import open_identity
from homeport.node.process import open_default_link, open_default_tunnel
from homeport.node.settings import NodeSettings
from homeport.site.app import SiteApp, open_site
from homeport.site.capabilities import CAPABILITIES
from homeport.site.settings import SiteSettings
from homeport.vocabulary import NodeId, SiteName
from tests.support.local import local_key
from tests.support.ports import free_port
from tests.support.running_central import Client
from tests.support.waiting import eventually


@dataclass
class Fleet:
    """`client` speaks to central as an administrator on this machine does, over TLS."""

    folder: Path
    central: CentralApp
    client: Client
    session: aiohttp.ClientSession

    @property
    def url(self) -> str:
        return self.client.url

    async def site_ticket(self, name: str = "north", **options: Any) -> dict[str, Any]:
        answer = await self.client.post(f"/api/v1/sites/{name}/join-token", options)
        assert answer.status == 200, answer.body
        ticket: dict[str, Any] = answer.body
        return ticket

    async def node_ticket(self, site: str = "north") -> dict[str, Any]:
        async def made() -> dict[str, Any] | None:
            answer = await self.client.post(f"/api/v1/sites/{site}/nodes/join-token", {})
            return answer.body if answer.status == 200 else None

        ticket: dict[str, Any] = await eventually(made, what="a token for a node")
        return ticket

    def site_settings(self, name: str = "north", **options: Any) -> SiteSettings:
        given: dict[str, Any] = {
            "data": self.folder / name,
            "git_url": str(self.central.parts.settings.own_repository),
            "central_url": self.url,
            "http_address": ("127.0.0.1", free_port()),
            "grpc_address": f"127.0.0.1:{free_port()}",
            "heartbeat_seconds": 0.2,
            "report_seconds": 0.2,
            **options,
        }
        return SiteSettings(name=SiteName(name), **given)

    @asynccontextmanager
    async def site(
        self, name: str = "north", *, capabilities: Sequence[SiteCapability] = CAPABILITIES, **options: Any
    ) -> AsyncIterator["JoinedSite"]:
        """Joins with a fresh token unless it has joined before or the options say otherwise."""
        if "pin" not in options and not (self.folder / name / "identity" / "membership.json").exists():
            ticket = await self.site_ticket(name)
            options = {"pin": ticket["pin"], "join_token": ticket["token"], **options}
        async with open_site(self.site_settings(name, **options), capabilities=capabilities) as app:
            identity = app.parts.identity
            assert identity is not None
            connector = aiohttp.TCPConnector(ssl=identity.server.client_context(present=False))
            async with aiohttp.ClientSession(connector=connector, headers=local_key(app)) as session:
                yield JoinedSite(app, Client(f"https://127.0.0.1:{app.http_port}", session))

    def node_settings(self, name: str, ticket: dict[str, Any] | None, address: str, **options: Any) -> NodeSettings:
        given: dict[str, Any] = {
            "data": self.folder / name,
            "node_id": NodeId(name),
            "site_address": address,
            "http_address": None,
            "runtime": "null",
            "heartbeat_seconds": 0.2,
            "reconnect_max_seconds": 0.5,
            **options,
        }
        if ticket is not None:
            given |= {"join_url": ticket["api"], "join_token": ticket["token"], "pin": ticket["pin"]}
        return NodeSettings(**given)

    @asynccontextmanager
    async def node(self, site: "JoinedSite", name: str = "n1", **options: Any) -> AsyncIterator[NodeSettings]:
        ticket = None
        if not (self.folder / name / "identity" / "membership.json").exists():
            ticket = await self.node_ticket(site.app.parts.settings.name)
        settings = self.node_settings(name, ticket, f"127.0.0.1:{site.app.grpc_port}", **options)
        async with running_node(settings):
            await eventually(lambda: self.is_connected(site, name), what=f"{name} to be connected")
            yield settings

    @staticmethod
    async def is_connected(site: "JoinedSite", name: str) -> bool:
        return NodeId(name) in site.app.parts.sessions.connected


@dataclass
class JoinedSite:
    app: SiteApp
    client: Client


@asynccontextmanager
async def running_node(settings: NodeSettings) -> AsyncIterator[None]:
    identity = await open_identity(settings)
    runtime = await open_default_runtime(settings)
    link = open_default_link(settings, identity)
    async with anyio.create_task_group() as tasks:

        async def run() -> None:
            dial = open_default_tunnel(settings, identity)
            await run_node(settings, link, runtime, identity=identity, dial_site=dial)

        tasks.start_soon(run)
        try:
            yield
        finally:
            tasks.cancel_scope.cancel()


@asynccontextmanager
async def running_fleet(folder: Path, **settings: Any) -> AsyncIterator[Fleet]:
    given: dict[str, Any] = {"http_address": ("127.0.0.1", 0), "grpc_address": None, "tls": True, **settings}
    async with open_central(CentralSettings(data=folder / "central", **given)) as central:
        connector = aiohttp.TCPConnector(ssl=central.parts.identity.credentials.client_context(present=False))
        async with aiohttp.ClientSession(connector=connector, headers=local_key(central)) as session:
            client = Client(f"https://127.0.0.1:{central.http_port}", session)
            yield Fleet(folder, central, client, session)
