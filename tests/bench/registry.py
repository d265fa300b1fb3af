"""How fast the built-in registry gives and takes large blobs, beside Debian's docker-registry in the same run."""

import os
import socket
import statistics
import tempfile
import threading
import time
from pathlib import Path

from tests.support.own_registry import Raw, basic, digest_of
from tests.support.ports import free_port
from tests.support.processes import machine, start_up
from tests.support.registry import running_registry

BLOB_BYTES = 256 * 2**20
ROUNDS = 15
MEGA = 1e6

Numbers = dict[str, float]


def pull_and_push() -> Numbers:
    """MB/s in rounds that take turns: the median, and the best, which says more where other programs are busy."""
    content = os.urandom(2**20) * (BLOB_BYTES // 2**20)
    with (
        tempfile.TemporaryDirectory() as folder,
        machine(Path(folder) / "host") as host,
        running_registry(storage=Path(folder) / "debian") as debian,
    ):
        port = free_port()
        up = start_up(host, runtime="null", extra=("--registry", f"127.0.0.1:{port}"))
        key = up.local_key["Authorization"].removeprefix("Bearer ")
        peers = {"homeport": Raw(f"127.0.0.1:{port}", basic(key)), "docker-registry": Raw(debian.host)}
        numbers: Numbers = {}
        for name, peer in peers.items():
            began = time.perf_counter()
            peer.push_blob("bench/large", content)
            numbers[f"{name} push"] = BLOB_BYTES / (time.perf_counter() - began) / MEGA
        path = f"/v2/bench/large/blobs/{digest_of(content)}"
        for clients, label in ((1, "pull"), (2, "pull by two")):
            taken: dict[str, list[float]] = {name: [] for name in peers}
            for _ in range(ROUNDS):
                for name, peer in peers.items():
                    taken[name].append(_pull(peer, path, clients))
            numbers |= {f"{name} {label}": statistics.median(taken[name]) for name in peers}
            numbers |= {f"{name} best {label}": max(taken[name]) for name in peers}
        return numbers


def _pull(peer: Raw, path: str, clients: int) -> float:
    threads = [threading.Thread(target=_drain, args=(peer, path)) for _ in range(clients)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return clients * BLOB_BYTES / (time.perf_counter() - began) / MEGA


def _drain(peer: Raw, path: str) -> None:
    """As little as a client can do, so that the server is what is measured."""
    host, _, port = peer.host.partition(":")
    headers = "".join(f"{name}: {value}\r\n" for name, value in peer.headers.items())
    buffer = bytearray(2**20)
    with socket.create_connection((host, int(port))) as line:
        line.sendall(f"GET {path} HTTP/1.1\r\nHost: {peer.host}\r\nConnection: close\r\n{headers}\r\n".encode())
        received = 0
        while count := line.recv_into(buffer):
            received += count
    assert received > BLOB_BYTES, "an error is shorter"
