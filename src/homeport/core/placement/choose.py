"""Which nodes of a site get an instance of a deployment, and why the others do not.

`each` takes every node that suits. `one` and `count` keep what runs where it runs, and fill up with the nodes that
carry the fewest instances and have room. An instance moves only when its node is drained, removed or no longer
suits, or has been lost for `LOST_GRACE_SECONDS`; it stays until the one that takes its place is healthy.

Capacity is judged by what a machine has, not by what is free at the moment: a disk that fills up must not make a
node lose what already runs there.
"""

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from homeport.core.custom import refuse_kind
from homeport.core.model.deployment import Desired
from homeport.core.model.instance import Instance
from homeport.core.model.node import Node
from homeport.core.placement.eligibility import Device, readable_bytes, refusal
from homeport.core.placement.roster import Kind, Need, Roster, Slot, device_of, names_a_device, need_of
from homeport.vocabulary import Code, Liveness, NodeId, PlacementMode, State

LOST_GRACE_SECONDS: Final = 300.0
"""How long a lost node keeps what `one` and `count` have placed there. Shorter runs things twice whenever a switch is
restarted; longer leaves people without them. `each` never moves."""
NAMES_SHOWN_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why some nodes do not get it: one reason for all of them."""

    nodes: tuple[NodeId, ...]
    why: str
    """Without its subject: `needs 16Gi of memory, has 8Gi`."""

    @property
    def subject(self) -> str:
        """Whom it is about: the first few by name."""
        more = len(self.nodes) - NAMES_SHOWN_MAX
        return f"{', '.join(self.nodes[:NAMES_SHOWN_MAX])}{f' and {more} more' if more > 0 else ''}"

    def __str__(self) -> str:
        return f"{self.subject}{' ' if len(self.nodes) == 1 else ': '}{self.why}"


@dataclass(frozen=True, slots=True)
class Placed:
    chosen: tuple[NodeId, ...]
    refusals: tuple[Refusal, ...]
    """Everybody else, the reason once for each class of equals."""
    silent: tuple[NodeId, ...] = ()
    """Those that could take it but are lost: what they already hold stays theirs."""
    lingering: tuple[NodeId, ...] = ()
    """Those that are to give it up, but not before the chosen ones are healthy."""
    unknown: tuple[NodeId, ...] = ()
    """Names that were asked for and are no nodes."""
    missing: int = 0
    """How many instances nobody can take."""

    @property
    def refused(self) -> dict[NodeId, str]:
        """A sentence for each node that gets nothing, and for each name that is no node."""
        sentences = {name: f'The site has no node called "{name}".' for name in self.unknown}
        return sentences | {node: f"{node} {group.why}." for group in self.refusals for node in group.nodes}

    def explain(self) -> str:
        """All reasons in one line, each class once."""
        ghosts = [f'the site has no node called "{name}"' for name in self.unknown]
        return "; ".join([*ghosts, *(str(group) for group in self.refusals)])


def place(
    desired: Desired,
    nodes: Roster | Sequence[Node],
    held: Mapping[NodeId, Instance] | None = None,
    now: datetime | None = None,
) -> Placed:
    """`held` are the deployment's instances by node. Without `now`, no node counts as lost for too long."""
    roster = nodes if isinstance(nodes, Roster) else Roster(nodes)
    able, refusals = _able(desired, roster)
    unknown = tuple(name for name in desired.placement.nodes if name not in roster.slots)
    here = {node_id: item for node_id, item in (held or {}).items() if node_id in roster.slots}
    able += [slot for slot in _without_engine(desired, roster) if slot.id in here]
    ready = [slot for slot in able if slot.node.drain is None]
    refusals += _grouped((slot.id, f"is drained: {slot.node.drain}") for slot in able if slot.node.drain is not None)
    if desired.placement.mode is PlacementMode.EACH:
        return _on_each(ready, refusals, unknown)
    return _on_some(desired, ready, refusals, here=here, unknown=unknown, now=now)


def _able(desired: Desired, roster: Roster) -> tuple[list[Slot], list[Refusal]]:
    """The nodes that suit the deployment, whether they can be heard or not, and why the others do not."""
    asked = frozenset(desired.placement.nodes)
    singly = names_a_device(desired.device_constraints)
    able: list[Slot] = []
    refusals: list[Refusal] = []
    unasked: list[NodeId] = []
    for kind in roster.kinds:
        slots = [slot for slot in kind.slots if slot.id in asked] if asked else kind.slots
        if asked:
            unasked += [slot.id for slot in kind.slots if slot.id not in asked]
        if not slots:
            continue
        if singly:
            verdicts = [(slot, _against(desired, kind, device_of(slot.node))) for slot in slots]
            able += [slot for slot, why in verdicts if why is None]
            refusals += _grouped((slot.id, why) for slot, why in verdicts if why is not None)
            continue
        why = _against(desired, kind, kind.device)
        if why is None:
            able += slots
        else:
            refusals.append(Refusal(tuple(slot.id for slot in slots), why))
    if unasked:
        refusals.append(Refusal(tuple(sorted(unasked)), "is not among the nodes that were asked for"))
    return able, refusals


def _without_engine(desired: Desired, roster: Roster) -> Iterator[Slot]:
    """Nodes whose engine has not answered since they started, as when a machine boots. Nobody knows yet what they can
    run: they get nothing new, and what they already hold stays theirs."""
    asked = frozenset(desired.placement.nodes)
    for kind in roster.kinds:
        if not kind.capabilities.engine and desired.placement.selector.unmet(kind.labels) is None:
            yield from (slot for slot in kind.slots if not asked or slot.id in asked)


def _against(desired: Desired, kind: Kind, device: Device) -> str | None:
    """Why nodes of a class cannot take a deployment; None when they can. The first reason is enough."""
    unmet = desired.placement.selector.unmet(kind.labels)
    if unmet is not None:
        return f"does not meet the selector {unmet}"
    capabilities = kind.capabilities
    if desired.profile_type not in capabilities.profile_types:
        runs = " and ".join(type_.value for type_ in capabilities.profile_types) or "nothing"
        engine = capabilities.engine or "no container engine"
        return f"cannot run {desired.profile_type} apps: with {engine} it runs {runs}"
    parts = {spec.name: spec.extensions for spec in desired.release.components}
    return refuse_kind(parts, capabilities.engine) or refusal(desired.device_constraints, device)


def _on_each(ready: Sequence[Slot], refusals: list[Refusal], unknown: tuple[NodeId, ...]) -> Placed:
    lost = [slot for slot in ready if slot.node.liveness is Liveness.LOST]
    chosen = sorted(slot.id for slot in ready if slot.node.liveness is not Liveness.LOST)
    return Placed(
        tuple(chosen),
        (*refusals, *_unheard(lost)),
        silent=tuple(sorted(slot.id for slot in lost)),
        unknown=unknown,
        missing=0 if ready else 1,
    )


def _on_some(
    desired: Desired,
    ready: Sequence[Slot],
    refusals: list[Refusal],
    *,
    here: Mapping[NodeId, Instance],
    unknown: tuple[NodeId, ...],
    now: datetime | None,
) -> Placed:
    wanted = desired.placement.count if desired.placement.mode is PlacementMode.COUNT else 1
    need = need_of(desired)
    held = {key: item for key, item in here.items() if not _is_leaving(item)}
    free = [slot for slot in ready if slot.id not in held]
    lost = [slot for slot in ready if slot.node.liveness is Liveness.LOST]
    given_up = {slot.id for slot in lost if slot.id in held and _is_given_up(slot, now)}
    kept = heapq.nsmallest(
        wanted,
        (slot for slot in ready if slot.id in held and slot.id not in given_up),
        key=lambda slot: _rank(slot, held[slot.id]),
    )
    open_slots = [slot for slot in free if slot.node.liveness is not Liveness.LOST]
    roomy = [slot for slot in open_slots if slot.has_room(need)]
    # A node that still takes the same app away is the last one to give it back to.
    fresh = heapq.nsmallest(wanted - len(kept), roomy, key=lambda slot: (slot.id in here, slot.instances, slot.id))
    chosen = {slot.id for slot in (*kept, *fresh)}
    waits = [slot for slot in lost if slot.id not in chosen]
    refusals = [*refusals, *_unheard(waits), *_full(open_slots, need)]
    refusals += _spare(roomy, (slot for slot in ready if slot.id in held), chosen, given_up, wanted)
    return Placed(
        tuple(sorted(chosen)),
        tuple(refusals),
        silent=tuple(sorted(slot.id for slot in waits if slot.id not in held or slot.id in given_up)),
        lingering=_lingering(held, chosen, given_up),
        unknown=unknown,
        missing=max(0, wanted - len(chosen) - len(waits)),
    )


def _is_leaving(instance: Instance) -> bool:
    refused_to_go = instance.failure is not None and instance.failure.code == Code.REMOVE_FAILED
    return instance.state in (State.DELETING, State.DELETED) or (instance.state is State.FAILED and refused_to_go)


def _is_given_up(slot: Slot, now: datetime | None) -> bool:
    return now is not None and now - slot.node.last_seen >= timedelta(seconds=LOST_GRACE_SECONDS)


def _rank(slot: Slot, instance: Instance) -> tuple[bool, int, int, NodeId]:
    """Which of too many stay: those that can be heard, that run, and that were placed last; what was moved away from
    a lost node does not move back with it."""
    step = 0 if instance.state is State.INSTALLED else 1 if instance.running_revision is not None else 2
    return slot.node.liveness is Liveness.LOST, step, -instance.incarnation, slot.id


def _lingering(held: Mapping[NodeId, Instance], chosen: set[NodeId], given_up: set[NodeId]) -> tuple[NodeId, ...]:
    """As many of those that run elsewhere as are still lacking among the chosen. With nobody chosen there is nothing
    to wait for: the person who empties the node wants it empty."""
    healthy = sum(held[node].state is State.INSTALLED for node in chosen if node in held)
    others = sorted(
        node
        for node, item in held.items()
        if node not in chosen and node not in given_up and item.running_revision is not None
    )
    return tuple(others[: len(chosen) - healthy])


def _unheard(lost: Iterable[Slot]) -> list[Refusal]:
    return _grouped(
        (slot.id, f"has not been heard since {slot.node.last_seen:%Y-%m-%d %H:%M:%S} UTC") for slot in lost
    )


def _full(slots: Iterable[Slot], need: Need) -> list[Refusal]:
    return _grouped((slot.id, _why_full(slot, need)) for slot in slots if not slot.has_room(need))


def _why_full(slot: Slot, need: Need) -> str:
    short = slot.memory_free < need.memory_bytes
    what, wanted, left = (
        ("memory", need.memory_bytes, slot.memory_free)
        if short
        else ("storage", need.storage_bytes, slot.storage_free)
    )
    return f"has no room: {readable_bytes(wanted)} of {what} are asked for, {readable_bytes(max(0.0, left))} are left"


def _spare(
    roomy: Sequence[Slot], held: Iterable[Slot], chosen: set[NodeId], given_up: set[NodeId], wanted: int
) -> list[Refusal]:
    spare = sorted(slot.id for slot in roomy if slot.id not in chosen)
    spare += sorted(slot.id for slot in held if slot.id not in chosen and slot.id not in given_up)
    if not spare:
        return []
    enough = "one instance is" if wanted == 1 else f"{wanted} instances are"
    places = ", ".join(sorted(chosen)[:NAMES_SHOWN_MAX])
    return [Refusal(tuple(spare), f"is not needed: {enough} wanted, on {places}{' …' if len(chosen) > 3 else ''}")]


def _grouped(reasons: Iterable[tuple[NodeId, str]]) -> list[Refusal]:
    groups: dict[str, list[NodeId]] = {}
    for node_id, why in reasons:
        groups.setdefault(why, []).append(node_id)
    return [Refusal(tuple(nodes), why) for why, nodes in groups.items()]
