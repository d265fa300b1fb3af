"""Central reaches what a site offers through the connection that the site opened, over real TLS."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import pytest

from homeport.capability.site import SiteCapability, SitePart
from homeport.core.tunnel.targets import Endpoint
from homeport.errors import PeerUnavailable, Refused
from homeport.fleet.site.platform import SitePlatform
from homeport.site.capabilities import CAPABILITIES
from homeport.vocabulary import SiteName
from tests.support.joining import Fleet, running_fleet
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio

NORTH = SiteName("north")


@asynccontextmanager
async def echo_server() -> AsyncIterator[Endpoint]:
    open_now: set[asyncio.StreamWriter] = set()

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_now.add(writer)
        with suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
            writer.close()
            await writer.wait_closed()
        open_now.discard(writer)

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    try:
        yield Endpoint("127.0.0.1", server.sockets[0].getsockname()[1])
    finally:
        server.close()
        await eventually(lambda: not open_now, what="the connections to end")


def offering(*endpoints: Endpoint) -> tuple[SiteCapability, ...]:
    def part(site: SitePlatform) -> SitePart:
        site.endpoints.offer("test", endpoints)
        return SitePart()

    return (*CAPABILITIES, SiteCapability("test", part))


async def connected(fleet: Fleet) -> None:
    await eventually(lambda: NORTH in fleet.central.parts.tunnels.connected, what="the tunnel of the site")


async def test_bytes_go_to_an_offered_endpoint_and_back_and_each_direction_ends(tmp_path: Path) -> None:
    async with echo_server() as echo, running_fleet(tmp_path) as fleet, fleet.site(capabilities=offering(echo)):
        await connected(fleet)
        sent = bytes(range(256)) * 16_384
        async with fleet.central.parts.tunnels.open(NORTH, echo) as stream, anyio.create_task_group() as tasks:

            async def write() -> None:
                await stream.write(sent)
                await stream.end()

            tasks.start_soon(write)
            received = bytearray()
            while data := await stream.read():
                received += data
        assert received == sent


async def test_metrics_count_streams_bytes_refusals_and_what_broke_off(tmp_path: Path) -> None:
    async with (
        echo_server() as echo,
        running_fleet(tmp_path) as fleet,
        fleet.site(capabilities=offering(echo)) as joined,
    ):
        await connected(fleet)
        tunnels = fleet.central.parts.tunnels
        async with tunnels.open(NORTH, echo) as stream:
            await stream.write(bytes(100_000))
            assert 'homeport_tunnel_streams{peer="site"} 1.0' in (await fleet.client.get("/metrics")).body
        with pytest.raises(Refused):
            async with tunnels.open(NORTH, Endpoint("127.0.0.1", 1)):
                pass
        tunnels.connected.dismiss(NORTH, "a test ends it")
        await connected(fleet)
        found = series((await fleet.client.get("/metrics")).body, "site")
        assert (found["connections"], found["streams"]) == (1, 0)
        names = ("streams_opened_total", "streams_refused_total", "streams_reset_total")
        assert [found[name] for name in names] == [2, 1, 1], "also of the tunnel that is gone"
        assert found["sent_bytes_total"] > 100_000
        below = series((await joined.client.get("/metrics")).body, "central")
        assert below["received_bytes_total"] > 100_000
        assert below["streams_opened_total"] == 2


def series(text: str, peer: str) -> dict[str, float]:
    """Of the tunnel, by name."""
    return {
        name: float(value)
        for name, value in re.findall(rf'^homeport_tunnel_(\w+){{peer="{peer}"}} (\S+)$', text, re.M)
    }


async def test_a_reader_that_stands_still_holds_back_its_own_stream_alone(tmp_path: Path) -> None:
    async with echo_server() as echo, running_fleet(tmp_path) as fleet, fleet.site(capabilities=offering(echo)):
        await connected(fleet)
        tunnels = fleet.central.parts.tunnels
        async with tunnels.open(NORTH, echo) as still, anyio.create_task_group() as tasks:

            async def flood() -> None:
                while True:
                    await still.write(bytes(65536))

            tasks.start_soon(flood)
            for _ in range(20):
                async with tunnels.open(NORTH, echo) as quick:
                    await quick.write(b"hello")
                    assert await quick.read() == b"hello"
            tasks.cancel_scope.cancel()


async def test_central_reaches_nothing_that_the_site_does_not_offer(tmp_path: Path) -> None:
    async with echo_server() as echo, running_fleet(tmp_path) as fleet, fleet.site():
        await connected(fleet)
        with pytest.raises(Refused, match=r"Site north offers nothing at 127\.0\.0\.1:"):
            async with fleet.central.parts.tunnels.open(NORTH, echo):
                pass


async def test_a_site_without_a_tunnel_and_one_whose_tunnel_breaks_are_said_in_sentences(tmp_path: Path) -> None:
    async with echo_server() as echo, running_fleet(tmp_path) as fleet:
        tunnels = fleet.central.parts.tunnels
        with pytest.raises(PeerUnavailable, match="Site north has no tunnel to central"):
            async with tunnels.open(NORTH, echo):
                pass
        async with fleet.site(capabilities=offering(echo)):
            await connected(fleet)
            async with tunnels.open(NORTH, echo) as stream:
                tunnels.connected.dismiss(NORTH, "a test ends it")
                with pytest.raises(PeerUnavailable, match="The tunnel to site north was lost: a test ends it"):
                    await stream.read()
            await connected(fleet)  # It came back by itself.
            async with tunnels.open(NORTH, echo) as stream:
                await stream.write(b"again")
                assert await stream.read() == b"again"


async def test_an_endpoint_where_nothing_listens_is_said_to_whoever_opens_it(tmp_path: Path) -> None:
    async with echo_server() as echo:
        closed = echo
    async with running_fleet(tmp_path) as fleet, fleet.site(capabilities=offering(closed)):
        await connected(fleet)
        with pytest.raises(PeerUnavailable, match=r"Nothing answers at 127\.0\.0\.1:\d+: Connection refused\."):
            async with fleet.central.parts.tunnels.open(NORTH, closed):
                pass


async def test_a_removed_site_loses_its_tunnel(tmp_path: Path) -> None:
    async with running_fleet(tmp_path) as fleet, fleet.site():
        await connected(fleet)
        assert (await fleet.client.delete("/api/v1/identities/north")).status == 200
        await eventually(lambda: NORTH not in fleet.central.parts.tunnels.connected, what="its end")
