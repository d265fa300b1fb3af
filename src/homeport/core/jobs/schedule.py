"""Which pending job goes to which node now, and what the others wait for. One placement function decides what fits
(`core.placement`), a strategy which of the fitting nodes is taken."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Final

from homeport.core.inference.request import InferenceRequest
from homeport.core.jobs.job import Job, JobSpec, JobType
from homeport.core.jobs.strategies import LABEL_ZONE, NodeCandidate, Strategy
from homeport.core.model.custom import CustomKind
from homeport.core.model.demand import Demand, Requirement, Resources
from homeport.core.model.engines import custom_kinds, main_engine
from homeport.core.model.node import Capabilities, Node
from homeport.core.model.protocol import PeerProtocol
from homeport.core.node.permissions import Permission, announced
from homeport.core.placement.choose import Placed, place
from homeport.core.placement.roster import Roster, Slot
from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import Feature, JobId, Liveness, NodeId

SLOTS_MIN: Final = 4
SLOTS_PER_CORE: Final = 2
ENTRYPOINT: Final = "the entrypoint of a job"
SERVE_HINT: Final = "See what is served:  homeport pools list"
NO_NODE: Final = "The site has no node."
NO_NODE_HINT: Final = "Join one:  homeport nodes join-command"
NO_FIT_HINT: Final = "Ask for less, choose other nodes, or change what the nodes allow."
INFERENCE: Final = "jobs that are inference requests"
RUNS_IMAGES: Final = frozenset({"podman", "docker", "null"})


@dataclass(frozen=True, slots=True)
class Given:
    job_id: JobId
    node_id: NodeId
    why: str


@dataclass(frozen=True, slots=True)
class Round:
    given: tuple[Given, ...] = ()
    waiting: Mapping[JobId, str] = field(default_factory=dict)
    """What each of the others waits for."""


@dataclass(slots=True)
class Load:
    """What nodes have of jobs, counted while a round is made."""

    jobs: Counter[NodeId] = field(default_factory=Counter)
    cores: dict[NodeId, float] = field(default_factory=dict)
    last_given: dict[NodeId, int] = field(default_factory=dict)
    count: int = 0

    def add(self, node_id: NodeId, spec: JobSpec) -> None:
        self.jobs[node_id] += 1
        self.cores[node_id] = self.cores.get(node_id, 0.0) + spec.cpu_cores

    def give(self, node_id: NodeId, spec: JobSpec) -> None:
        self.add(node_id, spec)
        self.count += 1
        self.last_given[node_id] = self.count


def demand_of(spec: JobSpec) -> Demand:
    return Demand(
        nodes=() if spec.node is None else (spec.node,),
        selector=spec.selector,
        requirements=(_runs(spec.type),),
        resources=resources_of(spec),
        features=((Feature.JOB_ENTRYPOINT, ENTRYPOINT),) if spec.entrypoint else (),
    )


def resources_of(spec: JobSpec) -> Resources:
    return Resources(memory_bytes=float(spec.memory_bytes), cpu_cores=spec.cpu_cores, gpus=spec.gpus)


def slots_of(node: Node) -> int:
    """How many jobs a node has at once: some of them wait for a disk or a network."""
    return max(SLOTS_MIN, SLOTS_PER_CORE * node.info.capabilities.cpu_cores)


def unplaceable(spec: JobSpec, nodes: Sequence[Node]) -> str | None:
    """Why no node can ever take it, as they are now; None when one can, even if it is busy or disconnected."""
    if not nodes:
        return NO_NODE
    placed = place(demand_of(spec), nodes)
    if placed.chosen or placed.silent or any(node.drain for node in nodes if node.id not in _unable(placed)):
        return None
    return f"No node can run this job: {placed.explain()}."


def unsupported(spec: JobSpec, site: PeerProtocol) -> str | None:
    """Why a site of an earlier release would run another job than this; None where it would not."""
    needed = [(Feature.JOB_ENTRYPOINT, ENTRYPOINT)] if spec.entrypoint else []
    needed += [(Feature.JOB_INFERENCE, INFERENCE)] if spec.inference is not None else []
    for feature, what in needed:
        if not site.has(feature):
            return f"The site runs an earlier release of Homeport, which does not know {what}: upgrade it first."
    return None


def unserved(request: InferenceRequest, site: str, serving: Collection[str]) -> str | None:
    """Why no engine of the site can answer it; `serving` are the sites whose engines have its model."""
    return None if site in serving else f'No engine of site {site} serves the model "{request.model}".'


def _unable(placed: Placed) -> frozenset[NodeId]:
    """Refused for another reason than being drained."""
    return frozenset(
        node for group in placed.refusals if not group.why.startswith("is drained") for node in group.nodes
    )


def schedule(
    pending: Sequence[Job],
    nodes: Sequence[Node],
    taken: Iterable[tuple[NodeId, Resources]],
    load: Load,
    strategy: Strategy,
    *,
    limit: int,
) -> Round:
    """`pending` in the order of their turn; `taken` is what deployments and running jobs have reserved. At most
    `limit` are given. `load` is updated."""
    roster = Roster(nodes).reserve(taken)
    zones = _zones(roster, load)
    given: list[Given] = []
    waiting: dict[JobId, str] = {}
    refused: dict[tuple[object, ...], str] = {}
    for job in pending:
        if len(given) >= limit:
            break
        key = _key(job.spec)
        if key in refused:  # As an equal one before it: nodes only fill up in one round.
            waiting[job.id] = refused[key]
            continue
        try:
            node_id, why = _node_for(job.spec, roster, load, zones, strategy)
        except Exception as error:  # noqa: BLE001 - a strategy of the user's own may raise anything; other jobs continue
            waiting[job.id] = f"the scheduling strategy failed: {type(error).__name__}: {str(error)[:200]}"
            continue
        if node_id is None:
            refused[key] = waiting[job.id] = why
            continue
        roster.take(node_id, resources_of(job.spec))
        load.give(node_id, job.spec)
        zones[_zone(roster.slots[node_id].node)] += 1
        given.append(Given(job.id, node_id, why))
    return Round(tuple(given), waiting)


def _node_for(
    spec: JobSpec, roster: Roster, load: Load, zones: Counter[str], strategy: Strategy
) -> tuple[NodeId | None, str]:
    """The node and why, or None and what it waits for."""

    def prefer(slot: Slot) -> tuple[bool, object]:
        if _is_full(slot, spec, load):
            return True, 0
        return False, strategy.rank(spec, _candidate(slot, load, zones))

    placed = place(demand_of(spec), roster, prefer=prefer)
    if not placed.chosen:
        return None, placed.explain() or "the site has no node"
    slot = roster.slots[placed.chosen[0]]
    if _is_full(slot, spec, load):
        return None, "every node that can run it is busy with other jobs"
    return slot.id, f"{load.jobs[slot.id]} of {slots_of(slot.node)} slots were in use"


def _is_full(slot: Slot, spec: JobSpec, load: Load) -> bool:
    if load.jobs[slot.id] >= slots_of(slot.node):
        return True
    cores = load.cores.get(slot.id, 0.0) + spec.cpu_cores
    return spec.cpu_cores > 0 and cores > slot.node.info.capabilities.cpu_cores


def _candidate(slot: Slot, load: Load, zones: Counter[str]) -> NodeCandidate:
    return NodeCandidate(
        node=slot.node,
        jobs=load.jobs[slot.id],
        slots=slots_of(slot.node),
        last_given=load.last_given.get(slot.id, 0),
        memory_free=slot.memory_free,
        gpus_free=slot.gpus_free,
        instances=slot.instances,
        zone_jobs=zones[_zone(slot.node)],
    )


def _zones(roster: Roster, load: Load) -> Counter[str]:
    zones: Counter[str] = Counter()
    for node_id, count in load.jobs.items():
        if node_id in roster.slots:
            zones[_zone(roster.slots[node_id].node)] += count
    return zones


def _zone(node: Node) -> str:
    return node.labels.get(LABEL_ZONE, node.id)


def _key(spec: JobSpec) -> tuple[object, ...]:
    has_entrypoint = bool(spec.entrypoint)
    return spec.type, spec.node, str(spec.selector), spec.cpu_cores, spec.memory_bytes, spec.gpus, has_entrypoint


def _runs(type_: JobType) -> Requirement:
    return _runs_images if type_ is JobType.CONTAINER else _runs_commands


def _runs_images(capabilities: Capabilities, labels: Mapping[str, str]) -> str | None:
    if not capabilities.engine:
        return "has no container engine that answers"
    engine = main_engine(capabilities.engine)
    if CustomKind.IMAGE not in custom_kinds(capabilities.engine):
        return f"cannot run images: with {engine} it runs native programs"
    return None if engine in RUNS_IMAGES else f"cannot run jobs in containers with {engine}: use podman or docker"


def _runs_commands(capabilities: Capabilities, labels: Mapping[str, str]) -> str | None:
    """Choosing the process runtime is the permission; the null runtime runs nothing."""
    if main_engine(capabilities.engine) in ("process", "null"):
        return None
    permissions = announced(labels)
    if permissions is not None and Permission.NATIVE_COMMANDS in permissions.allowed:
        return None
    return f"does not allow native commands: start it with  --allow {Permission.NATIVE_COMMANDS}  to permit them"


def is_gone(node: Node | None) -> bool:
    """Whether the work of a node counts as lost with it."""
    return node is None or node.liveness is Liveness.LOST
