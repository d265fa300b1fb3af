"""The accepted-client policy: a certificate alone admits no machine, only the list of accepted ones does.

It is checked at every request and at every message of an open stream, so it answers from memory. Changes made in this
process update the memory at once; changes of another replica arrive with the next `load`.
"""

from collections.abc import Callable

import anyio

from homeport.core.identity.admission import fits
from homeport.core.model.identity import IdentityRecord, IdentityStatus, Peer
from homeport.ports import Store


class AcceptedClients:
    def __init__(self, on_changed: Callable[[], None] = lambda: None) -> None:
        """`on_changed` notifies other processes of a decision made here."""
        self._on_changed = on_changed
        self._keys: dict[str, str] = {}
        """SPIFFE ID to the key it is accepted with."""
        self._loading = anyio.Lock()
        self._meanwhile: dict[str, IdentityRecord] = {}
        """Changes made since the read of the running `load` began: that read may not include them."""

    async def load(self, store: Store) -> None:
        """Reads the list from the store. One load at a time, so that an older read cannot overwrite a newer one."""
        async with self._loading:
            self._meanwhile.clear()
            async with store.read() as reader:
                records = await reader.identities(IdentityStatus.ACCEPTED)
            self._keys = {record.spiffe_id: record.spki for record in records}
            for record in self._meanwhile.values():
                self._apply(record)

    def learn(self, record: IdentityRecord) -> None:
        """Applies a record that was just committed."""
        self._meanwhile[record.spiffe_id] = record
        self._apply(record)
        self._on_changed()

    def accepts(self, spiffe_id: str) -> bool:
        return spiffe_id in self._keys

    def refusal(self, peer: Peer) -> str | None:
        """Why this peer is refused; None when it is accepted.

        The key counts too: after a removal and a new join under the same name, the old machine's certificate may not
        have expired yet.
        """
        key = self._keys.get(peer.spiffe_id)
        if key is None:
            return f"{peer.spiffe_id} is not on the list of the accepted."
        if not peer.chain or not fits(key, peer.chain[0].spki):
            return f"{peer.spiffe_id} is accepted with another key than this one."
        return None

    def _apply(self, record: IdentityRecord) -> None:
        if record.standing is IdentityStatus.ACCEPTED:
            self._keys[record.spiffe_id] = record.spki
        else:
            self._keys.pop(record.spiffe_id, None)
