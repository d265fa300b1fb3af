"""The exclusive right to do some work."""

from homeport.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Lease:
    name: str
    holder: str
    token: int
    """Fencing token: grows each time the lease is taken."""
