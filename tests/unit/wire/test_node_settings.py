"""Settings on the way to a node: what it does not know is refused, and never ends it."""

from homeport.core.model.node import Tunable
from homeport.ports import Unreadable, Welcome
from homeport.wire.nodes import to_node_from_proto
from homeport.wire.v1 import nodes_pb2 as pb


def test_settings_with_an_unknown_log_level_are_unreadable() -> None:
    found = to_node_from_proto(pb.ToNode(tunable=pb.Tunable(log_level="verbose")))
    assert isinstance(found, Unreadable) and "log_level" in found.why


def test_a_welcome_with_unknown_settings_is_a_welcome_without_settings() -> None:
    found = to_node_from_proto(pb.ToNode(welcome=pb.Welcome(site="home", tunable=pb.Tunable(log_level="verbose"))))
    assert isinstance(found, Welcome) and found.tunable == Tunable()
