"""The gateway beside the engine itself, in one run: added time to the first token, requests and streamed chunks a
second, admissions a second, and what a million chunks leave in memory. LiteLLM's proxy beside it, where a virtual
environment with `litellm[proxy]` is named (`scripts/bench --litellm FOLDER gateway`).

Engine, gateway and load are a process each. Engine and load cost as little as they can (`raw_http`), and how much CPU
time both took is part of the result: a load that is as busy as the gateway would measure itself. On a machine that
others use, the CPU time of a request says more than the requests of a second.
"""

import asyncio
import contextlib
import json
import multiprocessing
import os
import statistics
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import psutil
import uvloop

from tests.bench.raw_http import HOLD, Client, request, serve_engine
from tests.support.ports import free_port
from tests.support.processes import Machine, machine, start_up

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
PATH = "/v1/chat/completions"
SECONDS = 5.0
CLIENTS = 32
STREAM_CHUNKS = 1_000
FIRST_TOKENS = 400
LITELLM_SECONDS_MAX = 120.0

Numbers = dict[str, float]
Headers = dict[str, str]


@dataclass(frozen=True)
class Load:
    """What the load process is asked for."""

    url: str
    headers: Headers
    body: str
    """A key of `BODIES`."""
    seconds: float = SECONDS


@dataclass(frozen=True)
class Loaded:
    count: int
    seconds: float
    cpu_seconds: float
    """Of the load process itself."""
    waits: list[float]
    """How long each answer took, sorted."""

    @property
    def rate(self) -> float:
        return self.count / self.seconds


def gateway(litellm: Path | None = None) -> Numbers:
    """`litellm` is a virtual environment to measure beside it."""
    with _processes() as (engine, load), tempfile.TemporaryDirectory() as folder:
        with machine(Path(folder) / "host") as host:
            up = start_up(host, runtime="null")
            _hand_over(host, engine)
            host.wait_for(lambda: sum(pool["ready"] for pool in host.json("pools", "list")["pools"]) == 2)
            token = host.json("tokens", "create", "--role", "viewer", "--name", "bench")["token"]
            process = psutil.Process(up.popen.pid)
            numbers = _measure(load, engine, up.url, {"Authorization": f"Bearer {token}"}, process)
        if litellm is not None:
            with _litellm(litellm, Path(folder), engine) as (url, key, process):
                numbers |= _beside(load, engine, url, key, process)
    return numbers


@contextlib.contextmanager
def _processes() -> Iterator[tuple[str, "Generator"]]:
    """The engine's address, and the load."""
    spawn, port = multiprocessing.get_context("spawn"), free_port()
    ours, theirs = spawn.Pipe()
    started = [
        spawn.Process(target=serve_engine, args=(port,), daemon=True),
        spawn.Process(target=_generate, args=(theirs,), daemon=True),
    ]
    for each in started:
        each.start()
    try:
        yield f"http://127.0.0.1:{port}", Generator(ours)
    finally:
        for each in started:
            each.kill()
            each.join()


def _hand_over(host: Machine, url: str) -> None:
    """One pool that always has a slot, and one whose only slot will be taken for ever."""
    folder = host.folder / "up/node/engines"
    folder.mkdir(parents=True, exist_ok=True)
    for pool, model, slots in (("default", "m", 256), ("busy", HOLD, 1)):
        record = {"engine": "openai", "url": url, "model": {"id": model}, "slots_total": slots, "pool_id": pool}
        (folder / f"{pool}.json").write_text(json.dumps(record))


@contextlib.contextmanager
def _litellm(environment: Path, folder: Path, engine: str) -> Iterator[tuple[str, Headers, psutil.Process]]:
    port, key = free_port(), "sk-bench"
    parameters = {"model": "openai/m", "api_base": f"{engine}/v1", "api_key": "none"}
    settings = {
        "model_list": [{"model_name": "m", "litellm_params": parameters}],
        "general_settings": {"master_key": key},
    }
    file = folder / "litellm.json"
    file.write_text(json.dumps(settings))
    command = [str(environment / "bin/litellm"), "--config", str(file), "--host", "127.0.0.1", "--port", str(port)]
    with (folder / "litellm.log").open("wb") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, env={**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
        )
    try:
        headers = {"Authorization": f"Bearer {key}"}
        _await_answer(f"http://127.0.0.1:{port}", headers, process, folder / "litellm.log")
        yield f"http://127.0.0.1:{port}", headers, psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(20)


def _await_answer(url: str, headers: Headers, process: "subprocess.Popen[bytes]", log: Path) -> None:
    async def ask() -> bytes:
        client = await Client.connect(url)
        return await client.ask(request(url, PATH, json.dumps(CHAT).encode(), headers))

    deadline = time.monotonic() + LITELLM_SECONDS_MAX
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError):
            if asyncio.run(ask()).startswith(b"HTTP/1.1 200"):
                return
        time.sleep(0.5)
    raise AssertionError(f"LiteLLM does not answer:\n{log.read_text()[-2000:]}")


# --- what is measured -----------------------------------------------------------------------------------------------


def _measure(load: "Generator", engine: str, url: str, key: Headers, process: psutil.Process) -> Numbers:
    numbers = asyncio.run(_first_tokens({"engine": (engine, {}), "gateway": (url, key)}))
    load(Load(url, key, "chat", 1.0))  # everything is loaded
    numbers |= _of_requests("engine", load(Load(engine, {}, "chat")))
    numbers |= _of_requests("gateway", *_with_cpu(load, Load(url, key, "chat"), process))
    numbers |= _of_streams("engine", load(Load(engine, {}, "stream")))
    before, streamed = process.memory_info().rss, 0
    began = time.perf_counter()
    while streamed < 1_000_000 // STREAM_CHUNKS and time.perf_counter() - began < 120:
        done, cpu = _with_cpu(load, Load(url, key, "stream"), process)
        streamed += done.count
        numbers |= _of_streams("gateway", done, cpu)
    numbers["growth MB"] = (process.memory_info().rss - before) / 1e6
    for name in ("run", "refused", "busy"):
        numbers |= _of_admissions(name, *_with_cpu(load, Load(url, key, name), process))
    numbers["memory MB"] = process.memory_info().rss / 1e6
    return numbers


def _beside(load: "Generator", engine: str, url: str, key: Headers, process: psutil.Process) -> Numbers:
    numbers = asyncio.run(_first_tokens({"engine": (engine, {}), "LiteLLM": (url, key)}, count=50))
    numbers.pop("engine first token ms")
    load(Load(url, key, "chat", 1.0))
    numbers |= _of_requests("LiteLLM", *_with_cpu(load, Load(url, key, "chat"), process))
    return numbers | _of_streams("LiteLLM", *_with_cpu(load, Load(url, key, "stream"), process))


def _with_cpu(load: "Generator", wanted: Load, process: psutil.Process) -> tuple[Loaded, float]:
    """With the CPU seconds that the process took for it."""
    before = _cpu_seconds(process)
    done = load(wanted)
    return done, _cpu_seconds(process) - before


def _cpu_seconds(process: psutil.Process) -> float:
    return float(sum(sum(each.cpu_times()[:2]) for each in (process, *process.children(recursive=True))))


def _of_requests(name: str, done: Loaded, cpu: float = 0.0) -> Numbers:
    return {f"{name} requests/s": done.rate, **_costs(f"{name} request", done, cpu)}


def _of_streams(name: str, done: Loaded, cpu: float = 0.0) -> Numbers:
    return {f"{name} chunks/s": STREAM_CHUNKS * done.rate, **_costs(f"{name} stream", done, cpu)}


def _of_admissions(name: str, done: Loaded, cpu: float) -> Numbers:
    p99 = done.waits[int(len(done.waits) * 0.99)] * 1000
    return {f"{name} admissions/s": done.rate, f"{name} p99 ms": p99, **_costs(f"{name} admission", done, cpu)}


def _costs(name: str, done: Loaded, cpu: float) -> Numbers:
    return {f"{name} CPU ms": 1000 * cpu / done.count, f"{name} load CPU ms": 1000 * done.cpu_seconds / done.count}


async def _first_tokens(targets: dict[str, tuple[str, Headers]], count: int = FIRST_TOKENS) -> Numbers:
    """The engine's, and what the other adds to it."""
    body = json.dumps({**CHAT, "stream": True}).encode()
    clients = {name: await Client.connect(url) for name, (url, _) in targets.items()}
    taken: dict[str, list[float]] = {name: [] for name in targets}
    for _ in range(count):  # in turns, so that a noisy moment meets both alike
        for name, (url, headers) in targets.items():
            began = time.perf_counter()
            await clients[name].first_byte(request(url, PATH, body, headers))
            taken[name].append(time.perf_counter() - began)
            await clients[name].rest()
    for client in clients.values():
        client.close()
    bare = statistics.median(taken.pop("engine")) * 1000
    added = {f"{name} added first token ms": statistics.median(times) * 1000 - bare for name, times in taken.items()}
    return {"engine first token ms": bare, **added}


# --- the load, in a process of its own ------------------------------------------------------------------------------


class Generator:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def __call__(self, wanted: Load) -> Loaded:
        self._connection.send(wanted)
        done = self._connection.recv()
        assert isinstance(done, Loaded), done
        return done


def _task(model: str) -> bytes:
    body = {
        "task_id": str(uuid.uuid4()),
        "session_id": str(uuid.uuid4()),
        "workload": "completion",
        "model_ref": model,
        "engine": "openai",
        "ctx": 0,
        "priority": "batch",
        "max_tokens": 1,
        "deadline_ms": 600_000,
        "prompt": "hello",
    }
    return json.dumps(body).encode()


_CHAT = json.dumps(CHAT).encode()
_STREAM = json.dumps({**CHAT, "stream": True, "max_tokens": STREAM_CHUNKS}).encode()
BODIES: dict[str, tuple[str, Callable[[], bytes], frozenset[bytes]]] = {
    # Path, body, and the answers that count.
    "chat": (PATH, lambda: _CHAT, frozenset({b"200"})),
    "stream": (PATH, lambda: _STREAM, frozenset({b"200"})),
    "run": ("/v2/tasks", lambda: _task("m"), frozenset({b"202", b"429"})),
    "refused": ("/v2/tasks", lambda: _task("none"), frozenset({b"503"})),
    "busy": ("/v2/tasks", lambda: _task(HOLD), frozenset({b"202", b"429"})),
}


def _generate(connection: Connection) -> None:
    """Runs until it is killed."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        while True:
            wanted = connection.recv()
            try:
                connection.send(runner.run(_run(wanted)))
            except (AssertionError, OSError) as error:
                connection.send(repr(error))


async def _run(wanted: Load) -> Loaded:
    path, body, good = BODIES[wanted.body]
    clients = [await Client.connect(wanted.url) for _ in range(CLIENTS)]
    waits: list[float] = []
    began, cpu = time.perf_counter(), time.process_time()

    async def ask(client: Client) -> None:
        while time.perf_counter() - began < wanted.seconds:
            content = request(wanted.url, path, body(), wanted.headers)
            asked = time.perf_counter()
            answer = await client.ask(content)
            waits.append(time.perf_counter() - asked)
            assert answer[9:12] in good, answer[:500]

    await asyncio.gather(*(ask(client) for client in clients))
    done = Loaded(len(waits), time.perf_counter() - began, time.process_time() - cpu, sorted(waits))
    for client in clients:
        client.close()
    return done
