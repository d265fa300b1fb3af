"""Inference through `homeport up` and the command line, with the real llama.cpp; a kill -9 between admission and
answer."""

import contextlib
import json
import signal
import urllib.error
import urllib.request
import uuid
from http.client import HTTPException
from pathlib import Path
from typing import Any

from homeport.failpoints import VARIABLE, Point
from tests.integration.inference.conftest import TASK as EXAMPLE
from tests.support.llama_server import llama_server
from tests.support.ports import free_port
from tests.support.processes import Machine, start_up
from tests.support.tiny_model import write_tiny_model

TASK: dict[str, Any] = {**EXAMPLE, "max_tokens": 4}


def hand_over(host: Machine, url: str) -> None:
    folder = host.folder / "up/node/engines"
    folder.mkdir(parents=True, exist_ok=True)
    record = {"engine": "llamacpp", "url": url, "model": {"id": "tiny"}, "slots_total": 1}
    (folder / "tiny.json").write_text(json.dumps(record))


def pools(host: Machine) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = host.json("pools", "list")["pools"]
    return found


def is_ready(host: Machine) -> bool:
    return any(pool["ready"] for pool in pools(host))


def test_the_command_line_talks_to_a_model(host: Machine, tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "tiny.gguf")
    with llama_server(model, slots=1) as (url, _):
        start_up(host, runtime="process")
        hand_over(host, url)
        host.wait_for(lambda: is_ready(host))
        assert "tiny" in host.homeport("pools", "list")
        assert "llamacpp" in host.homeport("pools", "show", "default")
        assert host.homeport("chat", "hello", "--max-tokens", "8").strip()
        task_id = host.homeport("tasks", "submit", "hello", "--max-tokens", "8", "--no-wait").strip()
        host.homeport("tasks", "watch", task_id)
        assert "placed on default/" in host.homeport("why", task_id)
        host.homeport("tasks", "cancel", task_id)
        host.wait_for(lambda: len(host.json("usage")["usage"]) == 1)
        assert "tiny" in host.homeport("usage")
        host.homeport("pools", "drain", "default", "--deadline", "1")
        refused = host.command("chat", "hello", "--model", "tiny")
        assert refused.returncode != 0
        assert "POOL_UNREADY" in refused.stdout + refused.stderr
        host.homeport("pools", "drain", "default", "--off")
        assert host.homeport("chat", "hello", "--max-tokens", "2").strip()


def test_an_admitted_task_survives_a_kill(host: Machine, tmp_path: Path) -> None:
    model, port = write_tiny_model(tmp_path / "tiny.gguf"), free_port()
    with llama_server(model, slots=1, port=port) as (url, _):
        first = start_up(host, runtime="process")
        hand_over(host, url)
        host.wait_for(lambda: is_ready(host))
        running = submit(host, max_tokens=900)
        waiting = submit(host, max_tokens=4)
        first.kill()
        start_up(host, runtime="process")
        ended = host.command("tasks", "watch", running, "-o", "json")
        last = json.loads(ended.stdout.strip().splitlines()[-1])
        assert last["event"] in {"end", "error"}
        assert last["event"] == "end" or (last["code"] == "WORKER_RESET" and last["retriable"])
        done = host.command("tasks", "watch", waiting, "-o", "json")
        assert json.loads(done.stdout.strip().splitlines()[-1])["event"] in {"end", "error"}


POINTS = (Point.TASK_BEFORE_ADMISSION, Point.TASK_AFTER_ADMISSION, Point.TASK_AFTER_START, Point.TASK_BEFORE_END)


def test_a_kill_at_each_step_of_a_task_ends_in_its_answer_or_in_an_error_to_retry(
    host: Machine, tmp_path: Path
) -> None:
    with llama_server(write_tiny_model(tmp_path / "tiny.gguf"), slots=1) as (url, _):
        hand_over(host, url)
        for point in POINTS:
            host.environment = {VARIABLE: str(point)}
            dying = start_up(host, runtime="process")
            host.environment = {}
            host.wait_for(lambda: is_ready(host))
            body = json.dumps({**TASK, "task_id": str(uuid.uuid4()), "session_id": str(uuid.uuid4())}).encode()
            with contextlib.suppress(OSError, HTTPException):
                post_task(host, body)
            assert dying.popen.wait(60) == -signal.SIGKILL, f"it ended in another way at {point}"
            start_up(host, runtime="process")
            # A client without an answer sends the same again, and gets the one answer there is.
            host.wait_for(lambda: post_task(host, body) == 202)  # noqa: B023
            watched = host.command("tasks", "watch", json.loads(body)["task_id"], "-o", "json")
            assert watched.stdout, (point, watched.stderr)
            last = json.loads(watched.stdout.strip().splitlines()[-1])
            is_known_to_have_run = point in (Point.TASK_AFTER_START, Point.TASK_BEFORE_END)
            if is_known_to_have_run:
                expected = {"event": "error", "code": "WORKER_RESET", "retriable": True}
            else:
                expected = {"event": "end", "tokens_out": 4}
            assert expected.items() <= last.items(), (point, watched.stdout, watched.stderr)
            host.running[-1].kill()


def post_task(host: Machine, body: bytes) -> int:
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {host.homeport('token').strip()}"}
    request = urllib.request.Request(f"{host.url}/v2/tasks", body, headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def submit(host: Machine, *, max_tokens: int) -> str:
    arguments = ("tasks", "submit", f"hello {uuid.uuid4()}", "--max-tokens", str(max_tokens), "--no-wait")
    return host.homeport(*arguments).strip()
