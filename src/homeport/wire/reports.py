"""Encodes a site's reports to central as plain JSON objects, and decodes them.

The encoded form stays in the site's outbox across upgrades, so fields are added, never changed in meaning. Decoded
values fit into every database and every calendar: numbers have 64 bits, times are in UTC.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime
from typing import Any, Final

from homeport.core.model.deployment import Hold, Pin
from homeport.core.model.instance import Failure, Instance, RecordedRollback, Transition, Unhealthy
from homeport.core.model.node import Capabilities, Gpu, Node, NodeInfo, Tunable
from homeport.core.model.order import Progress
from homeport.core.model.protocol import PeerProtocol
from homeport.core.model.report import (
    FileProblem,
    HoldsChanged,
    InstanceSnapshot,
    NodeChanged,
    NodeGone,
    NodeNoticed,
    Pinned,
    PlanSetAside,
    Progressed,
    Report,
    Resync,
    Synced,
    SyncFailed,
)
from homeport.core.node.tuning import check_tunable
from homeport.errors import InvalidInput, Problem
from homeport.vocabulary import (
    Actor,
    Commit,
    DeploymentId,
    Digest,
    Generation,
    Incarnation,
    Liveness,
    NodeId,
    NoticeCode,
    ProfileType,
    SiteName,
    State,
    Step,
    Trigger,
)
from homeport.wire.values import maybe_moment, moment, node_id, text, whole

Json = Mapping[str, Any]

KIND_MAX: Final = 100
UNKNOWN_KIND: Final = "is not a kind of report that this version knows"
WHY_MAX: Final = 500


def encode(report: Report) -> dict[str, Any]:
    kind, write = _WRITERS[type(report)]
    return {"kind": kind, **write(report)}


def decode(body: Json) -> Report:
    """Raises InvalidInput for anything that `encode` would not have written, and nothing else."""
    kind = kind_of(body)
    read = _READERS.get(kind)
    if read is None:
        raise InvalidInput(problems=[Problem("kind", f'"{kind}" {UNKNOWN_KIND}')])
    try:
        return read(body)
    except Exception as error:  # written by another machine: a bad report must not affect others
        raise InvalidInput(problems=[Problem(kind, f"cannot be read: {str(error)[:WHY_MAX]}")]) from error


def kind_of(body: Json) -> str:
    return str(body.get("kind"))[:KIND_MAX]


def is_known(kind: str) -> bool:
    """Whether this version reads reports of that kind."""
    return kind in _READERS


def _transition(transition: Transition) -> dict[str, Any]:
    return {
        "deployment_id": transition.deployment_id,
        "node_id": transition.node_id,
        "incarnation": transition.incarnation,
        "happening": transition.trigger.value,
        "actor": transition.actor.value,
        "reason": transition.reason,
        "at": transition.at.isoformat(),
        "generation": transition.generation,
        "revision": transition.revision,
        "failure": _failure(transition.failure),
        "next_at": _moment(transition.next_at),
    }


def _read_transition(body: Json) -> Transition:
    return Transition(
        deployment_id=DeploymentId(text(body["deployment_id"])),
        node_id=NodeId(text(body["node_id"])),
        incarnation=Incarnation(whole(body["incarnation"])),
        trigger=Trigger(body["happening"]),
        actor=Actor(body["actor"]),
        reason=text(body["reason"]),
        at=moment(body["at"]),
        generation=Generation(whole(body["generation"])),
        revision=_digest(body["revision"]),
        failure=_read_failure(body["failure"]),
        next_at=maybe_moment(body.get("next_at")),
    )


def _progressed(progressed: Progressed) -> dict[str, Any]:
    progress = progressed.progress
    return {
        "node_id": progressed.node_id,
        "deployment_id": progress.deployment_id,
        "generation": progress.generation,
        "step": progress.step.value,
        "component": progress.component,
        "message": progress.message,
        "at": progress.at.isoformat(),
        "bytes_done": progress.bytes_done,
        "bytes_total": progress.bytes_total,
        "healthy": progress.healthy,
    }


def _read_progressed(body: Json) -> Progressed:
    return Progressed(
        NodeId(text(body["node_id"])),
        Progress(
            deployment_id=DeploymentId(text(body["deployment_id"])),
            generation=Generation(whole(body["generation"])),
            step=Step(body["step"]),
            component=text(body["component"]),
            message=text(body["message"]),
            at=moment(body["at"]),
            bytes_done=whole(body["bytes_done"]),
            bytes_total=whole(body["bytes_total"]),
            healthy=_maybe_bool(body.get("healthy")),
        ),
    )


def _noticed(report: NodeNoticed) -> dict[str, Any]:
    return {
        "node_id": report.node_id,
        "code": report.code.value,
        "message": report.message,
        "at": report.at.isoformat(),
    }


def _read_noticed(body: Json) -> NodeNoticed:
    return NodeNoticed(node_id(body["node_id"]), NoticeCode(body["code"]), text(body["message"]), moment(body["at"]))


def _synced(report: Synced) -> dict[str, Any]:
    return {
        "commit": report.commit,
        "deployment_ids": list(report.deployment_ids),
        "problems": [
            {"path": p.path, "message": p.message, "deployment_id": p.deployment_id, "line": p.line}
            for p in report.problems
        ],
    }


def _read_synced(body: Json) -> Synced:
    return Synced(
        commit=Commit(text(body["commit"])),
        deployment_ids=tuple(DeploymentId(text(item)) for item in body["deployment_ids"]),
        problems=tuple(
            FileProblem(
                path=text(item["path"]),
                message=text(item["message"]),
                deployment_id=None if item["deployment_id"] is None else DeploymentId(text(item["deployment_id"])),
                line=None if item["line"] is None else whole(item["line"]),
            )
            for item in body["problems"]
        ),
    )


def _node(node: Node) -> dict[str, Any]:
    capabilities = node.info.capabilities
    return {
        "id": node.id,
        "hostname": node.info.hostname,
        "labels": dict(node.info.labels),
        "software_version": node.info.software_version,
        "protocol": node.info.protocol.version,
        "features": list(node.info.protocol.features),
        "agent_address": node.info.agent_address,
        "site": node.site,
        "liveness": node.liveness.value,
        "last_seen": node.last_seen.isoformat(),
        "registered_at": node.registered_at.isoformat(),
        "drain": node.drain,
        "problem": node.problem,
        "tunable": asdict(node.tunable),
        "capabilities": {
            "cpu_cores": capabilities.cpu_cores,
            "memory_bytes": capabilities.memory_bytes,
            "disk_bytes": capabilities.disk_bytes,
            "disk_free_bytes": capabilities.disk_free_bytes,
            "os": capabilities.os,
            "architecture": capabilities.architecture,
            "engine": capabilities.engine,
            "engine_version": capabilities.engine_version,
            "profile_types": [kind.value for kind in capabilities.profile_types],
            "gpus": [
                {"model": gpu.model, "manufacturer": gpu.manufacturer, "memory_bytes": gpu.memory_bytes}
                for gpu in capabilities.gpus
            ],
        },
    }


def _read_node(body: Json) -> Node:
    given = body["capabilities"]
    capabilities = Capabilities(
        cpu_cores=whole(given["cpu_cores"]),
        memory_bytes=whole(given["memory_bytes"]),
        disk_bytes=whole(given["disk_bytes"]),
        disk_free_bytes=whole(given["disk_free_bytes"]),
        os=text(given["os"]),
        architecture=text(given["architecture"]),
        engine=text(given["engine"]),
        engine_version=text(given["engine_version"]),
        profile_types=tuple(ProfileType(kind) for kind in given["profile_types"]),
        gpus=tuple(
            Gpu(text(gpu["model"]), text(gpu["manufacturer"]), whole(gpu["memory_bytes"])) for gpu in given["gpus"]
        ),
    )
    info = NodeInfo(
        id=node_id(body["id"]),
        hostname=text(body["hostname"]),
        capabilities=capabilities,
        labels={text(key): text(value) for key, value in body["labels"].items()},
        software_version=text(body["software_version"]),
        protocol=_protocol(body),
        agent_address=text(body.get("agent_address", "")),
    )
    return Node(
        info=info,
        site=SiteName(text(body["site"])),
        liveness=Liveness(body["liveness"]),
        last_seen=moment(body["last_seen"]),
        registered_at=moment(body["registered_at"]),
        drain=None if body.get("drain") is None else text(body["drain"]),
        problem=None if body.get("problem") is None else text(body["problem"]),
        tunable=read_tunable(body.get("tunable") or {}),
    )


def read_tunable(body: Json) -> Tunable:
    labels = {text(key): text(value) for key, value in (body.get("labels") or {}).items()}
    tunable = Tunable(
        _length(body.get("heartbeat_seconds", 0.0)),
        labels,
        text(body.get("log_level", "")),
        _length(body.get("telemetry_seconds", 0.0)),
    )
    check_tunable(tunable)
    return tunable


def _length(seconds: object) -> float:
    if not isinstance(seconds, int | float) or isinstance(seconds, bool):
        raise TypeError(f"{type(seconds).__name__} is not a length of time")
    return float(seconds)


def _pin(pin: Pin) -> dict[str, Any]:
    return {
        "deployment_id": pin.deployment_id,
        "revision": pin.revision,
        "content": pin.content.decode(),
        "over": pin.over,
        "reason": pin.reason,
        "author": pin.author,
        "at": pin.at.isoformat(),
    }


def _read_pin(body: Json) -> Pin:
    return Pin(
        deployment_id=DeploymentId(text(body["deployment_id"])),
        revision=Digest(text(body["revision"])),
        content=text(body["content"]).encode(),
        over=Digest(text(body["over"])),
        reason=text(body["reason"]),
        author=text(body["author"]),
        at=moment(body["at"]),
    )


def encode_hold(hold: Hold) -> dict[str, Any]:
    return {
        "site": hold.site,
        "deployment_id": hold.deployment_id,
        "reason": hold.reason,
        "author": hold.author,
        "at": hold.at.isoformat(),
        "expires_at": hold.expires_at.isoformat(),
    }


def decode_hold(body: Json) -> Hold:
    """Raises InvalidInput for anything that `encode_hold` would not have written."""
    try:
        return _read_hold(body)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise InvalidInput(problems=[Problem("hold", f"cannot be read: {error!r}")]) from error


def _read_hold(body: Json) -> Hold:
    return Hold(
        site=SiteName(text(body["site"])),
        deployment_id=None if body["deployment_id"] is None else DeploymentId(text(body["deployment_id"])),
        reason=text(body["reason"]),
        author=text(body["author"]),
        at=moment(body["at"]),
        expires_at=moment(body["expires_at"]),
    )


def _restating(report: Resync) -> dict[str, Any]:
    return {
        "why": report.why,
        "nodes": list(report.nodes),
        "instances": [list(key) for key in report.instances],
        "reports_lost": report.reports_lost,
        "since": _moment(report.since),
    }


def _read_restating(body: Json) -> Resync:
    return Resync(
        why=text(body["why"]),
        nodes=tuple(NodeId(text(item)) for item in body["nodes"]),
        instances=tuple((DeploymentId(text(item)), NodeId(text(node))) for item, node in body["instances"]),
        reports_lost=whole(body["reports_lost"]),
        since=maybe_moment(body["since"]),
    )


def _restated(report: InstanceSnapshot) -> dict[str, Any]:
    instance = report.instance
    return {
        "deployment_id": instance.deployment_id,
        "node_id": instance.node_id,
        "incarnation": instance.incarnation,
        "state": instance.state.value,
        "generation": instance.generation,
        "revision": instance.revision,
        "running_revision": instance.running_revision,
        "rejected_revision": instance.rejected_revision,
        "rejected_for": _failure(instance.rejected_for),
        "attempt": instance.attempt,
        "step": instance.step,
        "failure": _failure(instance.failure),
        "updated_at": instance.updated_at.isoformat(),
        "next_at": _moment(instance.next_at),
        "unhealthy": None if instance.unhealthy is None else _unhealthy(instance.unhealthy),
        "steps_lost": report.steps_lost,
        "since": _moment(report.since),
        "remark": report.reason,
        "replaces": report.replaces,
    }


def _read_restated(body: Json) -> InstanceSnapshot:
    instance = Instance(
        deployment_id=DeploymentId(text(body["deployment_id"])),
        node_id=NodeId(text(body["node_id"])),
        incarnation=Incarnation(whole(body["incarnation"])),
        state=State(body["state"]),
        version=0,
        generation=Generation(whole(body["generation"])),
        revision=_digest(body["revision"]),
        running_revision=_digest(body["running_revision"]),
        attempt=whole(body["attempt"]),
        step=text(body["step"]),
        failure=_read_failure(body["failure"]),
        updated_at=moment(body["updated_at"]),
        rejected_revision=_digest(body["rejected_revision"]),
        next_at=maybe_moment(body["next_at"]),
        unhealthy=_read_unhealthy(body.get("unhealthy")),
        rejected_for=_read_failure(body.get("rejected_for")),
    )
    return InstanceSnapshot(
        instance,
        whole(body["steps_lost"]),
        maybe_moment(body["since"]),
        reason=text(body.get("remark", "")),
        replaces=bool(body.get("replaces", False)),
    )


def encode_rolled_back(item: RecordedRollback) -> dict[str, Any]:
    return {
        "deployment_id": item.deployment_id,
        "node_id": item.node_id,
        "revision": item.revision,
        "good_revision": item.good_revision,
        "failure": _failure(item.failure),
    }


def decode_rolled_back(bodies: object) -> tuple[RecordedRollback, ...]:
    """What can be read of them; a central of an earlier release sends none."""
    found = []
    for body in bodies if isinstance(bodies, list) else ():
        with suppress(InvalidInput, ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            found.append(
                RecordedRollback(
                    DeploymentId(text(body["deployment_id"])),
                    NodeId(text(body["node_id"])),
                    Digest(text(body["revision"])),
                    Digest(text(body["good_revision"])),
                    _read_failure(body.get("failure")),
                )
            )
    return tuple(found)


def _plan_set_aside(report: PlanSetAside) -> dict[str, Any]:
    return {"deployment_id": report.deployment_id, "why": report.why, "at": report.at.isoformat()}


def _read_plan_set_aside(body: Json) -> PlanSetAside:
    why = None if body["why"] is None else text(body["why"])
    return PlanSetAside(DeploymentId(text(body["deployment_id"])), why, moment(body["at"]))


def _failure(failure: Failure | None) -> dict[str, str] | None:
    if failure is None:
        return None
    return {"code": failure.code, "message": failure.message, "source": failure.source}


def _read_failure(body: Json | None) -> Failure | None:
    return None if body is None else Failure(text(body["code"]), text(body["message"]), text(body["source"]))


def _unhealthy(unhealthy: Unhealthy) -> dict[str, str]:
    return {"since": unhealthy.since.isoformat(), "why": unhealthy.why}


def _read_unhealthy(body: Json | None) -> Unhealthy | None:
    return None if body is None else Unhealthy(moment(body["since"]), text(body["why"]))


def _protocol(body: Json) -> PeerProtocol:
    features = body.get("features", ())
    return PeerProtocol.said(body.get("protocol"), features if isinstance(features, list) else ())


def _maybe_bool(value: object) -> bool | None:
    if value is not None and not isinstance(value, bool):
        raise TypeError(f"{value!r} is neither true nor false")
    return value


def _moment(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()


def _digest(value: object) -> Digest | None:
    return None if value is None else Digest(text(value))


_WRITERS: Final[Mapping[type, tuple[str, Callable[[Any], dict[str, Any]]]]] = {
    Transition: ("transition", _transition),
    Progressed: ("progressed", _progressed),
    Synced: ("synced", _synced),
    SyncFailed: ("sync-failed", lambda report: {"message": report.message}),
    NodeChanged: ("node-changed", lambda report: {"node": _node(report.node)}),
    NodeNoticed: ("node-noticed", _noticed),
    NodeGone: ("node-gone", lambda report: {"node_id": report.node_id}),
    Pinned: ("pinned", lambda report: _pin(report.pin)),
    Resync: ("restating", _restating),
    InstanceSnapshot: ("restated", _restated),
    PlanSetAside: ("plan-set-aside", _plan_set_aside),
    HoldsChanged: ("holds-changed", lambda report: {"holds": [encode_hold(hold) for hold in report.holds]}),
}

_READERS: Final[Mapping[str, Callable[[Json], Report]]] = {
    "transition": _read_transition,
    "progressed": _read_progressed,
    "synced": _read_synced,
    "sync-failed": lambda body: SyncFailed(text(body["message"])),
    "node-changed": lambda body: NodeChanged(_read_node(body["node"])),
    "pinned": lambda body: Pinned(_read_pin(body)),
    "holds-changed": lambda body: HoldsChanged(tuple(_read_hold(item) for item in body["holds"])),
    "restating": _read_restating,
    "restated": _read_restated,
    "plan-set-aside": _read_plan_set_aside,
    "node-noticed": _read_noticed,
    "node-gone": lambda body: NodeGone(node_id(body["node_id"])),
}
