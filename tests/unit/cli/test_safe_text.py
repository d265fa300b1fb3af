"""Escape sequences of others do not reach a terminal, whichever command prints them."""

import io
import os
import pty
import select
import subprocess
import sys
from pathlib import Path

import pytest

from homeport.cli.terminal.output import echo_wrapped, write_output
from homeport.cli.terminal.progress import Line
from homeport.cli.terminal.safe_text import safe

EVIL = "\x1b]0;gotcha\x07\x1b[2J\x1b[1A\x9b2J\x1bP+q\x1b\\\r\x08\u202e\x1b[8m"
MARGO = """\
apiVersion: v1
id: evil
metadata:
  name: evil
  version: "1.0.0"
"\\e]0;gotcha\\a\\e[2J\\e[1A\\r\\e]52;c;aGVsbG8=\\a": 1
"""


def test_only_text_line_breaks_and_colours_are_left() -> None:
    shown = safe(f"one\ttwo\n\x1b[31mred\x1b[0m ✓ {EVIL}end")
    assert shown.startswith("one\ttwo\n\x1b[31mred\x1b[0m ✓ ")
    rest = shown.partition("✓ ")[2]
    assert all(letter.isprintable() for letter in rest)
    assert "gotcha" in rest and rest.endswith("end")


def test_what_a_node_says_is_drawn_without_its_escape_sequences() -> None:
    assert Line("n1", "pulling", f"image {EVIL}").render(4).isprintable()


@pytest.mark.parametrize(
    ("is_terminal", "shown"),
    [
        (True, "10%\n50%\nred\n\N{REPLACEMENT CHARACTER}end"),
        (False, "10%\r50%\n\x1b[31mred\x1b[0m\r\n\x07end"),
    ],
)
def test_what_a_job_printed_is_text_at_a_terminal_and_unchanged_elsewhere(
    is_terminal: bool, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return is_terminal

    screen = Screen(newline="")
    monkeypatch.setattr(sys, "stdout", screen)
    write_output("10%\r50%\n\x1b[31mred\x1b[0m\r\n\x07end")
    assert screen.getvalue() == shown


def test_an_error_that_quotes_a_file_of_others_is_harmless_in_a_terminal(tmp_path: Path) -> None:
    """The real command in a real terminal: `homeport apps validate` names the wrong key."""
    (tmp_path / "margo.yaml").write_text(MARGO)
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "homeport.cli", "apps", "validate", str(tmp_path)],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**os.environ, "TERM": "xterm", "XDG_CONFIG_HOME": str(tmp_path)},
    )
    os.close(slave)
    seen = b""
    while process.poll() is None or select.select([master], [], [], 0.1)[0]:
        if select.select([master], [], [], 0.1)[0]:
            try:
                seen += os.read(master, 65536)
            except OSError:
                break
    os.close(master)
    assert process.wait() != 0
    assert b"gotcha" in seen
    assert b"\x1b]" not in seen and b"\x1b[2J" not in seen and b"\x07" not in seen


@pytest.mark.parametrize("text", ["", "plain", "Zoë 🚢 ✓", "a\nb", "\x1b[1;38;5;208mbold\x1b[0m"])
def test_our_own_text_stays_as_it_is(text: str) -> None:
    assert safe(text) == text


def test_a_reason_with_line_breaks_makes_no_entries_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    echo_wrapped("10:00:00   node.drained   ", "drained: disk\n10:00:01   audit.entry    admin did it")
    first, second = capsys.readouterr().out.splitlines()
    assert (first[:2], second) == ("10", "    10:00:01   audit.entry    admin did it")
