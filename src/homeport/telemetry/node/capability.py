"""Telemetry at a node: one loop that measures and sends. Nothing is kept here but what waits for the site."""

from typing import Final

from homeport.capability.node import NodeCapability, NodePart, NodePlatform
from homeport.telemetry.node.collector import MeasurementCollector


def _part(node: NodePlatform) -> NodePart:
    return NodePart(loops=(MeasurementCollector(node).run,) if node.telemetry_seconds else ())


TELEMETRY_AT_NODE: Final = NodeCapability("telemetry", _part)
