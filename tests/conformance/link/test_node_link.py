"""What a node and its site may rely on, whichever link is between them."""

from datetime import UTC, datetime

import anyio
import pytest

from homeport.core.model.order import Order, Progress, Result
from homeport.core.model.protocol import OWN
from homeport.errors import PeerUnavailable
from homeport.ports import Acknowledged, Beat, Farewell, Hello, News, Stream, ToNode, Welcome
from homeport.vocabulary import Generation, NodeId, OrderKind, Step
from tests.conformance.link.conftest import Stand
from tests.support.builders import a_desired, a_node, deployment_id
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio

ONE = NodeId("one")


def an_order(number: int = 1, *, reason: str = "wanted") -> Order:
    release = a_desired(1).release
    return Order(Generation(number), deployment_id(1), OrderKind.APPLY, release, remove_images=False, reason=reason)


async def connected(stream: Stream, node: str = "one") -> None:
    await stream.send(Hello(a_node(node).info, ()))


async def next_of(stream: Stream) -> ToNode:
    with anyio.fail_after(60):
        return await anext(aiter(stream))


async def ends(stream: Stream) -> str:
    """Waits for the end of the stream, and returns what the site said about it."""
    with anyio.fail_after(60):
        try:
            async for _ in stream:
                pass
        except PeerUnavailable as error:
            return str(error)
    return ""


async def test_a_hello_is_answered_with_the_name_of_the_site(stand: Stand) -> None:
    async with stand.link("one").connect() as stream:
        await connected(stream)
        assert await next_of(stream) == Welcome(stand.desk.reception.site, 5.0, OWN)
        assert stand.desk.sessions.connected == {ONE}
        await eventually(lambda: ONE in stand.desk.conductor.memory.nodes)


async def test_a_thousand_orders_arrive_whole_and_in_order(stand: Stand) -> None:
    orders = [an_order(number, reason=f"wanted, naïvely: {'ü' * number}") for number in range(1, 1001)]
    async with stand.link("one").connect() as stream:
        await connected(stream)
        messages = aiter(stream)
        await anext(messages)
        for order in orders:
            stand.desk.sessions.send_order(ONE, order)
        with anyio.fail_after(60):
            assert [await anext(messages) for _ in orders] == orders


async def test_an_order_of_three_megabytes_passes(stand: Stand) -> None:
    order = an_order(reason="x" * 3_000_000)
    async with stand.link("one").connect() as stream:
        await connected(stream)
        messages = aiter(stream)
        await anext(messages)
        stand.desk.sessions.send_order(ONE, order)
        with anyio.fail_after(60):
            assert await anext(messages) == order


async def test_a_result_is_acknowledged_and_progress_is_not(stand: Stand) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    result = Result(deployment_id(1), Generation(1), OrderKind.APPLY, succeeded=True, at=now)
    async with stand.link("one").connect() as stream:
        await connected(stream)
        messages = aiter(stream)
        await anext(messages)
        await stream.send(Beat())
        await stream.send(News(0, Progress(deployment_id(1), Generation(1), Step.ACCEPTED, "", "accepted", now)))
        await stream.send(News(7, result))
        with anyio.fail_after(60):
            assert await anext(messages) == Acknowledged(7)


async def test_a_stream_that_does_not_begin_with_hello_is_ended_with_the_reason(stand: Stand) -> None:
    async with stand.link("one").connect() as stream:
        await stream.send(Beat())
        assert "must begin with hello" in await ends(stream)
    assert not stand.desk.sessions.connected


async def test_a_second_hello_ends_the_stream_with_the_reason(stand: Stand) -> None:
    async with stand.link("one").connect() as stream:
        await connected(stream)
        await next_of(stream)
        await connected(stream)
        assert "hello may be sent once only" in await ends(stream)
    assert not stand.desk.sessions.connected


async def test_what_ended_a_stream_leaves_its_context_as_it_is(stand: Stand) -> None:
    with pytest.raises(PeerUnavailable, match="hello may be sent once only"):
        async with stand.link("one").connect() as stream:
            await connected(stream)
            await next_of(stream)
            await connected(stream)
            async for _ in stream:
                pass


async def test_progress_by_the_thousand_costs_no_result_and_no_stream(stand: Stand) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    result = Result(deployment_id(1), Generation(1), OrderKind.APPLY, succeeded=True, at=now)
    async with stand.link("one").connect() as stream:
        await connected(stream)
        messages = aiter(stream)
        await anext(messages)
        for number in range(5_000):
            await stream.send(News(0, Progress(deployment_id(1), Generation(1), Step.PULLING, "", str(number), now)))
        for sequence in range(1, 1_001):
            await stream.send(News(sequence, result))
        with anyio.fail_after(60):
            while await anext(messages) != Acknowledged(1_000):
                pass


async def test_a_newer_stream_of_the_same_node_ends_the_older(stand: Stand) -> None:
    link = stand.link("one")
    async with link.connect() as older:
        await connected(older)
        await next_of(older)
        async with link.connect() as newer:
            await connected(newer)
            messages = aiter(newer)
            await anext(messages)
            await ends(older)
            stand.desk.sessions.send_order(ONE, an_order())
            with anyio.fail_after(60):
                assert await anext(messages) == an_order()


async def test_a_removed_node_hears_farewell_as_the_last_word(stand: Stand) -> None:
    async with stand.link("one").connect() as stream:
        await connected(stream)
        messages = aiter(stream)
        await anext(messages)
        await eventually(lambda: ONE in stand.desk.conductor.memory.nodes)
        await stand.desk.reception.unregister(ONE)
        with anyio.fail_after(60):
            heard = [message async for message in messages]
    assert isinstance(heard[-1], Farewell)


async def test_an_expelled_node_is_told_why_at_once_and_may_come_back(stand: Stand) -> None:
    link = stand.link("one")
    async with link.connect() as stream:
        await connected(stream)
        await next_of(stream)
        stand.desk.sessions.evict(ONE, "its identity was removed")
        assert not stand.desk.sessions.connected
        with anyio.fail_after(60):
            assert "its identity was removed" in await ends(stream)
    async with link.connect() as stream:
        await connected(stream)
        assert isinstance(await next_of(stream), Welcome)


async def test_one_node_is_expelled_and_its_neighbour_notices_nothing(stand: Stand) -> None:
    async with stand.link("one").connect() as first, stand.link("two").connect() as second:
        await connected(first)
        await connected(second, "two")
        messages = aiter(second)
        await anext(messages)
        await next_of(first)
        stand.desk.sessions.evict(ONE, "its identity was removed")
        await ends(first)
        stand.desk.sessions.send_order(NodeId("two"), an_order())
        with anyio.fail_after(60):
            assert await anext(messages) == an_order()


async def test_a_node_that_leaves_is_no_longer_connected(stand: Stand) -> None:
    async with stand.link("one").connect() as stream:
        await connected(stream)
        await next_of(stream)
    await eventually(lambda: not stand.desk.sessions.connected)


async def test_saying_good_bye_removes_the_node_and_repeating_it_is_harmless(stand: Stand) -> None:
    link = stand.link("one")
    async with link.connect() as stream:
        await connected(stream)
        await next_of(stream)
        await eventually(lambda: ONE in stand.desk.conductor.memory.nodes)
    await link.unregister(ONE)
    assert ONE not in stand.desk.conductor.memory.nodes
    await link.unregister(ONE)
