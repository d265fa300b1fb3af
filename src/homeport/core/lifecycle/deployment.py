"""The lifecycle of one instance of a deployment. The table is the documentation: one row, one fact.

A deployment's own state is never stepped: `fold` derives it from its instances.
"""

from collections.abc import Iterable
from typing import Final

from homeport.core.lifecycle.machine import Machine, Row
from homeport.vocabulary import UNPLACED, Actor, NodeId
from homeport.vocabulary import State as S
from homeport.vocabulary import Trigger as H

_SITE: Final = frozenset({Actor.SITE})
_NODE: Final = frozenset({Actor.NODE})
_BOTH: Final = frozenset({Actor.SITE, Actor.NODE})

# fmt: off
DEPLOYMENT: Final = Machine(start=S.PENDING, rows=(
    # while             on                      becomes         by
    Row(S.PENDING,      H.SCHEDULED,            S.INSTALLING,   _SITE),
    Row(S.PENDING,      H.UNPLACEABLE,          S.FAILED,       _SITE),
    Row(S.INSTALLING,   H.HEALTHY,              S.INSTALLED,    _NODE),
    Row(S.INSTALLING,   H.GAVE_UP,              S.FAILED,       _BOTH),   # the site: the node is lost or silent
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
    # Messages that a node sent before it received the newer order. The generation filters out most of them; these
    # pairs can still occur when a site was disconnected while its instance moved on.
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
    """A deployment's state: the first present of SEVERITY. Without instances, or when all are DELETED, it is PENDING
    while its file is in Git (it waits for a node) and DELETED once it is not.

    The site's own entry for a deployment it could not place counts only while nothing is placed; DELETED on one node
    says nothing about the others.
    """
    living = [(node, state) for node, state in instances if state is not S.DELETED]
    placed = {state for node, state in living if node != UNPLACED} or {state for _, state in living}
    if not placed:
        return S.PENDING if wanted else S.DELETED
    return next(state for state in SEVERITY if state in placed)
