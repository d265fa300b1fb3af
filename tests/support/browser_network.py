"""A network for a browser in which nothing ever changes: a namespace with loopback alone, and a way out of it to this
machine's loopback.

Chromium breaks every connection it has when an interface of its machine comes or goes, and containers let interfaces
come and go all the time. In here it sees none of them, and reaches nothing but loopback: a page that asks for
something of a third party fails.
"""

import ctypes
import fcntl
import os
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from stat import S_IRWXU

_CLONE_NEWNET = 0x4000_0000
_SIOCSIFFLAGS, _IFF_UP_RUNNING = 0x8914, 0x41
_SOCKS, _CONNECT, _NO_AUTHENTICATION = 5, 1, 0
_IPV4, _NAME = 1, 3
_SUCCEEDED, _REFUSED = 0, 5
_CHUNK = 1 << 16
_MAKING_SECONDS_MAX = 10


@dataclass(frozen=True, slots=True)
class BrowserNetwork:
    """Where a browser is started, and what it is given to reach this machine."""

    namespace: str
    proxy: str

    def program(self, folder: Path, executable: str) -> Path:
        """A program that starts `executable` in here."""
        written = folder / "browser"
        written.write_text(f'#!/bin/sh\nexec nsenter --net={self.namespace} {executable} "$@"\n', "utf-8")
        written.chmod(S_IRWXU)
        return written


@contextmanager
def browser_network() -> Iterator[BrowserNetwork]:
    """The namespace lives as long as the thread that made it, or a process in it: nothing has to be removed."""
    made: list[tuple[socket.socket, int]] = []
    is_made, is_over = threading.Event(), threading.Event()

    def hold() -> None:
        try:
            made.append((_listen_in_a_new_namespace(), threading.get_native_id()))
        finally:
            is_made.set()
        is_over.wait()

    holder = threading.Thread(target=hold, daemon=True)
    holder.start()
    is_made.wait(_MAKING_SECONDS_MAX)
    assert made, "the browser's network could not be made"
    listener, thread = made[0]
    threading.Thread(target=_serve, args=(listener,), daemon=True).start()
    try:
        host, port = listener.getsockname()
        yield BrowserNetwork(f"/proc/{os.getpid()}/task/{thread}/ns/net", f"socks5://{host}:{port}")
    finally:
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        is_over.set()
        holder.join()


def _listen_in_a_new_namespace() -> socket.socket:
    """A socket stays in the namespace in which it was made, whichever thread uses it: this one is reached from
    inside, and what it is asked for is connected outside."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "a network namespace was refused")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP_RUNNING))
    return socket.create_server(("127.0.0.1", 0), backlog=1024)


def _serve(listener: socket.socket) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=_forward, args=(connection,), daemon=True).start()


def _forward(inside: socket.socket) -> None:
    """One connection, SOCKS 5 (RFC 1928)."""
    with suppress(OSError, EOFError), inside:
        inside.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _version, methods = _exactly(inside, 2)
        _exactly(inside, methods)
        inside.sendall(bytes((_SOCKS, _NO_AUTHENTICATION)))
        host, port = _asked_for(inside)
        try:
            outside = socket.create_connection((host, port))
        except OSError:
            inside.sendall(_answer(_REFUSED))
            return
        with outside:
            outside.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            inside.sendall(_answer(_SUCCEEDED))
            back = threading.Thread(target=_pump, args=(outside, inside), daemon=True)
            back.start()
            _pump(inside, outside)
            back.join()


def _asked_for(inside: socket.socket) -> tuple[str, int]:
    _version, command, _, kind = _exactly(inside, 4)
    if command != _CONNECT or kind not in {_IPV4, _NAME}:
        raise EOFError
    address = _exactly(inside, 4 if kind == _IPV4 else _exactly(inside, 1)[0])
    host = socket.inet_ntoa(address) if kind == _IPV4 else address.decode("ascii")
    (port,) = struct.unpack("!H", _exactly(inside, 2))
    if host != "localhost" and not host.startswith("127."):
        inside.sendall(_answer(_REFUSED))
        raise EOFError
    return host, port


def _answer(code: int) -> bytes:
    return bytes((_SOCKS, code, 0, _IPV4, 0, 0, 0, 0, 0, 0))


def _exactly(connection: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        part = connection.recv(count - len(found))
        if not part:
            raise EOFError
        found += part
    return found


def _pump(source: socket.socket, target: socket.socket) -> None:
    """Until one of the two has closed; a reset on one side is one on the other."""
    try:
        while part := source.recv(_CHUNK):
            target.sendall(part)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
