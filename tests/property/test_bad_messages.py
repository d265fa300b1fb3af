"""Arbitrary values in every field of every message between a node and its site: a bad one harms itself alone."""

import math
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
from google.protobuf.descriptor import FieldDescriptor
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from homeport.adapters.runtime.fake import NullRuntime
from homeport.core.jobs.job import JOB, JobSpec, JobType
from homeport.core.model.node import NodeInfo, Tunable
from homeport.core.model.order import Held, Order, Result
from homeport.core.model.protocol import OWN
from homeport.fleet.site.nodes.streams import NodeSessions
from homeport.node.app import run_node
from homeport.node.settings import NodeSettings
from homeport.ports import Beat, FromNode, Hello, News, NodeNews, Notice, Owned, ToNode, Unreadable, Welcome
from homeport.vocabulary import DeploymentId, Generation, NodeId, NoticeCode, OrderKind, SiteName
from homeport.wire import nodes as convert
from homeport.wire.jobs import spec_to_json
from homeport.wire.v1 import nodes_pb2 as pb
from tests.support.builders import a_node, deployment_id
from tests.support.examples import examples
from tests.support.orders import to_apply
from tests.support.spoiling import spoiled

GOOD = to_apply(7, key=deployment_id(99))

NASTY_TEXTS = st.sampled_from(
    [
        "",
        "apply",
        "remove",
        "jobs",
        "restart",
        "compose",
        "healthy",
        "..",
        "/",
        "\x00",
        "{",
        "[]",
        '{"a": NaN}',
        "x" * 500,
    ]
)
NASTY_JSON = st.sampled_from(["[" * 100_000, "{}", '"\\ud800"', '{"a": "\\ud800"}', "1e999", "null"])
NUMBERS: dict[int, st.SearchStrategy[Any]] = {
    FieldDescriptor.TYPE_INT32: st.integers(-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_INT64: st.integers(-(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_UINT64: st.integers(0, 2**64 - 1) | st.integers(0, 9),
    FieldDescriptor.TYPE_DOUBLE: st.floats() | st.sampled_from([math.nan, math.inf, -1.0, 0.01]),
    FieldDescriptor.TYPE_BOOL: st.booleans(),
}


def values(field: Any) -> st.SearchStrategy[Any]:
    if field.message_type is not None:
        return messages(field.message_type)
    if field.type == FieldDescriptor.TYPE_STRING:
        return NASTY_TEXTS | NASTY_JSON | st.text(max_size=20)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return st.binary(max_size=20)
    return NUMBERS[field.type]


@st.composite
def messages(draw: st.DrawFn, descriptor: Any) -> Any:
    """One message of this type: each field is set to anything at all, or left out."""
    made = getattr(pb, descriptor.name)()
    for field in descriptor.fields:
        if not draw(st.booleans()):
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            keys, contents = field.message_type.fields
            getattr(made, field.name).update(draw(st.dictionaries(values(keys), values(contents), max_size=2)))
        elif field.is_repeated:
            getattr(made, field.name).extend(draw(st.lists(values(field), max_size=2)))
        elif field.message_type is not None:
            getattr(made, field.name).CopyFrom(draw(values(field)))
        else:
            setattr(made, field.name, draw(values(field)))
    return made


@st.composite
def nearly_good_orders(draw: st.DrawFn) -> Any:
    """An order as a site gives it, but for one field."""
    order = convert.order_to_proto(to_apply(draw(st.integers(1, 6))))
    part = draw(st.sampled_from([order, order.release, order.release.components[0]]))
    other = draw(messages(part.DESCRIPTOR))
    field = draw(st.sampled_from(list(part.DESCRIPTOR.fields)))
    part.ClearField(field.name)
    kept = type(part)()
    kept.MergeFrom(other)
    for each in part.DESCRIPTOR.fields:
        if each.name != field.name:
            kept.ClearField(each.name)
    part.MergeFrom(kept)
    return pb.ToNode(order=order)


JOB_SPEC = spec_to_json(
    JobSpec(
        JobType.CONTAINER, ("true",), "busybox:1", environment={"A": "b"}, secrets={"K": "key"}, artifacts=("/a",)
    )
)
BAD_JOBS = list(spoiled(JOB_SPEC))


@st.composite
def nearly_good_jobs(draw: st.DrawFn) -> Any:
    """An order to run a job, but for one value of its description."""
    content = draw(st.sampled_from(BAD_JOBS) | st.binary(max_size=50))
    kind = draw(st.sampled_from([OrderKind.APPLY, OrderKind.REMOVE]))
    job = DeploymentId(draw(st.sampled_from(["j-1", "j-2"])))
    order = Order(Generation(draw(st.integers(1, 6))), job, kind, None, work=JOB, content=content)
    return pb.ToNode(order=convert.order_to_proto(order))


class OneTalk:
    """A link whose site says some messages, then a good order, and writes down the answers."""

    def __init__(self, said: Sequence[Any]) -> None:
        self._said = said
        self.heard: list[FromNode] = []
        self.done = anyio.Event()

    @asynccontextmanager
    async def connect(self) -> AsyncIterator["OneTalk"]:
        yield self

    async def unregister(self, node_id: NodeId) -> None:
        pass

    async def send(self, message: FromNode) -> None:
        read = convert.from_node_from_proto(convert.from_node_to_proto(message))
        assert not isinstance(read.news if isinstance(read, News) else read, Unreadable), "a site can read it"
        self.heard.append(message)
        if isinstance(message, News) and isinstance(message.news, Result) and message.news.generation == 7:
            self.done.set()

    async def __aiter__(self) -> AsyncIterator[ToNode]:
        yield Welcome(SiteName("home"), 5.0, OWN)
        for message in self._said:
            if message.WhichOneof("message") != "farewell":  # After which a node rightly hears nothing more.
                yield convert.to_node_from_proto(message)
        yield GOOD
        await anyio.sleep_forever()


@settings(
    max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(st.lists(messages(pb.ToNode.DESCRIPTOR) | nearly_good_orders() | nearly_good_jobs(), min_size=1, max_size=4))
def test_whatever_a_site_says_the_next_good_order_is_carried_out(said: Sequence[Any]) -> None:
    async def talk() -> None:
        with TemporaryDirectory() as folder:
            link = OneTalk(said)
            node = NodeSettings(
                data=Path(folder), node_id=NodeId("n"), http_address=None, failpoint=None, steady_seconds=0.01
            )
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run_node, node, link, NullRuntime(Path(folder)))
                with anyio.fail_after(60):
                    await link.done.wait()
                tasks.cancel_scope.cancel()
            answered = [each.news for each in link.heard if isinstance(each, News)]
            assert any(isinstance(each, Result) and each.succeeded and each.generation == 7 for each in answered)

    anyio.run(talk)


class Recorder:
    """A conductor that writes down what reaches it."""

    def __init__(self) -> None:
        self.taken: list[NodeNews] = []
        self.noticed: list[Notice] = []

    async def connected(self, info: NodeInfo, held: Sequence[Held], **_: Any) -> None:
        pass

    def tunable(self, node_id: NodeId) -> Tunable:
        return Tunable()

    def heartbeat(self, node_id: NodeId) -> None:
        pass

    async def notice(self, node_id: NodeId, notice: Notice) -> None:
        self.noticed.append(notice)

    async def report_problem(self, node_id: NodeId, code: NoticeCode, message: str) -> None:
        pass

    async def orphans_of(self, node_id: NodeId, found: Sequence[Owned]) -> tuple[Owned, ...]:
        return tuple(found)

    async def take(self, news: Sequence[tuple[NodeId, NodeNews]]) -> None:
        self.taken.extend(item for _, item in news)


class Says:
    """A node's end of a stream that says some messages, and then reads until it is acknowledged."""

    def __init__(self, said: Sequence[Any]) -> None:
        self._said = said
        self.acknowledged = anyio.Event()

    async def send(self, message: ToNode) -> None:
        encoded = convert.to_node_to_proto(message)
        if encoded.acknowledged.sequence == 2**64 - 1:
            self.acknowledged.set()

    async def __aiter__(self) -> AsyncIterator[FromNode]:
        yield Hello(a_node("one").info, ())
        for message in self._said:
            if message.WhichOneof("message") != "hello":
                yield convert.from_node_from_proto(message)
        yield Beat()
        yield convert.from_node_from_proto(pb.FromNode(news=pb.News(sequence=2**64 - 1)))
        await self.acknowledged.wait()


@settings(
    max_examples=examples(100),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.lists(messages(pb.FromNode.DESCRIPTOR), min_size=1, max_size=4))
def test_whatever_a_node_says_it_is_acknowledged_and_its_stream_goes_on(said: Sequence[Any]) -> None:
    async def talk() -> None:
        sessions, conductor, node = NodeSessions(SiteName("home"), heartbeat_seconds=5.0), Recorder(), Says(said)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(sessions.record_news, conductor.take)
            with anyio.fail_after(60):
                await sessions.serve(node, conductor)
            tasks.cancel_scope.cancel()
        assert isinstance(conductor.taken[-1], Unreadable)

    anyio.run(talk)
