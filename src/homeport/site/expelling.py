"""Sends a node away whose identity was removed: its stream ends, and it shows as gone, from this moment on."""

from homeport.core.model.identity import IdentityRecord
from homeport.fleet.conductor import Conductor
from homeport.fleet.sessions import Sessions
from homeport.vocabulary import NodeId


async def expel(record: IdentityRecord, sessions: Sessions, conductor: Conductor) -> None:
    node_id = NodeId(record.name)
    sessions.expel(node_id, "the node's identity was removed")
    await conductor.disbelieve(node_id)
