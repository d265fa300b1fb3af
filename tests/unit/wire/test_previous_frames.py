"""A frame of every kind that the previous release sends (`scripts/record-release`) is read, and nothing that it says
gets lost: what was read, sent on, says at least the same."""

import base64
import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
from google.protobuf.json_format import MessageToDict

from homeport.core.model.protocol import FIRST
from homeport.ports import Hello, News, UnknownRequest, Unreadable, Welcome
from homeport.wire import nodes, reports, site_messages
from homeport.wire.v1 import nodes_pb2 as pb
from tests.support.previous import RECORDED

PREVIOUS = json.loads((RECORDED / "frames.json").read_text())


def lost(said: Any, kept: Any, path: str = "") -> Iterator[str]:
    """Where `kept` says something else than `said`, or nothing."""
    if isinstance(said, Mapping) and isinstance(kept, Mapping):
        for name, value in said.items():
            yield from lost(value, kept.get(name), f"{path}.{name}")
    elif isinstance(said, list) and isinstance(kept, list) and len(said) == len(kept):
        for number, value in enumerate(said):
            yield from lost(value, kept[number], f"{path}[{number}]")
    elif said != kept and said not in (None, "", [], {}):
        yield f"{path}: {said!r} became {kept!r}"


def frames(name: str) -> list[Any]:
    return [pytest.param(each["frame"], id=each["kind"]) for each in PREVIOUS[name]]


@pytest.mark.parametrize("frame", frames("from_node"))
def test_a_message_of_an_older_node_is_read(frame: str) -> None:
    message = pb.FromNode.FromString(base64.b64decode(frame))
    read = nodes.from_node_from_proto(message)
    assert not isinstance(read, Unreadable)
    assert not (isinstance(read, News) and isinstance(read.news, Unreadable)), read
    if isinstance(read, Hello):
        assert read.info.protocol.version == FIRST
    assert list(lost(MessageToDict(message), MessageToDict(nodes.from_node_to_proto(read)))) == []


@pytest.mark.parametrize("frame", frames("to_node"))
def test_a_message_of_an_older_site_to_its_node_is_read(frame: str) -> None:
    message = pb.ToNode.FromString(base64.b64decode(frame))
    read = nodes.to_node_from_proto(message)
    assert not isinstance(read, Unreadable), read
    if isinstance(read, Welcome):
        assert (read.protocol.version, read.protocol.features) == (FIRST, ())
    assert list(lost(MessageToDict(message), MessageToDict(nodes.to_node_to_proto(read)))) == []


@pytest.mark.parametrize("body", [pytest.param(each, id=each["kind"]) for each in PREVIOUS["reports"]])
def test_a_report_of_an_older_site_is_read(body: dict[str, Any]) -> None:
    assert list(lost(body, json.loads(json.dumps(reports.encode(reports.decode(body)))))) == []


@pytest.mark.parametrize("data", PREVIOUS["from_central"], ids=lambda data: next(iter(data)))
def test_a_message_of_an_older_central_is_read(data: dict[str, Any]) -> None:
    read = site_messages.decode(data)
    assert not isinstance(read, UnknownRequest), read
    assert list(lost(data, json.loads(json.dumps(site_messages.encode(read))))) == []


def test_fields_keep_their_number_and_type() -> None:
    """What was removed stays reserved by never being given again; a new one has a new number."""
    before, now = FileDescriptorProto(), FileDescriptorProto()
    before.ParseFromString(base64.b64decode(PREVIOUS["shape"]))
    pb.DESCRIPTOR.CopyToProto(now)
    after = {message.name: shape(message) for message in now.message_type}
    for message in before.message_type:
        for number, kind in shape(message).items():
            assert after[message.name][number] == kind, f"field {number} of {message.name}"


def shape(message: DescriptorProto) -> dict[int, tuple[int, int, str]]:
    return {field.number: (field.type, field.label, field.type_name) for field in message.field}
