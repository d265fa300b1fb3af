"""Two centrals on one PostgreSQL and one repository, behind a load balancer that knows nothing but addresses."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import aiohttp

from homeport.adapters.git import create_bare
from homeport.central.app import CentralApp, open_central
from homeport.central.settings import CentralSettings
from homeport.core.model.caller import INTERNAL, Role
from tests.support.running_central import Client


class RoundRobin:
    """Gives each connection to the next target that takes it."""

    def __init__(self, *ports: int) -> None:
        self.ports = list(ports)
        self.port = 0
        self._turns = itertools.count()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self, port: int = 0) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._carry(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far: asyncio.StreamWriter | None = None
        try:
            far_reader, far = await self._connect()
            pumps = {asyncio.create_task(_pump(reader, far)), asyncio.create_task(_pump(far_reader, writer))}
            _, left = await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            for pump in left:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
        except OSError:
            pass
        finally:
            for each in (writer, far):
                if each is not None:
                    each.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        first = next(self._turns)
        for number in range(len(self.ports)):
            try:
                return await asyncio.open_connection("127.0.0.1", self.ports[(first + number) % len(self.ports)])
            except OSError:
                continue
        raise ConnectionRefusedError


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(65_536):
        writer.write(chunk)
        await writer.drain()


@asynccontextmanager
async def balanced(*ports: int) -> AsyncIterator[RoundRobin]:
    balancer = RoundRobin(*ports)
    await balancer.start()
    try:
        yield balancer
    finally:
        await balancer.stop()


@dataclass
class TwoCentrals:
    apps: tuple[CentralApp, CentralApp]
    one: Client
    other: Client
    any: Client
    """Through the balancer: each request goes to the next."""


@asynccontextmanager
async def two_centrals(folder: Path, store_url: str, **settings: Any) -> AsyncIterator[TwoCentrals]:
    create_bare(folder / "deployments.git", "main")
    given: dict[str, Any] = {
        "store_url": store_url,
        "git_url": str(folder / "deployments.git"),
        "keys": folder / "keys",
        "http_address": ("127.0.0.1", 0),
        "grpc_address": None,
        "lease_seconds": 10.0,
        "sweep_seconds": 0.2,
        **settings,
    }
    async with AsyncExitStack() as stack:
        balancer = await stack.enter_async_context(balanced())
        given["allowed_hosts"] = ("127.0.0.1",)
        opened = [
            await stack.enter_async_context(open_central(CentralSettings(data=folder / name, **given)))
            for name in ("one", "other")
        ]
        ports = [app.http_port or 0 for app in opened]
        balancer.ports.extend(ports)
        # A connection for each request, or a client would stay with the replica it met first.
        connector = aiohttp.TCPConnector(force_close=True)
        # What one replica's local key opens is closed at the other; a token is good at both.
        made = await opened[0].parts.authenticator.tokens.create(
            INTERNAL, name=f"admin-{uuid4().hex[:8]}", role=Role.ADMIN
        )
        headers = {"Authorization": f"Bearer {made.text}"}
        session = await stack.enter_async_context(aiohttp.ClientSession(connector=connector, headers=headers))
        one, other, both = (Client(f"http://127.0.0.1:{port}", session) for port in (*ports, balancer.port))
        yield TwoCentrals((opened[0], opened[1]), one, other, both)
