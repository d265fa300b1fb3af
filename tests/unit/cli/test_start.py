"""A command imports what it needs and nothing else, so that the prompt is back at once."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {
    "rich",
    "fastapi",
    "pydantic",
    "grpc",
    "sqlalchemy",
    "aiohttp",
    "yaml",
    "pygit2",
    "uvicorn",
    "structlog",
    "http.client",
}
SCRIPT = """
import sys
from homeport.cli.main import run
code = run(sys.argv[1:])
print("loaded:", *sorted(sys.modules))
sys.exit(code)
"""

INTERRUPTIBLE = """
import runpy, signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # in a script's background it would be ignored
runpy.run_module("homeport.cli", run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ["version"],
        ["--help"],
        *([name, "--help"] for name in ("up", "site", "deploy", "deployments", "apps", "doctor")),
    ],
    ids=" ".join,
)
def test_nothing_heavy_is_imported_for_an_answer_that_needs_none(arguments: list[str]) -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT, *arguments], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.rpartition("loaded:")[2].split())
    assert not HEAVY & loaded


def test_the_version_is_the_packages_own() -> None:
    from homeport import __version__

    done = subprocess.run(
        [sys.executable, "-m", "homeport.cli", "version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"homeport {__version__}\n"


def test_ctrl_c_while_modules_are_imported_ends_it_without_a_word(tmp_path: Path) -> None:
    """Its first import, click, takes as long here as on a slow disk."""
    (tmp_path / "click.py").write_text("import sys\nprint('importing', flush=True)\nsys.stdin.read()\n")
    path = os.pathsep.join([str(tmp_path), *sys.path])
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTIBLE, "deploy", "./compose.yaml"],
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == b"importing\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == -signal.SIGINT
        assert process.stderr.read() == b""
