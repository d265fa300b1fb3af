"""An export that cannot be written, or that the server refuses, says so and spoils no file."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from homeport.cli.api.export import export_lines
from homeport.errors import InvalidInput, Refused


def refused() -> Iterator[bytes]:
    yield from ()
    raise InvalidInput("That is no time.")


def test_lines_arrive_in_a_file_of_the_owner(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "events.jsonl"
    out.write_text("of yesterday")
    export_lines(iter([b"one\n", b"two\n"]), out, "events")
    assert out.read_bytes() == b"one\ntwo\n"
    assert f"exported 2 events to {out}" in capsys.readouterr().out


def test_a_new_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    export_lines(iter([]), tmp_path / "none.jsonl", "events")
    assert (tmp_path / "none.jsonl").stat().st_mode & 0o777 == 0o600


def test_a_place_that_is_none_is_told_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"x\.jsonl cannot be written: No such file or directory"):
        export_lines(iter([b"one\n"]), tmp_path / "nowhere" / "x.jsonl", "events")


def test_what_the_server_refuses_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    out = tmp_path / "events.jsonl"
    out.write_text("of yesterday")
    with pytest.raises(InvalidInput):
        export_lines(refused(), out, "events")
    assert out.read_text() == "of yesterday"
