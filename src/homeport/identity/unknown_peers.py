"""Machines with a certificate of an external authority that are not on the list of identities yet.

They are refused like every machine that is not accepted; the attempt is recorded, so that an administrator finds them
among the pending ones. Where Homeport itself issues certificates there are none: every certificate results from a
decision.
"""

from typing import Final

import anyio

from homeport.core.model.identity import Peer
from homeport.errors import InvalidInput, Refused
from homeport.identity.enrolment import Registrar
from homeport.log import get_log

log = get_log("homeport.identity")

UNKNOWN_PEERS_MAX: Final = 200


class UnknownPeers:
    def __init__(self, registrar: Registrar) -> None:
        self._registrar = registrar
        self._seen: dict[str, Peer] = {}
        self._added = anyio.Event()

    def add(self, peer: Peer) -> None:
        """Called wherever one is refused, in the middle of a request: it only keeps it in memory."""
        realm = self._registrar.realm
        is_ours = peer.kind is realm.kind and realm.site in (None, peer.site)
        if realm.is_outside and is_ours and len(self._seen) < UNKNOWN_PEERS_MAX:
            self._seen[peer.spiffe_id] = peer
            self._added.set()

    async def until_added(self) -> None:
        while not self._seen:
            self._added = anyio.Event()
            await self._added.wait()

    async def record(self) -> None:
        """Records the machines that connected since the last call."""
        seen, self._seen = self._seen, {}
        for peer in seen.values():
            try:
                await self._registrar.record_peer(peer)
            except (Refused, InvalidInput) as error:
                log.warning("certified peer could not be recorded", identity=peer.spiffe_id, why=str(error))
