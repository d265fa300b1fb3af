"""Makes core records for tests, with plain defaults for all that a test does not care about."""

import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from homeport.core.model.deployment import ComponentSpec, Desired, Placement, Release, digest_of
from homeport.core.model.event import Deployment
from homeport.core.model.instance import Failure, Instance
from homeport.core.model.node import Capabilities, Node, NodeInfo
from homeport.core.values.selectors import parse_selector
from homeport.vocabulary import (
    Commit,
    DeploymentId,
    Digest,
    Generation,
    Incarnation,
    Liveness,
    NodeId,
    PlacementMode,
    ProfileType,
    SiteName,
    State,
)

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
HOME = SiteName("home")


def deployment_id(number: int = 1) -> DeploymentId:
    return DeploymentId(str(uuid.UUID(int=number)))


def revision(text: str) -> Digest:
    return digest_of(text)


def a_desired(
    number: int = 1,
    *,
    at: str = "first",
    nodes: tuple[str, ...] = (),
    kind: ProfileType = ProfileType.COMPOSE,
    count: int | None = None,
    selector: str = "",
    memory: str = "",
) -> Desired:
    """`count` 1 is placed with mode `one`, a higher one with `count`; without it, on each node."""
    key = deployment_id(number)
    part = ComponentSpec("web", kind, "oci://registry.example/web", "1.0.0")
    return Desired(
        id=key,
        site=HOME,
        name=f"app-{number}",
        namespace="default",
        margo_app_id="app",
        app_name="app",
        app_category="demo",
        app_version="1.0.0",
        profile_id="compose",
        profile_type=kind,
        release=Release(key, f"app-{number}", revision(at), "1.0.0", (part,)),
        parameters={},
        device_constraints={"capacityRequirements": {"memory": memory}} if memory else None,
        placement=Placement(
            tuple(NodeId(name) for name in nodes),
            mode=_mode(count),
            count=count or 1,
            selector=parse_selector(selector),
        ),
        rollout_id=None,
        revision=revision(at),
        path=f"deployments/home/{key}.yaml",
    )


def _mode(count: int | None) -> PlacementMode:
    return PlacementMode.EACH if count is None else PlacementMode.ONE if count == 1 else PlacementMode.COUNT


def a_node(
    name: str = "one",
    *,
    liveness: Liveness = Liveness.LIVE,
    types: tuple[ProfileType, ...] | None = None,
    labels: Mapping[str, str] | None = None,
    drain: str | None = None,
    memory_bytes: int = 4 * 1024**3,
    seen: datetime = NOW,
) -> Node:
    capabilities = Capabilities(
        cpu_cores=2,
        memory_bytes=memory_bytes,
        disk_bytes=64 * 1024**3,
        disk_free_bytes=32 * 1024**3,
        os="linux",
        architecture="amd64",
        engine="podman",
        engine_version="4.3.1",
        profile_types=(ProfileType.COMPOSE,) if types is None else types,
    )
    info = NodeInfo(NodeId(name), name, capabilities, labels or {})
    return Node(info, HOME, liveness, seen, NOW, drain)


def an_instance(
    number: int = 1,
    node: str = "one",
    *,
    state: State = State.INSTALLED,
    at: str = "first",
    runs: bool = True,
    failure: Failure | None = None,
    generation: int = 7,
    incarnation: int = 3,
) -> Instance:
    return Instance(
        deployment_id=deployment_id(number),
        node_id=NodeId(node),
        incarnation=Incarnation(incarnation),
        state=state,
        version=4,
        generation=Generation(generation),
        revision=revision(at),
        running_revision=revision(at) if runs else None,
        attempt=1,
        step="",
        failure=failure,
        updated_at=NOW,
    )


def a_deployment(number: int = 1, *, state: State = State.PENDING, wanted: bool = True, **changes: Any) -> Deployment:
    desired = a_desired(number)
    row: dict[str, Any] = {
        "id": desired.id,
        "site": HOME,
        "name": desired.name,
        "margo_app_id": "app",
        "app_name": "app",
        "app_category": "demo",
        "app_version": "1.0.0",
        "profile_id": "compose",
        "profile_type": "compose",
        "parameters": {},
        "revision": desired.revision,
        "commit": Commit("c" * 40),
        "rollout_id": None,
        "wanted": wanted,
        "state": state,
        "version": 1,
        "created_at": NOW,
        "updated_at": NOW,
        "created_by": "somebody",
    }
    return Deployment(**{**row, **changes})
