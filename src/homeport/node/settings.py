"""All settings of a node, read once at start. Nothing else in the node reads the environment."""

import os
import re
import secrets
import socket
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from homeport.adapters.local_access import default_folder
from homeport.core.logs.settings import NodeLogSettings
from homeport.core.node.health import STEADY_SECONDS
from homeport.core.node.permissions import NOTHING, Permissions
from homeport.core.values.addresses import is_loopback
from homeport.errors import InvalidInput, Problem, Refused
from homeport.failpoints import VARIABLE
from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import NODE_ID_PATTERN, NodeId


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    data: Path
    """The folder of the journal, the node's id and the components' files. Only one node may use it."""
    site_address: str | None = "127.0.0.1:50052"
    """HOST:PORT of the site's gRPC service; None where the site is in this process. The node connects outwards;
    nothing has to reach it."""
    node_id: NodeId | None = None
    """Default: an id stored in `node-id` in the data folder, made of the host's name and random digits at the first
    start, so that it survives both a new address and a new hostname."""
    hostname: str = field(default_factory=socket.gethostname)
    """The machine's name as shown to users."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Reported to the site for placement and for users."""
    join_url: str | None = None
    """The site's own API (https), where the node joins at its first start."""
    join_token: str | None = field(default=None, repr=False)
    """Authorizes the join; None requests an administrator's approval at the site."""
    pin: str | None = None
    """The site's key, as `sha256:` and hex, for joining. None of the three is needed again afterwards."""
    svid_folder: Path | None = None
    """Where an external authority (SPIRE's helper, for one) writes and renews the node's identity: svid-cert.pem,
    svid-key.pem, svid-ca.pem. Then there is nothing to join, and the node's id is the one in its certificate."""
    wfm_id: str = "central"
    """Central's name in SPIFFE IDs; a node with `svid_folder` needs it to authenticate its site."""
    access_folder: Path | None = field(default_factory=lambda: default_folder(os.environ))
    """Where a site on this machine publishes the key that a node without an identity presents."""
    http_address: str | None = "127.0.0.1:8082"
    """HOST:PORT of /healthz, /readyz and /metrics; None where another role of the process serves them."""
    runtime: str = "auto"
    """auto, podman, docker, containerd, process or null."""
    engine_socket: Path | None = None
    """The engine's API socket; default: from the environment, then the usual path."""
    podman_args: tuple[str, ...] = ()
    """Global arguments for every call of podman, such as `--root` and `--runroot`."""
    kubeconfig: Path | None = None
    """The Kubernetes cluster that helm charts go to; None runs them on Podman, without Kubernetes."""
    permissions: Permissions = NOTHING
    """What components may use of this machine beyond their own container (`--allow`). Nothing by default, or
    everyone who may deploy would be root here."""
    plain_http_registries: frozenset[str] = frozenset()
    """HOST:PORT of registries that are accessed without TLS, in addition to those on loopback."""
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ), repr=False)
    """Where the engine's own settings and registry logins are found (CONTAINERS_CONF, DOCKER_HOST and the like)."""
    heartbeat_seconds: float = 5.0
    """The heartbeat interval, until the site sets another."""
    telemetry_seconds: float = 5.0
    """How often the machine and its containers are measured, unless an operator sets another interval; 0 for never.
    Five seconds show a peak, and cost less than a thousandth of a core."""
    observe_seconds: float = 5.0
    """How often what runs is compared with what should. A container killed by hand is restarted within this time."""
    orphan_seconds: float = 60.0
    """How often the engine is searched for orphans of a node that lost its folder."""
    engine_seconds: float = 10.0
    """How often the container engine is checked."""
    reconnect_first_seconds: float = 0.2
    """Wait before the first reconnection; doubled each time up to `reconnect_max_seconds`, with jitter."""
    reconnect_max_seconds: float = 5.0
    """One heartbeat: a site that comes back has all its nodes again within that time."""
    answer_seconds: float = 10.0
    """Timeout of the site's welcome, and of sending a message, before the connection counts as dead."""
    prepare_seconds: float = 3600.0
    """Timeout for pulling one component; an hour allows a large image on a slow line."""
    remove_seconds: float = 300.0
    """Timeout for stopping and removing one component."""
    parallel: int = 8
    """How many components are pulled, started or removed at once. More would only queue in the engine."""
    steady_seconds: float = STEADY_SECONDS
    """How long a component without a health check has to run before it counts as healthy."""
    leave_on_stop: bool = False
    """Unregister at a graceful stop, for machines that do not come back. Off by default: a node that restarts, for an
    upgrade for example, keeps its workloads running, and a site without it would place them elsewhere."""
    failpoint: str | None = field(default_factory=lambda: os.environ.get(VARIABLE))
    """Where the process kills itself, for crash tests (`homeport.failpoints`)."""
    logs: NodeLogSettings = field(default_factory=NodeLogSettings)
    """The buffer of log lines, and how much each source may write."""
    workload_variables: Mapping[str, str] = field(default_factory=dict)
    """For every container: where the collector of this machine is (`core.node.telemetry_variables`)."""
    otlp_url: str | None = None
    """The trace collector (OTLP over HTTP); None sends no traces and imports nothing for it."""

    def __post_init__(self) -> None:
        if self.node_id is not None and not re.fullmatch(NODE_ID_PATTERN, self.node_id):
            raise InvalidInput(
                problems=[Problem("node_id", f"{self.node_id!r} is not an id")],
                hint="Use letters, digits, dots, dashes and underscores, up to 128.",
            )
        if self.svid_folder is not None and any((self.join_url, self.join_token, self.pin)):
            raise InvalidInput(
                problems=[Problem("svid_folder", "excludes joining: the identity comes from outside")],
                hint="Leave out --join-url, --join and --pin, or --svid-dir.",
            )
        if self.site_address is not None:
            split_address("site_address", self.site_address)
        if self.http_address is not None:
            host, _ = split_address("http_address", self.http_address)
            if not is_loopback(host):
                raise Refused(
                    f"Refusing to listen on {host} without access control.",
                    hint="Keep it local (127.0.0.1:8082) and let a proxy or an SSH tunnel reach it.",
                )


def split_address(name: str, address: str) -> tuple[str, int]:
    """HOST:PORT, also [v6]:PORT."""
    host, colon, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise InvalidInput(
            problems=[Problem(name, f"{address!r} is not an address")], hint="Write HOST:PORT, as in 127.0.0.1:50052."
        )
    return host, int(port)


def resolve_node_id(settings: NodeSettings) -> NodeId:
    """The id that was set, else the one in the data folder, created at the first start and durable before it is
    used."""
    if settings.node_id is not None:
        return settings.node_id
    path = settings.data / "node-id"
    if path.exists():
        known = path.read_text().strip()
        if not re.fullmatch(NODE_ID_PATTERN, known):
            raise InvalidInput(
                problems=[Problem("node_id", f"{known!r} is not an id", str(path))],
                hint="Correct the file, or remove it to register under a new id.",
            )
        return NodeId(known)
    settings.data.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"[^A-Za-z0-9._-]", "-", settings.hostname).strip("-._")[:100] or "node"
    fresh = NodeId(f"{name}-{secrets.token_hex(4)}")
    draft = path.with_suffix(".new")
    with draft.open("w") as file:
        file.write(fresh + "\n")
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    return fresh
