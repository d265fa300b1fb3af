"""The list of a node's engines, as its site reads it."""

import json

from homeport.ports import EngineHandoffs
from homeport.wire import nodes as convert
from homeport.wire.v1 import nodes_pb2 as pb

GOOD = {"engine": "llamacpp", "url": "http://127.0.0.1:8100", "model": {"id": "tiny"}}


def test_an_engine_that_only_a_newer_version_knows_hides_no_other() -> None:
    records = [json.dumps(GOOD), json.dumps({**GOOD, "engine": "abacus", "pool_id": "new"}), "{", "[" * 100_000]
    message = pb.FromNode(replicas=pb.Replicas(handoffs_json=records, network="n"))
    read = convert.from_node_from_proto(pb.FromNode.FromString(message.SerializeToString()))
    assert isinstance(read, EngineHandoffs)
    assert [each.model.id for each in read.handoffs] == ["tiny"]
    assert len(read.unreadable) == 3
    assert "engine" in read.unreadable[0]
