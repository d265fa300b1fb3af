"""`ports.Leases` for one process. Other processes do not share its store, so memory is enough."""

import math
import uuid
from dataclasses import field, replace

from homeport.core.model.lease import Lease
from homeport.errors import LeaseLost
from homeport.lazy_dataclass import dataclass
from homeport.ports import Clock, Transaction


@dataclass(slots=True)
class HeldLeases:
    """The leases held, and their expiry on the monotonic clock."""

    by_name: dict[str, tuple[Lease, float]] = field(default_factory=dict)


class InProcessLeases:
    def __init__(self, clock: Clock, held: HeldLeases | None = None, *, holder: str | None = None) -> None:
        """`held` is shared by instances that shall exclude one another."""
        self._clock = clock
        self.are_shared = held is not None
        self._held = held if held is not None else HeldLeases()
        self._holder = holder or uuid.uuid4().hex

    async def acquire(self, name: str, *, seconds: float) -> Lease | None:
        now = self._clock.monotonic()
        before = self._held.by_name.get(name)
        if before is not None and now < before[1]:
            return None
        lease = Lease(name, self._holder, 1 if before is None else before[0].token + 1)
        # No other process could take it over, so it needs no renewals: it is held until it is released.
        self._held.by_name[name] = lease, now + (seconds if self.are_shared else math.inf)
        return lease

    async def renew(self, lease: Lease, *, seconds: float) -> bool:
        if not self._is_held(lease):
            return False
        self._held.by_name[lease.name] = lease, self._clock.monotonic() + seconds
        return True

    async def release(self, lease: Lease) -> None:
        if self._is_held(lease):
            # Without a holder, a late renewal renews nothing; the token stays, and grows with the next holder.
            self._held.by_name[lease.name] = replace(lease, holder=""), self._clock.monotonic()

    async def check(self, lease: Lease, transaction: Transaction) -> None:
        if not self._is_held(lease):
            raise LeaseLost(f'Another process has taken over "{lease.name}".')

    def _is_held(self, lease: Lease) -> bool:
        before = self._held.by_name.get(lease.name)
        return before is not None and before[0] == lease
