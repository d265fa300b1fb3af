"""`scripts/setup` where the Python packages are missing, without a package index: pip is a script that says yes."""

import os
import pty
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
BEGUN = "  … installing the Python packages into .venv, a minute or two"
DONE = "installed the Python packages into .venv"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "setup", tmp_path / "scripts")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\nexit 0\n")
    python.chmod(0o755)
    (tmp_path / "web").mkdir()
    built = tmp_path / "src/homeport/dashboard/static/built"
    built.parent.mkdir(parents=True)
    built.write_text(subprocess.run(["cksum"], input="", capture_output=True, text=True, check=True).stdout)
    return tmp_path


def test_what_takes_long_is_named_before_it_begins(checkout: Path) -> None:
    said = subprocess.run(
        [checkout / "scripts/setup"], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert said[0] == BEGUN
    assert said[1].startswith(f"  {DONE}")
    assert "✓ environment ready" in said[2]


def test_the_dashboard_is_checked_with_the_node_that_it_is_built_with(checkout: Path) -> None:
    """Setup puts one into .venv where that of the machine is too old."""
    shutil.copy(ROOT / "scripts" / "check", checkout / "scripts")
    for npm, code in ((checkout / ".venv/bin/npm", 0), (checkout / "machine/npm", 1)):
        npm.parent.mkdir(exist_ok=True)
        npm.write_text(f"#!/bin/sh\nexit {code}\n")
        npm.chmod(0o755)
    environment = {**os.environ, "PATH": f"{checkout / 'machine'}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        [checkout / "scripts/check", "dashboard"], env=environment, capture_output=True, text=True, check=False
    )
    assert "✓ dashboard" in done.stdout, done.stdout


def read_all(terminal: int) -> str:
    """What was written to it, of which each read may return a part; once the other side is closed it is an error."""
    parts = []
    with suppress(OSError):
        while part := os.read(terminal, 4096):
            parts.append(part)
    return b"".join(parts).decode()


def test_at_a_terminal_one_line_stays_of_each_step(checkout: Path) -> None:
    ours, theirs = pty.openpty()
    subprocess.run([checkout / "scripts/setup"], stdout=theirs, stderr=theirs, check=True)
    os.close(theirs)
    said = read_all(ours)
    os.close(ours)
    assert said.index(BEGUN) < said.index("\r\x1b[K  " + DONE)
    assert [line.rpartition("\x1b[K")[2].split()[0] for line in said.split("\r\n") if line] == ["installed", "✓"]
