"""Messages from central to a site survive the way, also between versions."""

from datetime import UTC, datetime
from typing import get_args

import pytest

from homeport.core.model.deployment import Hold
from homeport.core.model.identity import IdentityKind, JoinToken
from homeport.core.model.node import Tunable
from homeport.ports import (
    Addressed,
    Ask,
    DrainNode,
    ExpectNode,
    FromCentral,
    LiftHold,
    Moved,
    NodeIdentities,
    RemoveNode,
    Request,
    Restate,
    RollBack,
    SecretsChanged,
    SetHold,
    TuneNode,
    UnknownRequest,
)
from homeport.vocabulary import Commit, DeploymentId, Digest, NodeId, SiteName
from homeport.wire.site_messages import decode, encode

AT = datetime(2030, 1, 1, tzinfo=UTC)
ALL: list[FromCentral] = [
    Moved(Commit("c" * 40)),
    RemoveNode(NodeId("pi")),
    SecretsChanged(),
    ExpectNode(JoinToken("id", IdentityKind.NODE, SiteName("home"), "hash", AT, "ada", AT)),
    DrainNode(NodeId("pi"), "new disk"),
    DrainNode(NodeId("pi"), None),
    TuneNode(NodeId("pi"), Tunable(10.0, {"room": "attic"}, "debug")),
    SetHold(Hold(SiteName("home"), None, "holiday", "ada", AT, AT)),
    LiftHold(None, "ada"),
    LiftHold(DeploymentId("d"), "ada"),
    Restate((DeploymentId("d"), DeploymentId("e"))),
    RollBack(DeploymentId("d"), Digest("sha256:1"), "broken", "ada"),
    RollBack(DeploymentId("d"), Digest("sha256:1"), "broken", "ada", Digest("sha256:2"), Commit("c")),
    NodeIdentities("q", "approve", "pi", "ada"),
    Ask("logs", {"tail": 5}),
]


def test_the_list_above_has_every_kind() -> None:
    assert {type(message) for message in ALL} == {Moved, *get_args(Request)}


@pytest.mark.parametrize("message", ALL, ids=repr)
def test_a_message_arrives_as_it_was_sent(message: FromCentral) -> None:
    assert decode(encode(message)) == message


@pytest.mark.parametrize("message", [each for each in ALL if not isinstance(each, Ask)], ids=repr)
def test_fields_of_a_newer_central_are_passed_over(message: FromCentral) -> None:
    data = {
        name: {**value, "new": 1} if isinstance(value, dict) else value for name, value in encode(message).items()
    }
    assert decode({**data, "since_version": 9}) == message


NEWER = TuneNode | Restate | Ask


@pytest.mark.parametrize("message", [each for each in ALL if not isinstance(each, NEWER)], ids=repr)
def test_a_central_from_before_kinds_is_understood(message: FromCentral) -> None:
    assert decode({name: value for name, value in encode(message).items() if name != "kind"}) == message


@pytest.mark.parametrize("message", [each for each in ALL if not isinstance(each, Moved | NodeIdentities)], ids=repr)
def test_a_request_with_an_address_for_its_answer_keeps_it(message: Request) -> None:
    assert decode(encode(Addressed(message, "r-1"))) == Addressed(message, "r-1")


@pytest.mark.parametrize(
    "data", [{}, {"kind": "dance"}, {"kind": "roll-back"}, {"kind": "hold", "hold": 7}, {"kind": 1}]
)
def test_what_is_unknown_or_not_whole_is_refused_where_it_came_from(data: dict[str, object]) -> None:
    for field in ("reply_to", "question"):
        found = decode({**data, field: "r-1"}) if "kind" in data or field == "reply_to" else None
        if found is not None:
            assert isinstance(found, UnknownRequest)
            assert found.reply_to == "r-1"
