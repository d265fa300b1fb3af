"""The gateway beside the engine itself and other gateways, in one run: added time to the first token, requests and
streamed chunks a second, what a million chunks leave in memory; and admissions a second.

Engine, gateway and load are a process each. Engine and load cost as little as they can (`raw_http`), and how much CPU
time both took is part of the result: a load that is as busy as the gateway would measure itself. On a machine that
others use, the CPU time of a request says more than the requests of a second.

Admissions are measured twice: as fast as the gateway takes them, which is its rate, and at a fixed rate, of which the
time is counted from when a request was due, not from when a connection was free for it.
"""

import asyncio
import contextlib
import itertools
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import psutil
import uvloop

from tests.bench.gateway_peers import CHAT, PATH, PEERS, Headers, NotMeasured, running
from tests.bench.raw_http import HOLD, Client, request, serve_engine
from tests.support.ports import free_port
from tests.support.processes import Machine, machine, start_up

SECONDS = 5.0
CLIENTS = 32
STREAM_CHUNKS = 1_000
FIRST_TOKENS = 400
OFFERED = 5_000
"""Admissions of a second, where a rate is offered."""
MILLION_SECONDS_MAX = 120.0
PEER_SECONDS_MAX = 30.0
"""How long a peer may take for its million chunks; how many it got is part of the result."""
TURNS = 3
"""In which both ways of an admission are measured one after the other."""
LARGE_QUEUE = ("--task-queue", "1000000", "--key-waiting", "1000000")

Numbers = dict[str, float]


@dataclass(frozen=True)
class Load:
    """What the load process is asked for."""

    url: str
    headers: Headers
    body: str
    """A key of `BODIES`."""
    seconds: float = SECONDS
    rate: float = 0.0
    """Requests of a second; 0 for as many as are answered."""


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


def gateway() -> tuple[Numbers, dict[str, str]]:
    """The numbers, and the peers that are not among them with the reason."""
    missing: dict[str, str] = {}
    with _processes() as (engine, load), tempfile.TemporaryDirectory() as folder:
        with _up(Path(folder) / "host", engine) as (url, key, process):
            numbers = _measure(load, engine, url, key, process)
        with _up(Path(folder) / "large", engine, *LARGE_QUEUE) as (url, key, process):
            load(Load(url, key, "chat", 1.0))
            numbers |= _admissions(load, url, key, process, "accepted")
            numbers["waiting kB"] = numbers.pop("accepted growth MB") * 1000 / numbers.pop("accepted count")
        for name in PEERS:
            try:
                with running(name, engine, Path(folder)) as (url, key, process):
                    for measure in (_requests_beside, _streams_beside):
                        numbers |= measure(name, load, engine, url, key, process)
            except (NotMeasured, AssertionError) as error:
                missing[name] = str(error)[:400]
    return numbers, missing


@contextlib.contextmanager
def _up(folder: Path, engine: str, *options: str) -> Iterator[tuple[str, Headers, psutil.Process]]:
    with machine(folder) as host:
        up = start_up(host, runtime="null", extra=options)
        _hand_over(host, engine)
        host.wait_for(lambda: sum(pool["ready"] for pool in host.json("pools", "list")["pools"]) == 2)
        token = host.json("tokens", "create", "--role", "viewer", "--name", "bench")["token"]
        yield up.url, {"Authorization": f"Bearer {token}"}, psutil.Process(up.popen.pid)


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


# --- what is measured -----------------------------------------------------------------------------------------------


def _measure(load: "Generator", engine: str, url: str, key: Headers, process: psutil.Process) -> Numbers:
    numbers = asyncio.run(_first_tokens({"engine": (engine, {}), "gateway": (url, key)}))
    load(Load(url, key, "chat", 1.0))  # everything is loaded
    numbers |= _of_requests("engine", load(Load(engine, {}, "chat")))
    numbers |= _of_requests("gateway", *_with_cpu(load, Load(url, key, "chat"), process))
    numbers |= _of_streams("engine", load(Load(engine, {}, "stream")))
    numbers |= _million_chunks("gateway", load, Load(url, key, "stream"), process, MILLION_SECONDS_MAX)
    numbers |= _admissions(load, url, key, process, "refused")
    for name in ("run", "full"):
        numbers |= _of_admissions(name, *_with_cpu(load, Load(url, key, name), process))
    numbers |= _of_admissions("stranger", *_with_cpu(load, Load(url, {}, "stranger"), process))
    numbers["memory MB"] = _memory(process) / 1e6
    return numbers


def _admissions(load: "Generator", url: str, key: Headers, process: psutil.Process, name: str) -> Numbers:
    """As fast as they are taken, through the middleware and by the shortcut in turns: a request with the server's own
    Origin takes the long way. Then at a fixed rate."""
    ways = {f"{name} long way": {**key, "Origin": url}, name: key}
    turns: dict[str, list[tuple[Loaded, float]]] = {way: [] for way in ways}
    before = _memory(process)
    for _ in range(TURNS):
        for way, headers in ways.items():
            turns[way].append(_with_cpu(load, Load(url, headers, name, SECONDS / TURNS), process))
    numbers: Numbers = {}
    for way, measured in turns.items():
        numbers |= _of_admissions(way, *min(measured, key=lambda each: each[1] / each[0].count))
    offered, cpu = _with_cpu(load, Load(url, key, name, rate=OFFERED), process)
    numbers |= _of_admissions(f"{name} offered", offered, cpu)
    count = offered.count + sum(done.count for measured in turns.values() for done, _ in measured)
    return numbers | {f"{name} growth MB": (_memory(process) - before) / 1e6, f"{name} count": count}


def _million_chunks(
    name: str, load: "Generator", wanted: Load, process: psutil.Process, seconds_max: float
) -> Numbers:
    before, streamed, numbers = _memory(process), 0, {}
    began = time.perf_counter()
    while streamed < 1_000_000 // STREAM_CHUNKS and time.perf_counter() - began < seconds_max:
        done, cpu = _with_cpu(load, wanted, process)
        streamed += done.count
        numbers = _of_streams(name, done, cpu)
    growth = {f"{name} growth MB": (_memory(process) - before) / 1e6, f"{name} memory MB": _memory(process) / 1e6}
    return {**numbers, **growth, f"{name} growth chunks": streamed * STREAM_CHUNKS}


def _requests_beside(
    name: str, load: "Generator", engine: str, url: str, key: Headers, process: psutil.Process
) -> Numbers:
    load(Load(url, key, "chat", 1.0))
    return _of_requests(name, *_with_cpu(load, Load(url, key, "chat"), process))


def _streams_beside(
    name: str, load: "Generator", engine: str, url: str, key: Headers, process: psutil.Process
) -> Numbers:
    numbers = asyncio.run(_first_tokens({"engine": (engine, {}), name: (url, key)}, count=50))
    numbers.pop("engine first token ms")
    return numbers | _million_chunks(name, load, Load(url, key, "stream"), process, PEER_SECONDS_MAX)


def _memory(process: psutil.Process) -> int:
    return sum(each.memory_info().rss for each in (process, *process.children(recursive=True)))


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
            answer = await clients[name].rest()
            assert answer[9:12] == b"200", answer[:300]
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


def _task(model: str) -> Callable[[], bytes]:
    """Makes bodies that differ in their ids alone, in less time than the gateway reads one."""
    body = {
        "task_id": "TASK",
        "session_id": "SESSION",
        "workload": "completion",
        "model_ref": model,
        "engine": "openai",
        "ctx": 0,
        "priority": "batch",
        "max_tokens": 1,
        "deadline_ms": 10**12,
        "prompt": "hello",
    }
    head, _, rest = json.dumps(body).partition("TASK")
    middle, _, tail = rest.partition("SESSION")
    count = itertools.count(int.from_bytes(os.urandom(6)))

    def made() -> bytes:
        number = next(count)
        return f"{head}{_uuid(number)}{middle}{_uuid(number + (1 << 70))}{tail}".encode()

    return made


def _uuid(number: int) -> str:
    text = f"{number:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


_CHAT = json.dumps(CHAT).encode()
_STREAM = json.dumps({**CHAT, "stream": True, "max_tokens": STREAM_CHUNKS}).encode()
BODIES: dict[str, tuple[str, Callable[[], bytes], frozenset[bytes]]] = {
    # Path, body, and the answers that count.
    "chat": (PATH, lambda: _CHAT, frozenset({b"200"})),
    "stream": (PATH, lambda: _STREAM, frozenset({b"200"})),
    "run": ("/v2/tasks", _task("m"), frozenset({b"202", b"429"})),
    "refused": ("/v2/tasks", _task("none"), frozenset({b"503"})),
    "full": ("/v2/tasks", _task(HOLD), frozenset({b"202", b"429"})),
    "accepted": ("/v2/tasks", _task(HOLD), frozenset({b"202"})),
    "stranger": (PATH, lambda: _CHAT, frozenset({b"401"})),
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
    clients = [await Client.connect(wanted.url) for _ in range(CLIENTS)]
    began, cpu = time.perf_counter(), time.process_time()
    waits = await (_at_a_rate if wanted.rate else _as_fast_as_possible)(wanted, clients, began)
    done = Loaded(len(waits), time.perf_counter() - began, time.process_time() - cpu, sorted(waits))
    for client in clients:
        client.close()
    return done


async def _as_fast_as_possible(wanted: Load, clients: list[Client], began: float) -> list[float]:
    path, body, good = BODIES[wanted.body]
    waits: list[float] = []

    async def ask(client: Client) -> None:
        while time.perf_counter() - began < wanted.seconds:
            content = request(wanted.url, path, body(), wanted.headers)
            asked = time.perf_counter()
            answer = await client.ask(content)
            waits.append(time.perf_counter() - asked)
            assert answer[9:12] in good, answer[:500]

    await asyncio.gather(*(ask(client) for client in clients))
    return waits


async def _at_a_rate(wanted: Load, clients: list[Client], began: float) -> list[float]:
    """Each connection has its share of the rate, evenly spaced. Who is late asks at once, and its time began when it
    was due. A server that falls behind is not waited for longer than twice the time."""
    path, body, good = BODIES[wanted.body]
    waits: list[float] = []
    apart = len(clients) / wanted.rate

    async def ask(client: Client, first: float) -> None:
        due = began + first
        while due - began < wanted.seconds and time.perf_counter() - began < 2 * wanted.seconds:
            early = due - time.perf_counter()
            if early > 0:
                await asyncio.sleep(early)
            answer = await client.ask(request(wanted.url, path, body(), wanted.headers))
            waits.append(time.perf_counter() - due)
            assert answer[9:12] in good, answer[:500]
            due += apart

    await asyncio.gather(*(ask(client, index / wanted.rate) for index, client in enumerate(clients)))
    return waits
