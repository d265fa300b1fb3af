"""The replicas of all sites, as sites tell them: bound here, so that central's task plane can use them. Those of
other machines are reached through the tunnel of their site."""

import hashlib
import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any, NamedTuple

import anyio

from homeport.adapters.network.http_client import parse_json
from homeport.core.inference.engines.handoff import Handoff, parse
from homeport.core.inference.replicas import Reached, assigned, of_site
from homeport.core.tunnel.targets import Endpoint
from homeport.errors import HomeportError, InvalidInput
from homeport.fleet.central.platform import CentralPlatform
from homeport.fleet.central.sites.tunnels import SiteTunnels
from homeport.lazy_dataclass import dataclass
from homeport.log import get_log
from homeport.models.network import network_id
from homeport.ports import Message, OpenStream, TunnelStream
from homeport.vocabulary import NodeId, SiteName

log = get_log("homeport.models")

REPLICAS_MAX = 4_096
PROBLEMS_MAX = 32
"""Replicas of a site that cannot be used are logged, not without end."""
TOPIC = "replicas"


@dataclass(frozen=True, slots=True)
class ThroughSite:
    """`ports.OpenStream`, as a value: two that lead to the same engine are equal."""

    tunnels: SiteTunnels
    site: SiteName
    endpoint: Endpoint

    def __call__(self) -> AbstractAsyncContextManager[TunnelStream]:
        return self.tunnels.open(self.site, self.endpoint)


class FleetReplicas:
    def __init__(self, central: CentralPlatform) -> None:
        self._central = central
        self._network = network_id()
        self.bound: dict[SiteName, dict[tuple[str, str], Reached]] = {}
        self._problems: dict[SiteName, tuple[str, ...]] = {}
        self._known: dict[SiteName, str] = {}
        """A digest of the last report of each site."""
        self.on_change: Callable[[], None] = lambda: None
        """Called after each report. Must not block."""
        self._to_ask: set[SiteName] = set()
        self._has_to_ask = anyio.Event()
        central.bus.subscribe(TOPIC, self._hint)

    def _hint(self, message: Message) -> None:
        """Another central got a report of a site."""
        site = SiteName(str(message.get("site")))
        if message.get("digest") != self._known.get(site):
            self._to_ask.add(site)
            self._has_to_ask.set()

    async def run(self) -> None:
        """Asks sites for what they reported to another central."""
        while True:
            await self._has_to_ask.wait()
            self._has_to_ask = anyio.Event()
            sites, self._to_ask = sorted(self._to_ask), set()
            for site in sites:
                try:
                    answer = await self._central.questions.ask(site, TOPIC, {})
                    await self.take(site, json.dumps(answer).encode())
                except HomeportError as error:
                    log.debug("replicas not asked for", site=site, why=str(error))

    async def take(self, site: SiteName, body: bytes) -> bytes:
        """The whole list of one site. A list that cannot be read changes nothing."""
        announced, digest = _read(body), _digest(body)
        self._known[site] = digest
        self._central.bus.publish(TOPIC, {"site": site, "digest": digest})
        here, problems = assigned({site: (announced.network, announced.replicas)}, network=self._network)
        behind, more = assigned({site: ("", announced.behind_nodes)}, network=self._network)
        problems = (*problems, *more, *announced.unreadable)[:PROBLEMS_MAX]
        if problems != self._problems.get(site, ()):
            self._problems[site] = problems
            for problem in problems:
                log.warning("replica not usable", site=site, why=problem)
        fresh = of_site(site, (*here, *map(_of_its_node, behind)))
        pools, before = self._central.inference.pools, self.bound.get(site, {})
        if pools is not None:
            for pool_id, replica_id in sorted(before.keys() - fresh.keys()):
                pools.unbind(pool_id, replica_id)
            for key in sorted(fresh):
                pools.bind(fresh[key].handoff, self._opens(site, fresh[key]))
        self.bound[site] = fresh
        self.on_change()
        return b"{}"

    def _opens(self, site: SiteName, replica: Reached) -> OpenStream | None:
        # Of several centrals, the one that the site's tunnel leads to uses its engines: one counts their slots.
        is_direct = replica.is_direct and not self._central.leases.are_shared
        return None if is_direct else ThroughSite(self._central.tunnels, site, replica.endpoint)


def _digest(body: bytes) -> str:
    """The same for the same list, however it was written."""
    return hashlib.sha256(json.dumps(parse_json(body), sort_keys=True).encode()).hexdigest()


def _of_its_node(replica: Reached) -> Reached:
    return replace(replica, endpoint=replace(replica.endpoint, node_id=NodeId(replica.handoff.node_id)))


class _Announced(NamedTuple):
    network: str
    replicas: list[Handoff]
    """Of the site's own machine."""
    behind_nodes: list[Handoff]
    """Of machines that the site reaches through their tunnels."""
    unreadable: tuple[str, ...]
    """Why further ones are left out: a newer site may have engines that this central does not know."""


def _read(body: bytes) -> _Announced:
    try:
        found: Any = parse_json(body)
        network, here, behind = found["network"], found["replicas"], found.get("behind_nodes", [])
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise InvalidInput("The list of replicas cannot be read.") from error
    lists = isinstance(here, list) and isinstance(behind, list)
    if not isinstance(network, str) or not lists or len(here) + len(behind) > REPLICAS_MAX:
        raise InvalidInput(f"The list of replicas must have a network and at most {REPLICAS_MAX} replicas.")
    unreadable: list[str] = []
    readable = _readable(here, unreadable), _readable(behind, unreadable)
    return _Announced(network[:64], *readable, tuple(unreadable))


def _readable(records: list[Any], unreadable: list[str]) -> list[Handoff]:
    """One record harms itself alone; why is added to the list."""
    found = []
    for record in records:
        try:
            found.append(parse(record))
        except InvalidInput as error:
            unreadable.append("; ".join(map(str, error.problems))[:500] or str(error)[:500])
    return found
