"""Which pools are drained, kept in the role's database: a drain lasts until it is taken back, also over restarts, and
holds for all centrals that share the database (ADR 0197)."""

import json
from collections.abc import Callable, Mapping
from typing import Final

import anyio

from homeport.errors import TransientError
from homeport.log import get_log
from homeport.ports import Bus, Message, Store, Transaction

log = get_log("homeport.inference")

KEY: Final = "inference.drained-pools"
TOPIC: Final = "inference.drains"
DRAINS_MAX: Final = 1_024
"""As many as there can be replicas: beyond that, the oldest are those of pools that are gone."""
RETRY_SECONDS: Final = 1.0

DrainDeadlines = Mapping[str, int]
"""By pool, in milliseconds of the epoch: until when what runs there may finish."""


class PoolDrains:
    def __init__(self, store: Store, changed: Callable[[DrainDeadlines, DrainDeadlines], None]) -> None:
        """`changed` is called with what was known before, and what is known now. Must not block."""
        self._store = store
        self._changed = changed
        self._known: DrainDeadlines = {}
        self._reading = anyio.Lock()
        self._stale = anyio.Event()
        self.bus: Bus | None = None
        """Where several centrals share the database."""

    def deadline_ms(self, pool_id: str) -> int | None:
        """None where it is not drained."""
        return self._known.get(pool_id)

    async def add(self, pool_id: str, deadline_ms: int) -> None:
        """Returns when it is durable. Raises TransientError, and nothing has changed."""
        await self._write(lambda drains: {**drains, pool_id: deadline_ms})

    async def remove(self, pool_id: str) -> None:
        """Returns when that is durable; one that is not drained is left as it is. Raises TransientError."""
        await self._write(lambda drains: {key: value for key, value in drains.items() if key != pool_id})

    async def load(self) -> bool:
        """Whether they are known now; not where the database does not answer."""
        try:
            await self._read()
        except TransientError as error:
            log.warning("drained pools not read, will retry", why=str(error))
            return False
        return True

    async def until_loaded(self) -> None:
        while not await self.load():  # noqa: ASYNC110 - a database does not announce that it is back
            await anyio.sleep(RETRY_SECONDS)

    async def follow(self) -> None:
        """Reads again whenever another central has changed them."""
        assert self.bus is not None
        forget = self.bus.subscribe(TOPIC, self._heard, on_gap=self._lost)
        try:
            while True:
                await self._stale.wait()
                self._stale = anyio.Event()
                await self.until_loaded()
        finally:
            forget()

    def _heard(self, message: Message) -> None:
        self._stale.set()

    def _lost(self) -> None:
        self._stale.set()

    async def _write(self, change: Callable[[DrainDeadlines], DrainDeadlines]) -> None:
        async def work(transaction: Transaction) -> None:
            before = parse_drains(await transaction.value(KEY))
            after = change(before)
            if after != before:
                await transaction.set_value(KEY, json.dumps(newest(after)))

        await self._store.write(work)
        await self._read()
        if self.bus is not None:
            self.bus.publish(TOPIC, {})

    async def _read(self) -> None:
        # In turns, so that what was read earlier never replaces what was read later.
        async with self._reading:
            async with self._store.read() as reader:
                known = parse_drains(await reader.value(KEY))
            before, self._known = self._known, known
            self._changed(before, known)


def parse_drains(text: str | None) -> DrainDeadlines:
    """What cannot be read is left out, with a line in the log: its pools take tasks."""
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        log.warning("drained pools not readable, none is drained")
        return {}
    return {key: value for key, value in found.items() if isinstance(value, int)}


def newest(drains: DrainDeadlines) -> DrainDeadlines:
    return dict(sorted(drains.items(), key=lambda item: item[1])[-DRAINS_MAX:])
