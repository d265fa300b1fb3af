"""What the routes and gRPC calls about logs need of their role."""

from collections.abc import Sequence
from dataclasses import field, replace
from typing import Final
from uuid import UUID

from homeport.core.logs.line import StoredLine
from homeport.core.logs.query import Among, LogFilter
from homeport.core.model.caller import Caller
from homeport.core.values.filters import Part, Parts
from homeport.errors import InvalidInput, Problem
from homeport.fleet.shared.overview import find_deployment, find_node
from homeport.fleet.shared.scope import seen_by
from homeport.lazy_dataclass import dataclass
from homeport.logs.serving.tail import LogTail
from homeport.ports import (
    DEPLOYMENTS,
    NODES,
    SITES,
    Cut,
    DeploymentFilter,
    Item,
    Listing,
    LogStore,
    NodeFilter,
    Seen,
    SeenReader,
    SiteFilter,
    Store,
)
from homeport.vocabulary import NodeId

LOOKED_UP: Final = frozenset({"app", "state", "label", "deployment"})
"""Words of the filter language that lines do not carry: the list of deployments answers them."""
LOOKED_UP_MAX: Final = 5_000


@dataclass(frozen=True, slots=True)
class LogReading:
    store: LogStore
    deployments: Store
    here: str | None = None
    """The site that serves this; None at central."""
    tail: LogTail = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tail", LogTail(self.store))

    async def as_seen(self, query: LogFilter, caller: Caller) -> LogFilter:
        """The query, limited to what the caller may see, with the id of a deployment that was named. Raises NotFound
        for a name that the caller does not see, of a node too; an id is searched for as it is, since logs outlive
        deployments."""
        if query.deployment is not None and not _is_id(query.deployment):
            async with seen_by(caller, self.deployments).read() as reader:
                found = await find_deployment(reader, query.deployment)
            query = replace(query, deployment=found.id, site=query.site or found.site)
        if query.node is not None:
            await self._check_node(NodeId(query.node), caller)
        query = await self._with_deployments(query, caller)
        return replace(query, sites=frozenset(caller.sites)) if caller.sites else query

    async def _check_node(self, node_id: NodeId, caller: Caller) -> None:
        """Raises NotFound for a node that the caller does not see, unless there are lines: they outlive nodes too."""
        async with seen_by(caller, self.deployments).read() as reader:
            if await reader.nodes_called(node_id):
                return
            lines = LogFilter(node=node_id, sites=frozenset(caller.sites) if caller.sites else None)
            if not (await self.store.find(lines, is_newest_first=True, after=None, limit=1)).lines:
                await find_node(reader, node_id)

    async def _with_deployments(self, query: LogFilter, caller: Caller) -> LogFilter:
        """What the parts about deployments and labels match now."""
        asked = [part for part in query.parts if part.word in LOOKED_UP]
        if not asked:
            return query
        async with seen_by(caller, self.deployments).read() as reader:
            among = [await _among(reader, part) for part in asked]
        left = tuple(part for part in query.parts if part.word not in LOOKED_UP)
        return replace(query, parts=left, among=tuple(among))

    async def last(self, query: LogFilter, count: int, *, before: int | None = None) -> Sequence[StoredLine]:
        """The newest matching lines, the oldest of them first."""
        lines: list[StoredLine] = []
        while count > len(lines):
            found = await self.store.find(query, is_newest_first=True, after=before, limit=count - len(lines))
            lines += found.lines
            before = found.next
            if before is None:
                break
        return lines[::-1]


async def _among(reader: SeenReader, part: Part) -> Among:
    deployments: set[str] = set()
    places: set[tuple[str, str]] = set()
    for value in part.values:
        wanted = _of_deployment(value) if part.word == "deployment" else (Part(part.word, (value,)),)
        deployments |= {row.id for row in await _all(reader, DEPLOYMENTS, DeploymentFilter(parts=wanted), part)}
        if part.word == "label":
            places |= {(site.name, "") for site in await _all(reader, SITES, SiteFilter(parts=wanted), part)}
            places |= {(node.site, node.id) for node in await _all(reader, NODES, NodeFilter(parts=wanted), part)}
    return Among(frozenset(deployments), frozenset(places), part.is_negated)


def _of_deployment(value: str) -> Parts:
    """`name@site`, or a name at any site."""
    name, at, site = value.rpartition("@")
    return (Part("name", (name,)), Part("site", (site,))) if at else (Part("name", (value,)),)


async def _all(reader: SeenReader, listing: Listing[Item, Seen], where: Seen, part: Part) -> Sequence[Item]:
    found = await reader.page(listing, where, Cut(LOOKED_UP_MAX))
    if found.next is not None:
        message = f"{part.word}:{part.values[0]} fits more than {LOOKED_UP_MAX:,} {listing.name}. Narrow it."
        raise InvalidInput(problems=[Problem("filter", message)])
    return found.items


def _is_id(text: str) -> bool:
    try:
        return str(UUID(text)) == text
    except ValueError:
        return False
