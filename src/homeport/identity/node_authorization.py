"""Authorization of nodes at a site: each may act for itself alone.

Checked at every call and at every message of an open stream, so it answers from memory and never waits.
"""

from collections.abc import Callable

from homeport.core.model.identity import IdentityKind, Peer
from homeport.errors import NotAuthorized
from homeport.ports import Clock
from homeport.vocabulary import NodeId, SiteName

Policy = Callable[[Peer], str | None]
"""Why a peer is refused, as a sentence; None when it is accepted."""


def refuse_every_peer(peer: Peer) -> str | None:
    """The policy of a site that was given none: a certificate alone admits no machine."""
    return f"{peer.spiffe_id} is not on the list of the accepted."


class NodeAuthorization:
    def __init__(self, site: SiteName, clock: Clock, *, refusal: Policy = refuse_every_peer) -> None:
        self._site = site
        self._clock = clock
        self._refusal = refusal

    def check(self, peer: Peer | None, node_id: NodeId | None = None) -> None:
        """Raises NotAuthorized unless this peer may connect here, and act for this node if one is named.

        None is a caller in this process, or on this machine where the link is open to local clients.
        """
        if peer is None:
            return
        why = self._why_not(peer, node_id)
        if why is not None:
            raise NotAuthorized(why, target=node_id or peer.name)

    def _why_not(self, peer: Peer, node_id: NodeId | None) -> str | None:
        if peer.kind is not IdentityKind.NODE or peer.site != self._site:
            return f"{peer.spiffe_id} is not a node of site {self._site}."
        now = self._clock.now()
        if any(now >= certificate.not_after for certificate in peer.chain):
            return f"The certificate of {peer.spiffe_id} has expired."
        if node_id is not None and node_id != peer.name:
            return f"Node {peer.name} cannot speak for node {node_id}."
        return self._refusal(peer)
