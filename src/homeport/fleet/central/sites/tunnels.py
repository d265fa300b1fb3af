"""Central's tunnels to its sites. A site is connected to one replica; the others say which state it is in."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from homeport.core.tunnel.targets import Target
from homeport.errors import PeerUnavailable
from homeport.fleet.shared.tunnels import OpenTunnels
from homeport.ports import Bus, Message, TunnelStream
from homeport.vocabulary import SiteName
from homeport.wire.tunnel import encode_target

WHERE: Final = "tunnel-where"
WHERE_SECONDS_MAX: Final = 1.0


class TunnelElsewhere(PeerUnavailable):
    """The site's tunnel ends at another replica of central."""

    code = "tunnel-elsewhere"
    retry_after_seconds = 1.0


class SiteTunnels:
    """`ports.Tunnel`."""

    def __init__(self, bus: Bus) -> None:
        self.connected: OpenTunnels[SiteName] = OpenTunnels()
        self._bus = bus
        bus.subscribe(WHERE, self._here)

    @asynccontextmanager
    async def open(self, site: SiteName, target: Target) -> AsyncIterator[TunnelStream]:
        await self.require(site)
        async with self.connected.open(site, encode_target(target)) as stream:
            yield stream

    async def require(self, site: SiteName) -> None:
        """Raises PeerUnavailable for a site that has no tunnel, TunnelElsewhere for one of another replica."""
        if site in self.connected:
            return
        if await self._bus.request(WHERE, {"site": site}, seconds=WHERE_SECONDS_MAX) is not None:
            raise TunnelElsewhere(
                f"Site {site} is connected to another replica of central.",
                hint="Try again: a load balancer leads to each replica in turn. Or use that replica's own address.",
            )
        raise PeerUnavailable(
            f"Site {site} has no tunnel to central: it is offline, or older than central.",
            hint=f"See  homeport sites show {site} . It reconnects automatically.",
        )

    def _here(self, message: Message) -> Message | None:
        return {"here": True} if SiteName(str(message.get("site"))) in self.connected else None
