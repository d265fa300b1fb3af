"""A command imports what it needs and nothing else, so that the prompt is back at once."""

import subprocess
import sys

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
