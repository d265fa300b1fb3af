"""What only the bus over PostgreSQL has: a connection that can be lost, and a store that wakes through it."""

from collections.abc import AsyncIterator

import anyio
import asyncpg
import pytest

from homeport.adapters.bus.postgresql import open_bus
from homeport.adapters.store.open import open_store
from homeport.errors import TransientError
from homeport.ports import Message
from tests.conformance.store import records
from tests.support.postgres import PostgresServer
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio


@pytest.fixture
async def url(postgres: PostgresServer) -> AsyncIterator[str]:
    name = await postgres.copy_database()
    async with open_store(postgres.url(name)):
        yield postgres.url(name)
    await postgres.drop_database(name)


async def cut_listeners(url: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid() AND query ILIKE '%LISTEN%'"
        )
    finally:
        await connection.close()


async def test_a_cut_connection_is_made_again_and_everybody_hears_of_the_gap(url: str) -> None:
    heard: list[Message] = []
    gaps: list[str] = []
    async with open_bus(url) as here, open_bus(url) as there:
        there.subscribe("topic", heard.append, on_gap=lambda: gaps.append("there"))
        await cut_listeners(url)
        await eventually(lambda: gaps == ["there"])
        here.publish("topic", {"n": 1})
        await eventually(lambda: heard == [{"n": 1}])


async def test_a_database_that_is_not_there_is_said_at_the_start(postgres: PostgresServer) -> None:
    with pytest.raises(TransientError):
        async with open_bus(f"postgresql://postgres@/x?host={postgres.socket_folder}/nowhere"):
            pass


async def test_another_process_wakes_readers_at_once_and_without_the_bus_a_little_later(url: str) -> None:
    async with (
        open_bus(url) as bus,
        open_store(url, bus=bus, look_seconds=3600) as woken,
        open_store(url, look_seconds=0.1) as looking,
        open_store(url) as writing,
    ):
        for store in (woken, looking):
            async with anyio.create_task_group() as tasks:
                async with store.read() as reader:
                    last = await reader.last_event_id()
                with anyio.fail_after(60):
                    tasks.start_soon(store.wait_for_event, last)
                    await anyio.wait_all_tasks_blocked()
                    await writing.write(lambda tx: tx.append_events([records.event()]))


async def test_what_was_missed_in_a_gap_is_looked_up(url: str) -> None:
    async with open_bus(url) as bus, open_store(url, bus=bus, look_seconds=3600) as store, open_store(url) as writing:
        await cut_listeners(url)
        await writing.write(lambda tx: tx.append_events([records.event()]))
        with anyio.fail_after(60):
            await store.wait_for_event(0)
