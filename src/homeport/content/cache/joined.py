"""Concurrent lookups of one thing are one lookup."""

from collections.abc import Awaitable, Callable
from dataclasses import field
from typing import Generic, TypeVar

import anyio

from homeport.errors import HomeportError
from homeport.lazy_dataclass import dataclass

Found = TypeVar("Found")


@dataclass(slots=True, eq=False)
class _Pending(Generic[Found]):
    done: anyio.Event = field(default_factory=anyio.Event)
    found: Found | None = None
    error: HomeportError | None = None


@dataclass(slots=True)
class SingleFlight(Generic[Found]):
    _pending: dict[str, _Pending[Found]] = field(default_factory=dict)

    async def once(self, key: str, look: Callable[[], Awaitable[Found]]) -> Found:
        """Errors reach everybody who waits. Where the one that looks is cancelled, the next one looks."""
        while (pending := self._pending.get(key)) is not None:
            await pending.done.wait()
            if pending.error is not None:
                raise pending.error
            if pending.found is not None:
                return pending.found
        mine = self._pending[key] = _Pending[Found]()
        try:
            mine.found = found = await look()
        except HomeportError as error:
            mine.error = error
            raise
        finally:
            del self._pending[key]
            mine.done.set()
        return found
