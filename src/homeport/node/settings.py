"""Everything that can be set for a node, read once at start. Nothing else of the node reads the environment."""

import os
import re
import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path

from homeport.errors import InvalidInput, Problem, Refused
from homeport.failpoints import VARIABLE
from homeport.vocabulary import NODE_ID_PATTERN, NodeId

LOOPBACK_NAMES = frozenset({"localhost", "localhost.localdomain"})


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    data: Path
    """The folder of the journal, the node's id and the components' files. Only one node may use it."""
    site_address: str = "127.0.0.1:50052"
    """HOST:PORT of the site's gRPC service. The node dials out; nothing has to reach it."""
    node_id: NodeId | None = None
    """Default: an id kept in `node-id` in the data folder, made of the host's name and chance at the first start,
    so that it survives both a new address and a new hostname."""
    hostname: str = field(default_factory=socket.gethostname)
    """What people see the machine as."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Told to the site for placement and for people."""
    join_url: str | None = None
    """The site's own API (https), where the node joins at its first start."""
    join_token: str | None = field(default=None, repr=False)
    """With which it joins; None asks for a person's approval at the site."""
    pin: str | None = None
    """The site's key, as `sha256:` and hex, for joining. None of the three is needed again afterwards."""
    svid_folder: Path | None = None
    """Where an authority outside (SPIRE's helper, for one) writes and renews the node's identity: svid-cert.pem,
    svid-key.pem, svid-ca.pem. Then there is nothing to join, and the node's id is the one in its certificate."""
    wfm_id: str = "central"
    """What central is called in SPIFFE IDs; a node with `svid_folder` knows its site by it."""
    http_address: str | None = "127.0.0.1:8082"
    """HOST:PORT of /healthz, /readyz and /metrics; None where another role of the process serves them."""
    runtime: str = "auto"
    """auto, podman, docker, containerd, process or null."""
    engine_socket: Path | None = None
    """The engine's API socket; default: what the environment says, then the usual place."""
    podman_args: tuple[str, ...] = ()
    """Global arguments for every call of podman, such as `--root` and `--runroot`."""
    kubeconfig: Path | None = None
    """The Kubernetes cluster that helm charts go to; None runs them on Podman, without Kubernetes."""
    plain_http_registries: frozenset[str] = frozenset()
    """HOST:PORT of registries that are spoken to without TLS, beside those on loopback."""
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ), repr=False)
    """Where the engine's own settings and registry logins are found (CONTAINERS_CONF, DOCKER_HOST and the like)."""
    heartbeat_seconds: float = 5.0
    """How often the node says that it lives, until its site asks for another rhythm."""
    observe_seconds: float = 5.0
    """How often what runs is compared with what should. A container killed by hand is back within this time."""
    engine_seconds: float = 10.0
    """How often the container engine is asked whether it still answers."""
    reconnect_first_seconds: float = 0.2
    """Wait before the first reconnection; doubled each time up to `reconnect_max_seconds`, with jitter."""
    reconnect_max_seconds: float = 5.0
    """One heartbeat: a site that comes back has all its nodes again within that time."""
    answer_seconds: float = 10.0
    """How long a site may take to welcome the node, and a message to leave it, before the link counts as dead."""
    prepare_seconds: float = 3600.0
    """Limit for fetching one component; an hour lets a large image through a slow line."""
    remove_seconds: float = 300.0
    """Limit for stopping and removing one component."""
    parallel: int = 8
    """How many components are fetched, started or removed at once. More would only make the engine queue."""
    health_failures: int = 3
    """Consecutive failures of a health check after which a release has failed."""
    health_spacing_seconds: float = 1.0
    steady_seconds: float = 2.0
    """How long a component without a health check has to run before it is believed."""
    """Least time between two failures that count, so that a slow start is not taken for a broken one."""
    leave_on_stop: bool = False
    """Unregister at a graceful stop, for machines that do not come back. Off by default: a node that restarts, be
    it for an upgrade, keeps its workloads running, and a site that had forgotten it would place them anew."""
    failpoint: str | None = field(default_factory=lambda: os.environ.get(VARIABLE))
    """Where the process is to kill itself, for tests of what a crash leaves behind (`homeport.failpoints`)."""
    otlp_url: str | None = None
    """The collector of traces (OTLP over HTTP); None sends none and imports nothing for it."""

    def __post_init__(self) -> None:
        if self.node_id is not None and not re.match(NODE_ID_PATTERN, self.node_id):
            raise InvalidInput(
                problems=[Problem("node_id", f"{self.node_id!r} is not an id")],
                hint="Use letters, digits, dots, dashes and underscores, up to 128.",
            )
        if self.svid_folder is not None and any((self.join_url, self.join_token, self.pin)):
            raise InvalidInput(
                problems=[Problem("svid_folder", "excludes joining: the identity comes from outside")],
                hint="Leave out --join-url, --join and --pin, or --svid-dir.",
            )
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


def is_loopback(host: str) -> bool:
    if host.lower() in LOOPBACK_NAMES:
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def resolve_node_id(settings: NodeSettings) -> NodeId:
    """The id that was set, else the one in the data folder, made at the first start and durable before it is used."""
    if settings.node_id is not None:
        return settings.node_id
    path = settings.data / "node-id"
    if path.exists():
        known = path.read_text().strip()
        if not re.match(NODE_ID_PATTERN, known):
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
