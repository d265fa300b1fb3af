"""Which nodes of a site get an instance of a workload, and why the others do not. It knows only the `Demand`, not the
kind of workload.

`each` takes every eligible node. `one` and `count` keep what runs where it runs, and fill up with the nodes that
carry the fewest instances and have room. An instance moves only when its node is drained, removed or no longer
no longer eligible, or has been lost for `LOST_GRACE_SECONDS`.

Make before break: an instance on a node that may no longer have it stays until its successor is healthy
(`lingering`), and for as long as no node can take its place (`stranded`).

Capacity is judged by what a machine has, not by what is currently free: a disk that fills up must not make a
node lose what already runs there.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from datetime import datetime, timedelta
from typing import Any, Final

from homeport.core.model.demand import Commitment, Demand, Resources
from homeport.core.model.node import Capabilities, Node
from homeport.core.placement.eligibility import DeviceProperties, readable_bytes, refusal
from homeport.core.placement.roster import NodeClass, Roster, Slot, device_of, names_a_device
from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import Liveness, NodeId, PlacementMode

LOST_GRACE_SECONDS: Final = 300.0
"""How long a lost node keeps what `one` and `count` have placed there. A shorter grace runs things twice whenever a
switch is restarted; a longer one extends the outage. `each` never moves."""
NAMES_SHOWN_MAX: Final = 3
Prefer = Callable[[Slot], Any]
"""How one of several eligible nodes is chosen: the smallest value wins, and the id decides between equals."""


@dataclass(frozen=True, slots=True)
class PlacementRefusal:
    """Why some nodes do not get the workload: one reason for all of them."""

    nodes: tuple[NodeId, ...]
    why: str
    """Without its subject: `needs 16Gi of memory, has 8Gi`."""

    @property
    def subject(self) -> str:
        """The nodes it is about: the first few by name."""
        more = len(self.nodes) - NAMES_SHOWN_MAX
        return f"{', '.join(self.nodes[:NAMES_SHOWN_MAX])}{f' and {more} more' if more > 0 else ''}"

    def __str__(self) -> str:
        return f"{self.subject}{' ' if len(self.nodes) == 1 else ': '}{self.why}"


@dataclass(frozen=True, slots=True)
class Placed:
    chosen: tuple[NodeId, ...]
    refusals: tuple[PlacementRefusal, ...]
    """All other nodes, the reason once for each class of equal nodes."""
    silent: tuple[NodeId, ...] = ()
    """Eligible nodes that are lost: they keep what they already hold."""
    lingering: tuple[NodeId, ...] = ()
    """Nodes that give up their instance, but not before the chosen ones are healthy."""
    stranded: tuple[NodeId, ...] = ()
    """Nodes that are no longer eligible but run an instance that no other node can take: it stays."""
    unknown: tuple[NodeId, ...] = ()
    """Requested node names that do not exist."""
    missing: int = 0
    """How many instances no node can take."""

    @property
    def refused(self) -> dict[NodeId, str]:
        """A sentence for each node that gets nothing, and for each unknown node name."""
        sentences = {name: f'The site has no node called "{name}".' for name in self.unknown}
        return sentences | {node: f"{node} {group.why}." for group in self.refusals for node in group.nodes}

    def explain(self) -> str:
        """All reasons in one line, each class once."""
        ghosts = [f'the site has no node called "{name}"' for name in self.unknown]
        return "; ".join([*ghosts, *(str(group) for group in self.refusals)])


def place(
    demand: Demand,
    nodes: Roster | Sequence[Node],
    commitments: Mapping[NodeId, Commitment] | None = None,
    now: datetime | None = None,
    *,
    prefer: Prefer | None = None,
) -> Placed:
    """`commitments` are what nodes already hold of it. Without `now`, no node counts as lost for too long. Without
    `prefer`, the nodes that carry the fewest instances come first."""
    roster = nodes if isinstance(nodes, Roster) else Roster(nodes)
    able, refusals = _able(demand, roster)
    unknown = tuple(name for name in demand.nodes if name not in roster.slots)
    here = {node_id: item for node_id, item in (commitments or {}).items() if node_id in roster.slots}
    able += [slot for slot in _without_engine(demand, roster) if slot.id in here]
    ready = [slot for slot in able if slot.node.drain is None]
    refusals += _grouped((slot.id, f"is drained: {slot.node.drain}") for slot in able if slot.node.drain is not None)
    if demand.mode is PlacementMode.EACH:
        return _on_each(ready, refusals, here=here, unknown=unknown)
    return _on_some(demand, ready, refusals, here=here, unknown=unknown, now=now, prefer=prefer)


def _able(demand: Demand, roster: Roster) -> tuple[list[Slot], list[PlacementRefusal]]:
    """The eligible nodes, connected or not, and why the others are not eligible."""
    asked = frozenset(demand.nodes)
    singly = names_a_device(demand.constraints)
    able: list[Slot] = []
    refusals: list[PlacementRefusal] = []
    unasked: list[NodeId] = []
    for kind in roster.kinds:
        slots = [slot for slot in kind.slots if slot.id in asked] if asked else kind.slots
        if asked:
            unasked += [slot.id for slot in kind.slots if slot.id not in asked]
        if not slots:
            continue
        if singly:
            verdicts = [(slot, _against(demand, kind, device_of(slot.node))) for slot in slots]
            able += [slot for slot, why in verdicts if why is None]
            refusals += _grouped((slot.id, why) for slot, why in verdicts if why is not None)
            continue
        why = _against(demand, kind, kind.device)
        if why is None:
            able += slots
        else:
            refusals.append(PlacementRefusal(tuple(slot.id for slot in slots), why))
    if unasked:
        refusals.append(PlacementRefusal(tuple(sorted(unasked)), "is not among the nodes that were asked for"))
    return able, refusals


def _without_engine(demand: Demand, roster: Roster) -> Iterator[Slot]:
    """Nodes whose engine has not responded since they started, as when a machine boots. Their capabilities are
    unknown:
    they get nothing new, and keep what they already hold."""
    if demand.profile_type is None:
        return
    asked = frozenset(demand.nodes)
    for kind in roster.kinds:
        if not kind.capabilities.engine and demand.selector.unmet(kind.labels) is None:
            yield from (slot for slot in kind.slots if not asked or slot.id in asked)


def _against(demand: Demand, kind: NodeClass, device: DeviceProperties) -> str | None:
    """Why a class of nodes is not eligible; None when it is. The first reason is enough."""
    unmet = demand.selector.unmet(kind.labels)
    if unmet is not None:
        return f"does not meet the selector {unmet}"
    capabilities = kind.capabilities
    if demand.profile_type is not None and demand.profile_type not in capabilities.profile_types:
        runs = " and ".join(type_.value for type_ in capabilities.profile_types) or "nothing"
        engine = capabilities.engine or "no container engine"
        return f"cannot run {demand.profile_type} apps: with {engine} it runs {runs}"
    for feature, called in demand.features:
        if not kind.protocol.has(feature):
            return f"runs an earlier release of Homeport, which does not know {called}: upgrade it"
    reasons = (requirement(capabilities, kind.labels) for requirement in demand.requirements)
    return (
        next((why for why in reasons if why is not None), None)
        or refusal(demand.constraints, device)
        or _too_small(demand.resources, capabilities)
    )


def _too_small(need: Resources, capabilities: Capabilities) -> str | None:
    """What the machine lacks even when it is empty."""
    amounts = (
        ("memory", need.memory_bytes, capabilities.memory_bytes),
        ("storage", need.storage_bytes, capabilities.disk_bytes),
    )
    for what, wanted, has in amounts:
        if wanted > has:
            return f"needs {readable_bytes(wanted)} of {what}, has {readable_bytes(has)}"
    if need.cpu_cores > capabilities.cpu_cores:
        return f"needs {need.cpu_cores:g} cores, has {capabilities.cpu_cores}"
    if need.gpus > len(capabilities.gpus):
        return f"needs {need.gpus} GPU{'s' if need.gpus > 1 else ''}, has {len(capabilities.gpus) or 'none'}"
    return None


def _on_each(
    ready: Sequence[Slot],
    refusals: list[PlacementRefusal],
    *,
    here: Mapping[NodeId, Commitment],
    unknown: tuple[NodeId, ...],
) -> Placed:
    lost = [slot for slot in ready if slot.node.liveness is Liveness.LOST]
    chosen = {slot.id for slot in ready if slot.node.liveness is not Liveness.LOST}
    others = _running_elsewhere(here, {slot.id for slot in ready})
    return Placed(
        tuple(sorted(chosen)),
        (*refusals, *_offline_text(lost)),
        silent=tuple(sorted(slot.id for slot in lost)),
        lingering=others[: _others_to_keep(here, chosen, len(others))],
        stranded=() if chosen else others,
        unknown=unknown,
        missing=0 if ready else 1,
    )


def _others_to_keep(here: Mapping[NodeId, Commitment], chosen: set[NodeId], others: int) -> int:
    """How many others stay for now: all while none of the chosen is healthy, then one for each that may still become
    healthy. An instance that failed permanently on one node does not replace one that runs on another."""
    if not others:
        return 0
    found = [here.get(node_id) for node_id in chosen]
    if chosen and not any(item is not None and item.is_settled for item in found):
        return others
    return sum(item is None or not (item.is_settled or item.has_given_up) for item in found)


def _on_some(
    demand: Demand,
    ready: Sequence[Slot],
    refusals: list[PlacementRefusal],
    *,
    here: Mapping[NodeId, Commitment],
    unknown: tuple[NodeId, ...],
    now: datetime | None,
    prefer: Prefer | None,
) -> Placed:
    wanted, need = demand.wanted, demand.resources
    held = {key: item for key, item in here.items() if not item.is_leaving}
    free = [slot for slot in ready if slot.id not in held]
    lost = [slot for slot in ready if slot.node.liveness is Liveness.LOST]
    given_up = {slot.id for slot in lost if slot.id in held and is_written_off(slot.node, now)}
    kept = heapq.nsmallest(
        wanted,
        (slot for slot in ready if slot.id in held and slot.id not in given_up),
        key=lambda slot: _rank(slot, held[slot.id]),
    )
    open_slots = [slot for slot in free if slot.node.liveness is not Liveness.LOST]
    roomy, full = _by_room(open_slots, need)
    fresh = heapq.nsmallest(wanted - len(kept), roomy, key=_order(here, prefer))
    chosen = {slot.id for slot in (*kept, *fresh)}
    waits = [slot for slot in lost if slot.id not in chosen]
    refusals = [*refusals, *_offline_text(waits), *_full(full, need)]
    refusals += _spare(roomy, (slot for slot in ready if slot.id in held), chosen, given_up, wanted)
    others = _running_elsewhere(held, chosen | given_up)
    return Placed(
        tuple(sorted(chosen)),
        tuple(refusals),
        silent=tuple(sorted(slot.id for slot in waits if slot.id not in held or slot.id in given_up)),
        lingering=_lingering(others[wanted - len(chosen) :], chosen, held, {slot.id for slot in ready}),
        stranded=others[: wanted - len(chosen)],
        unknown=unknown,
        missing=max(0, wanted - len(chosen) - len(waits)),
    )


def _lingering(
    others: Sequence[NodeId], chosen: Set[NodeId], held: Mapping[NodeId, Commitment], ready: Set[NodeId]
) -> tuple[NodeId, ...]:
    """One for each of the chosen that is not healthy. When one of those has failed permanently, and so has another on
    an eligible node, nothing is left to wait for: the better of the two was chosen."""
    unsettled = [held.get(node_id) for node_id in chosen if node_id not in held or not held[node_id].is_settled]
    over = [item for item in unsettled if item is not None and item.is_over]
    can_break = not any(item.is_broken for item in over)
    return tuple(
        node_id
        for number, node_id in enumerate(others[: len(unsettled)])
        if number < len(unsettled) - len(over)
        or node_id not in ready
        or not (held[node_id].is_over and (held[node_id].is_broken or can_break))
    )


def is_written_off(node: Node, now: datetime | None) -> bool:
    """Whether a node has been lost for so long that `one` and `count` place its instances elsewhere."""
    if now is None or node.liveness is not Liveness.LOST:
        return False
    return now - node.last_seen >= timedelta(seconds=LOST_GRACE_SECONDS)


def _rank(slot: Slot, item: Commitment) -> tuple[bool, int, int, NodeId]:
    """Which of too many stay: those that are connected, that run, and that were placed last; what was moved away from
    a lost node does not move back with it. One that is being updated counts as one that is up: else its own update
    would move the choice to the next, and that would be updated too."""
    is_alive = item.is_up or (item.runs and not item.is_over)
    step = 0 if item.is_settled else 1 if is_alive else 2 + item.is_broken if item.runs else 4
    return slot.node.liveness is Liveness.LOST, step, -item.since, slot.id


def _order(here: Mapping[NodeId, Commitment], prefer: Prefer | None) -> Prefer:
    """A node that is still removing the same workload is chosen last."""
    if prefer is None:
        return lambda slot: (slot.id in here, slot.instances, slot.id)
    return lambda slot: (slot.id in here, prefer(slot), slot.id)


def _running_elsewhere(held: Mapping[NodeId, Commitment], fine: Set[NodeId]) -> tuple[NodeId, ...]:
    """Nodes that run an instance they should not have; the healthiest first, for only the first may stay. Instances
    being removed do not count."""
    found = (node_id for node_id, item in held.items() if node_id not in fine and item.runs and not item.is_leaving)
    return tuple(sorted(found, key=lambda node_id: (*_health_rank(held[node_id]), node_id)))


def _health_rank(item: Commitment) -> tuple[bool, bool, bool]:
    """At the wanted revision, then healthy at another, then those that no failed update has touched."""
    return not item.is_settled, not item.is_up, item.is_broken


def _offline_text(lost: Iterable[Slot]) -> list[PlacementRefusal]:
    return _grouped(
        (slot.id, f"has sent no heartbeat since {slot.node.last_seen:%Y-%m-%d %H:%M:%S} UTC") for slot in lost
    )


def _by_room(slots: Sequence[Slot], need: Resources) -> tuple[list[Slot], list[Slot]]:
    """Those that have room, and those that do not."""
    roomy = [slot for slot in slots if slot.has_room(need)]
    if len(roomy) == len(slots):
        return roomy, []
    found = {slot.id for slot in roomy}
    return roomy, [slot for slot in slots if slot.id not in found]


def _full(slots: Iterable[Slot], need: Resources) -> list[PlacementRefusal]:
    return _grouped((slot.id, _why_full(slot, need)) for slot in slots)


def _why_full(slot: Slot, need: Resources) -> str:
    if slot.memory_free < need.memory_bytes:
        what, wanted, left = "memory", readable_bytes(need.memory_bytes), readable_bytes(max(0.0, slot.memory_free))
    elif slot.storage_free < need.storage_bytes:
        what, wanted = "storage", readable_bytes(need.storage_bytes)
        left = readable_bytes(max(0.0, slot.storage_free))
    elif slot.gpus_free < need.gpus:
        return f"has no room: {need.gpus} of its GPUs are asked for, {max(0, slot.gpus_free)} are free"
    else:
        return f"has no room: port {min(need.ports & slot.ports_taken)} is taken"
    return f"has no room: {wanted} of {what} are asked for, {left} are left"


def _spare(
    roomy: Sequence[Slot], held: Iterable[Slot], chosen: set[NodeId], given_up: set[NodeId], wanted: int
) -> list[PlacementRefusal]:
    spare = sorted(slot.id for slot in roomy if slot.id not in chosen)
    spare += sorted(slot.id for slot in held if slot.id not in chosen and slot.id not in given_up)
    if not spare:
        return []
    enough = "one instance is" if wanted == 1 else f"{wanted} instances are"
    places = ", ".join(sorted(chosen)[:NAMES_SHOWN_MAX])
    return [
        PlacementRefusal(
            tuple(spare), f"is not needed: {enough} wanted, on {places}{' …' if len(chosen) > 3 else ''}"
        )
    ]


def _grouped(reasons: Iterable[tuple[NodeId, str]]) -> list[PlacementRefusal]:
    groups: dict[str, list[NodeId]] = {}
    for node_id, why in reasons:
        groups.setdefault(why, []).append(node_id)
    return [PlacementRefusal(tuple(nodes), why) for why, nodes in groups.items()]
