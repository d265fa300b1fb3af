"""What a running role has loaded. A library that nobody uses costs every start, and memory for as long as it runs."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.ports import free_port

SCRIPT = """
import sys
from homeport.cli.roles import running

class Lifetime(running.Lifetime):
    def __init__(self, on_ready):
        super().__init__(self.show)

    def show(self, *_):
        print("loaded:", *sorted(sys.modules), flush=True)
        self.stop()

running.Lifetime = Lifetime
from homeport.cli.main import run
sys.exit(run(sys.argv[1:]))
"""
NETWORK = {"aiohttp", "grpclib", "h2"}
"""Log lines travel as protobuf in one process too, so that is loaded everywhere."""
UNUSED_EVERYWHERE = {
    "alembic",
    "asyncpg",
    "grpc",
    "jsonschema",
    "opentelemetry.sdk",
    "psutil",
    "rich",
    "sqlalchemy.orm",
}
NOT_IN_A_NODE = {"aiohttp", "fastapi", "pydantic", "pygit2", "sqlalchemy", "starlette", "uvicorn"}
NOT_IN_A_NODE |= {"argparse", "homeport.ports.storage.store", "importlib.metadata", "zipfile"}
NOT_IN_A_NODE |= {"decimal", "difflib", "http.client", "prometheus_client", "tarfile", "urllib.request", "wsgiref"}
NOT_IN_A_NODE |= {"homeport.adapters.runtime.containerd.runtime", "homeport.adapters.runtime.helm.cluster"}
NOT_IN_A_NODE |= {"google.protobuf.text_format", "tomllib", "yaml"}
"""Eight megabytes that it would carry for nothing."""


def loaded_by(*arguments: str) -> set[str]:
    """The modules of a process that has just said that it is up."""
    command = [sys.executable, "-c", SCRIPT, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert "loaded:" in done.stdout, done.stdout + done.stderr
    return set(done.stdout.partition("loaded:")[2].partition("\n")[0].split())


def local(port: int) -> str:
    return f"127.0.0.1:{port}"


def test_all_roles_in_one_process_load_nothing_for_a_network_between_them(tmp_path: Path) -> None:
    loaded = loaded_by("up", "--data", str(tmp_path), "--runtime", "null", "--http", local(free_port()))
    assert not loaded & (UNUSED_EVERYWHERE | NETWORK)


def test_a_node_loads_no_web_framework_database_toolkit_or_schema_library(tmp_path: Path) -> None:
    addresses = ("--site", local(free_port()), "--http", local(free_port()))
    loaded = loaded_by("node", "--data", str(tmp_path), "--runtime", "null", *addresses)
    assert not loaded & (UNUSED_EVERYWHERE | NOT_IN_A_NODE)


@pytest.mark.parametrize("role", ["site", "central"])
def test_central_and_a_site_load_only_what_they_use(role: str) -> None:
    code = f"import sys, homeport.{role}.app; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert not set(done.stdout.split()) & (UNUSED_EVERYWHERE | NETWORK)
