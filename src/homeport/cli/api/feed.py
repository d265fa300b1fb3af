"""A server's event stream, read in the background and resumed after a disconnect.

Reading in a thread lets the command wait for the next event and for a timeout at once.
"""

import queue
import threading
import time
from collections.abc import Iterator
from typing import Any, Final

from homeport.cli.api.client import Client, Json
from homeport.errors import HomeportError, TransientError

RECONNECT_SECONDS: Final = 0.5
BACKLOG_MAX: Final = 10_000


class Feed:
    """Events of `path` after `after`. `next` returns the next one, or None after `seconds` without any."""

    def __init__(
        self, client: Client, path: str, *, after: int | None = None, has: str = "kind", **query: Any
    ) -> None:
        """`has` names a field of every event; frames without it, such as the end of a snapshot, are left out."""
        self._client = client
        self._path = path
        self._query = query
        self._has = has
        self._last_id = None if after is None else str(after)
        self._waiting: queue.Queue[Json | HomeportError | None] = queue.Queue(BACKLOG_MAX)
        self.ended = False
        threading.Thread(target=self._read, name="events", daemon=True).start()

    def next(self, seconds: float) -> Json | None:
        if self.ended:
            time.sleep(max(0.0, seconds))
            return None
        try:
            event = self._waiting.get(timeout=max(0.0, seconds))
        except queue.Empty:
            return None
        if isinstance(event, HomeportError):
            raise event
        self.ended = event is None
        return event

    def __iter__(self) -> Iterator[Json]:
        while not self.ended:
            event = self.next(1.0)
            if event is not None:
                yield event

    def _read(self) -> None:
        connected = False
        while True:
            try:
                for sent in self._client.stream(self._path, last_event_id=self._last_id, **self._query):
                    connected = True
                    self._last_id = sent.id or self._last_id
                    if self._has in sent.data:
                        self._waiting.put(sent.data)
                # The server ends a stream when nothing more can follow, and when it shuts down.
                if self._is_final():
                    self._waiting.put(None)
                    return
            except TransientError as error:  # a server that stops says so
                if not connected:
                    self._waiting.put(error)
                    return
            except HomeportError as error:
                self._waiting.put(error)
                return
            time.sleep(RECONNECT_SECONDS)

    def _is_final(self) -> bool:
        try:
            self._client.get("/healthz")
        except HomeportError:
            return False
        return True
