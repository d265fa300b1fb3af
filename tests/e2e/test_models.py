"""`homeport models serve` with the real llama.cpp: from a file to a pool. What pools then do is in `test_pools`."""

import contextlib
import json
import os
import signal
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import pytest

from homeport.catalog.documents import dump
from homeport.content.importing.description import render_description
from homeport.content.importing.engines import import_engine
from homeport.core.inference.engines.handoff import EngineName
from tests.support.fleet import Fleet
from tests.support.git import bare_repository
from tests.support.ports import free_port
from tests.support.processes import Machine, start_up
from tests.support.tiny_model import write_tiny_model
from tests.support.web_files import web_server

EXAMPLE = Path(__file__).parents[2] / "examples" / "llama-cpp"


@pytest.fixture(autouse=True)
def no_engine_is_left(host: Machine) -> Iterator[None]:
    """Engines outlive Homeport, and so would those of a test that failed."""
    yield
    for state in states(host):
        with contextlib.suppress(OSError, ValueError):
            os.kill(int(json.loads(state.read_text())["pid"]), signal.SIGKILL)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_tiny_model(tmp_path / "tiny.gguf")


def handoffs(host: Machine) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted((host.folder / "up/node/engines").glob("*.json"))]


def states(host: Machine) -> list[Path]:
    return sorted((host.folder / "up/node/engine-programs").glob("process/*/*/state.json"))


def engine_pid(host: Machine) -> int:
    """0 while there is none."""
    return next((int(json.loads(state.read_text())["pid"]) for state in states(host)), 0)


def post(host: Machine, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {host.homeport('token').strip()}"}
    request = urllib.request.Request(f"{host.url}{path}", json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=90) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def stream(host: Machine, path: str, body: dict[str, Any] | None = None) -> "closing[HTTPResponse]":
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {host.homeport('token').strip()}"}
    content = None if body is None else json.dumps(body).encode()
    answer: HTTPResponse = urllib.request.urlopen(
        urllib.request.Request(f"{host.url}{path}", content, headers), timeout=90
    )
    return closing(answer)


def is_bound(host: Machine) -> list[dict[str, Any]]:
    """The handoffs, once central answers chat requests with their models."""
    found = handoffs(host)
    for each in found:
        body = {"model": each["model"]["id"], "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
        if post(host, "/v1/chat/completions", body)[0] != 200:
            return []
    return found


def served(host: Machine) -> list[str]:
    return [each["model"]["id"] for each in is_bound(host)]


def test_a_file_becomes_a_pool_and_what_cannot_is_refused_with_the_reason(host: Machine, model: Path) -> None:
    start_up(host, runtime="process")
    refused = host.command("models", "serve", str(model), "--name", "tiny")
    assert refused.returncode == 1
    assert "no usable GPU" in refused.stdout + refused.stderr
    assert "--allow-cpu" in refused.stdout + refused.stderr
    wrong = host.command("models", "serve", str(model), "--allow-cpu", "--min-replicas", "1")
    assert (wrong.returncode, "--min-replicas needs --idle" in wrong.stderr) == (2, True), wrong.stderr

    port = free_port()
    serve = ("models", "serve", str(model), "--name", "tiny", "--allow-cpu", "--port", str(port))
    shown = host.homeport(*serve)
    assert "pool tiny serves tiny" in shown
    (first,) = host.wait_for(lambda: is_bound(host))
    assert first["url"] == f"http://127.0.0.1:{port}"
    assert first["engine_version"].startswith("llamacpp-package:")
    assert [each["id"] for each in host.json("models", "list")["models"]] == ["tiny"]

    refused = host.command("models", "serve", str(model.with_name("cut.gguf")), "--allow-cpu")
    assert refused.returncode == 3, "there is no such file"
    model.with_name("cut.gguf").write_bytes(model.read_bytes()[:100_000])
    refused = host.command("models", "serve", str(model.with_name("cut.gguf")), "--allow-cpu")
    assert refused.returncode != 0
    assert "is cut off" in refused.stdout + refused.stderr

    host.homeport("deployments", "delete", "tiny@home", "--wait")
    assert handoffs(host) == []
    assert states(host) == []


def test_a_model_on_request_is_deployed_by_its_first_question(host: Machine, model: Path) -> None:
    start_up(host, runtime="process")
    shown = host.homeport("models", "serve", str(model), "--on-request", "--idle", "1s", "--allow-cpu")
    assert "when the first request comes, as pool tiny" in shown
    assert (host.json("pools", "list")["pools"], states(host)) == ([], [])
    assert "on request" in host.homeport("models", "show", "tiny")
    assert host.homeport("chat", "hi", "--model", "tiny", "--max-tokens", "8").strip()
    assert [each["model"]["id"] for each in handoffs(host)] == ["tiny"]
    assert [each["name"] for each in host.json("deployments", "list")["deployments"]] == ["tiny"]
    host.wait_for(lambda: handoffs(host)[0]["loading"] == "unloaded")
    submitted = host.command("tasks", "submit", "hi", "--model", "tiny", "--max-tokens", "4")
    assert (submitted.returncode, "The model of pool tiny is loaded." in submitted.stderr) == (0, True)

    # On a machine without a GPU, the reason reaches who asked.
    other = model.rename(model.with_name("other.gguf"))
    host.homeport("models", "serve", str(other), "--on-request", "--gpu")
    refused = host.command("tasks", "submit", "hi", "--model", "other")
    assert (refused.returncode, "no usable GPU" in refused.stderr) == (1, True), refused.stderr
    assert next(row for row in host.json("pools", "list")["pools"] if row["pool_id"] == "other")["ready"] is False
    for name in ("tiny", "other"):
        host.homeport("deployments", "delete", f"{name}@home", "--wait")
    assert handoffs(host) == []


def test_what_a_job_has_asked_of_a_model_at_its_site_is_in_the_usage_of_central(host: Machine, model: Path) -> None:
    start_up(host, runtime="process")
    host.homeport("models", "serve", str(model), "--allow-cpu")
    host.wait_for(lambda: is_bound(host))
    host.homeport("jobs", "run", "--model", "tiny", "--max-tokens", "6", "Hello")

    def of_site() -> list[dict[str, Any]]:
        return [row for row in host.json("usage")["usage"] if row["site"] == "home"]

    (row,) = host.wait_for(of_site)
    assert (row["model"], row["requests"], row["tokens_out"]) == ("tiny", 1, 6)
    # Central is ended and comes back: it knows, and hears no more than there is.
    host.running[-1].kill()
    start_up(host, runtime="process")
    host.homeport("jobs", "run", "--model", "tiny", "--max-tokens", "6", "Hello again")
    host.wait_for(lambda: [each for each in of_site() if each["requests"] == 2])
    assert [(each["requests"], each["tokens_out"]) for each in of_site()] == [(2, 12)]


def test_a_retired_model_leaves_the_memory_until_it_is_active_again(host: Machine, model: Path) -> None:
    """Also one without an idle time, which is always loaded otherwise; and over a restart."""
    start_up(host, runtime="process")
    host.homeport("models", "serve", str(model), "--allow-cpu")
    host.wait_for(lambda: is_bound(host))
    host.homeport("models", "retire", "tiny")
    host.wait_for(lambda: engine_pid(host) == 0)
    assert [each["loading"] for each in handoffs(host)] == ["unloaded"]
    body = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
    status, said = post(host, "/v1/chat/completions", body)
    assert (status, "retired" in said["error"]["message"]) == (400, True), said
    host.running[-1].kill()
    start_up(host, runtime="process")
    for _ in range(20):
        assert engine_pid(host) == 0, "a restart loads nothing"
        time.sleep(0.1)
    host.homeport("models", "activate", "tiny")
    host.wait_for(lambda: engine_pid(host) != 0 and is_bound(host))
    host.wait_for(lambda: post(host, "/v1/chat/completions", body)[0] == 200)

    host.homeport("models", "retire", "tiny")
    host.wait_for(lambda: engine_pid(host) == 0)
    host.homeport("models", "remove", "tiny")
    status, said = post(host, "/v1/chat/completions", body)
    assert (status, "was retired and removed" in said["error"]["message"]) == (400, True), said
    assert engine_pid(host) == 0, "removing it does not bring it back"
    host.homeport("models", "add", str(model))
    host.wait_for(lambda: engine_pid(host) != 0 and is_bound(host))
    host.homeport("deployments", "delete", "tiny@home", "--wait")


def test_what_a_retired_model_has_taken_ends_at_the_deadline(host: Machine, tmp_path: Path) -> None:
    """A stream of `/v1`, a task of `/v2` that runs and one that waits: each ends with a typed error, and the engine
    leaves the memory although it was busy."""
    start_up(host, runtime="process")
    endless = write_tiny_model(tmp_path / "tiny.gguf", context=16_384)
    host.homeport("models", "serve", str(endless), "--allow-cpu", "--slots", "2", "--ctx", "16384")
    host.wait_for(lambda: is_bound(host))
    body = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 15_000, "stream": True}
    task = {
        "session_id": str(uuid.uuid4()),
        "workload": "completion",
        "model_ref": "tiny",
        "engine": "llamacpp",
        "ctx": 16_000,
        "priority": "interactive",
        "max_tokens": 15_000,
        "deadline_ms": 300_000,
        "prompt": "Once",
    }
    first, second = str(uuid.uuid4()), str(uuid.uuid4())
    with contextlib.ExitStack() as streams:
        chat = streams.enter_context(stream(host, "/v1/chat/completions", body))
        assert chat.readline().startswith(b"data:")
        assert post(host, "/v2/tasks", {**task, "task_id": first})[0] == 202
        runs = streams.enter_context(stream(host, f"/v2/tasks/{first}/events"))
        assert runs.readline() == b"event: started\n"
        assert post(host, "/v2/tasks", {**task, "task_id": second})[0] == 202
        waits = streams.enter_context(stream(host, f"/v2/tasks/{second}/events"))
        host.homeport("models", "retire", "tiny", "--deadline", "1")
        last = [each.read().decode().strip().splitlines()[-1].removeprefix("data: ") for each in (chat, runs, waits)]
    assert json.loads(last[0])["error"]["code"] == "model_deprecated", last[0]
    assert [json.loads(each)["code"] for each in last[1:]] == ["MODEL_DEPRECATED"] * 2
    host.wait_for(lambda: engine_pid(host) == 0)
    host.homeport("deployments", "delete", "tiny@home", "--wait")


def test_the_engine_of_the_examples_is_deployed_with_a_model_and_its_rollback_is_a_reload(
    host: Machine, model: Path, tmp_path: Path
) -> None:
    imported = import_engine(EngineName.LLAMACPP)
    assert imported.place is not None
    repository, revision = imported.place
    rendered = render_description(imported, repository=repository, revision=revision, version="1.0.0")
    description = EXAMPLE / "local/llama-cpp/1.0.0/margo.yaml"
    assert description.read_bytes() == dump(rendered), "what  homeport models serve  registers"

    start_up(host, runtime="process")
    host.homeport("apps", "add", str(EXAMPLE))
    second = write_tiny_model(tmp_path / "second.gguf", seed=8, name="second")
    deploy = ("deploy", "llama-cpp", "--site", "home", "--name", "tiny", "--set", "device=cpu", "--wait")
    for each in (model, second):
        host.homeport(*deploy, "--set", f"model=file:{each}", "--set", f"port={free_port()}")
        host.wait_for(lambda: served(host) == [each.stem])  # noqa: B023
    host.homeport("deployments", "rollback", "tiny@home", "--wait")
    host.wait_for(lambda: served(host) == ["tiny"])
    host.homeport("deployments", "delete", "tiny@home", "--wait")


def test_a_model_in_the_registry_reaches_the_node_by_its_digest(host: Machine, model: Path) -> None:
    start_up(host, runtime="process", extra=("--registry", f"127.0.0.1:{free_port()}"))
    pushed = host.json("models", "push", str(model))
    assert pushed["reference"].startswith("oci://")
    host.homeport("models", "serve", pushed["reference"], "--allow-cpu", "--digest", pushed["digest"])
    (handoff,) = handoffs(host)
    assert pushed["digest"].replace(":", "-") in handoff["model"]["path"]
    host.homeport("deployments", "delete", "tiny@home", "--wait")


def test_nodes_of_a_site_get_a_model_over_its_uplink_once_and_also_when_that_is_gone(
    host: Machine, model: Path, tmp_path: Path
) -> None:
    fleet = Fleet(host, str(bare_repository(tmp_path / "deployments.git")))
    with web_server() as hub:
        hub.files["/org/repo/resolve/main/tiny.gguf"] = content = model.read_bytes()
        fleet.central()
        host.environment = {"HF_ENDPOINT": hub.url, "HF_TOKEN": "secret"}
        fleet.site("north")
        host.environment = {}  # nodes reach nothing by themselves
        for name in ("n1", "n2", "n3"):
            fleet.node(name, "north", runtime="process")
        host.wait_for(lambda: len(host.json("nodes", "list")["nodes"]) == 3)
        serve = ("models", "serve", "hf:org/repo/tiny.gguf", "--allow-cpu", "--site", "north", "--name")
        try:
            host.homeport(*serve, "both", "--node", "n1", "--node", "n2", "--replicas", "2")
            assert hub.sent_bytes == len(content)
            assert {login for _, _, login in hub.asked} == {"Bearer secret"}
            for name in ("n1", "n2"):
                (stored,) = (host.folder / f"data-{name}/models/blobs").glob("*/tiny.gguf")
                assert stored.read_bytes() == content
            hub.files.clear()
            host.homeport(*serve, "late", "--node", "n3")
            assert hub.sent_bytes == len(content), "from the site, which has it"
        finally:
            for state in host.folder.glob("data-*/engine-programs/process/*/*/state.json"):
                with contextlib.suppress(OSError, ValueError):
                    os.kill(int(json.loads(state.read_text())["pid"]), signal.SIGKILL)
