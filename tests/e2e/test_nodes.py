"""Nodes come and go, as their site and central see it."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil

from tests.support.dashboard import chromium, shown
from tests.support.fleet import Fleet
from tests.support.git import bare_repository
from tests.support.processes import Machine, start_up
from tests.unit.adapters.hardware.test_gpus import INTEL_GPU_TOP, LSPCI, NVIDIA_SMI, ROCM_SMI


def test_a_removed_node_leaves_at_once_and_stays_away_until_started_again(host: Machine, tmp_path: Path) -> None:
    fleet = Fleet(host, str(bare_repository(tmp_path / "deployments.git")))
    fleet.central()
    fleet.site("north")
    fleet.node("n1", "north")
    host.wait_for(lambda: host.json("nodes", "list")["nodes"])
    host.homeport("nodes", "remove", "n1")
    assert host.json("nodes", "list")["nodes"] == []
    assert host.json("nodes", "list", url=fleet.roles["north"].url)["nodes"] == []
    assert host.command("nodes", "remove", "n1").returncode == 3
    fleet.roles["n1"].kill()
    fleet.again("n1")
    host.wait_for(lambda: host.json("nodes", "list")["nodes"])


def test_a_node_cannot_be_removed_while_its_site_is_away(host: Machine, tmp_path: Path) -> None:
    fleet = Fleet(host, str(bare_repository(tmp_path / "deployments.git")))
    fleet.central()
    fleet.site("north")
    fleet.node("n1", "north")
    host.wait_for(lambda: host.json("nodes", "list")["nodes"])
    fleet.roles["north"].kill()
    host.wait_for(lambda: "not connected" in host.command("nodes", "remove", "n1").stderr)
    assert host.json("nodes", "list")["nodes"]


def test_capabilities_are_what_the_machine_says(host: Machine) -> None:
    start_up(host, runtime="podman", node="laptop")
    (node,) = host.json("nodes", "list")["nodes"]
    able = node["capabilities"]
    assert able["cpu_cores"] == psutil.cpu_count()
    assert able["memory_bytes"] == psutil.virtual_memory().total
    assert able["disk_bytes"] == psutil.disk_usage(str(host.folder)).total
    assert (able["os"], able["architecture"], able["engine"]) == ("linux", "amd64", "podman")
    assert able["profile_types"] == ["compose", "custom", "helm"]


def test_one_process_shows_the_metrics_of_all_its_roles(host: Machine) -> None:
    up = start_up(host, runtime="null", node="laptop")
    with up.open("/metrics") as answer:
        text = answer.read().decode()
    assert 'homeport_info{role="central"' in text
    assert "homeport_node_connected 1.0" in text


def test_gpus_are_what_the_tools_of_their_makers_say(host: Machine, tmp_path: Path) -> None:
    """All three in one machine, from the node to whoever looks. The tools print what the real ones are documented to
    print; there is no GPU here."""
    tools = tmp_path / "tools"
    tools.mkdir()
    printed = {"nvidia-smi": NVIDIA_SMI, "rocm-smi": ROCM_SMI, "lspci": LSPCI, "intel_gpu_top": INTEL_GPU_TOP}
    for name, output in printed.items():
        (tools / f"{name}.txt").write_text(output)
        (tools / name).write_text(f"#!/bin/sh\n/bin/cat {tools}/{name}.txt\n")
        (tools / name).chmod(0o755)
    host.environment = {**host.environment, "PATH": f"{tools}:{os.environ['PATH']}"}
    up = start_up(host, runtime="null", node="laptop")
    (node,) = host.json("nodes", "list")["nodes"]
    gpus = [(each["manufacturer"], each["model"]) for each in node["capabilities"]["gpus"]]
    assert gpus == [
        ("NVIDIA", "NVIDIA GeForce RTX 3080"),
        ("NVIDIA", "NVIDIA Tesla K80"),
        ("AMD", "Radeon RX 6800 XT"),
        ("AMD", "AMD GPU"),
        ("Intel", "Intel Alder Lake-P GT2 [Iris Xe Graphics]"),
    ]
    shown = host.homeport("nodes", "show", "laptop")
    assert all(model in shown for _, model in gpus)
    (bare,) = up.get("/api/nodes")
    assert bare["capabilities"]["gpu_type"].startswith("NVIDIA GeForce RTX 3080, NVIDIA Tesla K80, Radeon")

    def use() -> dict[str, float | None]:
        series = up.get("/api/v1/nodes/laptop/telemetry?metric=gpu_percent")["series"]
        return {each["labels"]["gpu"]: next((v for v in each["average"] if v is not None), None) for each in series}

    host.wait_for(lambda: use() == {"0": 37.0, "amd-0": 3.0, "intel-0": 48.0})

    def top() -> tuple[float, float]:
        (row,) = host.json("top", "nodes")["nodes"]
        return row["gpu_temperature_celsius"], row["gpu_power_watts"]

    # On a busy machine a tool may take longer than it may, and has nothing to say that time.
    host.wait_for(lambda: top() == (61.0, 221.5 + 19.0 + 0.75))

    def metrics() -> str:
        with up.open("/metrics") as answer:
            return str(answer.read().decode())

    host.wait_for(lambda: 'homeport_node_gpu_percent{gpu="intel-0",node="laptop",site="home"} 48.0' in metrics())


def test_a_page_of_an_allowed_origin_reads_nodes_in_a_browser_and_another_does_not(host: Machine) -> None:
    """The browser asks first (a preflight), since the page sends a key."""
    with page_server() as allowed, page_server() as other:
        up = start_up(host, runtime="null", node="laptop", extra=("--cors", allowed))
        read = """async ([url, headers]) => {
            try { return (await (await fetch(url, {headers})).json()).map((node) => node.id) }
            catch (error) { return String(error) }
        }"""
        asked = [f"{up.url}/api/nodes", up.local_key]
        with chromium() as browser:
            with shown(browser, allowed) as page:
                assert page.evaluate(read, asked) == ["laptop"]
            with shown(browser, other) as page:
                assert "Failed to fetch" in page.evaluate(read, asked)


@contextmanager
def page_server() -> Iterator[str]:
    """An origin with an empty page."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>A page of somebody else</title>")

    def log_message(self, *_: Any) -> None:
        """Silent."""
