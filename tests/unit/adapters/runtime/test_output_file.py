"""The file that Podman's monitor writes: read once and in order by readers that are killed and resumed anywhere."""

import os
import tempfile
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from homeport.adapters.files.file_events import FileEvents
from homeport.adapters.runtime.docker_api.output import OutputLines
from homeport.adapters.runtime.programs.output_file import (
    REPLACED,
    SHORTENED,
    OutputFile,
    follow_output_file,
    read_output_file,
)
from homeport.adapters.runtime.programs.output_records import RecordLines, RecordParser, place_of
from homeport.core.logs.text import LINE_BYTES_MAX
from homeport.ports import OutputLine

BEGIN = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)


class Monitor:
    """Writes as conmon does: records of 8 KiB at most, a new file renamed over the old one when it is full."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("ab", buffering=0)
        self._at = BEGIN
        self._pending: dict[str, bytes] = {}

    def write(self, text: bytes, *, stream: str = "stdout") -> None:
        for line in text.splitlines(keepends=True):
            for start in range(0, len(line), 8192):
                part = line[start : start + 8192]
                kind = b"F" if part.endswith(b"\n") else b"P"
                self._at += timedelta(microseconds=137)
                stamp = self._at.strftime("%Y-%m-%dT%H:%M:%S.%f000+00:00").encode()
                self._file.write(stamp + f" {stream} ".encode() + kind + b" " + part.rstrip(b"\n") + b"\n")

    def rotate(self) -> None:
        self._file.close()
        following = self.path.with_name("ctr.log.tmp")
        self._file = following.open("wb", buffering=0)
        following.rename(self.path)

    def close(self) -> None:
        self._file.close()


def read_from(path: Path, resume: str) -> list[OutputLine]:
    """Everything after a place, as after a restart of the node."""
    place = place_of(resume)
    lines = RecordLines(place.skip if place else 0)
    found: list[OutputLine] = []
    with closing(OutputFile(path, place)) as file:
        while records := file.read():
            is_next, lost = file.take_breaks(0)
            if is_next:
                lines.next_file()
            if lost:
                lines.gap(lost)
            found += lines.feed(records, first_ns=file.first_ns)
    return found


def texts(found: Sequence[OutputLine]) -> list[str]:
    return [each.text.decode() for each in found if each.text is not None]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 20_000), st.booleans()), max_size=12), st.data())
def test_a_reader_that_is_killed_anywhere_reads_each_line_once(
    writes: list[tuple[bool, int, bool]], data: st.DataObject
) -> None:
    """Both streams are mixed, with lines in several records."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ctr.log"
        with closing(Monitor(path)) as monitor:
            for number, (is_error, size, is_whole) in enumerate(writes):
                text = f"{number}:".encode() + b"x" * size + (b"\n" if is_whole else b"")
                monitor.write(text, stream="stderr" if is_error else "stdout")
        whole = read_from(path, "")
        for stream in (False, True):
            written = b"".join(
                f"{number}:".encode() + b"x" * size + (b"\n" if is_whole else b"")
                for number, (is_error, size, is_whole) in enumerate(writes)
                if is_error is stream
            ).split(b"\n")[:-1]
            sizes = [each.size or len(each.text or b"") for each in whole if each.is_error is stream]
            assert sizes == [len(line) for line in written]
        if whole:
            index = data.draw(st.integers(0, len(whole) - 1))
            rest = read_from(path, whole[index].resume)
            assert [(each.text, each.is_error) for each in rest] == [
                (each.text, each.is_error) for each in whole[index + 1 :]
            ]


def test_times_have_the_precision_of_the_file_and_both_streams_are_told_apart() -> None:
    parser = RecordParser()
    block = b"".join(
        (
            b"2026-05-01T12:00:00.123456789+00:00 stdout F one\n",
            b"2026-05-01T14:00:00.5+02:00 stderr P t\n",
            b"2026-05-01T12:00:01Z stderr F wo\n",
            b"not a record\n",
            b"2026-05-01T12:00:02.000000001+00:00 stdout F \n",
        )
    )
    records = parser.parse(block, 100)
    begin = int(BEGIN.timestamp()) * 10**9
    assert [(each.ns - begin, each.is_error, each.is_whole, each.text) for each in records] == [
        (123456789, False, True, b"one"),
        (500_000_000, True, False, b"t"),
        (10**9, True, True, b"wo"),
        (10**9, False, True, b"not a record"),
        (2 * 10**9 + 1, False, True, b""),
    ]
    assert (records[0].start, records[-1].end) == (100, 100 + len(block))


def test_a_line_of_a_megabyte_is_cut_and_knows_its_size(tmp_path: Path) -> None:
    with closing(Monitor(tmp_path / "ctr.log")) as monitor:
        monitor.write(b"y" * 1_000_000 + b"\nnext\n")
    long, following = read_from(tmp_path / "ctr.log", "")
    assert (len(long.text or b""), long.size) == (LINE_BYTES_MAX, 1_000_000)
    assert (following.text, following.size) == (b"next", None)


def test_an_hour_is_found_in_a_long_file_without_reading_all_of_it(tmp_path: Path) -> None:
    path = tmp_path / "ctr.log"
    with path.open("wb") as file:
        for minute in range(0, 3000, 10):
            stamp = (BEGIN + timedelta(minutes=minute)).strftime("%Y-%m-%dT%H:%M:%S.%f000+00:00")
            file.write(f"{stamp} stdout F {minute} {'z' * 4000}\n".encode())
    with closing(OutputFile(path)) as output:
        output.seek(int((BEGIN + timedelta(minutes=2940)).timestamp()) * 10**9)
        minutes = [int(each.text.split()[0]) for each in output.read()]
    assert minutes[0] <= 2940
    assert minutes[-1] == 2990
    assert len(minutes) < 30


@pytest.mark.anyio
class TestFollowing:
    @staticmethod
    def follow(path: Path, *, since_ns: int = 0, skip: int = 0) -> AsyncGenerator[Sequence[OutputLine], None]:
        return follow_output_file(path, FileEvents(), "", since_ns=since_ns, skip=skip, now=lambda: BEGIN)

    async def test_lines_are_read_as_they_are_written_and_to_the_last_after_removal(self, tmp_path: Path) -> None:
        path = tmp_path / "ctr.log"
        monitor = Monitor(path)
        monitor.write(b"one\n")
        found: list[str] = []
        with anyio.fail_after(20):
            async with aclosing(self.follow(path)) as pieces:
                async for lines in pieces:
                    found += texts(lines)
                    if found == ["one"]:
                        monitor.write(b"two\nand a rest")
                        monitor.close()
                        path.unlink()
        assert found == ["one", "two", "and a rest"]

    async def test_a_container_that_ended_and_was_started_again_goes_on_in_its_file(self, tmp_path: Path) -> None:
        path = tmp_path / "ctr.log"
        monitor = Monitor(path)
        monitor.write(b"crash without an end")
        found: list[OutputLine] = []
        with anyio.fail_after(20):
            async with aclosing(self.follow(path)) as pieces, anyio.create_task_group() as tasks:
                tasks.start_soon(anyio.to_thread.run_sync, monitor.close)
                async for lines in pieces:
                    found += lines
                    if len(found) == 1:
                        with closing(Monitor(path)) as again:
                            again.write(b"started\n")
                    else:
                        break
        assert texts(found) == ["crash without an end", "started"]
        assert texts(read_from(path, found[0].resume)) == ["started"]

    async def test_a_rotated_file_is_read_to_its_end_before_the_next(self, tmp_path: Path) -> None:
        path = tmp_path / "ctr.log"
        monitor = Monitor(path)
        monitor.write(b"one\n")
        found: list[OutputLine] = []
        with anyio.fail_after(20):
            async with aclosing(self.follow(path)) as pieces:
                async for lines in pieces:
                    found += lines
                    if texts(found) == ["one"]:
                        monitor.write(b"two\nacr")
                        monitor.rotate()
                        monitor.write(b"oss\nthree\n")
                    if len(found) == 4:
                        break
        monitor.close()
        assert texts(found) == ["one", "two", "across", "three"]
        assert not any(each.lost for each in found)
        assert texts(read_from(path, found[2].resume)) == ["three"]

    async def test_a_file_that_was_rotated_twice_unread_is_a_gap(self, tmp_path: Path) -> None:
        path = tmp_path / "ctr.log"
        monitor = Monitor(path)
        monitor.write(b"one\n")
        found: list[OutputLine] = []
        with anyio.fail_after(20):
            async with aclosing(self.follow(path)) as pieces:
                async for lines in pieces:
                    found += lines
                    if texts(found) == ["one"]:
                        monitor.write(b"two\n")
                        monitor.rotate()
                        monitor.write(b"lost\n")
                        monitor.rotate()
                        monitor.write(b"four\n")
                    if texts(found)[-1] == "four":
                        break
        monitor.close()
        assert [(each.text, each.lost) for each in found] == [(b"one", ""), (b"two", ""), (b"four", REPLACED)]

    async def test_files_that_were_never_read_before_a_removal_are_a_gap(self, tmp_path: Path) -> None:
        path = tmp_path / "ctr.log"
        monitor = Monitor(path)
        monitor.write(b"one\n")
        found: list[OutputLine] = []
        with anyio.fail_after(20):
            async with aclosing(self.follow(path)) as pieces:
                async for lines in pieces:
                    found += lines
                    if len(found) == 1:
                        monitor.rotate()
                        monitor.write(b"lost\n")
                        monitor.close()
                        path.unlink()
        assert [(each.text, each.lost) for each in found] == [(b"one", ""), (None, REPLACED)]

    async def test_the_end_of_a_job_is_the_end_of_its_output(self, tmp_path: Path) -> None:
        path = tmp_path / "ctr.log"
        monitor = Monitor(path)
        state = {"is_running": True, "asked": 0}

        async def is_running() -> bool:
            state["asked"] += 1
            return bool(state["is_running"])

        chunks: list[bytes] = []
        with anyio.fail_after(20):
            async with aclosing(read_output_file(path, FileEvents(), is_running)) as pieces:
                monitor.write(b"x" * 100_000 + b"\n")
                async for chunk in pieces:
                    chunks.append(chunk)
                    if len(b"".join(chunks)) == 100_001:
                        monitor.write(b"errors\n", stream="stderr")
                        monitor.write(b"the end")
                        state["is_running"] = False
                        monitor.close()
        assert b"".join(chunks) == b"x" * 100_000 + b"\nerrors\nthe end"
        assert state["asked"] < 10, "the engine is asked when the monitor closes the file, not all the time"


def test_what_happened_to_the_file_while_nobody_read_it_is_a_gap(tmp_path: Path) -> None:
    path = tmp_path / "ctr.log"
    monitor = Monitor(path)
    monitor.write(b"one\ntwo\n")
    (one, two) = read_from(path, "")
    monitor.rotate()
    monitor.write(b"three\nfour\n")
    three, four = read_from(path, two.resume)
    assert (texts([three, four]), three.lost, four.lost) == (["three", "four"], REPLACED, "")
    os.truncate(path, 0)
    monitor.close()
    with closing(Monitor(path)) as again:
        again.write(b"five\n")
    assert [(each.text, each.lost) for each in read_from(path, four.resume)] == [(b"five", REPLACED)]
    assert one.resume != two.resume


def test_a_file_that_is_shortened_while_it_is_read_is_a_gap(tmp_path: Path) -> None:
    path = tmp_path / "ctr.log"
    monitor = Monitor(path)
    monitor.write(b"one\ntwo\n")
    with closing(OutputFile(path)) as file:
        assert len(file.read()) == 2
        os.truncate(path, 0)
        monitor.write(b"three\n")
        (record,) = file.read()
        assert (record.text, file.take_breaks(0)) == (b"three", (True, SHORTENED))
    monitor.close()


@pytest.mark.anyio
async def test_a_place_of_the_engines_stream_is_found_in_the_file(tmp_path: Path) -> None:
    """As after an upgrade: Podman's stream gives whole seconds, and counts the pieces of each."""
    path = tmp_path / "ctr.log"
    path.write_text(
        "2026-05-01T12:00:00.900000000+00:00 stdout F one\n"
        "2026-05-01T12:00:01.100000000+00:00 stdout F two\n"
        "2026-05-01T12:00:01.200000000+00:00 stdout F three\n"
        "2026-05-01T12:00:02.000000000+00:00 stdout F four\n"
    )
    before = OutputLines(f"{int(BEGIN.timestamp()) + 1}000000000#1")
    with anyio.fail_after(20):
        async with aclosing(TestFollowing.follow(path, since_ns=before.since_ns, skip=before.skip)) as pieces:
            assert texts(await anext(pieces)) == ["three", "four"]
    place = place_of(read_from(path, "")[-1].resume)
    assert place is not None
    assert OutputLines(str(place)).since_ns == place.last_ns + 1


@pytest.mark.anyio
async def test_without_inotify_the_file_is_looked_at_in_intervals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left() -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr("homeport.adapters.files.inotify.open_instance", none_left)
    monkeypatch.setattr("homeport.adapters.files.file_events.POLL_SECONDS", 0.01)
    path = tmp_path / "ctr.log"
    with closing(Monitor(path)) as monitor, anyio.fail_after(20):
        monitor.write(b"one\n")
        async with aclosing(TestFollowing.follow(path)) as pieces:
            assert texts(await anext(pieces)) == ["one"]
            monitor.write(b"two\n")
            assert texts(await anext(pieces)) == ["two"]
