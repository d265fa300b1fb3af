"""Converts the node messages of `orchion.v1` to and from the core's records."""

from typing import Any, Final

from homeport.core.inference.engines.gpus import GpusOfNode
from homeport.core.model.node import Capabilities, Node, NodeInfo
from homeport.core.node.registration import check_capabilities, check_registration, require_fields
from homeport.ports import Sample
from homeport.vocabulary import NodeId
from homeport.wire.orchion.texts import Measured, Texts, capabilities_of, measured_of, samples_of, texts_of
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


def samples_from_proto(message: PbMessage) -> tuple[Sample, ...]:
    """What an agent has measured of its GPU."""
    power = message.gpu_power_usage or message.power_usage
    return samples_of(
        Measured(message.gpu_vram_used, message.gpu_vram_available, message.gpu_temperature, power),
        total=message.gpu_vram_total,
    )


def node_to_proto(node: Node, gpus: GpusOfNode) -> PbMessage:
    """With what was measured lately of its GPUs."""
    texts, measured = texts_of(node.info.capabilities), measured_of(gpus)
    return pb.Node(
        id=node.id,
        hostname=node.info.hostname,
        capabilities=pb.Capabilities(
            cpu=texts.cpu,
            memory=texts.memory,
            os=texts.os,
            gpu_type=texts.gpu_type,
            gpu_vram_total=texts.gpu_vram_total,
            gpu_vram_available=measured.vram_available,
            power_usage=measured.power,
            gpu_vram_used=measured.vram_used,
            gpu_temperature=measured.temperature,
            gpu_power_usage=measured.power,
        ),
        last_seen_unix=int(node.last_seen.timestamp()),
        agent_address=node.info.agent_address,
    )


def _capabilities(message: PbMessage) -> Capabilities:
    return capabilities_of(
        Texts(message.cpu, message.memory, message.os, message.gpu_type, message.gpu_vram_total),
    )
