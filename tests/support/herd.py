"""Many Margo clients that come back at the same moment, each with a certificate of its own, from another process.

They behave as a client should: what fails is tried again after a jittered, growing wait, and never before the time
that an answer asks for. The server's process does nothing for them but answer.

Ten thousand machines have as many processors; here they share what the server leaves. So each has its first message
of the handshake ready before it comes, and their process goes before the server's where it may: otherwise, on a
machine that is busy, they answer after the server's timeout, and both ends spend their time on handshakes that nobody
finishes.
"""

import asyncio
import gc
import multiprocessing
import os
import random
import re
import resource
import socket
import ssl
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.lowlevel
import uvloop

from homeport.adapters.identity.keys import key_pem, make_csr, new_key
from homeport.core.identity.spiffe import client_id
from homeport.core.model.identity import IdentityKind, IdentityRecord, IdentityStatus
from homeport.fleet.shared.backoff import Backoff
from homeport.ports import Transaction
from homeport.vocabulary import SiteName
from tests.support.margo import WfmStand

PATH: Final = "/api/v1/deployments"
ATTEMPT_SECONDS_MAX: Final = 60.0
"""As a site of ours waits for an answer."""
FAILED: Final = (OSError, TimeoutError)
_HEADER: Final = re.compile(rb"\r\n(etag|retry-after|content-length): ([^\r]*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Visit:
    """How one client fared."""

    status: int
    answer_seconds: float
    """From the connection that it was answered on, before the handshake, to the answer."""
    total_seconds: float
    """From its first attempt to its answer."""
    attempts: int


@dataclass(slots=True)
class Herd:
    pipe: Connection

    async def come(self, *, within_seconds: float) -> list[Visit]:
        """Each opens a connection at a moment within this time, asks for its manifest, and keeps the connection."""
        self.pipe.send(within_seconds)
        found: list[Visit] = await anyio.to_thread.run_sync(self.pipe.recv)
        return found

    async def leave(self) -> None:
        """All close their connections."""
        self.pipe.send(None)
        await anyio.to_thread.run_sync(self.pipe.recv)


@asynccontextmanager
async def herd(wfm: WfmStand, count: int) -> AsyncIterator[Herd]:
    """Accepted clients, ready to go."""
    folder = wfm.folder / "herd"
    folder.mkdir()
    await _accept(wfm, folder, count)
    ours, theirs = multiprocessing.Pipe()
    port = int(wfm.url.rpartition(":")[2])
    process = multiprocessing.get_context("spawn").Process(
        target=_run, args=(theirs, folder, port, count), daemon=True
    )
    await anyio.to_thread.run_sync(process.start)
    theirs.close()  # so that its end is noticed here
    try:
        await anyio.to_thread.run_sync(ours.recv)
        yield Herd(ours)
    finally:
        process.kill()
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(process.join)


async def _accept(wfm: WfmStand, folder: Path, count: int) -> None:
    """Issues a certificate for each. They share a key, which no server can tell: that saves making as many."""
    parts, key = wfm.central.parts, new_key()
    identity, now = parts.identity, parts.clock.now()
    csr, records = make_csr(key, "herd"), []
    (folder / "key.pem").write_bytes(key_pem(key))
    for number in range(count):
        name = f"client-{number}"
        spiffe_id = client_id(identity.settings.trust_domain, identity.settings.wfm_id, name)
        issued = identity.authority.issue(csr, spiffe_id=spiffe_id, lifetime_seconds=86_400.0, now=now)
        (folder / f"{number}.pem").write_bytes(issued.chain)
        records.append(
            IdentityRecord(
                spiffe_id=spiffe_id,
                kind=IdentityKind.CLIENT,
                name=name,
                site=SiteName(name),
                spki="",  # any key
                standing=IdentityStatus.ACCEPTED,
                csr=None,
                not_after=issued.not_after,
                address="127.0.0.1",
                requested_at=now,
                decided_at=now,
                decided_by="test",
            )
        )
        if number % 100 == 0:
            await anyio.lowlevel.checkpoint()

    async def work(tx: Transaction) -> None:
        for record in records:
            await tx.put_identity(record)

    await parts.store.write(work)
    await parts.registrar.policy.load(parts.store)


def _run(pipe: Connection, folder: Path, port: int, count: int) -> None:
    """The process of the clients."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, count + 1_000), hard))
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, -10)
    gc.disable()  # it would look through all of them again and again, for nothing
    clients = [_Client(_context(folder, number), port) for number in range(count)]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_leave(clients))
        pipe.send("ready")
        while True:
            order = pipe.recv()
            pipe.send(runner.run(_leave(clients) if order is None else _come(clients, order)))


def _context(folder: Path, number: int) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # what they spend is not what is measured
    context.load_cert_chain(folder / f"{number}.pem", folder / "key.pem")
    return context


async def _come(clients: Sequence["_Client"], within_seconds: float) -> list[Visit]:
    return await asyncio.gather(*(client.visit(random.random() * within_seconds) for client in clients))


async def _leave(clients: Sequence["_Client"]) -> None:
    """Those that are connected disconnect, and all are ready to come again."""
    for client in clients:
        client.hang_up()
        client.prepare()


class _Client(asyncio.Protocol):
    def __init__(self, context: ssl.SSLContext, port: int) -> None:
        self._context, self._port = context, port
        self._transport: Any = None
        self._tls: ssl.SSLObject | None = None
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._is_secured = False
        self._etag = b""
        self._arrived = b""
        self._connected_at = 0.0
        self._answer: asyncio.Future[tuple[int, dict[bytes, bytes]]] | None = None

    def prepare(self) -> None:
        """Makes the first message of a handshake."""
        self._incoming, self._outgoing, self._is_secured = ssl.MemoryBIO(), ssl.MemoryBIO(), False
        self._tls = self._context.wrap_bio(self._incoming, self._outgoing, server_hostname="wfm")
        with suppress(ssl.SSLWantReadError):
            self._tls.do_handshake()

    def hang_up(self) -> None:
        if self._transport is not None:
            self._transport.abort()
        self._transport = self._tls = None

    async def visit(self, begin_seconds: float) -> Visit:
        await asyncio.sleep(begin_seconds)
        backoff, began, attempts = Backoff(first_seconds=1.0, last_seconds=60.0), time.monotonic(), 0
        while True:
            attempts, retry_after = attempts + 1, 0.0
            try:
                async with asyncio.timeout(ATTEMPT_SECONDS_MAX):
                    status, headers = await self._asked()
                if status in (200, 304):
                    self._etag = headers[b"etag"]
                    now = time.monotonic()
                    return Visit(status, now - self._connected_at, now - began, attempts)
                retry_after = float(headers.get(b"retry-after", b"0"))
            except FAILED:
                pass
            self.hang_up()
            await asyncio.sleep(retry_after + backoff.next_seconds())

    async def _asked(self) -> tuple[int, dict[bytes, bytes]]:
        loop = asyncio.get_running_loop()
        if self._tls is None:
            self.prepare()
        self._answer, self._arrived = loop.create_future(), b""
        line = socket.socket()
        line.setblocking(False)
        try:
            await loop.sock_connect(line, ("127.0.0.1", self._port))
            self._connected_at = time.monotonic()
            await loop.create_connection(lambda: self, sock=line)
        except BaseException:
            line.close()
            raise
        return await self._answer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._transport.write(self._outgoing.read())

    def data_received(self, data: bytes) -> None:
        self._incoming.write(data)
        try:
            if not self._is_secured:
                self._shake_hands()
            while self._tls is not None and (content := self._tls.read(65_536)):  # nothing when the server closes
                self._take(content)
        except ssl.SSLWantReadError:
            pass
        except OSError:  # an alert, or the end
            self._set_answer(0, {})
        self._transport.write(self._outgoing.read())

    def _shake_hands(self) -> None:
        assert self._tls is not None
        self._tls.do_handshake()
        self._is_secured = True
        condition = b"If-None-Match: %s\r\n" % self._etag if self._etag else b""
        self._tls.write(b"GET %s HTTP/1.1\r\nHost: wfm\r\n%s\r\n" % (PATH.encode(), condition))

    def _take(self, data: bytes) -> None:
        self._arrived += data
        head, end, body = self._arrived.partition(b"\r\n\r\n")
        if not end:
            return
        headers = {name.lower(): value for name, value in _HEADER.findall(head)}
        if len(body) >= int(headers.get(b"content-length", b"0")):
            self._set_answer(int(head[9:12]), headers)

    def connection_lost(self, error: Exception | None) -> None:
        self._set_answer(0, {})  # without an answer

    def _set_answer(self, status: int, headers: dict[bytes, bytes]) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result((status, headers))
