"""Leases: work that only one process may do at a time.

A lease expires when its holder stops renewing it. A holder that was paused may not know that yet, so each lease has a
fencing token: a write that checks it inside its transaction is refused once another process has held the lease.
"""

from typing import Protocol

from homeport.core.model.lease import Lease
from homeport.ports.storage.store import Transaction


class Leases(Protocol):
    """All raise TransientError while the holder cannot be determined."""

    are_shared: bool
    """Whether another holder can take one over; without one, no renewals are needed."""

    async def acquire(self, name: str, *, seconds: float) -> Lease | None:
        """None while it is held, even by this process. It expires after `seconds` unless it is renewed."""
        ...

    async def renew(self, lease: Lease, *, seconds: float) -> bool:
        """False when it was released, or another process has held it since."""
        ...

    async def release(self, lease: Lease) -> None:
        """Lets another process acquire it at once, also while a renewal is under way. Harmless when it is lost."""
        ...

    async def check(self, lease: Lease, transaction: Transaction) -> None:
        """Raises LeaseLost when it was released, or another process has held it since. Otherwise no other can acquire
        it before the transaction ends."""
        ...
