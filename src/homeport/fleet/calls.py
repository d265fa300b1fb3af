"""What central says to sites, through the streams that they keep open: it never dials them.

That the repository moved is for all; only the newest commit counts. A request is for one site, and only for one
that listens: what must survive its absence belongs in Git.
"""

from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import anyio

from homeport.ports import FromCentral, Moved, Request
from homeport.vocabulary import Commit, SiteName

REQUESTS_MAX = 100


@dataclass(slots=True, eq=False)
class _Listener:
    site: SiteName
    rung: anyio.Event = field(default_factory=anyio.Event)
    requests: deque[Request] = field(default_factory=lambda: deque(maxlen=REQUESTS_MAX))


class Calls:
    def __init__(self) -> None:
        self._commit: Commit | None = None
        self._listeners: list[_Listener] = []

    def tell(self, commit: Commit) -> None:
        """The deployments repository has moved."""
        if commit == self._commit:
            return
        self._commit = commit
        for listener in self._listeners:
            listener.rung.set()

    def ask(self, site: SiteName, request: Request) -> bool:
        """Whether anybody of that site listens."""
        reached = [listener for listener in self._listeners if listener.site == site]
        for listener in reached:
            listener.requests.append(request)
            listener.rung.set()
        return bool(reached)

    async def listen(self, site: SiteName) -> AsyncIterator[FromCentral]:
        """The present commit at once, then each newer one and each request; commits in between are passed over."""
        listener = _Listener(site)
        self._listeners.append(listener)
        seen: Commit | None = None
        try:
            while True:
                listener.rung = anyio.Event()
                while listener.requests:
                    yield listener.requests.popleft()
                if self._commit is not None and self._commit != seen:
                    seen = self._commit
                    yield Moved(seen)
                    continue
                await listener.rung.wait()
        finally:
            self._listeners.remove(listener)
