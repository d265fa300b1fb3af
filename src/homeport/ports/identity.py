"""Signing of identities, and encryption of secrets."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from homeport.core.model.identity import Issued, TrustBundle


class Authority(Protocol):
    """Signs certificates: central's own authority, a site's intermediate, or files of an external authority.

    Calls are quick (some hundred microseconds) and never touch the network.
    """

    domain: str

    def issue(
        self, csr: bytes, *, spiffe_id: str, dns_names: Sequence[str] = (), lifetime_seconds: float, now: datetime
    ) -> Issued:
        """Signs a leaf for the key that the request proves; names in the request are ignored.

        Raises InvalidInput for a request without proof of its key or a key that is not accepted, Refused for an id
        that this authority may not sign.
        """
        ...

    def issue_intermediate(self, csr: bytes, *, spiffe_id: str, lifetime_seconds: float, now: datetime) -> Issued: ...

    def bundle(self) -> TrustBundle: ...


class Vault(Protocol):
    """Encrypts secrets at rest with a key that never leaves the machine.

    Encrypting secrets into Git will be another implementation of the same port: encrypted for a site's public key by
    the committer, decrypted by the site alone, with the same `context`.
    """

    def seal(self, plain: bytes, *, context: str) -> bytes:
        """`context` (such as site and name) is authenticated: a sealed value cannot be used in another place."""
        ...

    def open(self, sealed: bytes, *, context: str) -> bytes:
        """Raises InvalidInput for anything that was not sealed here with this context."""
        ...

    def rotate(self) -> int:
        """Switches durably to a new key and returns its number; values sealed with older keys can still be opened.
        Raises TransientError, with nothing changed. May wait for the disk."""
        ...

    def forget_older(self) -> None:
        """Deletes every key but the newest. Call it when nothing durable is sealed with another; values that were
        read just before can still be opened. Raises TransientError, with nothing changed. May wait for the disk."""
        ...
