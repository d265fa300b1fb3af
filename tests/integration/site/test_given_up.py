"""Whoever asked the site for something may go away in the middle: a stream breaks, a request is cut off. What the
site remembers and what is durable stay the same."""

from pathlib import Path

import anyio
import pytest

from homeport.adapters.link.inprocess import InProcessLink
from homeport.errors import TransientError
from homeport.ports import Transaction
from homeport.vocabulary import NodeId, SiteName
from tests.support.builders import a_node
from tests.support.receptions import FrontDesk, front_desk
from tests.support.scripted_node import scripted_node
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio


async def stored(desk: FrontDesk) -> set[NodeId]:
    async with desk.store.read() as reader:
        return {node.id for node in await reader.nodes(SiteName("home"))}


async def test_a_stream_that_breaks_while_its_node_is_written_down(tmp_path: Path) -> None:
    async with front_desk(tmp_path) as desk:
        free = anyio.Event()

        async def slow(tx: Transaction) -> None:
            await free.wait()

        async def register(scope: anyio.CancelScope) -> None:
            with scope:
                await desk.conductor.register(a_node("n1").info)

        stream = anyio.CancelScope()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(desk.store.write, slow)
            tasks.start_soon(register, stream)
            await anyio.wait_all_tasks_blocked()
            stream.cancel()
            await anyio.wait_all_tasks_blocked()
            free.set()
        assert set(desk.conductor.memory.nodes) == set(desk.conductor.memory.last_heartbeat) == await stored(desk)
        await desk.conductor.sweep()


async def test_a_stream_that_breaks_before_its_turn_leaves_nothing(tmp_path: Path) -> None:
    async with front_desk(tmp_path) as desk:
        with anyio.CancelScope() as stream:
            stream.cancel()
            await desk.conductor.register(a_node("n1").info)
        assert not desk.conductor.memory.nodes
        assert not desk.conductor.memory.last_heartbeat
        assert not await stored(desk)
        await desk.conductor.register(a_node("n1").info)
        assert await stored(desk) == {"n1"}


async def test_a_node_is_dismissed_only_when_its_removal_is_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(work: object) -> None:
        raise TransientError("the disk is full")

    async with front_desk(tmp_path) as desk, scripted_node(InProcessLink(desk.reception)) as node:
        await eventually(lambda: "one" in desk.conductor.memory.nodes)
        with monkeypatch.context() as patch:
            patch.setattr(desk.store, "write", full)
            with pytest.raises(TransientError):
                await desk.reception.unregister(NodeId("one"))
        assert await stored(desk) == {"one"}
        assert desk.sessions.connected == {"one"}
        assert not node.dismissed.is_set()
        await desk.reception.unregister(NodeId("one"))
        await eventually(node.dismissed.is_set)
        assert not await stored(desk)


async def test_a_stream_that_was_ended_before_its_turn_registers_nobody(tmp_path: Path) -> None:
    async with front_desk(tmp_path) as desk:
        await desk.conductor.connected(a_node("n1").info, (), is_open=lambda: False)
        assert not await stored(desk)
