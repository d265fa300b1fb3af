"""Machines that an authority outside has certified and nobody here has decided about.

They are refused like everybody who is not on the list; that they came is written down, so that a person finds them
under the pending ones. Where Homeport certifies itself there are none: whoever has a certificate has been decided
about.
"""

from typing import Final

import structlog

from homeport.core.model.identity import Peer
from homeport.errors import InvalidInput, Refused
from homeport.fleet.enrolment import Registrar

log = structlog.get_logger("homeport.identity")

STRANGERS_MAX: Final = 200


class Strangers:
    def __init__(self, registrar: Registrar) -> None:
        self._registrar = registrar
        self._met: dict[str, Peer] = {}

    def meet(self, peer: Peer) -> None:
        """Called wherever one is refused, in the middle of a request: it only remembers."""
        realm = self._registrar.realm
        is_ours = peer.kind is realm.kind and realm.site in (None, peer.site)
        if realm.is_outside and is_ours and len(self._met) < STRANGERS_MAX:
            self._met[peer.spiffe_id] = peer

    async def settle(self) -> None:
        """Writes down who came since the last time."""
        met, self._met = self._met, {}
        for peer in met.values():
            try:
                await self._registrar.meet(peer)
            except (Refused, InvalidInput) as error:
                log.warning("a certified machine is not put on the list", identity=peer.spiffe_id, why=str(error))
