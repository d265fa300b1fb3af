"""What nodes and sites say to each other about jobs and streams of the tunnel: each value of a good message becomes a
bad one, and is refused by name, or read within bounds."""

import base64
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homeport.core.data import DataVolume
from homeport.core.jobs.job import JobFile, JobOutcome, JobOutput, JobSpec, JobType
from homeport.core.jobs.rules import ARTIFACT_BYTES_MAX, ARTIFACTS_MAX, OUTPUT_BYTES_MAX
from homeport.core.tunnel.exec_messages import Channel, MessageReader, encode_message
from homeport.core.tunnel.frames import FrameKind, TunnelProtocolError, encode_frame
from homeport.core.tunnel.mux import Mux
from homeport.core.tunnel.targets import (
    Endpoint,
    EngineTarget,
    ExecTarget,
    ForwardTarget,
    TerminalSize,
    VolumesTarget,
)
from homeport.errors import InvalidInput, UnknownKind
from homeport.vocabulary import DeploymentId, NodeId
from homeport.wire.jobs import outcome_from_bytes, outcome_to_bytes, spec_from_json, spec_to_json
from homeport.wire.tunnel import (
    NAME_LENGTH_MAX,
    VOLUMES_MAX,
    decode_target,
    decode_volumes,
    encode_target,
    encode_volumes,
)
from tests.support.spoiling import spoiled, spoiled_values

NOW = datetime(2030, 1, 1, tzinfo=UTC)
NODE = NodeId("n1")
SPEC = JobSpec(
    JobType.CONTAINER, command=("a",), image="i", environment={"A": "b"}, secrets={"C": "d"}, artifacts=("/a",)
)
OUTCOME = JobOutcome(0, JobOutput("out", 3), (JobFile("/a", b"x"),), "", NOW, NOW)
TARGETS = (
    Endpoint("127.0.0.1", 80, NODE),
    ExecTarget(DeploymentId("d"), NODE, ("sh", "-c"), "web", TerminalSize(80, 24), has_input=True),
    ForwardTarget(DeploymentId("d"), NODE, 80, "web"),
    EngineTarget(NODE, "pool", is_loaded=True),
    VolumesTarget(NODE),
)


def refused_or_read(read: Callable[[Any], Any], values: Any) -> list[Any]:
    found = []
    for value in values:
        try:
            found.append(read(value))
        except (InvalidInput, UnknownKind):
            continue
    return found


def test_descriptions_of_jobs() -> None:
    bad = (value for value in spoiled_values(spec_to_json(SPEC)) if isinstance(value, dict))
    assert refused_or_read(spec_from_json, bad)
    assert spec_from_json(json.loads(json.dumps(spec_to_json(SPEC)))) == SPEC


def test_results_of_jobs() -> None:
    for outcome in refused_or_read(outcome_from_bytes, spoiled(json.loads(outcome_to_bytes(OUTCOME)))):
        assert len(outcome.output.text.encode()) <= OUTPUT_BYTES_MAX
        outcome_to_bytes(outcome)
    assert outcome_from_bytes(outcome_to_bytes(OUTCOME)) == OUTCOME


@pytest.mark.parametrize(
    "files",
    [
        [("/a", b"x" * (ARTIFACT_BYTES_MAX + 1))],
        [(f"/{number}", b"") for number in range(ARTIFACTS_MAX + 1)],
        [("", b"")],
        [("/a", b"1"), ("/a", b"2")],
        [("/" + "a" * 1000, b"")],
    ],
    ids=["large", "many", "nameless", "twice", "long name"],
)
def test_a_result_keeps_no_more_files_than_a_job_may(files: list[tuple[str, bytes]]) -> None:
    body = json.loads(outcome_to_bytes(OUTCOME))
    body["files"] = [[path, base64.b64encode(content).decode()] for path, content in files]
    with pytest.raises(InvalidInput):
        outcome_from_bytes(json.dumps(body).encode())


def test_where_streams_lead_to() -> None:
    for target in TARGETS:
        bad = (value for value in spoiled_values(encode_target(target)) if isinstance(value, dict))
        for read in refused_or_read(decode_target, bad):
            assert decode_target(encode_target(read)) == read
        assert decode_target(encode_target(target)) == target


FRAMES = st.builds(
    encode_frame, st.sampled_from(FrameKind), st.integers(0, 2**32 - 1) | st.integers(0, 3), st.binary(max_size=40)
)


@given(st.lists(FRAMES | st.binary(max_size=20), max_size=20), st.booleans())
def test_whatever_frames_arrive_the_connection_goes_on_or_is_closed_by_rule(
    frames: list[bytes], is_opener: bool
) -> None:
    mux = Mux(is_opener=is_opener)
    if is_opener:
        mux.open(b"where")
    try:
        for frame in frames:
            list(mux.receive(frame))
            mux.take_output()
    except TunnelProtocolError:
        pass


@given(
    st.lists(
        st.binary(max_size=20) | st.builds(encode_message, st.sampled_from(Channel), st.binary(max_size=9)),
        max_size=9,
    )
)
def test_whatever_messages_a_command_is_sent_they_are_read_or_refused(parts: list[bytes]) -> None:
    reader = MessageReader()
    try:
        for part in parts:
            list(reader.feed(part))
    except InvalidInput:
        pass


def test_lists_of_volumes() -> None:
    volumes = [
        DataVolume("hp-shop-web-0badcafe_data", is_used=True),
        DataVolume("hp-old-db-0badcafe_data", is_used=False),
    ]
    assert decode_volumes(encode_volumes(volumes)) == [volumes[1], volumes[0]]
    for read in refused_or_read(decode_volumes, spoiled(json.loads(encode_volumes(volumes)))):
        assert all(isinstance(each.name, str) and len(each.name) <= NAME_LENGTH_MAX for each in read)
    many = [DataVolume(f"hp-a-b-0badcafe_{number}", is_used=number > 0) for number in range(2 * VOLUMES_MAX)]
    kept = decode_volumes(encode_volumes(many))
    assert len(kept) == VOLUMES_MAX and many[0] in kept, "what nobody uses is not left out first"
    for content in (b"", b"{}", b"[" * 100_000, b'{"volumes": 3}', b'{"volumes": [3]}', b"\xff"):
        with pytest.raises(InvalidInput):
            decode_volumes(content)
