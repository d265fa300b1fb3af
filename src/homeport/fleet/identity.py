"""The accepted-client policy: being certified alone admits nobody, the list of the accepted does.

It is asked at every request and at every message of an open stream, so it answers from memory. Whoever changes the
records in this process changes the memory with them; what another replica changed arrives with the next `load`.
"""

from homeport.core.identity.admission import fits
from homeport.core.model.identity import IdentityRecord, Peer, Standing
from homeport.ports import Store


class Policy:
    def __init__(self) -> None:
        self._keys: dict[str, str] = {}
        """SPIFFE ID to the key it is accepted with."""

    async def load(self, store: Store) -> None:
        async with store.read() as reader:
            records = await reader.identities(Standing.ACCEPTED)
        self._keys = {record.spiffe_id: record.spki for record in records}

    def learn(self, record: IdentityRecord) -> None:
        """What was just decided holds from now on."""
        if record.standing is Standing.ACCEPTED:
            self._keys[record.spiffe_id] = record.spki
        else:
            self._keys.pop(record.spiffe_id, None)

    def refusal(self, peer: Peer) -> str | None:
        """Why this peer is not served; None when it is.

        The key counts too: after a removal and a new joining under the same name, the old machine's certificate
        may still be within its dates.
        """
        key = self._keys.get(peer.spiffe_id)
        if key is None:
            return f"{peer.spiffe_id} is not on the list of the accepted."
        if not peer.chain or not fits(key, peer.chain[0].spki):
            return f"{peer.spiffe_id} is accepted with another key than this one."
        return None
