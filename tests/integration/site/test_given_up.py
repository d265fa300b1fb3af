"""Whoever asked the site for something may go away in the middle: a stream breaks, a request is cut off. What the
site remembers and what is durable stay the same."""

from pathlib import Path

import anyio
import pytest

from homeport.ports import Transaction
from homeport.vocabulary import NodeId, SiteName
from tests.support.builders import a_node
from tests.support.receptions import FrontDesk, front_desk

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
        assert set(desk.conductor.memory.nodes) == set(desk.conductor.memory.heard) == await stored(desk)
        await desk.conductor.sweep()


async def test_a_stream_that_breaks_before_its_turn_leaves_nothing(tmp_path: Path) -> None:
    async with front_desk(tmp_path) as desk:
        with anyio.CancelScope() as stream:
            stream.cancel()
            await desk.conductor.register(a_node("n1").info)
        assert not desk.conductor.memory.nodes
        assert not desk.conductor.memory.heard
        assert not await stored(desk)
        await desk.conductor.register(a_node("n1").info)
        assert await stored(desk) == {"n1"}
