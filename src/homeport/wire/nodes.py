"""Converts the messages of `homeport.v1.Nodes` to and from the core's records. Nothing here decides anything,
except that a message without a required part is refused by name.
"""

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

from homeport.core.model.deployment import ComponentSpec, Release
from homeport.core.model.instance import Failure
from homeport.core.model.node import Capabilities, Gpu, Node, NodeInfo
from homeport.core.model.order import Held, Order, Progress, Result
from homeport.errors import InvalidInput, Problem
from homeport.ports import Acknowledged, Beat, Farewell, FromNode, Hello, News, ToNode, Welcome
from homeport.vocabulary import (
    NODE_ID_PATTERN,
    DeploymentId,
    Digest,
    Generation,
    NodeId,
    OrderKind,
    ProfileType,
    SiteName,
    Step,
)
from homeport.wire.v1 import nodes_pb2 as pb

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

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
    )


def node_to_proto(node: Node) -> PbMessage:
    message = node_info_to_proto(node.info)
    message.last_seen_ms = _to_ms(node.last_seen)
    message.liveness = node.liveness.value
    message.site = node.site
    return message


def node_info_from_proto(message: PbMessage) -> NodeInfo:
    if not message.id:
        raise InvalidInput(problems=[Problem("node.id", "is missing")])
    if not re.match(NODE_ID_PATTERN, message.id):
        raise InvalidInput(
            problems=[Problem("node.id", "may hold letters, digits, dots, dashes and underscores only")]
        )
    if not message.HasField("capabilities"):
        raise InvalidInput(problems=[Problem("node.capabilities", "are missing")])
    return NodeInfo(
        id=NodeId(message.id),
        hostname=message.hostname,
        capabilities=capabilities_from_proto(message.capabilities),
        labels=dict(message.labels),
        software_version=message.software_version,
    )


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
                timeout_seconds=part.timeout_seconds,
                extensions=json.loads(part.extensions_json or "{}"),
                secrets=dict(part.secrets),
                secret_values=dict(part.secret_values),
            )
            for part in message.components
        ),
    )


def order_to_proto(order: Order) -> PbMessage:
    return pb.Order(
        generation=order.generation,
        deployment_id=order.deployment_id,
        kind=order.kind.value,
        release=None if order.release is None else release_to_proto(order.release),
        remove_images=order.remove_images,
        reason=order.reason,
        limit_seconds=order.limit_seconds,
        traceparent=order.traceparent,
    )


def order_from_proto(message: PbMessage) -> Order:
    return Order(
        generation=Generation(message.generation),
        deployment_id=DeploymentId(message.deployment_id),
        kind=OrderKind(message.kind),
        release=release_from_proto(message.release) if message.HasField("release") else None,
        remove_images=message.remove_images,
        reason=message.reason,
        limit_seconds=message.limit_seconds,
        traceparent=message.traceparent,
    )


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
                ),
            )
        case Result() as result:
            return pb.News(
                sequence=news.sequence,
                result=pb.Result(
                    deployment_id=result.deployment_id,
                    generation=result.generation,
                    kind=result.kind.value,
                    succeeded=result.succeeded,
                    at_ms=_to_ms(result.at),
                    failure=None
                    if result.failure is None
                    else pb.Failure(
                        code=result.failure.code, message=result.failure.message, source=result.failure.source
                    ),
                    deleted=result.deleted,
                    exit_code=result.exit_code,
                    release_runs=result.release_runs,
                ),
            )


def news_from_proto(message: PbMessage) -> News:
    if message.WhichOneof("news") == "progress":
        part = message.progress
        return News(
            message.sequence,
            Progress(
                deployment_id=DeploymentId(part.deployment_id),
                generation=Generation(part.generation),
                step=Step(part.step),
                component=part.component,
                message=part.message,
                at=_from_ms(part.at_ms),
                bytes_done=part.bytes_done,
                bytes_total=part.bytes_total,
            ),
        )
    part = message.result
    return News(
        message.sequence,
        Result(
            deployment_id=DeploymentId(part.deployment_id),
            generation=Generation(part.generation),
            kind=OrderKind(part.kind),
            succeeded=part.succeeded,
            at=_from_ms(part.at_ms),
            failure=Failure(part.failure.code, part.failure.message, part.failure.source)
            if part.HasField("failure")
            else None,
            deleted=part.deleted,
            exit_code=part.exit_code,
            release_runs=part.release_runs,
        ),
    )


# --- the stream -------------------------------------------------------------------------------------------


def from_node_to_proto(message: FromNode) -> PbMessage:
    match message:
        case Hello():
            held = [
                pb.Held(
                    deployment_id=item.deployment_id,
                    generation=item.generation,
                    kind=item.kind.value,
                    revision=item.revision or "",
                    done=item.done,
                )
                for item in message.held
            ]
            return pb.FromNode(hello=pb.Hello(node=node_info_to_proto(message.info), held=held))
        case Beat():
            return pb.FromNode(beat=pb.Beat())
        case News():
            return pb.FromNode(news=news_to_proto(message))


def from_node_from_proto(message: PbMessage) -> FromNode:
    match message.WhichOneof("message"):
        case "hello":
            held = tuple(
                Held(
                    deployment_id=DeploymentId(item.deployment_id),
                    generation=Generation(item.generation),
                    kind=OrderKind(item.kind),
                    revision=Digest(item.revision) if item.revision else None,
                    done=item.done,
                )
                for item in message.hello.held
            )
            return Hello(node_info_from_proto(message.hello.node), held)
        case "beat":
            return Beat()
        case "news":
            return news_from_proto(message.news)
        case _:
            raise InvalidInput(problems=[Problem("message", "is neither hello, beat nor news")])


def to_node_to_proto(message: ToNode) -> PbMessage:
    match message:
        case Welcome():
            return pb.ToNode(welcome=pb.Welcome(site=message.site, heartbeat_seconds=message.heartbeat_seconds))
        case Order():
            return pb.ToNode(order=order_to_proto(message))
        case Acknowledged():
            return pb.ToNode(acknowledged=pb.Acknowledged(sequence=message.sequence))
        case Farewell():
            return pb.ToNode(farewell=pb.Farewell(reason=message.reason))


def to_node_from_proto(message: PbMessage) -> ToNode:
    match message.WhichOneof("message"):
        case "welcome":
            return Welcome(SiteName(message.welcome.site), message.welcome.heartbeat_seconds)
        case "order":
            return order_from_proto(message.order)
        case "acknowledged":
            return Acknowledged(message.acknowledged.sequence)
        case "farewell":
            return Farewell(message.farewell.reason)
        case _:
            raise InvalidInput(problems=[Problem("message", "is none that a node understands")])


def _to_ms(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(milliseconds=1)


def _from_ms(milliseconds: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=milliseconds)
