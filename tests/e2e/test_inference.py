"""Inference through `homeport up` and the command line, with the real llama.cpp; a kill -9 between admission and
answer."""

import contextlib
import json
import os
import signal
import time
import urllib.error
import urllib.request
import uuid
from collections import Counter
from collections.abc import Mapping
from http.client import HTTPException
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import psutil

from homeport.failpoints import VARIABLE, Point
from tests.integration.inference.conftest import TASK as EXAMPLE
from tests.support.llama_server import llama_server
from tests.support.ports import free_port
from tests.support.processes import Machine, Process, start_up
from tests.support.tiny_model import write_tiny_model
from tests.unit.core.inference.engines.test_handoff_document import is_documented

TASK: dict[str, Any] = {**EXAMPLE, "max_tokens": 4}
BOUND_SECONDS_MAX = 2.0
LOOKS = 3
"""How often a time is measured; the fastest counts, since a busy machine spoils one look."""


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
        process = start_up(host, runtime="process")
        took = []
        for _ in range(LOOKS):
            began = time.monotonic()
            hand_over(host, url)
            host.wait_for(lambda: [pool for pool in process.get("/v2/pools")["pools"] if pool["ready"]])
            took.append(time.monotonic() - began)
            if took[-1] <= BOUND_SECONDS_MAX:
                break
            (host.folder / "up/node/engines/tiny.json").unlink()
            host.wait_for(lambda: not process.get("/v2/pools")["pools"])
        assert min(took) <= BOUND_SECONDS_MAX, f"a handoff file was bound after {took} seconds"
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
        assert "serves tiny" in host.homeport(
            "engines", "attach", "llamacpp", url, "--model", "tiny", "--name", "also"
        )
        files = [json.loads(each.read_text()) for each in (host.folder / "up/node/engines").glob("*.json")]
        assert all(map(is_documented, files))
        (attached,) = [each for each in files if each.get("pool_id") == "also"]
        assert (attached["url"], attached["provisioning_mode"]) == (url, "external")
        host.wait_for(lambda: all(pool["ready"] for pool in pools(host)) and len(pools(host)) == 2)


def test_an_admitted_task_and_a_drain_survive_a_kill(host: Machine, tmp_path: Path) -> None:
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
        host.homeport("pools", "drain", "default", "--deadline", "1")
        host.running[-1].kill()
        start_up(host, runtime="process")
        assert [pool["draining"] for pool in host.wait_for(lambda: pools(host))] == [True]


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


IS_LONG = os.environ.get("HOMEPORT_FLOOD") == "long"
FLOOD, FLOOD_SECONDS = (10_000, 10.0) if IS_LONG else (1_000, 1.0)
GROWTH_BYTES_MAX = 32 * 1024 * 1024


def test_a_flood_of_five_keys_is_answered_fairly_and_leaves_no_memory_behind(host: Machine, tmp_path: Path) -> None:
    """`make flood` sends ten thousand tasks in ten seconds. One key sends as many as the other four together."""
    with llama_server(write_tiny_model(tmp_path / "tiny.gguf"), slots=4) as (url, _):
        process = start_up(host, runtime="process", extra=("--task-queue", "300", "--key-waiting", "60"))
        hand_over(host, url)
        host.wait_for(lambda: is_ready(host))
        keys = [_new_key(process, f"key{number}") for number in range(5)]
        sizes, ran = [], Counter[str]()
        for _ in range(2):
            answers = anyio.run(_flood, host.url, [text for text, _ in keys])
            codes = Counter(code for each in answers for code in each)
            assert set(codes) <= {"", "ADMISSION_REJECT"}, codes
            accepted = [each.count("") for each in answers]
            # An engine that takes everything starves nobody, whoever sends more.
            assert min(accepted) >= min(0.25 * max(accepted), FLOOD // 8) > 0, f"a key was starved: {accepted}"
            ran.update({key_id: count for (_, key_id), count in zip(keys, accepted, strict=True)})
            host.wait_for(lambda: _used(process) == ran)
            sizes.append(psutil.Process(process.popen.pid).memory_info().rss)
        growth = sizes[1] - sizes[0]
        assert growth < GROWTH_BYTES_MAX, f"{growth / 2**20:.1f} MiB more after {FLOOD} more tasks"
        print(f"{FLOOD} tasks, of which ran in both floods: {ran}; {growth / 2**20:.1f} MiB more memory")


def _new_key(process: Process, name: str) -> tuple[str, str]:
    """The token, and its id."""
    body = json.dumps({"name": name, "role": "viewer"}).encode()
    with process.open("/api/v1/tokens", data=body, headers={"Content-Type": "application/json"}) as answer:
        made = json.load(answer)
    return made["token"], made["id"]


def _used(process: Process) -> dict[str, int]:
    return {each["key"]: each["requests"] for each in process.get("/v2/usage")["usage"]}


async def _flood(url: str, keys: list[str]) -> list[list[str]]:
    """The code of each answer by key, empty for an admission. The first key sends half of all."""
    answers: list[list[str]] = [[] for _ in keys]
    began = anyio.current_time()

    async def send(session: aiohttp.ClientSession, number: int, at: float) -> None:
        await anyio.sleep_until(began + at)
        body = {**TASK, "task_id": str(uuid.uuid4()), "session_id": str(uuid.uuid4()), "max_tokens": 1}
        status, headers, said = await _post(session, f"{url}/v2/tasks", {**body, "deadline_ms": 600_000})
        if status == 429:
            assert int(headers["Retry-After"]) >= 1
            assert int(headers["X-Backoff-Ms"]) == said["retry_after_ms"] > 0
        answers[number].append("" if status == 202 else said["code"])

    async with contextlib.AsyncExitStack() as stack:
        sessions = [await stack.enter_async_context(_session(key)) for key in keys]
        async with anyio.create_task_group() as tasks:
            for number, session in enumerate(sessions):
                count = FLOOD // 2 if number == 0 else FLOOD // 8
                for each in range(count):
                    tasks.start_soon(send, session, number, FLOOD_SECONDS * each / count)
    return answers


async def _post(session: aiohttp.ClientSession, url: str, body: Any) -> tuple[int, Mapping[str, str], Any]:
    """The same task again where its connection had been idle for so long that it was just being closed: it is one
    task all the same."""
    for _ in range(3):
        with contextlib.suppress(aiohttp.ClientConnectionError):
            async with session.post(url, json=body) as answer:
                return answer.status, answer.headers, await answer.json()
    raise AssertionError("three connections were closed without an answer")


def _session(key: str) -> aiohttp.ClientSession:
    timeout, connector = aiohttp.ClientTimeout(total=300), aiohttp.TCPConnector(limit=32)
    return aiohttp.ClientSession(headers={"Authorization": f"Bearer {key}"}, timeout=timeout, connector=connector)


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
