"""Encodes what a site tells central as plain JSON objects, and reads them back.

The encoded form lives in the site's outbox across upgrades, so fields are added, never changed in meaning.
"""

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

from homeport.core.model.deployment import Hold, Pin
from homeport.core.model.instance import Failure, Instance, Transition
from homeport.core.model.node import Capabilities, Gpu, Node, NodeInfo
from homeport.core.model.order import Progress
from homeport.core.model.report import (
    FileProblem,
    HoldsChanged,
    NodeChanged,
    NodeGone,
    Pinned,
    Progressed,
    Report,
    Restated,
    Restating,
    Synced,
    SyncFailed,
)
from homeport.errors import InvalidInput, Problem
from homeport.vocabulary import (
    NODE_ID_PATTERN,
    Actor,
    Commit,
    DeploymentId,
    Digest,
    Generation,
    Happening,
    Incarnation,
    Liveness,
    NodeId,
    ProfileType,
    SiteName,
    State,
    Step,
)

Json = Mapping[str, Any]


def encode(report: Report) -> dict[str, Any]:
    kind, write = _WRITERS[type(report)]
    return {"kind": kind, **write(report)}


def decode(body: Json) -> Report:
    """Raises InvalidInput for anything that `encode` would not have written."""
    read = _READERS.get(str(body.get("kind")))
    if read is None:
        raise InvalidInput(problems=[Problem("kind", f"{body.get('kind')!r} is no kind of report")])
    try:
        return read(body)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidInput(problems=[Problem(str(body["kind"]), f"cannot be read: {error!r}")]) from error


def _transition(transition: Transition) -> dict[str, Any]:
    return {
        "deployment_id": transition.deployment_id,
        "node_id": transition.node_id,
        "incarnation": transition.incarnation,
        "happening": transition.happening.value,
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
        deployment_id=DeploymentId(_text(body["deployment_id"])),
        node_id=NodeId(_text(body["node_id"])),
        incarnation=Incarnation(_number(body["incarnation"])),
        happening=Happening(body["happening"]),
        actor=Actor(body["actor"]),
        reason=_text(body["reason"]),
        at=_time(body["at"]),
        generation=Generation(_number(body["generation"])),
        revision=_digest(body["revision"]),
        failure=_read_failure(body["failure"]),
        next_at=_maybe_time(body.get("next_at")),
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
    }


def _read_progressed(body: Json) -> Progressed:
    return Progressed(
        NodeId(_text(body["node_id"])),
        Progress(
            deployment_id=DeploymentId(_text(body["deployment_id"])),
            generation=Generation(_number(body["generation"])),
            step=Step(body["step"]),
            component=_text(body["component"]),
            message=_text(body["message"]),
            at=_time(body["at"]),
            bytes_done=_number(body["bytes_done"]),
            bytes_total=_number(body["bytes_total"]),
        ),
    )


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
        commit=Commit(_text(body["commit"])),
        deployment_ids=tuple(DeploymentId(_text(item)) for item in body["deployment_ids"]),
        problems=tuple(
            FileProblem(
                path=_text(item["path"]),
                message=_text(item["message"]),
                deployment_id=None if item["deployment_id"] is None else DeploymentId(_text(item["deployment_id"])),
                line=None if item["line"] is None else _number(item["line"]),
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
        "site": node.site,
        "liveness": node.liveness.value,
        "last_seen": node.last_seen.isoformat(),
        "registered_at": node.registered_at.isoformat(),
        "drain": node.drain,
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
        cpu_cores=_number(given["cpu_cores"]),
        memory_bytes=_number(given["memory_bytes"]),
        disk_bytes=_number(given["disk_bytes"]),
        disk_free_bytes=_number(given["disk_free_bytes"]),
        os=_text(given["os"]),
        architecture=_text(given["architecture"]),
        engine=_text(given["engine"]),
        engine_version=_text(given["engine_version"]),
        profile_types=tuple(ProfileType(kind) for kind in given["profile_types"]),
        gpus=tuple(
            Gpu(_text(gpu["model"]), _text(gpu["manufacturer"]), _number(gpu["memory_bytes"]))
            for gpu in given["gpus"]
        ),
    )
    info = NodeInfo(
        id=_node_id(body["id"]),
        hostname=_text(body["hostname"]),
        capabilities=capabilities,
        labels={_text(key): _text(value) for key, value in body["labels"].items()},
        software_version=_text(body["software_version"]),
    )
    return Node(
        info=info,
        site=SiteName(_text(body["site"])),
        liveness=Liveness(body["liveness"]),
        last_seen=_time(body["last_seen"]),
        registered_at=_time(body["registered_at"]),
        drain=None if body.get("drain") is None else _text(body["drain"]),
    )


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
        deployment_id=DeploymentId(_text(body["deployment_id"])),
        revision=Digest(_text(body["revision"])),
        content=_text(body["content"]).encode(),
        over=Digest(_text(body["over"])),
        reason=_text(body["reason"]),
        author=_text(body["author"]),
        at=_time(body["at"]),
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
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInput(problems=[Problem("hold", f"cannot be read: {error!r}")]) from error


def _read_hold(body: Json) -> Hold:
    return Hold(
        site=SiteName(_text(body["site"])),
        deployment_id=None if body["deployment_id"] is None else DeploymentId(_text(body["deployment_id"])),
        reason=_text(body["reason"]),
        author=_text(body["author"]),
        at=_time(body["at"]),
        expires_at=_time(body["expires_at"]),
    )


def _restating(report: Restating) -> dict[str, Any]:
    return {
        "why": report.why,
        "nodes": list(report.nodes),
        "instances": [list(key) for key in report.instances],
        "reports_lost": report.reports_lost,
        "since": _moment(report.since),
    }


def _read_restating(body: Json) -> Restating:
    return Restating(
        why=_text(body["why"]),
        nodes=tuple(NodeId(_text(item)) for item in body["nodes"]),
        instances=tuple((DeploymentId(_text(item)), NodeId(_text(node))) for item, node in body["instances"]),
        reports_lost=_number(body["reports_lost"]),
        since=_maybe_time(body["since"]),
    )


def _restated(report: Restated) -> dict[str, Any]:
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
        "attempt": instance.attempt,
        "step": instance.step,
        "failure": _failure(instance.failure),
        "updated_at": instance.updated_at.isoformat(),
        "next_at": _moment(instance.next_at),
        "steps_lost": report.steps_lost,
        "since": _moment(report.since),
    }


def _read_restated(body: Json) -> Restated:
    instance = Instance(
        deployment_id=DeploymentId(_text(body["deployment_id"])),
        node_id=NodeId(_text(body["node_id"])),
        incarnation=Incarnation(_number(body["incarnation"])),
        state=State(body["state"]),
        version=0,
        generation=Generation(_number(body["generation"])),
        revision=_digest(body["revision"]),
        running_revision=_digest(body["running_revision"]),
        attempt=_number(body["attempt"]),
        step=_text(body["step"]),
        failure=_read_failure(body["failure"]),
        updated_at=_time(body["updated_at"]),
        rejected_revision=_digest(body["rejected_revision"]),
        next_at=_maybe_time(body["next_at"]),
    )
    return Restated(instance, _number(body["steps_lost"]), _maybe_time(body["since"]))


def _failure(failure: Failure | None) -> dict[str, str] | None:
    if failure is None:
        return None
    return {"code": failure.code, "message": failure.message, "source": failure.source}


def _read_failure(body: Json | None) -> Failure | None:
    return None if body is None else Failure(_text(body["code"]), _text(body["message"]), _text(body["source"]))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text")
    return value


def _node_id(value: object) -> NodeId:
    """Of a node that is there, or was: only what could not be placed has none."""
    if not re.fullmatch(NODE_ID_PATTERN, _text(value)):
        raise ValueError(f"{value!r} is not a node's id")
    return NodeId(_text(value))


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{value!r} is not a whole number")
    return value


def _time(value: object) -> datetime:
    at = datetime.fromisoformat(_text(value))
    if at.tzinfo is None:
        raise ValueError(f"{value!r} has no time zone")
    return at


def _maybe_time(value: object) -> datetime | None:
    return None if value is None else _time(value)


def _moment(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()


def _digest(value: object) -> Digest | None:
    return None if value is None else Digest(_text(value))


_WRITERS: Final[Mapping[type, tuple[str, Callable[[Any], dict[str, Any]]]]] = {
    Transition: ("transition", _transition),
    Progressed: ("progressed", _progressed),
    Synced: ("synced", _synced),
    SyncFailed: ("sync-failed", lambda report: {"message": report.message}),
    NodeChanged: ("node-changed", lambda report: {"node": _node(report.node)}),
    NodeGone: ("node-gone", lambda report: {"node_id": report.node_id}),
    Pinned: ("pinned", lambda report: _pin(report.pin)),
    Restating: ("restating", _restating),
    Restated: ("restated", _restated),
    HoldsChanged: ("holds-changed", lambda report: {"holds": [encode_hold(hold) for hold in report.holds]}),
}

_READERS: Final[Mapping[str, Callable[[Json], Report]]] = {
    "transition": _read_transition,
    "progressed": _read_progressed,
    "synced": _read_synced,
    "sync-failed": lambda body: SyncFailed(_text(body["message"])),
    "node-changed": lambda body: NodeChanged(_read_node(body["node"])),
    "pinned": lambda body: Pinned(_read_pin(body)),
    "holds-changed": lambda body: HoldsChanged(tuple(_read_hold(item) for item in body["holds"])),
    "restating": _read_restating,
    "restated": _read_restated,
    "node-gone": lambda body: NodeGone(_node_id(body["node_id"])),
}
