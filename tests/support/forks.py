"""Starts `homeport` in tests without the second and a half that importing it takes each time.

`HomeportProcess` is a `subprocess.Popen` whose process is forked by a server that has imported everything
(`tests/support/fork_server.py`). `scripts/test` shares one between all its workers and names its socket in
HOMEPORT_TEST_FORKS; otherwise each pytest process starts its own when it first needs one. HOMEPORT_TEST_FORKS=no
starts the installed command instead (benchmarks do, and the newcomer's test), and so does whoever needs an
interpreter of its own: with another program before it, or a setting that Python reads at its start.
"""

import atexit
import contextlib
import inspect
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
VARIABLE = "HOMEPORT_TEST_FORKS"
NONE = "no"
START_SECONDS_MAX = 60.0
ENTER = "--net="
COMMAND = Path(sys.executable).with_name("homeport")
ENTRY = "homeport.cli.entry:main"
READ_AT_START = ("PYTHON", "LC_", "LANG")
"""How variables begin that an interpreter looks at only once."""
UNREAD = frozenset({"PYTHONPATH", "PYTHONUNBUFFERED"})
"""Those of them that say nothing new."""


class HomeportProcess(subprocess.Popen[Any]):
    """`homeport` with these arguments; the rest as for any Popen. `prefix` may put it on a host: `Host.prefix`.
    `entry` may name another function that is called in the place of the command's."""

    def __init__(
        self, arguments: Sequence[str], *, prefix: Sequence[str] = (), entry: str = ENTRY, **options: Any
    ) -> None:
        self._namespace = _namespace(prefix)
        self._connection: socket.socket | None = None
        self._request = {"arguments": list(arguments), "entry": entry, "namespace": self._namespace}
        super().__init__([*prefix, *_program(entry), *arguments], **options)

    def _execute_child(self, *given: Any) -> None:
        asked = inspect.signature(super()._execute_child).bind(*given).arguments  # type: ignore[misc]
        environment = dict(os.environ if asked["env"] is None else asked["env"])
        server = None if self._namespace is None or _needs_own(environment) else _server()
        if server is None:
            return super()._execute_child(*given)  # type: ignore[misc, no-any-return]
        request = self._request | {
            "environment": environment,
            "folder": str(asked["cwd"] or Path.cwd()),
            "new_session": asked["start_new_session"],
        }
        streams = [asked["p2cread"], asked["c2pwrite"], asked["errwrite"]]
        streams = [number if stream == -1 else stream for number, stream in enumerate(streams)]
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(server)
        content = json.dumps(request).encode() + b"\n"
        sent = socket.send_fds(self._connection, [content], streams)
        if sent < len(content):  # A short program may have ended by now, and its line with it.
            self._connection.sendall(content[sent:])
        self._said = self._connection.makefile()
        self.pid = int(self._said.readline())
        self._child_created = True
        self._close_pipe_fds(  # type: ignore[attr-defined]
            *(asked[name] for name in ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite"))
        )
        return None

    def _wait(self, timeout: float | None) -> int:
        """As in Popen: the exit code, or TimeoutExpired."""
        if self._connection is None:
            return int(super()._wait(timeout))  # type: ignore[misc]
        if self.returncode is None:
            ready, _, _ = select.select([self._connection], [], [], timeout)
            if not ready:
                assert timeout is not None
                raise subprocess.TimeoutExpired(self.args, timeout)
            self._ended()
        return self.returncode

    def _internal_poll(self, *given: Any, **options: Any) -> int | None:
        if self._connection is None:
            return super()._internal_poll(*given, **options)  # type: ignore[misc, no-any-return]
        if self.returncode is None and select.select([self._connection], [], [], 0)[0]:
            self._ended()
        return self.returncode

    def _ended(self) -> None:
        assert self._connection is not None
        line = self._said.readline()
        assert line, "the fork server has ended, and with it what it would have told"
        self.returncode = int(line)
        self._said.close()
        self._connection.close()


def run_homeport(
    arguments: Sequence[str], *, prefix: Sequence[str] = (), given: str | None = None, timeout: float = 120,
    environment: Mapping[str, str] | None = None,
) -> "subprocess.CompletedProcess[str]":  # fmt: skip
    """One command to its end, and what it printed."""
    stdin = None if given is None else subprocess.PIPE
    with HomeportProcess(
        arguments, prefix=prefix, env=environment, stdin=stdin,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            out, errors = process.communicate(given, timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, errors)


@contextlib.contextmanager
def fork_server() -> Iterator[str]:
    """A server of one's own; gives its socket once it answers there."""
    folder = tempfile.mkdtemp(prefix="homeport-forks-")
    path = f"{folder}/socket"
    command = [sys.executable, "-m", "tests.support.fork_server", path]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    server = subprocess.Popen(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        deadline = time.monotonic() + START_SECONDS_MAX
        while not Path(path).exists():
            assert server.poll() is None, "the fork server has ended by itself"
            assert time.monotonic() < deadline, "the fork server did not start in time"
            time.sleep(0.02)
        yield path
    finally:
        server.kill()
        server.wait()
        shutil.rmtree(folder)


_own = contextlib.ExitStack()


def _server() -> str | None:
    """The socket of the server to ask; None where nobody wants one."""
    if VARIABLE not in os.environ:
        os.environ[VARIABLE] = _own.enter_context(fork_server())
        atexit.register(_own.close)
    return None if os.environ[VARIABLE] == NONE else os.environ[VARIABLE]


def _needs_own(environment: Mapping[str, str]) -> bool:
    settings = {name for name in environment.keys() - UNREAD if name.startswith(READ_AT_START)}
    return any(environment[name] != os.environ.get(name) for name in settings)


def _program(entry: str) -> list[str]:
    """What an interpreter of one's own is started with."""
    if entry == ENTRY:
        return [str(COMMAND)]
    module, _, function = entry.partition(":")
    return [sys.executable, "-c", f"from {module} import {function}; {function}()"]


def _namespace(prefix: Sequence[str]) -> str | None:
    """Where `prefix` puts a process: nowhere else for an empty one, None if it is more than that."""
    if not prefix:
        return ""
    program, *options = prefix
    is_known = program == "nsenter" and len(options) == 1 and options[0].startswith(ENTER)
    return options[0].removeprefix(ENTER) if is_known else None
