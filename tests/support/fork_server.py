"""A server that starts `homeport` by forking itself: `python -m tests.support.fork_server SOCKET`.

It has imported all of Homeport once. Each request is one connection: arguments, environment, folder and the three
standard streams come in; the process's id goes back at once and its exit code when it has ended. What it starts is
a process like any other, with its own session and streams, that can be asked, stopped and killed.

It must have one thread only, for a fork copies no other, and touch nothing of its own that a command would inherit.
"""

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import pkgutil
import selectors
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path
from typing import Any

import homeport

REQUEST_BYTES_MAX = 1 << 20
CLONE_NEWNET = 0x40000000
PR_SET_PDEATHSIG = 1
LATER = (
    "aiosqlite",
    "encodings.idna",
    "sqlalchemy.dialects.postgresql.asyncpg",
    "sqlalchemy.dialects.sqlite.aiosqlite",
    "uvicorn.lifespan.on",
    "uvicorn.loops.auto",
    "uvicorn.protocols.http.auto",
)
"""What a running role imports by name of a setting."""


def main(path: str) -> None:
    warm()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{path}.draft")
    listener.listen(64)
    Path(f"{path}.draft").rename(path)  # Whoever sees it can connect to it.
    serve(listener)


def warm() -> None:
    for module in pkgutil.walk_packages(homeport.__path__, "homeport."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for name in LATER:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    assert threading.active_count() == 1, "a fork would lose the other threads"


def serve(listener: socket.socket) -> None:
    """Until whoever started it has gone, or ends it."""
    parent, running = os.getppid(), dict[int, socket.socket]()
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    while os.getppid() == parent:
        for key, _ in selector.select(timeout=1.0):
            if key.fileobj is listener:
                connection, _ = listener.accept()
                pid = _start(connection)
                ended = os.pidfd_open(pid)
                running[ended] = connection
                selector.register(ended, selectors.EVENT_READ, pid)
                connection.sendall(f"{pid}\n".encode())
            else:
                ended = key.fd
                selector.unregister(ended)
                os.close(ended)
                _, status = os.waitpid(key.data, 0)
                with running.pop(ended) as connection:
                    _tell(connection, os.waitstatus_to_exitcode(status))


def _tell(connection: socket.socket, code: int) -> None:
    with contextlib.suppress(OSError):  # Perhaps nobody waits for it any more.
        connection.sendall(f"{code}\n".encode())


def _start(connection: socket.socket) -> int:
    """The id of the new process; in the new process it does not return."""
    content, streams, _, _ = socket.recv_fds(connection, REQUEST_BYTES_MAX, 3)
    while not content.endswith(b"\n"):
        content += connection.recv(REQUEST_BYTES_MAX)
    pid = os.fork()
    if pid == 0:
        _become(json.loads(content), streams)
    for stream in streams:
        os.close(stream)
    return pid


def _become(request: dict[str, Any], streams: list[int]) -> None:
    """From here on this is the process that was asked for."""
    code = 1
    try:
        # A run of tests that is killed leaves no role behind: the server goes with its parent, this with the server.
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if request["new_session"]:
            os.setsid()
        if request["namespace"]:
            _enter(request["namespace"])
        os.chdir(request["folder"])
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        os.environ.clear()
        os.environ.update(request["environment"])
        time.tzset()
        tempfile.tempdir = None
        sys.argv = ["homeport", *request["arguments"]]
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - for as long as it lives
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
        code = _run(request["entry"])
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:  # noqa: BLE001 - as an interpreter does
        traceback.print_exc()
    finally:
        os._exit(code)


def _run(entry: str) -> int:
    """The command, and what an interpreter does at its end."""
    code = 0
    module, _, function = entry.partition(":")
    try:
        getattr(importlib.import_module(module), function)()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    threading._shutdown()  # type: ignore[attr-defined] # waits for threads, as the end of an interpreter does
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            code = code or 120
    return code


def _enter(namespace: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    with Path(namespace).open("rb") as file:
        if libc.setns(file.fileno(), CLONE_NEWNET):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), namespace)


if __name__ == "__main__":
    main(sys.argv[1])
