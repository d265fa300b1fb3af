"""What the routes and gRPC calls about logs need of their role."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

from homeport.core.logs.line import StoredLine
from homeport.core.logs.query import LogFilter
from homeport.core.model.caller import Caller
from homeport.fleet.shared.overview import find_deployment
from homeport.fleet.shared.scope import seen_by
from homeport.logs.serving.tail import LogTail
from homeport.ports import LogStore, Store


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
        for a name that the caller does not see; an id is searched for as it is, since logs outlive deployments."""
        if query.deployment is not None and not _is_id(query.deployment):
            async with seen_by(caller, self.deployments).read() as reader:
                found = await find_deployment(reader, query.deployment)
            query = replace(query, deployment=found.id, site=query.site or found.site)
        return replace(query, sites=frozenset(caller.sites)) if caller.sites else query

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


def _is_id(text: str) -> bool:
    try:
        return str(UUID(text)) == text
    except ValueError:
        return False
