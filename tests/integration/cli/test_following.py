"""What goes on until it is ended, ends: whatever the server does, and wherever it is at that moment."""

import os
import pty
import select
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from homeport.cli.terminal.output import SHOW_CURSOR
from tests.integration.cli.canned import Canned
from tests.support.forks import COMMAND, HomeportProcess
from tests.support.walking import SHELL

FOLLOWING = [
    ("rollouts", "list", "--watch"),
    ("deployments", "list", "--watch", "-o", "json"),
    ("events", "-f"),
    ("top",),
]
HIDE_CURSOR = b"\x1b[?25l"


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """A server that takes every connection and answers none."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(60)
        yield listener


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("arguments", FOLLOWING, ids=" ".join)
def test_a_command_that_waits_for_an_answer_ends_at_once(
    silent: socket.socket, arguments: tuple[str, ...], ending: signal.Signals
) -> None:
    url = f"http://127.0.0.1:{silent.getsockname()[1]}"
    with HomeportProcess(["--url", url, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        try:
            connection, _ = silent.accept()
            with connection:
                assert connection.recv(1)
                process.send_signal(ending)
                process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode in ({-signal.SIGTERM} if ending is signal.SIGTERM else {0, 130})


@pytest.mark.parametrize(
    ("arguments", "is_said"), [(("sites", "label", "home", "zone=a"), True), (("status",), False)], ids=str
)
def test_ctrl_c_says_when_a_change_may_have_been_made(
    silent: socket.socket, arguments: tuple[str, ...], is_said: bool
) -> None:
    url = f"http://127.0.0.1:{silent.getsockname()[1]}"
    with HomeportProcess(["--url", url, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        try:
            connection, _ = silent.accept()
            with connection:
                assert connection.recv(1)
                process.send_signal(signal.SIGINT)
                said, _ = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 130
    assert (b"it may have made the change" in said) is is_said


@pytest.mark.parametrize("seconds", [0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8])
def test_a_command_that_is_about_to_begin_ends_at_once(silent: socket.socket, seconds: float) -> None:
    """While the interpreter starts, while modules are imported, while it connects."""
    url = f"http://127.0.0.1:{silent.getsockname()[1]}"
    command = [str(COMMAND), "--url", url, "rollouts", "list", "--watch"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        time.sleep(seconds)
        process.terminate()
        try:
            process.communicate(timeout=10)
        finally:
            process.kill()
    assert process.returncode == -signal.SIGTERM


def test_a_command_whose_stream_has_stalled_ends_at_once(silent: socket.socket) -> None:
    """An event stream that has begun, and then neither goes on nor ends."""
    url = f"http://127.0.0.1:{silent.getsockname()[1]}"
    begun = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nid: 1\ndata: {"
    with HomeportProcess(["--url", url, "events", "-f"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        try:
            connection, _ = silent.accept()
            with connection:
                assert connection.recv(1)
                connection.sendall(begun)
                process.terminate()
                process.communicate(timeout=10)
        finally:
            process.kill()
    assert process.returncode == -signal.SIGTERM


def test_a_list_on_a_terminal_that_is_ended_leaves_a_cursor(canned: Canned) -> None:
    """`timeout 10 homeport deployments list --watch`, at a server that has answered once."""
    master, screen = pty.openpty()
    command = ["--url", canned.url, "deployments", "list", "--watch"]
    with HomeportProcess(
        command, stdin=screen, stdout=screen, stderr=screen, env={**os.environ, "TERM": "xterm"}
    ) as process:
        os.close(screen)
        try:
            drawn = read_until(master, b"INSTALLED")
            process.terminate()
            process.wait(timeout=10)
            drawn += read_until(master, SHOW_CURSOR)
        finally:
            process.kill()
            os.close(master)
    assert process.returncode == -signal.SIGTERM
    assert HIDE_CURSOR in drawn.partition(SHOW_CURSOR)[0]


def read_until(terminal: int, wanted: bytes) -> bytes:
    """What it shows up to these bytes; fails when they do not come."""
    shown, deadline = b"", time.monotonic() + 30
    while wanted not in shown:
        ready, _, _ = select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))
        assert ready and time.monotonic() < deadline, f"{wanted!r} did not come after {shown!r}"
        shown += os.read(terminal, 65536)
    return shown


def test_a_walk_fails_where_a_command_goes_on_after_its_signal(tmp_path: Path) -> None:
    script = f"{SHELL}\nfollow sh -c 'trap \"\" TERM; echo deaf; sleep 60; sleep 60'"
    done = walked(script, tmp_path)
    assert done.returncode == 97
    assert "It went on for five seconds after SIGTERM" in done.stdout


def test_a_walk_ends_a_command_after_its_own_first_output(tmp_path: Path) -> None:
    """What the command before it has printed says nothing: a signal that comes before a command has begun is lost now
    and then, by the shell that starts it."""
    first, second = "echo first; exec sleep 60", "sleep 0.3; echo second; exec sleep 60"
    script = f"{SHELL}\nfollow sh -c '{first}'\nfollow sh -c '{second}'"
    done = walked(script, tmp_path)
    assert (done.returncode, done.stdout.split()) == (0, ["first", "second"])


def walked(script: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["bash", "-c", script],
        env={"WALK": str(folder), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
