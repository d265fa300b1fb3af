"""A model on a node behind two NATs answers at central and at its site: connections are opened upwards only, and the
engine listens on its own machine's loopback alone."""

import contextlib
import json
import os
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.hosts import CENTRAL_PORT, SITE_PORT, UNVERIFIED, HostFleet, host_fleet, stocked
from tests.support.namespaces import natted
from tests.support.tiny_model import write_tiny_model

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="making network namespaces needs root")

REGISTRY_PORT = 8444


def ask(fleet: HostFleet, at: str, path: str, body: dict[str, Any] | None = None, *, token: str) -> Any:
    """An open answer of a role, asked on its own host."""
    port = CENTRAL_PORT if at == "central" else SITE_PORT
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"https://{fleet.hosts[at].address}:{port}{path}", data, headers)
    return fleet.inside[at].run(lambda: urllib.request.urlopen(request, timeout=60, context=UNVERIFIED))


def busy_slots(fleet: HostFleet) -> int:
    """Of the engine, asked on its own machine."""
    (handoff,) = (fleet.data("n1") / "engines").glob("*.json")
    url = json.loads(handoff.read_text())["url"]

    def call() -> int:
        with urllib.request.urlopen(f"{url}/slots", timeout=10) as answer:
            return sum(slot["is_processing"] for slot in json.load(answer))

    return fleet.inside["n1"].run(call)


@contextlib.contextmanager
def engines_ended(fleet: HostFleet) -> Iterator[None]:
    """They outlive the node."""
    try:
        yield
    finally:
        for state in (fleet.data("n1") / "engine-programs").glob("process/*/*/state.json"):
            with contextlib.suppress(OSError, ValueError):
                os.kill(int(json.loads(state.read_text())["pid"]), signal.SIGKILL)


def chat(**changes: Any) -> dict[str, Any]:
    return {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 8, **changes}


def test_a_model_behind_two_nats_answers_at_central_and_at_its_site(tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "tiny.gguf")
    stock = stocked((), tmp_path / "stock")
    with host_fleet(tmp_path, stock, network=natted, registry_port=REGISTRY_PORT) as fleet, engines_ended(fleet):
        central, hosts = fleet.machines["central"], fleet.hosts
        ping = [*hosts["central"].prefix, "ping", "-c", "1", "-W", "1", hosts["north"].address]
        assert subprocess.run(ping, capture_output=True, check=False).returncode != 0, "central reaches no site"
        shown = central.homeport("models", "serve", str(model), "--site", "north", "--allow-cpu", "--ctx", "60000")
        assert "pool tiny serves tiny" in shown
        answered = central.json("chat", "hello", "--max-tokens", "8")
        assert answered["usage"]["completion_tokens"] == 8

        # A client that goes away in the middle of its stream frees the slot of an engine two tunnels away.
        answer = ask(
            fleet, "central", "/v1/chat/completions", chat(stream=True, max_tokens=50_000), token=fleet.token
        )
        assert answer.readline().startswith(b"data: {")
        fleet.wait(lambda: busy_slots(fleet) == 1, what="the engine to work")
        answer.close()
        fleet.wait(lambda: busy_slots(fleet) == 0, seconds=5, what="the slot to be free")

        fleet.roles["central"].kill()
        with ask(fleet, "north", "/v1/chat/completions", chat(), token=fleet.site_token) as alone:
            assert json.load(alone)["usage"]["completion_tokens"] == 8
