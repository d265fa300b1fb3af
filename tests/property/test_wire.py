"""What is sent is what arrives: every message and report survives its encoding."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from homeport.core.model.deployment import ComponentSpec, Hold, Release
from homeport.core.model.instance import Failure, Instance, Transition, Unhealthy
from homeport.core.model.node import Capabilities, Gpu, Node, NodeInfo
from homeport.core.model.order import Held, Order, Progress, Rejection, Result
from homeport.core.model.report import (
    FileProblem,
    HoldsChanged,
    InstanceSnapshot,
    NodeChanged,
    NodeGone,
    Progressed,
    Report,
    Resync,
    Synced,
    SyncFailed,
)
from homeport.errors import InvalidInput
from homeport.ports import Acknowledged, Beat, Farewell, FromNode, Hello, News, Notice, ToNode, Unreadable, Welcome
from homeport.vocabulary import (
    NODE_ID_PATTERN,
    Actor,
    Commit,
    DeploymentId,
    Digest,
    Generation,
    Incarnation,
    Liveness,
    NodeId,
    NoticeCode,
    OnUnhealthy,
    OrderKind,
    ProfileType,
    SiteName,
    State,
    Step,
    Trigger,
)
from homeport.wire import nodes as convert
from homeport.wire import reports
from homeport.wire.v1 import nodes_pb2 as pb

texts = st.text(max_size=20)
printable = st.text(st.characters(codec="utf-8").filter(str.isprintable), max_size=20)
"""What a node may say about itself."""
names = st.text(min_size=1, max_size=20)
numbers = st.integers(0, 2**53)
generations = st.integers(1, 2**53).map(Generation)
times = st.integers(0, 2**41).map(lambda ms: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms))
maps = st.dictionaries(names, texts, max_size=3)
failures = st.builds(Failure, code=texts, message=texts, source=texts)
capabilities = st.builds(
    Capabilities,
    cpu_cores=st.integers(0, 2**31 - 1),
    memory_bytes=numbers,
    disk_bytes=numbers,
    disk_free_bytes=numbers,
    os=printable,
    architecture=printable,
    engine=printable,
    engine_version=printable,
    profile_types=st.lists(st.sampled_from(ProfileType), max_size=3).map(tuple),
    gpus=st.lists(st.builds(Gpu, model=printable, manufacturer=printable, memory_bytes=numbers), max_size=2).map(
        tuple
    ),
)
node_names = st.from_regex(NODE_ID_PATTERN, fullmatch=True).map(lambda name: NodeId(name.strip()))
infos = st.builds(
    NodeInfo,
    id=node_names,
    hostname=printable,
    capabilities=capabilities,
    labels=st.dictionaries(printable.filter(bool), printable, max_size=3),
    software_version=printable,
)
components = st.builds(
    ComponentSpec,
    name=names,
    type=st.sampled_from(ProfileType),
    repository=texts,
    revision=texts,
    environment=maps,
    wait=st.booleans(),
    timeout_seconds=st.floats(0, 1e6),
    extensions=st.dictionaries(names, st.dictionaries(names, st.integers() | texts), max_size=2),
)
releases = st.builds(
    Release,
    deployment_id=names.map(DeploymentId),
    name=texts,
    revision=texts.map(Digest),
    app_version=texts,
    components=st.lists(components, max_size=3).map(tuple),
)
rejections = st.none() | st.builds(Rejection, revision=names.map(Digest), failure=st.none() | failures)
orders = st.builds(
    lambda release, **rest: (
        Order(deployment_id=release.deployment_id, kind=OrderKind.APPLY, release=release, **rest)
        if rest.pop("applies")
        else Order(deployment_id=release.deployment_id, kind=OrderKind.REMOVE, release=None, **rest)
    ),
    release=releases,
    applies=st.booleans(),
    generation=generations,
    remove_images=st.booleans(),
    remove_data_of=texts,
    reason=texts,
    on_unhealthy=st.sampled_from(OnUnhealthy),
    rejection=rejections,
)
progresses = st.builds(
    Progress,
    deployment_id=names.map(DeploymentId),
    generation=generations,
    step=st.sampled_from(Step),
    component=texts,
    message=texts,
    at=times,
    bytes_done=numbers,
    bytes_total=numbers,
    healthy=st.none() | st.booleans(),
)
results = st.builds(
    Result,
    deployment_id=names.map(DeploymentId),
    generation=generations,
    kind=st.sampled_from(OrderKind),
    succeeded=st.booleans(),
    at=times,
    failure=st.none() | failures,
    deleted=st.booleans(),
    exit_code=st.integers(-1, 255),
    release_runs=st.booleans(),
)
helds = st.builds(
    Held,
    deployment_id=names.map(DeploymentId),
    generation=generations,
    kind=st.sampled_from(OrderKind),
    revision=st.none() | names.map(Digest),
    done=st.booleans(),
    unhealthy=st.none() | st.builds(Unhealthy, since=times, why=texts.filter(bool)),
    good_revision=st.none() | names.map(Digest),
    rejection=rejections,
)
from_node = (
    st.builds(Hello, info=infos, held=st.lists(helds, max_size=3).map(tuple))
    | st.just(Beat())
    | st.builds(News, sequence=numbers, news=progresses | results)
    | st.builds(Notice, code=st.sampled_from(NoticeCode), message=texts)
)
to_node = (
    st.builds(Welcome, site=names.map(SiteName), heartbeat_seconds=st.floats(0, 1e6))
    | orders
    | st.builds(Acknowledged, sequence=numbers)
    | st.builds(Farewell, reason=texts)
)
nodes = st.builds(
    Node,
    info=infos,
    site=names.map(SiteName),
    liveness=st.sampled_from(Liveness),
    last_seen=times,
    registered_at=times,
)
transitions = st.builds(
    Transition,
    deployment_id=names.map(DeploymentId),
    node_id=texts.map(NodeId),
    incarnation=numbers.map(Incarnation),
    trigger=st.sampled_from(Trigger),
    actor=st.sampled_from(Actor),
    reason=texts,
    at=times,
    generation=numbers.map(Generation),
    revision=st.none() | names.map(Digest),
    failure=st.none() | failures,
)
problems = st.builds(
    FileProblem,
    path=texts,
    message=texts,
    deployment_id=st.none() | names.map(DeploymentId),
    line=st.none() | numbers,
)
holds = st.builds(
    Hold,
    site=names.map(SiteName),
    deployment_id=st.none() | names.map(DeploymentId),
    reason=texts,
    author=texts,
    at=times,
    expires_at=times,
)
instances = st.builds(
    Instance,
    deployment_id=names.map(DeploymentId),
    node_id=texts.map(NodeId),
    incarnation=numbers.map(Incarnation),
    state=st.sampled_from(State),
    version=st.just(0),
    generation=numbers.map(Generation),
    revision=st.none() | names.map(Digest),
    running_revision=st.none() | names.map(Digest),
    attempt=numbers,
    step=texts,
    failure=st.none() | failures,
    updated_at=times,
    rejected_revision=st.none() | names.map(Digest),
    next_at=st.none() | times,
    unhealthy=st.none() | st.builds(Unhealthy, since=times, why=texts),
)
all_reports = (
    transitions
    | st.builds(Progressed, node_id=names.map(NodeId), progress=progresses)
    | st.builds(
        Synced,
        commit=names.map(Commit),
        deployment_ids=st.lists(names.map(DeploymentId), max_size=3).map(tuple),
        problems=st.lists(problems, max_size=2).map(tuple),
    )
    | st.builds(SyncFailed, message=texts)
    | st.builds(NodeChanged, node=nodes)
    | st.builds(NodeGone, node_id=node_names)
    | st.builds(HoldsChanged, holds=st.lists(holds, max_size=3).map(tuple))
    | st.builds(
        Resync,
        why=texts,
        nodes=st.lists(names.map(NodeId), max_size=3).map(tuple),
        instances=st.lists(st.tuples(names.map(DeploymentId), texts.map(NodeId)), max_size=3).map(tuple),
        reports_lost=numbers,
        since=st.none() | times,
    )
    | st.builds(
        InstanceSnapshot,
        instance=instances,
        steps_lost=numbers,
        since=st.none() | times,
        reason=texts,
        replaces=st.booleans(),
    )
)


@given(from_node)
def test_a_nodes_messages_arrive_as_they_were_sent(message: FromNode) -> None:
    encoded = convert.from_node_to_proto(message).SerializeToString()
    assert convert.from_node_from_proto(pb.FromNode.FromString(encoded)) == message


@given(to_node)
def test_a_sites_messages_arrive_as_they_were_sent(message: ToNode) -> None:
    encoded = convert.to_node_to_proto(message).SerializeToString()
    assert convert.to_node_from_proto(pb.ToNode.FromString(encoded)) == message


@given(all_reports)
def test_a_report_survives_the_outbox(report: Report) -> None:
    assert reports.decode(json.loads(json.dumps(reports.encode(report)))) == report


ADDED_LATER = frozenset({"next_at", "healthy", "unhealthy", "remark", "replaces"})
"""A report that an older site has queued lacks these, and is good all the same."""


@given(all_reports, st.data())
def test_a_report_with_a_part_missing_is_refused_and_not_guessed(report: Report, data: st.DataObject) -> None:
    body = reports.encode(report)
    body.pop(data.draw(st.sampled_from(sorted(body.keys() - ADDED_LATER))))
    with pytest.raises(InvalidInput):
        reports.decode(body)


@given(st.dictionaries(texts, st.none() | st.integers() | texts | st.lists(st.integers(), max_size=2), max_size=4))
def test_nonsense_is_refused_with_a_sentence(body: dict[str, object]) -> None:
    assume(body.keys().isdisjoint({"message", "node_id"}))  # With one of these alone some reports are complete.
    for kind in ("transition", "progressed", "synced", "node-changed", "node-gone", "sync-failed", "dance"):
        with pytest.raises(InvalidInput):
            reports.decode({**body, "kind": kind})


@pytest.mark.parametrize("name", ["", "a b", "-a", "n1\n", "x" * 129, 7, None])
def test_a_node_that_left_has_a_name(name: object) -> None:
    with pytest.raises(InvalidInput):
        reports.decode({"kind": "node-gone", "node_id": name})


def test_an_empty_message_is_refused() -> None:
    with pytest.raises(InvalidInput):
        convert.node_info_from_proto(pb.Node())
    assert isinstance(convert.from_node_from_proto(pb.FromNode()), Unreadable)
    assert isinstance(convert.to_node_from_proto(pb.ToNode()), Unreadable)


def test_a_node_without_id_or_capabilities_is_refused_by_name() -> None:
    with pytest.raises(InvalidInput, match=r"node\.id"):
        convert.node_info_from_proto(pb.Node())
    with pytest.raises(InvalidInput, match=r"node\.capabilities"):
        convert.node_info_from_proto(pb.Node(id="a"))
