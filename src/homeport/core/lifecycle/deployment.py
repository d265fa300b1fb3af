"""The lifecycle of one instance of a deployment. The table is the documentation: one row, one fact.

A deployment's own state is never stepped: `fold` derives it from its instances.
"""

from collections.abc import Iterable
from typing import Final

from homeport.core.lifecycle.machine import Machine, Row
from homeport.vocabulary import UNPLACED, Actor, NodeId
from homeport.vocabulary import Happening as H
from homeport.vocabulary import State as S

_SITE: Final = frozenset({Actor.SITE})
_NODE: Final = frozenset({Actor.NODE})
_BOTH: Final = frozenset({Actor.SITE, Actor.NODE})

# fmt: off
DEPLOYMENT: Final = Machine(start=S.PENDING, rows=(
    # while             on                      becomes         by
    Row(S.PENDING,      H.SCHEDULED,            S.INSTALLING,   _SITE),
    Row(S.PENDING,      H.UNPLACEABLE,          S.FAILED,       _SITE),
    Row(S.INSTALLING,   H.HEALTHY,              S.INSTALLED,    _NODE),
    Row(S.INSTALLING,   H.GAVE_UP,              S.FAILED,       _BOTH),   # the site: the node is lost, or mute
    Row(S.INSTALLED,    H.CHANGED,              S.UPDATING,     _SITE),
    Row(S.UPDATING,     H.HEALTHY,              S.INSTALLED,    _NODE),
    Row(S.UPDATING,     H.GAVE_UP,              S.FAILED,       _BOTH),
    Row(S.FAILED,       H.RETRIED_INSTALL,      S.INSTALLING,   _SITE),   # attempts are bounded by the policy
    Row(S.FAILED,       H.RETRIED_UPDATE,       S.UPDATING,     _SITE),
    Row(S.FAILED,       H.ROLLED_BACK,          S.ROLLINGBACK,  _SITE),   # only where a good release exists
    Row(S.ROLLINGBACK,  H.HEALTHY,              S.INSTALLED,    _NODE),
    Row(S.ROLLINGBACK,  H.GAVE_UP,              S.FAILED,       _BOTH),
    # Superseded by a newer revision: an update where a release runs, an install where none does.
    Row(S.INSTALLING,   H.SUPERSEDED_INSTALL,   S.INSTALLING,   _SITE),
    Row(S.INSTALLING,   H.SUPERSEDED_UPDATE,    S.UPDATING,     _SITE),
    Row(S.UPDATING,     H.SUPERSEDED_INSTALL,   S.INSTALLING,   _SITE),
    Row(S.UPDATING,     H.SUPERSEDED_UPDATE,    S.UPDATING,     _SITE),
    Row(S.ROLLINGBACK,  H.SUPERSEDED_INSTALL,   S.INSTALLING,   _SITE),
    Row(S.ROLLINGBACK,  H.SUPERSEDED_UPDATE,    S.UPDATING,     _SITE),
    Row(S.FAILED,       H.SUPERSEDED_INSTALL,   S.INSTALLING,   _SITE),
    Row(S.FAILED,       H.SUPERSEDED_UPDATE,    S.UPDATING,     _SITE),
    # The file is gone from Git.
    Row(S.PENDING,      H.UNWANTED,             S.DELETING,     _SITE),
    Row(S.INSTALLING,   H.UNWANTED,             S.DELETING,     _SITE),
    Row(S.INSTALLED,    H.UNWANTED,             S.DELETING,     _SITE),
    Row(S.UPDATING,     H.UNWANTED,             S.DELETING,     _SITE),
    Row(S.FAILED,       H.UNWANTED,             S.DELETING,     _SITE),   # also a failed removal, again
    Row(S.ROLLINGBACK,  H.UNWANTED,             S.DELETING,     _SITE),
    Row(S.DELETING,     H.REMOVED,              S.DELETED,      _BOTH),   # the site: nothing was ever placed
    Row(S.DELETING,     H.GAVE_UP,              S.FAILED,       _BOTH),
), stale=(
    # News that a node sent before it heard of the newer order. The generation tells most of it apart; these
    # are the pairs that can still meet when a site was cut off while its instance moved on.
    (S.INSTALLED,  H.HEALTHY),
    (S.FAILED,     H.HEALTHY), (S.FAILED,  H.GAVE_UP), (S.FAILED, H.REMOVED),
    (S.DELETING,   H.HEALTHY), (S.DELETING, H.UNWANTED),
    (S.DELETED,    H.HEALTHY), (S.DELETED, H.GAVE_UP), (S.DELETED, H.REMOVED), (S.DELETED, H.UNWANTED),
))
# fmt: on

SEVERITY: Final = (S.FAILED, S.ROLLINGBACK, S.DELETING, S.UPDATING, S.INSTALLING, S.PENDING, S.INSTALLED)
IN_FLIGHT: Final = frozenset({S.INSTALLING, S.UPDATING, S.ROLLINGBACK, S.DELETING})
"""States in which a node has an order to work on."""


def fold(instances: Iterable[tuple[NodeId, S]], *, wanted: bool = True) -> S:
    """A deployment's state: the first present of SEVERITY. Where there is none, or all are DELETED, PENDING while its
    file is in Git, for it waits for a node to take it, and DELETED once it is not.

    What a site says of a deployment that it could not place counts only while nothing is placed; what is gone from
    one node does not speak for the others.
    """
    living = [(node, state) for node, state in instances if state is not S.DELETED]
    placed = {state for node, state in living if node != UNPLACED} or {state for _, state in living}
    if not placed:
        return S.PENDING if wanted else S.DELETED
    return next(state for state in SEVERITY if state in placed)
