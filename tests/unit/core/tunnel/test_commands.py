"""A command on its way: its messages, how the audit trail shows it, where streams lead."""

import pytest

from homeport.core.tunnel.command_text import shown_command
from homeport.core.tunnel.exec_messages import (
    MESSAGE_BYTES_MAX,
    Channel,
    ExecMessage,
    MessageReader,
    encode_message,
)
from homeport.core.tunnel.targets import Endpoint, ExecTarget, ForwardTarget, OfferedEndpoints, TerminalSize
from homeport.errors import InvalidInput, UnknownKind
from homeport.vocabulary import DeploymentId, NodeId
from homeport.wire.tunnel import decode_size, decode_target, encode_target

EXEC = ExecTarget(DeploymentId("d"), NodeId("n"), ("sh", "-c", "x"), "web", TerminalSize(100, 40), has_input=True)


def test_messages_arrive_whole_however_they_are_cut() -> None:
    sent = [(Channel.INPUT, b"typed"), (Channel.INPUT, b""), (Channel.EXIT, b'{"code":3}')]
    reader, wire = MessageReader(), b"".join(encode_message(*each) for each in sent)
    arrived = [message for byte in wire for message in reader.feed(bytes([byte]))]
    assert arrived == [ExecMessage(channel, content) for channel, content in sent]
    with pytest.raises(InvalidInput):
        [*MessageReader().feed(encode_message(Channel.OUTPUT, bytes(MESSAGE_BYTES_MAX + 1)))]


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (["ls", "-l", "/data"], "ls -l /data"),
        (["psql", "--password", "hunter2", "-c", "x"], "psql --password *** -c x"),
        (["run", "--api-key=abc", "PGPASSWORD=abc", "A=b"], "run --api-key=*** PGPASSWORD=*** A=b"),
        (["sh", "-c", "curl -H 'Authorization: x' y"], "sh -c ***"),
        (["curl", "https://me:word@host/x?token=1"], "curl https://***@host/x?***"),
        (["echo", "x" * 1000], f"echo {'x' * 295}…"),
    ],
)
def test_the_audit_trail_shows_a_command_without_what_may_be_secret(command: list[str], shown: str) -> None:
    assert shown_command(command) == shown


BEHIND = Endpoint("127.0.0.1", 8100, NodeId("n"))


@pytest.mark.parametrize(
    "target", [EXEC, ForwardTarget(DeploymentId("d"), NodeId("n"), 80), Endpoint("h", 1), BEHIND]
)
def test_targets_are_read_as_they_were_written(target: ExecTarget | ForwardTarget | Endpoint) -> None:
    assert decode_target(encode_target(target)) == target


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"command": []}, "command"),
        ({"command": ["x"] * 300}, "command"),
        ({"command": ["a\0b"]}, "command"),
        ({"command": "ls"}, "command"),
        ({"node": ""}, "node"),
        ({"deployment": 7}, "deployment"),
        ({"component": "x" * 300}, "component"),
    ],
)
def test_what_cannot_be_is_refused_with_the_name_of_the_field(change: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        decode_target({**encode_target(EXEC), **change})
    assert [each.field for each in refused.value.problems] == [field]


def test_a_kind_of_a_later_release_is_refused_and_a_size_is_bounded() -> None:
    with pytest.raises(UnknownKind, match="later"):
        decode_target({"kind": "later"})
    assert decode_size({"columns": 10**9, "rows": -1}) == TerminalSize(1000, 1)
    assert decode_size("wide") == TerminalSize()


def test_endpoints_are_read_from_urls_and_only_offered_ones_are_reachable() -> None:
    assert Endpoint.of("http://10.0.0.5:8000/v1") == Endpoint("10.0.0.5", 8000)
    assert (Endpoint.of("https://Engine.local").port, str(Endpoint.of("http://[::1]:9"))) == (443, "[::1]:9")
    for wrong in ("10.0.0.5:8000", "ftp://x:1", "http://:80", "http://x:99999", "http://a b:1"):
        with pytest.raises(InvalidInput):
            Endpoint.of(wrong)
    offered = OfferedEndpoints()
    withdraw = offered.offer("inference", [Endpoint("h", 1)])
    offered.offer("other", [Endpoint("h", 2)])
    assert (offered.has(Endpoint("h", 1)), offered.has(Endpoint("h", 3))) == (True, False)
    assert not offered.has(Endpoint("h", 1, NodeId("n"))), "the same address behind a node is another endpoint"
    withdraw()
    assert (offered.has(Endpoint("h", 1)), offered.has(Endpoint("h", 2))) == (False, True)
