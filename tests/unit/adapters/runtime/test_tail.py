"""The last lines of a log, without reading all of it."""

from pathlib import Path

from homeport.adapters.runtime.programs.tail import last_lines


def test_the_last_lines_may_span_two_files(tmp_path: Path) -> None:
    older, newer = tmp_path / "log.1", tmp_path / "log"
    older.write_text("one\ntwo\n")
    newer.write_text("three\nfour")
    assert last_lines((older, newer), 3) == [b"two\n", b"three\n", b"four"]
    assert last_lines((older, newer), 1) == [b"four"]
    assert last_lines((older, newer), 0) == []
    assert last_lines((tmp_path / "nothing",), 5) == []


def test_a_long_log_is_read_from_its_end(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("".join(f"line {number} {'x' * 100}\n" for number in range(5000)))
    lines = last_lines((log,), 2000)
    assert len(lines) == 2000
    assert lines[0].startswith(b"line 3000 ")
