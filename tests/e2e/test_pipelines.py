"""The examples of pipelines, as a person runs them: real containers, a real model, and kills of the process."""

import json
import signal
import threading
import uuid
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from homeport.failpoints import VARIABLE
from tests.e2e.test_inference import hand_over, is_ready
from tests.support.engines import probe_image
from tests.support.llama_server import llama_server
from tests.support.podman import podman
from tests.support.processes import Machine, start_up
from tests.support.registry import RunningRegistry
from tests.support.tiny_model import write_tiny_model

EXAMPLES = Path(__file__).parents[2] / "examples" / "pipelines"


@pytest.fixture
def node(host: Machine, node_prefix: str) -> Iterator[str]:
    name = f"{node_prefix}-n"
    start_up(host, node=name)
    yield name
    for container in json.loads(podman("ps", "--all", "--format", "json") or "[]"):
        if (container.get("Labels") or {}).get("homeport.job-node") == name:
            podman("rm", "--force", "--time", "0", str(container["Id"]), check=False)


def test_every_example_is_valid(host: Machine) -> None:
    files = sorted(map(str, EXAMPLES.glob("*.yaml")))
    assert len(host.json("pipelines", "validate", *files)) == len(files) >= 2
    assert '"$defs"' in host.homeport("pipelines", "validate", "--schema")


def test_disks_are_measured_in_containers_and_a_full_one_is_told(
    host: Machine, node: str, registry: RunningRegistry
) -> None:
    file = str(EXAMPLES / "check-disks.yaml")
    with probe_image(registry.host) as image:
        inputs = ("--input", f"image={image}", "--input", f'nodes=["{node}", "{node}"]')
        done = host.command("pipelines", "run", file, *inputs, "--input", "limit=0")
        assert (done.returncode, "warned: true" in done.stdout) == (0, True), done.stderr + done.stdout
        assert "measure (2 items) succeeded" in done.stderr
        (run,) = host.json("pipelines", "list")["runs"]
        followed = host.homeport("pipelines", "logs", "-f", run["id"])
        assert f"warn full: {node}, {node}\n" in followed
        assert f"full: {node}, {node}" in host.homeport("pipelines", "logs", run["id"], "warn")
        assert "measure" in host.homeport("pipelines", "show", run["id"][:8])
        quiet = host.json("pipelines", "run", file, *inputs, "--input", "limit=101")
        assert (quiet["outputs"]["warned"], quiet["steps"][1]["reason"]) == (False, "its condition is false")
        _cancelled(host, image)
        _failed(host, image)
    bad = host.command("pipelines", "run", file, "--input", "limit=much")
    assert (bad.returncode, "inputs.nodes" in bad.stderr, "must be a number" in bad.stderr) == (1, True, True)


def _cancelled(host: Machine, image: str) -> None:
    file = host.folder / "long.yaml"
    command = '[/bin/sh, -c, "echo on; sleep 600"]'
    file.write_text(f'name: long\nsteps: {{wait: {{job: {{image: "{image}", command: {command}}}}}}}')
    run = host.json("pipelines", "run", "--detach", str(file))["id"]
    job = f"{run}-wait-0-1"
    host.wait_for(lambda: host.homeport("pipelines", "logs", run) == "on\n")
    host.homeport("pipelines", "cancel", run)
    host.wait_for(lambda: host.json("pipelines", "show", run)["state"] == "CANCELLED")
    host.wait_for(lambda: host.json("jobs", "show", job)["state"] == "CANCELLED")


def _failed(host: Machine, image: str) -> None:
    file = host.folder / "bad.yaml"
    command = '[/bin/sh, -c, "echo measured; echo the disk is bad >&2; exit 3"]'
    file.write_text(f'name: bad\nsteps: {{check: {{job: {{image: "{image}", command: {command}}}}}}}')
    done = host.command("pipelines", "run", str(file))
    assert (done.returncode, "check failed: The job ended with exit code 3" in done.stderr) == (1, True), done.stderr
    assert "  check measured\n  check the disk is bad\n" in done.stderr
    assert "All of it:  homeport pipelines logs " in done.stderr


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"The harbour is open again." * 4)

    def log_message(self, *_: Any) -> None:
        """Silent."""


def test_a_page_is_summarised_and_a_job_answered_by_a_model_through_three_kills(
    host: Machine, tmp_path: Path
) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    source = (EXAMPLES / "summarise-page.yaml").read_text()
    file = tmp_path / "summarise.yaml"
    file.write_text(source.replace("https://example.org", f"http://127.0.0.1:{server.server_port}"))
    run = str(uuid.uuid4())
    try:
        with llama_server(write_tiny_model(tmp_path / "tiny.gguf"), slots=1) as (url, _):
            # Killed with a job's question asked, with the page fetched and not stored, then with the model asked by
            # the pipeline; the last one is left alone.
            for point in ("job-after-start", "pipeline-step-begun:1", "pipeline-step-begun:2", ""):
                host.environment = {VARIABLE: point} if point else {}
                process = start_up(host, runtime="process", extra=("--pipelines-allow-http", "127.0.0.1"))
                host.environment = {}
                hand_over(host, url)
                if point == "job-after-start":
                    host.wait_for(lambda: is_ready(host))
                    host.command("jobs", "run", "-d", "--id", "poem", "--model", "tiny", "--", "Write", "a", "poem")
                if point.endswith("1"):
                    host.wait_for(lambda: is_ready(host))
                    host.command("pipelines", "run", "-d", "--id", run, str(file), "-i", "model=tiny")
                if point:
                    assert process.popen.wait(60) == -signal.SIGKILL
            host.wait_for(lambda: host.json("pipelines", "show", run)["state"] in ("SUCCEEDED", "FAILED"))
            host.wait_for(lambda: host.json("jobs", "show", "poem")["state"] in ("COMPLETED", "FAILED"))
        shown = host.json("pipelines", "show", run)
        assert (shown["state"], shown["outputs"]["tokens"] > 0) == ("SUCCEEDED", True), shown
        assert [len(step["items"]) for step in shown["steps"]] == [1, 1]
        assert "it is sent again" in host.homeport("pipelines", "logs", run, "fetch")
        assert "tokens in" in host.homeport("pipelines", "logs", run, "summarise")
        poem = host.json("jobs", "show", "poem")
        assert (poem["state"], poem["attempt"], bool(poem["output"])) == ("COMPLETED", 1, True), poem
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
