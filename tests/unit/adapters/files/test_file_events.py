"""Events of files that are written without a pause, and of watches that end."""

from pathlib import Path

import anyio
import pytest

from homeport.adapters.files.file_events import TOGETHER_SECONDS, FileEvents

pytestmark = pytest.mark.anyio


async def test_a_file_that_is_written_all_the_time_wakes_its_reader_now_and_then(tmp_path: Path) -> None:
    path = tmp_path / "output"
    events, woken, is_done = FileEvents(), 0, False

    async def count() -> None:
        nonlocal woken
        while True:
            await watched.wait()
            woken += 1

    with events.watch(path) as watched:
        began = anyio.current_time()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(count)
            with path.open("a") as file:
                for number in range(200):
                    file.write(f"line {number}\n")
                    file.flush()
                    await anyio.sleep(0.001)
            await anyio.sleep(3 * TOGETHER_SECONDS)
            is_done = watched.take_closed()
            tasks.cancel_scope.cancel()
        took = anyio.current_time() - began
    assert is_done, "the end of a writer is told, too"
    assert 1 <= woken <= took / TOGETHER_SECONDS + 2


async def test_what_is_written_after_a_silence_is_told_at_once(tmp_path: Path) -> None:
    path = tmp_path / "output"
    with FileEvents().watch(path) as watched:
        for _ in range(3):
            path.write_text("more")
            with anyio.fail_after(5):
                await watched.wait()
            await anyio.sleep(2 * TOGETHER_SECONDS)


async def test_a_watch_that_ends_while_events_are_kept_leaves_nothing_behind(tmp_path: Path) -> None:
    path, events = tmp_path / "output", FileEvents()
    with events.watch(path) as watched:
        path.write_text("a")
        await watched.wait()
    await anyio.sleep(2 * TOGETHER_SECONDS)
    with events.watch(path) as watched:
        path.write_text("b")
        with anyio.fail_after(5):
            await watched.wait()
