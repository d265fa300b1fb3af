"""What a store does when the world misbehaves."""

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import anyio
import asyncpg
import pytest

from homeport.adapters.store.open import open_store
from homeport.core.model.event import NewEvent
from homeport.errors import InvalidInput, PermanentError, Refused, TransientError
from homeport.ports import Store
from tests.conformance.store import records
from tests.support.postgres import PostgresServer

pytestmark = pytest.mark.anyio

WRITER = """
import anyio, sys
from datetime import UTC, datetime
from homeport.adapters.store.open import open_store
from homeport.core.model.event import NewEvent
from homeport.vocabulary import EventKind

async def write(store, number):
    while True:
        event = NewEvent(EventKind.SITE_SYNCED, datetime.now(UTC), str(number))
        async def work(tx):
            await tx.append_events([event])
            await tx.enqueue([{"n": number}])
            return await tx.last_event_id()
        print(await store.write(work), number, flush=True)
        number += 10

async def main():
    async with open_store(sys.argv[1]) as store, anyio.create_task_group() as tasks:
        for number in range(10):
            tasks.start_soon(write, store, number)

anyio.run(main)
"""


async def append(store: Store, *events: NewEvent) -> None:
    await store.write(lambda tx: tx.append_events(events))


@contextmanager
def writing_process(url: str) -> Iterator["subprocess.Popen[str]"]:
    """Writes without end and prints each event id that was acknowledged to it, with its message."""
    process = subprocess.Popen([sys.executable, "-c", WRITER, url], stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def acknowledged_lines(process: "subprocess.Popen[str]") -> IO[str]:
    assert process.stdout is not None
    return process.stdout


async def test_kill_minus_nine_loses_no_acknowledged_write(url: str) -> None:
    acknowledged: dict[int, str] = {}
    with writing_process(url) as process:
        for line in acknowledged_lines(process):
            event_id, number = line.split()
            acknowledged[int(event_id)] = number
            if len(acknowledged) == 200:
                process.send_signal(signal.SIGKILL)
    assert len(acknowledged) >= 200
    async with open_store(url) as store, store.read() as reader:
        stored = {event.id: event.event.message for event in await reader.events(after=0, limit=100_000)}
        assert acknowledged.items() <= stored.items()
        assert list(stored) == list(range(1, len(stored) + 1))
        assert [item.sequence for item in await reader.outbox(limit=100_000)] == list(stored)


async def test_a_second_process_is_refused_and_told_who_has_the_file(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    with writing_process(url) as process:
        next(acknowledged_lines(process))
        with pytest.raises(Refused, match=f"process {process.pid}"):
            async with open_store(url, lock_wait_seconds=0.2):
                pass
    async with open_store(url):
        pass


async def test_several_processes_write_one_log_in_commit_order_and_one_killed_among_them_loses_nothing(
    postgres_url: str,
) -> None:
    acknowledged: dict[int, str] = {}
    seen: list[int] = []
    async with open_store(postgres_url) as store:
        with writing_process(postgres_url) as one, writing_process(postgres_url) as two:

            async def collect(process: "subprocess.Popen[str]", count: int) -> None:
                for _ in range(count):
                    line = await anyio.to_thread.run_sync(acknowledged_lines(process).readline)
                    event_id, number = line.split()
                    acknowledged[int(event_id)] = number

            async def follow() -> None:
                while True:
                    async with store.read() as reader:
                        new = [event.id for event in await reader.events(after=seen[-1] if seen else 0, limit=100)]
                    seen.extend(new)
                    await anyio.sleep(0.001)

            async with anyio.create_task_group() as reading:
                reading.start_soon(follow)
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(collect, one, 150)
                    tasks.start_soon(collect, two, 150)
                one.send_signal(signal.SIGKILL)
                await collect(two, 100)
                reading.cancel_scope.cancel()
        await append(store, records.event("after all"))
        assert seen == list(range(1, len(seen) + 1)), "a reader that follows misses nothing"
        assert len(acknowledged) == 400
        async with store.read() as reader:
            stored = {event.id: event.event.message for event in await reader.events(after=0, limit=100_000)}
        assert acknowledged.items() <= stored.items()
        assert list(stored) == list(range(1, len(stored) + 1))


async def test_a_writer_whose_connection_was_cut_connects_again(postgres_url: str) -> None:
    async with open_store(postgres_url) as store:
        await append(store, records.event("before"))
        await terminate_others(postgres_url)
        with pytest.raises(TransientError):
            await append(store, records.event("lost"))
        await append(store, records.event("after"))
        assert await messages(store) == ["before", "after"]


async def test_a_writer_that_connects_again_goes_on_behind_the_others(postgres_url: str) -> None:
    async with open_store(postgres_url) as store:
        await append(store, records.event("mine"))
        await terminate_others(postgres_url)
        async with open_store(postgres_url) as other:
            await append(other, records.event("theirs"))
            with pytest.raises(TransientError):
                await append(store, records.event("lost"))
            await append(store, records.event("mine again"))
        assert await messages(store) == ["mine", "theirs", "mine again"]


async def test_an_older_version_that_counts_in_memory_keeps_us_out(postgres_url: str) -> None:
    connection = await asyncpg.connect(postgres_url)
    try:
        await connection.execute("SELECT pg_advisory_lock($1)".replace("$1", str(int.from_bytes(b"homeport"))))
        with pytest.raises(Refused, match="in use by an older version of Homeport"):
            async with open_store(postgres_url, lock_wait_seconds=0.2):
                pass
    finally:
        await connection.close()


async def test_several_that_start_at_once_on_a_new_database_make_it_once(postgres_url: str) -> None:
    async def open_and_write(number: int) -> None:
        async with open_store(postgres_url) as store:
            await append(store, records.event(str(number)))

    async with anyio.create_task_group() as tasks:
        for number in range(4):
            tasks.start_soon(open_and_write, number)
    async with open_store(postgres_url) as store:
        assert sorted(await messages(store)) == ["0", "1", "2", "3"]


async def terminate_others(url: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    finally:
        await connection.close()


async def messages(store: Store) -> list[str]:
    async with store.read() as reader:
        return [event.event.message for event in await reader.events(after=0, limit=100)]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk; the makers run this as root")
async def test_a_full_disk_is_said_in_a_sentence_and_survived(small_disk: Path) -> None:
    long = "x" * 100_000
    async with open_store(str(small_disk / "store.db")) as store:
        await append(store, records.event("first"))
        with pytest.raises(TransientError, match="disk that holds the database is full") as error:
            for _ in range(100):
                await append(store, records.event(long))
        assert error.value.hint
        before = await messages(store)
        await anyio.run_process(["mount", "-o", "remount,size=8m", str(small_disk)])
        await append(store, records.event("last"))
        assert await messages(store) == [*before, "last"]


async def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.write_text("these are my holiday pictures" * 100)
    with pytest.raises(PermanentError, match="damaged or not a database"):
        async with open_store(str(path)):
            pass
    assert path.read_text().startswith("these are my holiday pictures")


async def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Refused, match="cannot be made"):
        async with open_store(str(tmp_path / "file" / "store.db")):
            pass


@pytest.mark.parametrize("url", ["mysql://host/name", "sqlite://", "sqlite:///:memory:", "http:/x://"])
async def test_an_address_of_no_known_kind_is_invalid(url: str) -> None:
    with pytest.raises(InvalidInput):
        async with open_store(url):
            pass


async def test_a_server_that_does_not_answer_is_worth_another_try(tmp_path: Path) -> None:
    with pytest.raises(TransientError, match="cannot be reached"):
        async with open_store(f"postgresql://postgres@/name?host={tmp_path}"):
            pass


async def test_a_database_that_does_not_exist_is_refused_with_a_hint(postgres: PostgresServer) -> None:
    with pytest.raises(
        Refused, match=r'^PostgreSQL does not let us in: database "nowhere" does not exist\.$'
    ) as refused:
        async with open_store(postgres.url("nowhere")):
            pass
    assert refused.value.hint


async def test_questions_of_the_dashboard_are_answered_from_an_index(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with open_store(str(path)):
        pass
    questions = (
        "SELECT * FROM deployments WHERE site = 'a' AND archived_at IS NULL ORDER BY site, name",
        "SELECT * FROM deployments WHERE id >= '4f' AND id < '4g'",
        "SELECT * FROM deployments WHERE name = 'a'",
        "SELECT * FROM deployments WHERE state = 'FAILED'",
        "SELECT * FROM deployments WHERE rollout_id = 'r'",
        "SELECT * FROM instances WHERE deployment_id IN ('a', 'b') ORDER BY deployment_id, node_id",
        "SELECT * FROM history WHERE deployment_id = 'a' ORDER BY id",
        "SELECT * FROM events WHERE id > 7 ORDER BY id LIMIT 100",
        "SELECT * FROM events WHERE deployment_id = 'a' AND id > 7 ORDER BY id LIMIT 100",
        "SELECT * FROM nodes WHERE site = 'a'",
        "SELECT * FROM apps WHERE app_name = 'a'",
    )
    database = sqlite3.connect(path)
    try:
        for question in questions:
            plan = " ".join(row[3] for row in database.execute(f"EXPLAIN QUERY PLAN {question}"))
            assert "SEARCH" in plan and "SCAN" not in plan and "TEMP B-TREE" not in plan, (question, plan)
    finally:
        database.close()


async def test_a_database_file_is_for_its_owner_alone_also_one_that_was_not(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    for _ in range(2):
        async with open_store(str(path)) as store:
            await append(store, records.event())
            assert modes_of(tmp_path) == {"store.db": 0o600, "store.db-wal": 0o600, "store.db-shm": 0o600}
        path.chmod(0o644)


def modes_of(folder: Path) -> dict[str, int]:
    found = {path.name: path.stat().st_mode & 0o777 for path in folder.glob("store.db*")}
    return {name: mode for name, mode in found.items() if not name.endswith(".lock")}


async def test_a_commit_waits_for_a_backup_that_has_the_lock_and_blocks_nobody(tmp_path: Path) -> None:
    """Beginning is tried on the event loop; only where it has to wait does a thread do it."""
    file = tmp_path / "store.db"
    async with open_store(str(file)) as store:
        await append(store, records.event())
        other = sqlite3.connect(file, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        steps = 0
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(append, store, records.event())
            for _ in range(20):
                await anyio.sleep(0.01)
                steps += 1
            async with store.read() as reader:
                assert await reader.last_event_id() == 1
            with anyio.fail_after(3):
                other.execute("ROLLBACK")
                while True:
                    async with store.read() as reader:
                        if await reader.last_event_id() == 2:
                            break
                    await anyio.sleep(0.01)
        assert steps == 20
        other.execute("BEGIN IMMEDIATE")  # nothing of the wait is left behind
        other.execute("ROLLBACK")
        other.close()
        await append(store, records.event())
