"""Converts the messages of `homeport.v1.Nodes` to and from the core's records. It makes no decisions,
except that a message without a required field is refused with the field's name.
"""

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final

from homeport.core.inference.engines.handoff import parse as parse_handoff
from homeport.core.inference.engines.handoff import to_data
from homeport.core.model.deployment import ComponentSpec, Release
from homeport.core.model.instance import Failure, Unhealthy
from homeport.core.model.node import Capabilities, Gpu, Node, NodeInfo, Tunable
from homeport.core.model.order import (
    DEPLOYMENT,
    WORK_KIND_PATTERN,
    Assignment,
    Held,
    Order,
    Progress,
    Rejection,
    Result,
)
from homeport.core.model.protocol import PeerProtocol
from homeport.core.node.registration import check_capabilities, check_registration, require_fields
from homeport.core.node.tuning import check_tunable
from homeport.errors import InvalidInput, Problem
from homeport.ports import (
    Acknowledged,
    Beat,
    EngineHandoffs,
    Farewell,
    FoundWorkloads,
    FromNode,
    Hello,
    LogLine,
    Logs,
    LogsStored,
    MessageRefusal,
    News,
    Notice,
    Orphans,
    Owned,
    Sample,
    Telemetry,
    ToNode,
    Unreadable,
    Welcome,
)
from homeport.vocabulary import (
    DeploymentId,
    Digest,
    Generation,
    NodeId,
    NoticeCode,
    OnUnhealthy,
    OrderKind,
    ProfileType,
    SiteName,
    Step,
)
from homeport.wire.v1 import nodes_pb2 as pb
from homeport.wire.values import whole

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
GENERATION_MAX: Final = 2**63 - 1
"""The maximum of a database integer."""
SECONDS_MAX: Final = 30 * 86_400.0
TEXT_LENGTH_MAX: Final = 1000
BOOT_ID_LENGTH_MAX: Final = 64
OWNED_MAX: Final = 1000
LINES_MAX: Final = 1000
BUFFER_LENGTH_MAX: Final = 64
SAMPLES_MAX: Final = 1000
REPLICAS_MAX: Final = 256
NETWORK_LENGTH_MAX: Final = 64

PbMessage = Any
"""The generated classes carry no usable types for the checker."""


# --- nodes ------------------------------------------------------------------------------------------------


def node_info_to_proto(info: NodeInfo) -> PbMessage:
    return pb.Node(
        id=info.id,
        hostname=info.hostname,
        capabilities=capabilities_to_proto(info.capabilities),
        labels=dict(info.labels),
        software_version=info.software_version,
        protocol=info.protocol.version,
        features=info.protocol.features,
        agent_address=info.agent_address,
    )


def node_to_proto(node: Node) -> PbMessage:
    message = node_info_to_proto(node.info)
    message.last_seen_ms = _to_ms(node.last_seen)
    message.liveness = node.liveness.value
    message.site = node.site
    return message


def node_info_from_proto(message: PbMessage) -> NodeInfo:
    """Raises InvalidInput that names each wrong field."""
    require_fields(
        ("node.id", message.id, "is missing"), ("node.capabilities", message.HasField("capabilities"), "are missing")
    )
    info = NodeInfo(
        id=NodeId(message.id),
        hostname=message.hostname,
        capabilities=capabilities_from_proto(message.capabilities),
        labels=dict(message.labels),
        software_version=message.software_version,
        protocol=PeerProtocol.said(message.protocol, message.features),
        agent_address=message.agent_address,
    )
    check_registration(info)
    return info


def capabilities_to_proto(capabilities: Capabilities) -> PbMessage:
    return pb.Capabilities(
        cpu_cores=capabilities.cpu_cores,
        memory_bytes=capabilities.memory_bytes,
        disk_bytes=capabilities.disk_bytes,
        disk_free_bytes=capabilities.disk_free_bytes,
        os=capabilities.os,
        architecture=capabilities.architecture,
        engine=capabilities.engine,
        engine_version=capabilities.engine_version,
        profile_types=[kind.value for kind in capabilities.profile_types],
        gpus=[
            pb.Gpu(model=gpu.model, manufacturer=gpu.manufacturer, memory_bytes=gpu.memory_bytes)
            for gpu in capabilities.gpus
        ],
    )


def checked_capabilities(message: PbMessage) -> Capabilities:
    """Raises InvalidInput that names each wrong field."""
    found = capabilities_from_proto(message)
    check_capabilities(found)
    return found


def capabilities_from_proto(message: PbMessage) -> Capabilities:
    return Capabilities(
        cpu_cores=message.cpu_cores,
        memory_bytes=message.memory_bytes,
        disk_bytes=message.disk_bytes,
        disk_free_bytes=message.disk_free_bytes,
        os=message.os,
        architecture=message.architecture,
        engine=message.engine,
        engine_version=message.engine_version,
        profile_types=tuple(ProfileType(kind) for kind in message.profile_types if kind in set(ProfileType)),
        gpus=tuple(Gpu(gpu.model, gpu.manufacturer, gpu.memory_bytes) for gpu in message.gpus),
    )


# --- orders and releases ----------------------------------------------------------------------------------


def release_to_proto(release: Release) -> PbMessage:
    return pb.Release(
        deployment_id=release.deployment_id,
        name=release.name,
        revision=release.revision,
        app_version=release.app_version,
        components=[
            pb.Component(
                name=part.name,
                type=part.type.value,
                repository=part.repository,
                revision=part.revision,
                environment=dict(part.environment),
                wait=part.wait,
                timeout_seconds=part.timeout_seconds,
                extensions_json=json.dumps(part.extensions),
                secrets=dict(part.secrets),
                secret_values=dict(part.secret_values),
            )
            for part in release.components
        ],
    )


def release_from_proto(message: PbMessage) -> Release:
    return Release(
        deployment_id=DeploymentId(message.deployment_id),
        name=message.name,
        revision=Digest(message.revision),
        app_version=message.app_version,
        components=tuple(
            ComponentSpec(
                name=part.name,
                type=ProfileType(part.type),
                repository=part.repository,
                revision=part.revision,
                environment=dict(part.environment),
                wait=part.wait,
                timeout_seconds=_seconds(part.timeout_seconds),
                extensions=_extensions(part.extensions_json),
                secrets=dict(part.secrets),
                secret_values=dict(part.secret_values),
            )
            for part in message.components
        ),
    )


def _extensions(text: str) -> dict[str, Any]:
    found = json.loads(text or "{}")
    if not isinstance(found, dict):
        raise InvalidInput(problems=[Problem("component.extensions_json", "is not an object")])
    return found


def order_to_proto(order: Order) -> PbMessage:
    return pb.Order(
        generation=order.generation,
        deployment_id=order.deployment_id,
        kind=order.kind.value,
        release=None if order.release is None else release_to_proto(order.release),
        remove_images=order.remove_images,
        remove_data_of=order.remove_data_of,
        reason=order.reason,
        limit_seconds=order.limit_seconds,
        traceparent=order.traceparent,
        on_unhealthy=order.on_unhealthy.value,
        rejection=_rejection_to_proto(order.rejection),
        work=_work_to_proto(order.work),
        content=order.content,
    )


def order_from_proto(message: PbMessage) -> Order:
    """Raises InvalidInput, ValueError and the like for an invalid order."""
    if not message.deployment_id:
        raise InvalidInput(problems=[Problem("order.deployment_id", "is missing")])
    work = _work_from_proto(message.work)
    if work == DEPLOYMENT and message.kind == OrderKind.APPLY and not message.HasField("release"):
        raise InvalidInput(problems=[Problem("order.release", "is missing")])
    if message.HasField("release") and message.release.deployment_id != message.deployment_id:
        raise InvalidInput(problems=[Problem("order.release", "is of another deployment")])
    return Order(
        generation=_generation(message.generation),
        deployment_id=DeploymentId(message.deployment_id),
        kind=OrderKind(message.kind),
        release=release_from_proto(message.release) if message.HasField("release") else None,
        remove_images=message.remove_images,
        remove_data_of=message.remove_data_of,
        reason=message.reason,
        limit_seconds=_seconds(message.limit_seconds),
        traceparent=message.traceparent,
        on_unhealthy=OnUnhealthy.REPORT if message.on_unhealthy == OnUnhealthy.REPORT else OnUnhealthy.RESTART,
        rejection=_rejection_from_proto(message),
        work=work,
        content=message.content,
    )


def _work_to_proto(kind: str) -> str:
    """Empty for a deployment: older versions know no other kind."""
    return "" if kind == DEPLOYMENT else kind


def _work_from_proto(kind: str) -> str:
    if kind and not re.fullmatch(WORK_KIND_PATTERN, kind):
        raise InvalidInput(problems=[Problem("work", "is not a kind of work")])
    return kind or DEPLOYMENT


def _rejection_to_proto(rejection: Rejection | None) -> PbMessage | None:
    if rejection is None:
        return None
    return pb.Rejection(revision=rejection.revision, failure=_failure_to_proto(rejection.failure))


def _rejection_from_proto(message: PbMessage) -> Rejection | None:
    """From an order, or from a node's journal entry."""
    if not message.HasField("rejection"):
        return None
    return Rejection(Digest(message.rejection.revision), _failure_from_proto(message.rejection))


def _failure_to_proto(failure: Failure | None) -> PbMessage | None:
    if failure is None:
        return None
    return pb.Failure(code=failure.code, message=failure.message, source=failure.source)


def _failure_from_proto(message: PbMessage) -> Failure | None:
    if not message.HasField("failure"):
        return None
    return Failure(message.failure.code, message.failure.message, message.failure.source)


# --- news -------------------------------------------------------------------------------------------------


def news_to_proto(news: News) -> PbMessage:
    match news.news:
        case Progress() as progress:
            return pb.News(
                sequence=news.sequence,
                progress=pb.Progress(
                    deployment_id=progress.deployment_id,
                    generation=progress.generation,
                    step=progress.step.value,
                    component=progress.component,
                    message=progress.message,
                    at_ms=_to_ms(progress.at),
                    bytes_done=progress.bytes_done,
                    bytes_total=progress.bytes_total,
                    healthy=progress.healthy,
                    work=_work_to_proto(progress.work),
                ),
            )
        case Unreadable():
            raise AssertionError("it is a placeholder for what was received, and is never sent")
        case Result() as result:
            return pb.News(
                sequence=news.sequence,
                result=pb.Result(
                    deployment_id=result.deployment_id,
                    generation=result.generation,
                    kind=result.kind.value,
                    succeeded=result.succeeded,
                    at_ms=_to_ms(result.at),
                    failure=_failure_to_proto(result.failure),
                    deleted=result.deleted,
                    exit_code=result.exit_code,
                    release_runs=result.release_runs,
                    work=_work_to_proto(result.work),
                    content=result.content,
                ),
            )


def news_from_proto(message: PbMessage) -> News:
    """Unreadable news keeps its sequence: it has to be acknowledged, or it would be sent again forever."""
    try:
        match message.WhichOneof("news"):
            case "progress":
                return News(message.sequence, _progress_from_proto(message.progress))
            case "result":
                return News(message.sequence, _result_from_proto(message.result))
            case _:
                return News(message.sequence, Unreadable("news", "this site does not know its kind", is_unknown=True))
    except Exception as error:  # noqa: BLE001 - one message must not end a stream
        # Only the bad message is set aside, and the stream continues.
        return News(message.sequence, Unreadable("news", _why(error)))


def _progress_from_proto(part: PbMessage) -> Progress:
    return Progress(
        deployment_id=DeploymentId(part.deployment_id),
        generation=_generation(part.generation),
        step=Step(part.step),
        component=part.component,
        message=part.message,
        at=_from_ms(part.at_ms),
        bytes_done=part.bytes_done,
        bytes_total=part.bytes_total,
        healthy=part.healthy if part.HasField("healthy") else None,
        work=_work_from_proto(part.work),
    )


def _result_from_proto(part: PbMessage) -> Result:
    return Result(
        deployment_id=DeploymentId(part.deployment_id),
        generation=_generation(part.generation),
        kind=OrderKind(part.kind),
        succeeded=part.succeeded,
        at=_from_ms(part.at_ms),
        failure=_failure_from_proto(part),
        deleted=part.deleted,
        exit_code=part.exit_code,
        release_runs=part.release_runs,
        work=_work_from_proto(part.work),
        content=part.content,
    )


# --- the stream -------------------------------------------------------------------------------------------


def from_node_to_proto(message: FromNode) -> PbMessage:  # noqa: PLR0911 - one for each kind
    match message:
        case Hello():
            held = [
                pb.Held(
                    deployment_id=item.deployment_id,
                    generation=item.generation,
                    kind=item.kind.value,
                    revision=item.revision or "",
                    done=item.done,
                    failed=item.failed,
                    unhealthy="" if item.unhealthy is None else item.unhealthy.why,
                    unhealthy_since_ms=0 if item.unhealthy is None else _to_ms(item.unhealthy.since),
                    good_revision=item.good_revision or "",
                    rejection=_rejection_to_proto(item.rejection),
                    work=_work_to_proto(item.work),
                )
                for item in message.held
            ]
            hello = pb.Hello(node=node_info_to_proto(message.info), held=held, boot_id=message.boot_id)
            return pb.FromNode(hello=hello)
        case Beat():
            return pb.FromNode(beat=pb.Beat())
        case News():
            return pb.FromNode(news=news_to_proto(message))
        case Notice():
            return pb.FromNode(notice=pb.Notice(code=message.code.value, message=message.message))
        case FoundWorkloads():
            return pb.FromNode(found=pb.Found(items=_owned_to_proto(message.items)))
        case Logs():
            return pb.FromNode(logs=_logs_to_proto(message))
        case Telemetry():
            return pb.FromNode(telemetry=_telemetry_to_proto(message))
        case EngineHandoffs():
            records = [json.dumps(to_data(handoff)) for handoff in message.handoffs[:REPLICAS_MAX]]
            return pb.FromNode(replicas=pb.Replicas(handoffs_json=records, network=message.network))
        case Unreadable():
            raise AssertionError("it is a placeholder for what was received, and is never sent")


def from_node_from_proto(message: PbMessage) -> FromNode:  # noqa: PLR0911 - one for each kind
    """Raises only for a bad hello, after which nothing can follow: any other unreadable message is Unreadable."""
    match message.WhichOneof("message"):
        case "hello":
            return Hello(
                node_info_from_proto(message.hello.node),
                tuple(held for item in message.hello.held if (held := _held_from_proto(item)) is not None),
                message.hello.boot_id[:BOOT_ID_LENGTH_MAX],
            )
        case "beat":
            return Beat()
        case "news":
            return news_from_proto(message.news)
        case "notice":
            known = message.notice.code in set(NoticeCode)
            code = NoticeCode(message.notice.code) if known else NoticeCode.MESSAGE_REFUSED
            return Notice(code, message.notice.message[:TEXT_LENGTH_MAX])
        case "found":
            return FoundWorkloads(_owned_from_proto(message.found.items))
        case "logs" | "telemetry" as kind:
            return _streamed_or_unreadable(kind, message)
        case "replicas":
            return _replicas(message.replicas)
        case _:
            return Unreadable("message", "this site does not know its kind", is_unknown=True)


def _logs_to_proto(logs: Logs) -> PbMessage:
    lines = []
    for at, source, level, text, fields, sequence in logs.lines[:LINES_MAX]:
        line: PbMessage = pb.LogLine(at_ms=_to_ms(at), source=source, level=level, text=text, sequence=sequence)
        if fields:  # An empty map costs more than the rest of the line.
            line.fields.update(fields)
        lines.append(line)
    return pb.Logs(lines=lines, dropped=logs.dropped, buffer=logs.buffer, previous=logs.previous)


def _telemetry_to_proto(telemetry: Telemetry) -> PbMessage:
    samples = [
        pb.Sample(name=sample.name, value=sample.value, labels=dict(sample.labels))
        for sample in telemetry.samples[:SAMPLES_MAX]
    ]
    return pb.Telemetry(at_ms=_to_ms(telemetry.at), samples=samples, dropped=telemetry.dropped)


def _streamed_or_unreadable(kind: str, message: PbMessage) -> Logs | Telemetry | Unreadable:
    try:
        if kind == "logs":
            lines = tuple(
                LogLine(
                    _from_ms(line.at_ms),
                    line.source,
                    line.level,
                    line.text,
                    dict(line.fields) if line.fields else {},  # copying an empty map costs a fifth of a line
                    whole(line.sequence),
                )
                for line in message.logs.lines[:LINES_MAX]
            )
            logs = message.logs
            return Logs(lines, logs.dropped, logs.buffer[:BUFFER_LENGTH_MAX], min(logs.previous, GENERATION_MAX))
        samples = tuple(
            Sample(sample.name, sample.value, dict(sample.labels))
            for sample in message.telemetry.samples[:SAMPLES_MAX]
        )
        return Telemetry(_from_ms(message.telemetry.at_ms), samples, message.telemetry.dropped)
    except (ValueError, OverflowError) as error:
        return Unreadable(kind, _why(error))


def _replicas(message: PbMessage) -> EngineHandoffs:
    """A record that cannot be read, as of an engine that only a newer version knows, harms itself alone."""
    found, unreadable = [], []
    for record in message.handoffs_json[:REPLICAS_MAX]:
        try:
            found.append(parse_handoff(json.loads(record)))
        except (ValueError, RecursionError, InvalidInput) as error:
            unreadable.append(_why(error))
    return EngineHandoffs(tuple(found), message.network[:NETWORK_LENGTH_MAX], tuple(unreadable))


def _tunable_to_proto(tunable: Tunable) -> PbMessage:
    return pb.Tunable(
        heartbeat_seconds=tunable.heartbeat_seconds,
        labels=dict(tunable.labels),
        log_level=tunable.log_level,
        telemetry_seconds=tunable.telemetry_seconds,
    )


def _tunable_or_unreadable(message: PbMessage) -> Tunable | Unreadable:
    tunable = Tunable(
        _seconds(message.heartbeat_seconds),
        dict(message.labels),
        message.log_level,
        _seconds(message.telemetry_seconds),
    )
    try:
        check_tunable(tunable)
    except InvalidInput as error:
        return Unreadable("tunable", _why(error))
    return tunable


def _owned_to_proto(items: Sequence[Owned]) -> list[PbMessage]:
    return [
        pb.Owned(node_id=item.node_id, deployment_id=item.deployment_id, component=item.component)
        for item in items[:OWNED_MAX]
    ]


def _owned_from_proto(items: Sequence[PbMessage]) -> tuple[Owned, ...]:
    return tuple(
        Owned(NodeId(item.node_id), DeploymentId(item.deployment_id), item.component) for item in items[:OWNED_MAX]
    )


def _held_from_proto(item: PbMessage) -> Held | None:
    """None for an entry that this site cannot have ordered: a newer version may have, and the rest still counts."""
    try:
        return Held(
            deployment_id=DeploymentId(item.deployment_id),
            generation=_generation(item.generation),
            kind=OrderKind(item.kind),
            revision=Digest(item.revision) if item.revision else None,
            done=item.done,
            failed=item.failed,
            unhealthy=Unhealthy(_from_ms(item.unhealthy_since_ms), item.unhealthy) if item.unhealthy else None,
            good_revision=Digest(item.good_revision) if item.good_revision else None,
            rejection=_rejection_from_proto(item),
            work=_work_from_proto(item.work),
        )
    except (InvalidInput, ValueError, OverflowError):
        return None


def to_node_to_proto(message: ToNode) -> PbMessage:  # noqa: PLR0911 - one for each kind
    match message:
        case Welcome():
            welcome = pb.Welcome(
                site=message.site,
                heartbeat_seconds=message.heartbeat_seconds,
                features=message.protocol.features,
                protocol=message.protocol.version,
                tunable=_tunable_to_proto(message.tunable),
                content_port=message.content_port,
            )
            return pb.ToNode(welcome=welcome)
        case Order():
            return pb.ToNode(order=order_to_proto(message))
        case Acknowledged():
            return pb.ToNode(acknowledged=pb.Acknowledged(sequence=message.sequence))
        case Farewell():
            return pb.ToNode(farewell=pb.Farewell(reason=message.reason))
        case Tunable():
            return pb.ToNode(tunable=_tunable_to_proto(message))
        case LogsStored():
            return pb.ToNode(logs_stored=pb.LogsStored(buffer=message.buffer, sequence=message.sequence))
        case Orphans():
            return pb.ToNode(orphans=pb.Orphans(items=_owned_to_proto(message.items)))
        case MessageRefusal():
            return pb.ToNode(refusal=pb.Refusal(what=message.what, why=message.why[:TEXT_LENGTH_MAX]))
        case Unreadable():
            raise AssertionError("it is a placeholder for what was received, and is never sent")


def to_node_from_proto(message: PbMessage) -> ToNode:  # noqa: PLR0911 - one for each kind
    """Never raises: an unreadable message is Unreadable."""
    match message.WhichOneof("message"):
        case "welcome":
            welcome = message.welcome
            protocol = PeerProtocol.said(welcome.protocol, welcome.features)
            tunable = _tunable_or_unreadable(welcome.tunable)
            return Welcome(
                SiteName(welcome.site),
                _seconds(welcome.heartbeat_seconds),
                protocol,
                # A site may know settings that this node does not; it is welcome all the same.
                Tunable() if isinstance(tunable, Unreadable) else tunable,
                content_port=welcome.content_port if 0 < welcome.content_port < 2**16 else 0,
            )
        case "order":
            return _order_or_unreadable(message.order)
        case "acknowledged":
            return Acknowledged(message.acknowledged.sequence)
        case "farewell":
            return Farewell(message.farewell.reason)
        case "tunable":
            return _tunable_or_unreadable(message.tunable)
        case "logs_stored":
            return LogsStored(message.logs_stored.buffer, min(message.logs_stored.sequence, GENERATION_MAX))
        case "orphans":
            return Orphans(_owned_from_proto(message.orphans.items))
        case "refusal":
            return MessageRefusal(message.refusal.what[:TEXT_LENGTH_MAX], message.refusal.why[:TEXT_LENGTH_MAX])
        case _:
            return Unreadable("message", "this node does not know its kind", is_unknown=True)


def _order_or_unreadable(message: PbMessage) -> Order | Unreadable:
    try:
        return order_from_proto(message)
    except Exception as error:  # noqa: BLE001 - one message must not end a stream
        # Only the bad order is refused, and the stream continues.
        if not message.deployment_id or not 0 < message.generation <= GENERATION_MAX:
            return Unreadable("order", _why(error))
        work = message.work if re.fullmatch(WORK_KIND_PATTERN, message.work) else DEPLOYMENT
        assignment = Assignment(work, message.deployment_id, Generation(message.generation))
        return Unreadable("order", _why(error), assignment)


def _why(error: Exception) -> str:
    return (str(error) if isinstance(error, InvalidInput) else f"{type(error).__name__}: {error}")[:TEXT_LENGTH_MAX]


def _generation(number: int) -> Generation:
    if not 0 < number <= GENERATION_MAX:
        raise InvalidInput(problems=[Problem("generation", f"{number} is out of range")])
    return Generation(number)


def _seconds(value: float) -> float:
    """A duration; 0 ("not specified") where it is implausible."""
    return value if 0 < value <= SECONDS_MAX else 0.0


def _to_ms(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(milliseconds=1)


@lru_cache(maxsize=256)
def _from_ms(milliseconds: int) -> datetime:
    """Cached, because many lines of a busy container have the same time."""
    return _EPOCH + timedelta(milliseconds=milliseconds)
