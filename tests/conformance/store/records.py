"""Records to store, each complete, so that a test changes only what it speaks of."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import uuid4

from homeport.core.model.event import Deployment, HistoryEntry, NewEvent, Site
from homeport.core.model.instance import Failure, Instance
from homeport.core.model.node import Capabilities, Gpu, Node, NodeInfo
from homeport.ports import AppRecord, ComponentRecord, DesiredFile, ProfileRecord
from homeport.vocabulary import (
    Actor,
    AppId,
    Commit,
    DeploymentId,
    Digest,
    EventKind,
    Generation,
    Incarnation,
    Liveness,
    NodeId,
    ProfileType,
    RolloutId,
    SiteName,
    State,
    Trigger,
)

NOW = datetime(2026, 3, 1, 12, 30, 15, 123456, tzinfo=UTC)
IN_TOKYO = NOW.astimezone(timezone(timedelta(hours=9)))
REVISION = Digest("sha256:" + "a" * 64)
COMMIT = Commit("c" * 40)
FAILURE = Failure("HEALTH_CHECK_FAILED", "GET /healthz answered 500", "web")


def app(**changes: Any) -> AppRecord:
    values: dict[str, Any] = {
        "id": AppId(str(uuid4())),
        "category": "demo",
        "app_name": "hello",
        "version": "1.0.0",
        "margo_id": "com-example-hello",
        "name": "Hello",
        "vendor": "Example",
        "description": "Says hello — in ünïcode",
        "tags": ("demo", "web"),
        "descriptor": {"apiVersion": "margo.org", "deep": {"list": [1, 2.5, None, True]}},
        "source": b"\x00\xffapiVersion: margo.org\n",
        "repository": "https://git.example/apps.git",
        "commit": COMMIT,
        "added_at": NOW,
        "added_by": "ann",
    }
    return AppRecord(**values | changes)


def profile(app_id: AppId, profile_id: str, position: int, **changes: Any) -> ProfileRecord:
    values: dict[str, Any] = {
        "type": ProfileType.COMPOSE,
        "description": "for one machine",
        "device_constraints": {"cpu": {"cores": 2}},
    }
    return ProfileRecord(app_id=app_id, profile_id=profile_id, position=position, **values | changes)


def component(app_id: AppId, profile_id: str, name: str, position: int) -> ComponentRecord:
    return ComponentRecord(app_id, profile_id, position, name, {"repository": f"oci://r/{name}", "wait": True})


def site(name: str = "home", **changes: Any) -> Site:
    values: dict[str, Any] = {"joined_at": NOW, "last_seen": None, "applied_commit": None}
    return Site(name=SiteName(name), **values | changes)


def node(node_id: str = "node-1", site_name: str = "home", **changes: Any) -> Node:
    capabilities = Capabilities(
        cpu_cores=8,
        memory_bytes=2**35,
        disk_bytes=2**42,
        disk_free_bytes=2**41,
        os="linux",
        architecture="arm64",
        engine="podman",
        engine_version="5.0",
        profile_types=(ProfileType.COMPOSE, ProfileType.HELM),
        gpus=(Gpu("A2", "NVIDIA", 2**34),),
    )
    info = NodeInfo(NodeId(node_id), f"{node_id}.lan", capabilities, {"rack": "7"}, "0.1.0")
    values: dict[str, Any] = {"liveness": Liveness.LIVE, "last_seen": NOW, "registered_at": NOW}
    return Node(info=info, site=SiteName(site_name), **values | changes)


def deployment(**changes: Any) -> Deployment:
    values: dict[str, Any] = {
        "id": DeploymentId(str(uuid4())),
        "site": SiteName("home"),
        "name": "hello",
        "margo_app_id": "com-example-hello",
        "app_name": "hello",
        "app_category": "demo",
        "app_version": "1.0.0",
        "profile_id": "small",
        "profile_type": "compose",
        "parameters": {"greeting": "Ahoy", "ports": [80, 443], "ratio": 0.5, "loud": True},
        "revision": REVISION,
        "commit": COMMIT,
        "rollout_id": RolloutId("rollout-1"),
        "wanted": True,
        "state": State.PENDING,
        "version": 1,
        "created_at": NOW,
        "updated_at": NOW,
        "created_by": "ann",
    }
    return Deployment(**values | changes)


def instance(deployment_id: str = "d-1", node_id: str = "node-1", **changes: Any) -> Instance:
    values: dict[str, Any] = {
        "incarnation": Incarnation(1),
        "state": State.PENDING,
        "version": 1,
        "generation": Generation(0),
        "revision": None,
        "running_revision": None,
        "attempt": 0,
        "step": "",
        "failure": None,
        "updated_at": NOW,
    }
    return Instance(deployment_id=DeploymentId(deployment_id), node_id=NodeId(node_id), **values | changes)


def entry(deployment_id: str = "d-1", **changes: Any) -> HistoryEntry:
    values: dict[str, Any] = {
        "node_id": NodeId("node-1"),
        "incarnation": Incarnation(1),
        "before": State.INSTALLING,
        "after": State.FAILED,
        "trigger": Trigger.GAVE_UP,
        "actor": Actor.NODE,
        "reason": "health check failed",
        "at": NOW,
        "revision": REVISION,
        "failure": FAILURE,
    }
    return HistoryEntry(deployment_id=DeploymentId(deployment_id), **values | changes)


def event(message: str = "it happened", **changes: Any) -> NewEvent:
    values: dict[str, Any] = {"kind": EventKind.INSTANCE_STATE, "at": NOW}
    return NewEvent(message=message, **values | changes)


def desired_file(deployment_id: str, content: bytes = b"\x00yaml\xff") -> DesiredFile:
    return DesiredFile(DeploymentId(deployment_id), f"deployments/home/{deployment_id}.yaml", REVISION, content)
