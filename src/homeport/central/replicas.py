"""What several centrals on one database share: a bus to notify and ask one another, and leases for exclusive work.

With SQLite there is one central, and both are in its process.
"""

import uuid
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import anyio
from anyio.to_thread import run_sync

from homeport.adapters.bus.inprocess import InProcessBus
from homeport.adapters.bus.postgresql import open_bus
from homeport.adapters.identity.files import turn_in_folder, write_whole
from homeport.adapters.leases.inprocess import InProcessLeases
from homeport.adapters.leases.postgresql import open_leases
from homeport.adapters.store.databases.engine import parse_address
from homeport.errors import Refused
from homeport.lazy_dataclass import dataclass
from homeport.ports import Bus, Clock, Leases, Store, Transaction

GIT_WRITER: Final = "git-writer"
"""The lease for writing to the deployments repository. Git itself refuses a push that is not on top of its newest
commit, so this only avoids lost races."""
PINS: Final = "pins"
SWEEPS: Final = "sweeps"
"""The lease for sweeps: offline sites, and expired records."""


ACCESS: Final = "access"
KEYS_ID: Final = "keys_id"
"""The stored value that identifies the keys of this database."""


@dataclass(frozen=True, slots=True)
class CentralReplicas:
    bus: Bus
    leases: Leases
    is_shared: bool
    """Whether there may be others."""


class AccessChanges:
    """Notifies other replicas that tokens, accepted machines or the roots of the authority have changed, which they
    cache."""

    def __init__(self, bus: Bus, *, is_shared: bool) -> None:
        self.is_shared = is_shared
        """Whether another process can have changed them."""
        self._bus = bus
        self._rung = anyio.Event()
        bus.subscribe(ACCESS, lambda message: self._ring(), on_gap=self._ring)

    def _ring(self) -> None:
        self._rung.set()

    def publish(self) -> None:
        self._bus.publish(ACCESS, {})

    async def wait(self) -> None:
        await self._rung.wait()
        self._rung = anyio.Event()


async def check_keys(store: Store, folder: Path) -> None:
    """Raises Refused for a replica with other keys than the first: replicas must be able to decrypt and verify each
    other's data."""
    own = await run_sync(_keys_id, folder)

    async def work(tx: Transaction) -> str:
        known = await tx.value(KEYS_ID)
        if known is None:
            await tx.set_value(KEYS_ID, own)
        return known or own

    if await store.write(work) != own:
        raise Refused(
            f"The keys in {folder} are not those of the other centrals on this database.",
            hint="Give every replica the same folder, or a copy of it, with --keys DIR.",
        )


def _keys_id(folder: Path) -> str:
    path = folder / "id"
    with turn_in_folder(folder):
        if not path.exists():
            write_whole(path, uuid.uuid4().hex.encode(), mode=0o600)
        return path.read_text().strip()


async def open_replicas(url: str, clock: Clock, stack: AsyncExitStack) -> CentralReplicas:
    if parse_address(url).get_backend_name() != "postgresql":
        return CentralReplicas(InProcessBus(), InProcessLeases(clock), is_shared=False)
    bus = await stack.enter_async_context(open_bus(url))
    return CentralReplicas(bus, await stack.enter_async_context(open_leases(url)), is_shared=True)
