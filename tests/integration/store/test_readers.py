"""Which connections readers use: each has a cache of its own in memory."""

from pathlib import Path

import anyio
import pytest
from sqlalchemy import event

from homeport.adapters.store.databases.engine import create_engines, parse_address
from homeport.adapters.store.open import LeftOutRows, SqlStore, open_store

pytestmark = pytest.mark.anyio

READERS = 4


async def test_readers_one_after_the_other_use_one_connection_after_a_burst(tmp_path: Path) -> None:
    url = str(tmp_path / "role.db")
    async with open_store(url):
        pass
    engines = create_engines(parse_address(url), readers_max=READERS)
    used: list[int] = []
    event.listen(engines.readers.sync, "checkout", lambda connection, *_: used.append(id(connection)))
    store = SqlStore(engines.readers, None, LeftOutRows())  # type: ignore[arg-type]
    everybody = anyio.Event()

    async def read_with_others() -> None:
        async with store.read():
            if len(used) == READERS:
                everybody.set()
            await everybody.wait()

    try:
        async with anyio.create_task_group() as tasks:
            for _ in range(READERS):
                tasks.start_soon(read_with_others)
        assert len(set(used)) == READERS
        used.clear()
        for _ in range(3 * READERS):
            async with store.read() as reader:
                assert await reader.last_event_id() == 0
        assert len(set(used)) == 1
    finally:
        await engines.dispose()
