"""Central's messages to sites, through the streams that they keep open: central never connects to a site.

A changed repository is announced to all; only the newest commit counts. A request is for one site that is connected
to any replica of central: what must survive its absence belongs in Git.
"""

from collections import deque
from collections.abc import AsyncIterator
from dataclasses import field
from typing import Final

import anyio

from homeport.lazy_dataclass import dataclass
from homeport.ports import Addressed, Bus, FromCentral, Message, Moved, Request, UnknownRequest
from homeport.vocabulary import Commit, SiteName
from homeport.wire.site_messages import decode, encode

REQUESTS_MAX: Final = 100
REACHED_SECONDS_MAX: Final = 2.0
"""How long other replicas may take to report that the site is connected to them."""

MOVED: Final = "repository-moved"
REQUESTS: Final = "site-requests"


@dataclass(slots=True, eq=False)
class _Listener:
    site: SiteName
    rung: anyio.Event = field(default_factory=anyio.Event)
    requests: deque[Request | Addressed] = field(default_factory=lambda: deque(maxlen=REQUESTS_MAX))


class SiteMessages:
    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._commit: Commit | None = None
        self._listeners: list[_Listener] = []
        bus.subscribe(MOVED, self._moved)
        bus.subscribe(REQUESTS, self._requested)

    def tell(self, commit: Commit) -> None:
        """Announces a new commit of the deployments repository."""
        if commit != self._commit:
            self._bus.publish(MOVED, {"commit": commit})

    def post(self, site: SiteName, request: Request) -> None:
        """Sends a request without checking whether the site is connected."""
        self._bus.publish(REQUESTS, {"site": site, "request": encode(request)})

    async def ask(self, site: SiteName, request: Request | Addressed) -> bool:
        """Sends a request; returns whether the site is connected."""
        message = {"site": site, "request": encode(request)}
        return await self._bus.request(REQUESTS, message, seconds=REACHED_SECONDS_MAX) is not None

    async def listen(self, site: SiteName) -> AsyncIterator[FromCentral]:
        """The current commit at once, then each newer one and each request; commits in between are skipped."""
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

    def _moved(self, message: Message) -> None:
        self._commit = Commit(str(message["commit"]))
        for listener in self._listeners:
            listener.rung.set()

    def _requested(self, message: Message) -> Message | None:
        request = decode(message["request"])
        reached = [listener for listener in self._listeners if listener.site == message["site"]]
        if isinstance(request, Moved | UnknownRequest) or not reached:
            return None
        for listener in reached:
            listener.requests.append(request)
            listener.rung.set()
        return {"reached": True}
