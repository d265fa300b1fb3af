"""Who signs identities, and what seals secrets."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from homeport.core.model.identity import Issued, TrustBundle


class Authority(Protocol):
    """Whoever signs: central's own authority, a site's intermediate, or files that somebody else wrote.

    Calls are quick (some hundred microseconds) and never touch the network.
    """

    domain: str

    def issue(
        self, csr: bytes, *, spiffe_id: str, dns_names: Sequence[str] = (), lifetime_seconds: float, now: datetime
    ) -> Issued:
        """Signs a leaf for the key that the request proves; the request's own wishes for a name are not read.

        Raises InvalidInput for a request that proves nothing or a key that is not accepted, Refused for an id that
        this authority may not vouch for.
        """
        ...

    def issue_intermediate(self, csr: bytes, *, spiffe_id: str, lifetime_seconds: float, now: datetime) -> Issued: ...

    def bundle(self) -> TrustBundle: ...


class Vault(Protocol):
    """Encrypts secrets at rest with a key that never leaves the machine.

    Sealing secrets into Git will be another implementation of the same port: sealed for a site's public key by
    whoever commits, opened by the site alone, with `context` as it is here.
    """

    def seal(self, plain: bytes, *, context: str) -> bytes:
        """`context` (site and name, say) is authenticated: a sealed value cannot be passed off as another's."""
        ...

    def open(self, sealed: bytes, *, context: str) -> bytes:
        """Raises InvalidInput for anything that was not sealed here with this context."""
        ...

    def rotate(self) -> int:
        """Seals with a new key from now on, durably, and gives its number; what older ones sealed still opens.
        Raises TransientError, with nothing changed. May wait for the disk."""
        ...

    def forget_older(self) -> None:
        """Deletes every key but the newest. To be called when nothing durable is sealed with another; what was
        read just before still opens. Raises TransientError, with nothing changed. May wait for the disk."""
        ...
