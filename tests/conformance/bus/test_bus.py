"""Every bus hands messages to subscribers in all processes alike. `two` are the buses of two processes."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import anyio
import pytest

from homeport.adapters.bus.inprocess import InProcessBus
from homeport.adapters.bus.postgresql import open_bus
from homeport.adapters.store.open import open_store
from homeport.ports import Bus, Message
from tests.support.postgres import PostgresServer
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio

Two = tuple[Bus, Bus]


@pytest.fixture(params=["in process", "postgresql"])
async def two(request: pytest.FixtureRequest) -> AsyncIterator[Two]:
    if request.param == "in process":
        one = InProcessBus()
        yield one, one
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    name = await server.create_database()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(server.drop_database, name)
        await stack.enter_async_context(open_store(server.url(name)))
        buses = [await stack.enter_async_context(open_bus(server.url(name))) for _ in range(2)]
        yield buses[0], buses[1]


async def heard(messages: list[Message], count: int) -> list[Message]:
    await eventually(lambda: len(messages) >= count)
    return messages


async def test_a_message_reaches_every_subscriber_of_its_topic_once(two: Two) -> None:
    here, there = two
    mine: list[Message] = []
    theirs: list[Message] = []
    others: list[Message] = []
    here.subscribe("topic", mine.append)
    there.subscribe("topic", theirs.append)
    there.subscribe("other", others.append)
    for number in range(20):
        here.publish("topic", {"n": number, "text": "ü\n'; --"})
    assert len(mine) == 20, "those of the same process have it when publish returns"
    expected = [{"n": number, "text": "ü\n'; --"} for number in range(20)]
    assert await heard(theirs, 20) == expected
    there.publish("other", {})
    assert await heard(others, 1) == [{}]
    assert mine == theirs == expected


async def test_a_long_message_arrives_whole(two: Two) -> None:
    theirs: list[Message] = []
    two[1].subscribe("topic", theirs.append)
    two[0].publish("topic", {"text": "x" * 50_000})
    two[0].publish("topic", {"text": "short"})
    assert [len(message["text"]) for message in await heard(theirs, 2)] == [50_000, 5]


async def test_who_has_unsubscribed_hears_nothing(two: Two) -> None:
    gone: list[Message] = []
    left: list[Message] = []
    end = two[1].subscribe("topic", gone.append)
    two[1].subscribe("topic", left.append)
    end()
    end()
    two[0].publish("topic", {})
    assert await heard(left, 1) == [{}]
    assert gone == []


async def test_a_handler_that_raises_harms_no_other(two: Two) -> None:
    def broken(message: Message) -> None:
        raise ValueError("not for me")

    theirs: list[Message] = []
    two[1].subscribe("topic", broken)
    two[1].subscribe("topic", theirs.append)
    two[0].publish("topic", {"n": 1})
    two[0].publish("topic", {"n": 2})
    assert await heard(theirs, 2) == [{"n": 1}, {"n": 2}]


async def test_a_request_is_answered_by_whoever_can(two: Two) -> None:
    here, there = two
    here.subscribe("ask", lambda message: None)
    there.subscribe("ask", lambda message: {"double": message["n"] * 2} if message["n"] > 0 else None)
    with anyio.fail_after(60):
        assert await here.request("ask", {"n": 21}, seconds=5) == {"double": 42}
        assert await there.request("ask", {"n": 4}, seconds=5) == {"double": 8}


async def test_a_request_that_nobody_answers_ends_in_time(two: Two) -> None:
    with anyio.fail_after(60):
        assert await two[0].request("nobody", {}, seconds=0.2) is None
        two[1].subscribe("ask", lambda message: None)
        assert await two[0].request("ask", {}, seconds=0.2) is None


async def test_requests_at_once_get_their_own_answers(two: Two) -> None:
    two[1].subscribe("ask", lambda message: {"n": message["n"]})
    answers: dict[int, Message | None] = {}

    async def ask(number: int) -> None:
        answers[number] = await two[0].request("ask", {"n": number}, seconds=5)

    async with anyio.create_task_group() as tasks:
        for number in range(30):
            tasks.start_soon(ask, number)
    assert answers == {number: {"n": number} for number in range(30)}
