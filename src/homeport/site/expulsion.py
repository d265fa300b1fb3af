"""Disconnects a node whose identity was removed: its stream ends, and it shows as lost, from this moment on."""

from homeport.core.model.identity import IdentityRecord
from homeport.fleet.site.conductor import Conductor
from homeport.fleet.site.nodes.streams import NodeSessions
from homeport.vocabulary import NodeId


async def evict(record: IdentityRecord, sessions: NodeSessions, conductor: Conductor) -> None:
    node_id = NodeId(record.name)
    sessions.evict(node_id, "the node's identity was removed")
    await conductor.distrust(node_id)
