"""The capabilities of a node, one line each. Deployments are built in."""

from typing import Final

from homeport.capability.node import NodeCapability
from homeport.jobs.node.capability import JOBS
from homeport.models.node.capability import NODE_MODELS
from homeport.telemetry.node.capability import TELEMETRY_AT_NODE
from homeport.tunnel.node.capability import TUNNEL

CAPABILITIES: Final[tuple[NodeCapability, ...]] = (JOBS, NODE_MODELS, TELEMETRY_AT_NODE, TUNNEL)
