"""What nodes say is made durable before it is acknowledged, however long that takes."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import anyio
import pytest

from homeport.core.model.node import NodeInfo, Tunable
from homeport.core.model.order import Held, Progress, Result
from homeport.core.model.protocol import OWN, UNSAID, VERSION, PeerProtocol
from homeport.errors import PeerIncompatible, PeerUnavailable, TransientError
from homeport.fleet.site.nodes import streams as module
from homeport.fleet.site.nodes.streams import NodeSessions
from homeport.ports import Beat, FromNode, Hello, MessageRefusal, News, NodeNews, Notice, Owned, ToNode, Unreadable
from homeport.vocabulary import Generation, NodeId, NoticeCode, OrderKind, SiteName, Step
from tests.support.builders import a_node, deployment_id

pytestmark = pytest.mark.anyio

RESULT = Result(
    deployment_id=deployment_id(), generation=Generation(1), kind=OrderKind.APPLY, succeeded=True,
    at=datetime(2026, 1, 2, tzinfo=UTC),
)  # fmt: skip


async def test_news_that_cannot_be_written_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WRITE_RETRY_SECONDS", 0.0)
    sessions = NodeSessions(SiteName("home"), heartbeat_seconds=5.0)
    tries: list[Sequence[tuple[NodeId, NodeNews]]] = []
    is_written = anyio.Event()

    async def take(news: Sequence[tuple[NodeId, NodeNews]]) -> None:
        tries.append(news)
        if len(tries) < 3:
            raise TransientError("The disk that holds the database is full; nothing was written.")
        is_written.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sessions.record_news, take)
        await sessions._news_in.send((NodeId("n1"), News(1, RESULT)))
        with anyio.fail_after(60):
            await is_written.wait()
        tasks.cancel_scope.cancel()
    assert tries[0] == tries[1] == tries[2]


async def test_only_what_is_durable_already_counts_as_a_repeat() -> None:
    """A node whose folder is an older copy numbers its news anew, and its clock may be behind as well."""
    sessions = NodeSessions(SiteName("home"), heartbeat_seconds=5.0)
    taken: list[tuple[NodeId, NodeNews]] = []
    step = Progress(deployment_id(), Generation(1), Step.DRIFTED, "web", "web was missing", RESULT.at)
    older = replace(step, message="web is unhealthy", healthy=False, at=step.at - timedelta(days=1))

    async def take(news: Sequence[tuple[NodeId, NodeNews]]) -> None:
        taken.extend(news)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sessions.record_news, take)
        for news in (News(5, step), News(5, step), News(2, older), News(2, older)):
            await sessions._news_in.send((NodeId("n1"), news))
            await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    assert [news for _, news in taken] == [step, older]


class Stuck:
    """A conductor whose database does not answer."""

    def __init__(self) -> None:
        self.heard = 0

    async def connected(self, info: NodeInfo, held: Sequence[Held], **_: object) -> None:
        pass

    def tunable(self, node_id: NodeId) -> Tunable:
        return Tunable()

    def heartbeat(self, node_id: NodeId) -> None:
        self.heard += 1

    async def take(self, news: Sequence[tuple[NodeId, NodeNews]]) -> None:
        await anyio.sleep_forever()

    async def notice(self, node_id: NodeId, notice: Notice) -> None:
        pass

    async def report_problem(self, node_id: NodeId, code: NoticeCode, message: str) -> None:
        pass

    async def orphans_of(self, node_id: NodeId, found: Sequence[Owned]) -> tuple[Owned, ...]:
        return ()


class Chatty:
    """A node that says very much, and beats in between."""

    def __init__(self, count: int, sequence: int) -> None:
        self._count = count
        self._sequence = sequence

    async def send(self, message: ToNode) -> None:
        pass

    async def __aiter__(self) -> AsyncIterator[FromNode]:
        yield Hello(a_node("n1").info, ())
        for _ in range(self._count):
            yield News(self._sequence, RESULT)
        yield Beat()


async def test_a_heartbeat_does_not_wait_behind_news_that_the_database_does_not_take() -> None:
    sessions, conductor = NodeSessions(SiteName("home"), heartbeat_seconds=5.0), Stuck()
    many = module.NEWS_MAX + module.NEWS_BATCH_MAX + module.NEWS_OF_ONE_MAX + 100
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sessions.record_news, conductor.take)
        with anyio.fail_after(60):
            await sessions.serve(Chatty(many, sequence=0), conductor)
        tasks.cancel_scope.cancel()
    assert conductor.heard == many + 1


async def test_a_node_whose_results_do_not_fit_says_them_again_on_its_next_stream() -> None:
    sessions, conductor = NodeSessions(SiteName("home"), heartbeat_seconds=5.0), Stuck()
    many = module.NEWS_MAX + module.NEWS_BATCH_MAX + module.NEWS_OF_ONE_MAX + 100
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sessions.record_news, conductor.take)
        with anyio.fail_after(60), pytest.raises(PeerUnavailable, match="cannot keep up"):
            await sessions.serve(Chatty(many, sequence=1), conductor)
        tasks.cancel_scope.cancel()


class Scripted:
    """A node that says what it is given, and remembers what it is told."""

    def __init__(self, *said: FromNode) -> None:
        self._said = said
        self.told: list[ToNode] = []

    async def send(self, message: ToNode) -> None:
        self.told.append(message)

    async def __aiter__(self) -> AsyncIterator[FromNode]:
        for message in self._said:
            yield message
            await anyio.wait_all_tasks_blocked()


class Noting(Stuck):
    def __init__(self) -> None:
        super().__init__()
        self.problems: list[tuple[NodeId, NoticeCode, str]] = []

    async def report_problem(self, node_id: NodeId, code: NoticeCode, message: str) -> None:
        self.problems.append((node_id, code, message))


def hello(protocol: PeerProtocol) -> Hello:
    return Hello(replace(a_node("n1").info, protocol=protocol), ())


@pytest.mark.parametrize(("version", "older"), [(VERSION + 2, "site home"), (VERSION + 9, "site home")])
async def test_a_node_too_many_releases_apart_is_refused_with_a_sentence(version: int, older: str) -> None:
    sessions, conductor, node = (
        NodeSessions(SiteName("home"), heartbeat_seconds=5.0),
        Noting(),
        Scripted(hello(PeerProtocol(version))),
    )
    with pytest.raises(PeerIncompatible, match=f"Upgrade {older}, one release at a time"):
        await sessions.serve(node, conductor)
    ((node_id, code, message),) = conductor.problems
    assert (node_id, code) == ("n1", NoticeCode.VERSION_SKEW)
    assert message.startswith(f"Node n1 speaks protocol {version} and site home speaks {VERSION}")
    assert node.told == []
    sessions.close()


@pytest.mark.parametrize(("protocol", "answers"), [(OWN, 2), (UNSAID, 0)])
async def test_what_the_site_cannot_read_is_counted_and_refused_to_a_node_that_understands(
    protocol: PeerProtocol, answers: int
) -> None:
    unknown = Unreadable("message", "this site does not know its kind", is_unknown=True)
    broken = News(1, Unreadable("news", "ValueError: 7"))
    sessions, node = NodeSessions(SiteName("home"), heartbeat_seconds=5.0), Scripted(hello(protocol), unknown, broken)
    await sessions.serve(node, Stuck())
    assert sessions.refused == {"unknown-kind": 1, "invalid-input": 1}
    told = [each for each in node.told if isinstance(each, MessageRefusal)]
    assert told == [MessageRefusal(unknown.what, unknown.why), MessageRefusal("news", "ValueError: 7")][:answers]
    sessions.close()
