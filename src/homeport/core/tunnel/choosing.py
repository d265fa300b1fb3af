"""Which node of a deployment, and which of its containers, a person means. Refusals name what there is to choose."""

from collections.abc import Collection, Sequence

from homeport.errors import Conflict, NotFound
from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import NodeId


@dataclass(frozen=True, slots=True)
class RunsOn:
    """An instance, as far as the choice of a node needs it."""

    node_id: NodeId
    is_running: bool
    is_reachable: bool


@dataclass(frozen=True, slots=True)
class RunningContainer:
    id: str
    name: str
    component: str
    service: str = ""
    """Of a compose file; empty elsewhere."""
    ports: frozenset[int] = frozenset()
    """Those it exposes or publishes, by their number inside the container."""

    def is_called(self, name: str) -> bool:
        return name in {self.component, self.service, self.name}


def choose_node(name: str, instances: Sequence[RunsOn], asked: str = "") -> NodeId:
    """The one asked for; otherwise the first that runs it and can be reached."""
    known = sorted(each.node_id for each in instances if each.node_id)
    if asked:
        if asked not in known:
            raise NotFound(f"{name} does not run on node {asked}.", hint=_available(known))
        return NodeId(asked)
    running = [each for each in instances if each.node_id and each.is_running]
    if not running:
        raise Conflict(f"{name} runs on no node now.", hint=f"See  homeport show {name}")
    best = sorted(running, key=lambda each: (not each.is_reachable, each.node_id))
    return best[0].node_id


def choose_container(containers: Sequence[RunningContainer], *, asked: str = "", port: int = 0) -> RunningContainer:
    """By component, service or container name; else by the port; else the first."""
    if not containers:
        raise Conflict("No container of it runs on that node now.", hint="Wait for it, or choose another --node.")
    names = sorted({each.service or each.component for each in containers})
    found = [each for each in containers if not asked or each.is_called(asked)]
    if not found:
        raise NotFound(f'It has no component "{asked}" on that node.', hint=_available(names))
    with_port = [each for each in found if port in each.ports]
    if port and not with_port and len(found) > 1:
        ports = sorted({each for container in found for each in container.ports})
        raise NotFound(
            f"None of its containers exposes port {port}.",
            hint=f"{_available([str(each) for each in ports])} Or choose with --component.",
        )
    return sorted(with_port or found, key=lambda each: (each.component, each.name))[0]


def _available(names: Collection[str]) -> str:
    return f"Available:  {', '.join(names)} ." if names else "There is none."
