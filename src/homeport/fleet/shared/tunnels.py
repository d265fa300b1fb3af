"""The open tunnels of a role, by the site or node that opened them.

A peer that opens a second one keeps both for a while: a certificate was renewed, or the first one is dead and that
was not noticed yet. New streams go to the newest; the others finish theirs."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final, Generic, TypeVar

from homeport.core.tunnel.counts import TunnelCounts
from homeport.errors import PeerUnavailable
from homeport.ports import TunnelConnection, TunnelHeader, TunnelStream

REPLACED: Final = "it was replaced by a newer one"
KEPT_MAX: Final = 2
"""How many tunnels of one site or node may be open."""

Name = TypeVar("Name", bound=str)


class OpenTunnels(Generic[Name]):
    def __init__(self) -> None:
        self._by_name: dict[Name, list[TunnelConnection]] = {}
        self._attached: list[TunnelConnection] = []
        self._ended = TunnelCounts()
        """Of tunnels that are no longer there."""

    def __contains__(self, name: Name) -> bool:
        return name in self._by_name

    def __len__(self) -> int:
        return len(self._by_name)

    @property
    def streams(self) -> int:
        return sum(each.streams for kept in self._by_name.values() for each in kept)

    def counts(self) -> TunnelCounts:
        """Since the role was started."""
        total = replace(self._ended)
        for each in self._attached:
            total.add(each.counts)
        return total

    def attach(self, name: Name, connection: TunnelConnection) -> Callable[[], None]:
        """Returns a function that forgets it."""
        kept = self._by_name.setdefault(name, [])
        for older in kept:
            older.leave(REPLACED)
        while len(kept) >= KEPT_MAX:
            kept.pop(0).close(REPLACED)
        kept.append(connection)
        self._attached.append(connection)
        return lambda: self._forget(name, connection)

    def dismiss(self, name: Name, reason: str) -> None:
        """Ends its tunnels at once: it was removed."""
        for each in self._by_name.pop(name, ()):
            each.close(reason)

    @asynccontextmanager
    async def open(self, name: Name, header: TunnelHeader) -> AsyncIterator[TunnelStream]:
        """Raises PeerUnavailable for one without a tunnel; the caller says it better."""
        kept = self._by_name.get(name)
        if not kept:
            raise PeerUnavailable(f"{name} has no tunnel open.")
        async with kept[-1].open(header) as stream:
            yield stream

    def _forget(self, name: Name, connection: TunnelConnection) -> None:
        if connection in self._attached:
            self._attached.remove(connection)
            self._ended.add(connection.counts)
        kept = self._by_name.get(name, [])
        if connection in kept:
            kept.remove(connection)
        if not kept:
            self._by_name.pop(name, None)
