"""Converts the node messages of `orchion.v1` to and from the core's records."""

from typing import Any, Final

from homeport.core.model.node import Capabilities, Node, NodeInfo
from homeport.core.node.registration import check_capabilities, check_registration, require_fields
from homeport.vocabulary import NodeId
from homeport.wire.orchion.texts import Texts, capabilities_of, texts_of
from homeport.wire.orchion.v1 import orchestrator_pb2 as pb

SOFTWARE: Final = "orchion"
"""The software version of nodes that registered through this API."""

PbMessage = Any


def node_info_from_proto(message: PbMessage) -> NodeInfo:
    """Raises InvalidInput that names each wrong field."""
    require_fields(
        ("node.id", message.id, "is missing"), ("node.capabilities", message.HasField("capabilities"), "are missing")
    )
    info = NodeInfo(
        id=NodeId(message.id),
        hostname=message.hostname,
        capabilities=_capabilities(message.capabilities),
        software_version=SOFTWARE,
        agent_address=message.agent_address,
    )
    check_registration(info)
    return info


def capabilities_from_proto(message: PbMessage) -> Capabilities:
    found = _capabilities(message)
    check_capabilities(found)
    return found


def node_to_proto(node: Node) -> PbMessage:
    texts = texts_of(node.info.capabilities)
    return pb.Node(
        id=node.id,
        hostname=node.info.hostname,
        capabilities=pb.Capabilities(
            cpu=texts.cpu,
            memory=texts.memory,
            os=texts.os,
            gpu_type=texts.gpu_type,
            gpu_vram_total=texts.gpu_vram_total,
        ),
        last_seen_unix=int(node.last_seen.timestamp()),
        agent_address=node.info.agent_address,
    )


def _capabilities(message: PbMessage) -> Capabilities:
    return capabilities_of(
        Texts(message.cpu, message.memory, message.os, message.gpu_type, message.gpu_vram_total),
    )
