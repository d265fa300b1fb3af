"""Polls of Margo clients that find nothing new, a second, over mutual TLS: central on one core beside nginx with one
worker that serves the same bytes. And what ten thousand registered clients take in memory.

Central runs on the event loop that its command runs on. The load comes from one process with as little work for each
request as it can, and may be what limits the rate: what a server could do is read from its CPU time.
"""

import asyncio
import gc
import multiprocessing
import os
import shutil
import socket
import ssl
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import anyio
import psutil
import uvloop

from homeport.cli.local.issuing import anchors_pem
from homeport.cli.roles.running import COLLECT_AFTER
from homeport.core.margo.text import site_of_client
from homeport.margo.wfm.manifests import Manifests
from tests.support.herd import herd
from tests.support.margo import WfmStand, is_site, running_wfm
from tests.support.ports import free_port

SECONDS = 3.0
ROUNDS = 3
"""Each server has so many turns, one after the other, and its best one counts: others use the machine too."""
CONNECTIONS = 32
REGISTERED = 10_000
ASKING = 200
"""How many clients ask at the same time."""
PATH = "/api/v1/deployments"
ROOT = Path(__file__).resolve().parent.parent.parent

NGINX = """\
daemon off; {user} pid {folder}/pid; error_log {folder}/error.log; worker_processes 1;
events {{ worker_connections 1024; }}
http {{
  access_log off; client_body_temp_path {folder}/t1; proxy_temp_path {folder}/t2; fastcgi_temp_path {folder}/t3;
  uwsgi_temp_path {folder}/t4; scgi_temp_path {folder}/t5; keepalive_requests 10000000;
  server {{
    listen 127.0.0.1:{port} ssl; root {folder}/www; default_type application/vnd.margo.manifest.v1+json;
    ssl_certificate {folder}/cert.pem; ssl_certificate_key {folder}/key.pem; ssl_protocols TLSv1.3;
    ssl_client_certificate {folder}/ca.pem; ssl_verify_client on; ssl_verify_depth 3;
    add_header Cache-Control "private, no-cache";
  }}
}}
"""


def polls() -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="homeport-bench-") as name:
        folder = Path(name)
        ours, theirs = multiprocessing.Pipe()
        central = multiprocessing.get_context("spawn").Process(target=_serve, args=(folder, theirs), daemon=True)
        central.start()
        try:
            port: int
            numbers: dict[str, float]
            port, numbers = ours.recv()
            servers = {"": (port, psutil.Process(central.pid))}
            with ExitStack() as stack:
                runner = stack.enter_context(asyncio.Runner(loop_factory=uvloop.new_event_loop))
                if (nginx := nginx_program()) is not None:
                    servers["nginx "] = stack.enter_context(_running_nginx(folder, nginx))
                for _ in range(ROUNDS):
                    for who, (where, process) in servers.items():
                        for what, rate in _measured(folder, runner, where, process).items():
                            numbers[who + what] = max(rate, numbers.get(who + what, 0.0))
        finally:
            ours.send("stop")
            central.join(20)
            central.kill()
        return numbers


def reconnects() -> dict[str, float]:
    """All clients open a connection within a second, each with its own certificate, and ask for what they have."""
    with tempfile.TemporaryDirectory(prefix="homeport-bench-") as folder:
        return asyncio.run(_reconnects(Path(folder)))


async def _reconnects(folder: Path) -> dict[str, float]:
    async with running_wfm(folder) as wfm, herd(wfm, REGISTERED) as clients:
        gc.freeze()  # as the command does once it serves
        gc.set_threshold(*COLLECT_AFTER)
        await clients.come(within_seconds=1.0)  # for the first time
        await clients.leave()
        before, began = time.process_time(), time.perf_counter()
        visits = await clients.come(within_seconds=1.0)
        seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - before
        memory = psutil.Process().memory_info().rss
    answers = sorted(each.answer_seconds for each in visits)
    return {
        "reconnects": REGISTERED / seconds,
        "reconnects of a core": REGISTERED / cpu_seconds,
        "answers p99 s": answers[int(REGISTERED * 0.99)],
        "again": float(sum(each.attempts > 1 for each in visits)),
        "memory MB": memory / 2**20,
    }


def nginx_program() -> str | None:
    """The one that is installed, or the one that `scripts/setup --bench` has unpacked."""
    unpacked = ROOT / ".homeport/nginx/usr/sbin/nginx"
    return shutil.which("nginx") or (str(unpacked) if unpacked.exists() else None)


@contextmanager
def _running_nginx(folder: Path, nginx: str) -> Iterator[tuple[int, psutil.Process]]:
    """Its port, and its one worker."""
    port = free_port()
    (folder / "www/api/v1").mkdir(parents=True)
    (folder / "www/api/v1/deployments").write_bytes((folder / "manifest").read_bytes())
    user = "user root;" if os.geteuid() == 0 else ""
    (folder / "nginx.conf").write_text(NGINX.format(folder=folder, port=port, user=user))
    command = [nginx, "-c", str(folder / "nginx.conf"), "-p", str(folder), "-e", str(folder / "error.log")]
    server = subprocess.Popen(command)
    try:
        _await_listening(port)
        (worker,) = psutil.Process(server.pid).children()
        yield port, worker
    finally:
        server.terminate()
        server.wait(10)


def _measured(folder: Path, runner: asyncio.Runner, port: int, server: psutil.Process) -> dict[str, float]:
    numbers = {}
    for name, is_conditional in (("polls", True), ("manifests", False)):
        before = sum(server.cpu_times()[:2])
        rate = runner.run(_rate(folder, port, conditional=is_conditional))
        numbers[name] = rate
        numbers[f"{name} of a core"] = rate * SECONDS / (sum(server.cpu_times()[:2]) - before)
    return numbers


def _await_listening(port: int) -> None:
    until = time.monotonic() + 10
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        if time.monotonic() > until:
            raise TimeoutError("nginx does not listen")
        time.sleep(0.05)


def _serve(folder: Path, pipe: Connection) -> None:
    async def serve() -> None:
        async with running_wfm(folder / "central") as wfm:
            async with wfm.client("bench") as client:
                await client.manifest()
                await is_site(wfm, "bench")
                await wfm.deploy("bench")
                await client.listed(1)
                (folder / "manifest").write_bytes((await client.manifest()).body)
            chain, key = wfm.issued["bench"]
            (folder / "cert.pem").write_bytes(chain)
            (folder / "key.pem").write_bytes(key)
            (folder / "ca.pem").write_bytes(_anchors(wfm))
            numbers = await _memory(wfm)
            pipe.send((int(wfm.url.rpartition(":")[2]), numbers))
            await anyio.to_thread.run_sync(pipe.recv, abandon_on_cancel=True)

    asyncio.run(serve())


def _anchors(wfm: WfmStand) -> bytes:
    return bytes(anchors_pem(wfm.central.parts.identity.authority.bundle()))


async def _memory(wfm: WfmStand) -> dict[str, float]:
    """What a client's prepared manifest takes, with everything that is kept for it in memory."""
    parts = wfm.central.parts
    manifests = Manifests(parts.store, parts.clock, parts.in_thread)
    process = psutil.Process()
    await manifests.current(site_of_client("warm-up"))
    before, started = process.memory_info().rss, time.perf_counter()

    async def ask(part: int) -> None:
        for number in range(part, REGISTERED, ASKING):
            await manifests.current(site_of_client(f"client-{number}"))

    async with anyio.create_task_group() as tasks:
        for part in range(ASKING):
            tasks.start_soon(ask, part)
    taken = time.perf_counter() - started
    return {
        "kB per client": (process.memory_info().rss - before) / REGISTERED / 1024,
        "first manifests": REGISTERED / taken,
        "memory MB": process.memory_info().rss / 2**20,
    }


async def _rate(folder: Path, port: int, *, conditional: bool = True) -> float:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    head = f"GET {PATH} HTTP/1.1\r\nHost: wfm\r\nAccept: application/vnd.margo.manifest.v1+json\r\n"
    first = await _asked(port, context, head)
    etag = next(line.partition(b": ")[2] for line in first.split(b"\r\n") if line.lower().startswith(b"etag"))
    request = f"{head}If-None-Match: {etag.decode()}\r\n\r\n" if conditional else f"{head}\r\n"
    expected = b"HTTP/1.1 304" if conditional else b"HTTP/1.1 200"
    loop = asyncio.get_running_loop()
    pollers = [_Poller(request.encode(), expected) for _ in range(CONNECTIONS)]
    for poller in pollers:
        await loop.create_connection(lambda poller=poller: poller, "127.0.0.1", port, ssl=context)  # type: ignore[misc]
    before = sum(poller.count for poller in pollers)
    await asyncio.sleep(SECONDS)
    count = sum(poller.count for poller in pollers) - before
    for poller in pollers:
        poller.transport.abort()
    return count / SECONDS


async def _asked(port: int, context: ssl.SSLContext, head: str) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    writer.write(f"{head}Connection: close\r\n\r\n".encode())
    found = await reader.read()
    writer.close()
    return found.partition(b"\r\n\r\n")[0]


class _Poller(asyncio.Protocol):
    """Asks again as soon as it is answered."""

    transport: Any

    def __init__(self, request: bytes, expected: bytes) -> None:
        self._request, self._expected = request, expected
        self._arrived = b""
        self.count = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._arrived += data
        head, end, body = self._arrived.partition(b"\r\n\r\n")
        if not end or len(body) < self._length(head):
            return
        assert head.startswith(self._expected), head
        self._arrived = b""
        self.count += 1
        self.transport.write(self._request)

    def _length(self, head: bytes) -> int:
        if self._expected.endswith(b"304"):
            return 0
        line = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
        return int(line.partition(b":")[2])
