"""Deployments as placement sees them: the demand of each, and what its instances commit a node to."""

import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Final

from homeport.core.custom import read_custom, refuse_kind
from homeport.core.model.custom import CustomKind
from homeport.core.model.demand import NOTHING, Commitment, Demand, Resources
from homeport.core.model.deployment import Desired
from homeport.core.model.instance import Instance
from homeport.core.model.node import Capabilities, Node
from homeport.core.node.demands import custom_demands
from homeport.core.node.permissions import announced
from homeport.core.placement.choose import Placed, place
from homeport.core.placement.eligibility import bytes_of
from homeport.core.placement.roster import Roster
from homeport.vocabulary import Code, DeploymentId, NodeId, ProfileType, State

AWAITED_NODE: Final[frozenset[str]] = frozenset({Code.NODE_OFFLINE, Code.NO_ELIGIBLE_NODE})
"""Failures that end when the node is there."""
AWAITED: Final[frozenset[str]] = AWAITED_NODE | {Code.SECRET_MISSING}
"""Failures that end when the missing thing becomes available."""
HARMLESS: Final[frozenset[str]] = frozenset(
    {
        Code.COMPONENT_FETCH_FAILED,
        Code.IMAGE_PULL_FAILED,
        Code.ENGINE_UNREACHABLE,
        Code.DISK_FULL,
        Code.UNSUPPORTED_TYPE,
        Code.UNSUPPORTED_KIND,
        Code.NOT_ALLOWED,
        Code.PREFLIGHT_FAILED,
        Code.INVALID_ORDER,
        Code.UNKNOWN_KIND,
    }
)
"""These occur before anything that runs is touched; a full disk nearly always does, and a rollback needs space
too."""


def place_deployment(
    desired: Desired,
    nodes: Roster | Sequence[Node],
    held: Mapping[NodeId, Instance] | None = None,
    now: datetime | None = None,
) -> Placed:
    """`held` are the deployment's instances by node."""
    commitments = {node_id: commitment_of(item, desired) for node_id, item in (held or {}).items()}
    return place(demand_of(desired), nodes, commitments, now)


def demand_of(desired: Desired) -> Demand:
    placement = desired.placement
    return Demand(
        mode=placement.mode,
        count=placement.count,
        nodes=placement.nodes,
        selector=placement.selector,
        profile_type=desired.profile_type,
        constraints=desired.device_constraints,
        requirements=(partial(_unsupported, desired), partial(_not_permitted, desired)),
        resources=resources_of(desired),
    )


def resources_of(desired: Desired) -> Resources:
    required = (desired.device_constraints or {}).get("capacityRequirements") or {}
    return Resources(bytes_of(required.get("memory") or ""), bytes_of(required.get("storage") or ""))


def reserved(
    instances: Iterable[Instance], desired: Mapping[DeploymentId, Desired]
) -> Iterator[tuple[NodeId, Resources]]:
    """What instances take of their nodes. An instance being removed still takes its room."""
    needs = {key: resources_of(item) for key, item in desired.items()}
    for instance in instances:
        if instance.state is not State.DELETED:
            yield instance.node_id, needs.get(instance.deployment_id, NOTHING)


def commitment_of(instance: Instance, desired: Desired) -> Commitment:
    is_up = instance.state is State.INSTALLED
    return Commitment(
        since=instance.incarnation,
        is_up=is_up,
        runs=instance.running_revision is not None,
        # Healthy at the wanted revision: the file's, or the one it rolled back to.
        is_settled=is_up and desired.revision in (instance.revision, instance.rejected_revision),
        has_given_up=_has_ended(instance, AWAITED),
        is_over=_has_ended(instance, AWAITED_NODE),
        is_leaving=_is_leaving(instance),
        is_broken=instance.state is State.FAILED and _is_broken(instance),
    )


def _has_ended(item: Instance, awaited: frozenset[str]) -> bool:
    """Whether it failed permanently, for another reason than missing ones."""
    is_awaited = item.failure is not None and item.failure.code in awaited
    return item.state is State.FAILED and item.next_at is None and not is_awaited


def _is_broken(item: Instance) -> bool:
    """A rollback that fails was to repair something, whatever it failed for."""
    harmless = HARMLESS if item.rejected_revision is None else frozenset[str]()
    return item.failure is not None and item.failure.code not in AWAITED | harmless


def _is_leaving(item: Instance) -> bool:
    """An update that could not remove what it no longer has leaves a release that runs; a removal does not."""
    refused_to_go = item.failure is not None and item.failure.code == Code.REMOVE_FAILED
    is_in_part = item.state is State.FAILED and refused_to_go and item.running_revision is None
    return item.state in (State.DELETING, State.DELETED) or is_in_part


def _unsupported(desired: Desired, capabilities: Capabilities, _labels: Mapping[str, str]) -> str | None:
    return refuse_kind({spec.name: spec.extensions for spec in desired.release.components}, capabilities.engine)


def _not_permitted(desired: Desired, _capabilities: Capabilities, labels: Mapping[str, str]) -> str | None:
    """The demands of single images are known before they are pulled; other components are checked by the node."""
    permissions = announced(labels) if desired.profile_type is ProfileType.CUSTOM else None
    if permissions is None:
        return None
    for spec in desired.release.components:
        custom, _ = read_custom(spec.extensions, repository=spec.repository, revision=spec.revision)
        if custom is not None and custom.kind is CustomKind.IMAGE:
            demands = custom_demands(custom, real=posixpath.normpath)
            refused = [demand for demand in demands if not permissions.covers(demand)]
            if refused:
                return f"does not allow {spec.name} {refused[0].where} (--allow {refused[0].permission})"
    return None
