"""Where a stream of the tunnel leads to."""

import re
from collections.abc import Callable, Iterable
from typing import Final

from homeport.errors import InvalidInput, Problem
from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import DeploymentId, NodeId

ARGUMENTS_MAX: Final = 256
COMMAND_BYTES_MAX: Final = 16 * 1024
"""Of all arguments together."""
TERMINAL_SIDE_MAX: Final = 1000
PORT_MAX: Final = 65535
NOWHERE: Final = NodeId("")
_URL: Final = re.compile(
    r"(?P<scheme>https?)://(?:\[(?P<ipv6>[0-9A-Fa-f:.]{2,45})\]|(?P<host>[A-Za-z0-9._-]{1,253}))"
    r"(?::(?P<port>[0-9]{1,5}))?(?:/|$)"
)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server that a site or one of its nodes can reach, an inference engine for one. Both connect only to those
    that one of their capabilities offers."""

    host: str
    port: int
    node_id: NodeId = NOWHERE
    """The node that reaches it, through whose tunnel the site goes; empty where the site reaches it by itself."""

    @classmethod
    def of(cls, url: str) -> "Endpoint":
        """`http://HOST:PORT`, with or without a path."""
        found = _URL.match(url)
        port = 0 if found is None else int(found["port"] or ("443" if found["scheme"] == "https" else "80"))
        if found is None or not 0 < port <= PORT_MAX:
            message = f'"{url[:200]}" is not an address such as http://HOST:PORT'
            raise InvalidInput(problems=[Problem("target", message)])
        return cls(found["ipv6"] or found["host"].lower(), port)

    def __str__(self) -> str:
        address = f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
        return f"{address} of node {self.node_id}" if self.node_id else address


@dataclass(frozen=True, slots=True)
class TerminalSize:
    columns: int = 80
    rows: int = 24


@dataclass(frozen=True, slots=True)
class ExecTarget:
    """A command in a running container of a deployment."""

    deployment_id: DeploymentId
    node_id: NodeId
    command: tuple[str, ...]
    component: str = ""
    """Empty: the only one, or the first."""
    terminal: TerminalSize | None = None
    """None without a terminal: standard output and standard error stay apart."""
    has_input: bool = False


@dataclass(frozen=True, slots=True)
class ForwardTarget:
    """A port of a deployment."""

    deployment_id: DeploymentId
    node_id: NodeId
    port: int
    component: str = ""


@dataclass(frozen=True, slots=True)
class EngineTarget:
    """Loading or unloading the engine of a pool on a node. The stream is accepted at once, and ends when that is
    done."""

    node_id: NodeId
    pool_id: str
    is_loaded: bool
    """Whether it shall be."""


@dataclass(frozen=True, slots=True)
class VolumesTarget:
    """The data volumes of a node: accepted, then a JSON document, then the end."""

    node_id: NodeId


Target = Endpoint | ExecTarget | ForwardTarget | EngineTarget | VolumesTarget


class OfferedEndpoints:
    """The endpoints of a site that central may reach through the tunnel, and those of a node that its site may.
    Nothing else of their networks is reachable, whatever is asked for."""

    def __init__(self) -> None:
        self._by_owner: dict[str, frozenset[Endpoint]] = {}

    def offer(self, owner: str, endpoints: Iterable[Endpoint]) -> Callable[[], None]:
        """Replaces what `owner` offered before. Returns a function that withdraws it."""
        self._by_owner[owner] = frozenset(endpoints)
        return lambda: self.withdraw(owner)

    def withdraw(self, owner: str) -> None:
        self._by_owner.pop(owner, None)

    def has(self, endpoint: Endpoint) -> bool:
        return any(endpoint in offered for offered in self._by_owner.values())
