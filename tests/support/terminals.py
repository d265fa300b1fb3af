"""A command in a real pseudo-terminal, as a person sits before it."""

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tests.support.processes import Machine

SECONDS_MAX = 60.0


@dataclass
class Terminal:
    popen: "subprocess.Popen[bytes]"
    master: int
    seen: str = ""
    _looked: int = field(default=0)

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def expect(self, text: str) -> str:
        """Waits until `text` appears behind what was expected before; returns what came up to it."""
        deadline = time.monotonic() + SECONDS_MAX
        while text not in self.seen[self._looked :]:
            ready, _, _ = select.select([self.master], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"{text!r} did not appear; there is {self.seen[self._looked :]!r}"
            try:
                data = os.read(self.master, 65536)
            except OSError:
                data = b""
            assert data, f"the command ended without {text!r}; there is {self.seen[self._looked :]!r}"
            self.seen += data.decode(errors="replace")
        end = self.seen.index(text, self._looked) + len(text)
        shown, self._looked = self.seen[self._looked : end], end
        return shown

    def resize(self, *, columns: int, rows: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.popen.send_signal(signal.SIGWINCH)

    def wait(self) -> int:
        """The exit code. What it still writes is read, or it could not end."""
        deadline = time.monotonic() + SECONDS_MAX
        while self.popen.poll() is None and time.monotonic() < deadline:
            if select.select([self.master], [], [], 0.1)[0]:
                with contextlib.suppress(OSError):
                    self.seen += os.read(self.master, 65536).decode(errors="replace")
        return self.popen.wait(1)


@contextlib.contextmanager
def terminal(machine: Machine, arguments: Sequence[str], *, columns: int = 80, rows: int = 24) -> Iterator[Terminal]:
    """`homeport` with these arguments, in a terminal of this size. Killed at the end where it still runs."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    popen = subprocess.Popen(
        [*machine.prefix, sys.executable, "-m", "homeport.cli", *arguments],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**machine.clean_environment(), "HOMEPORT_URL": machine.url, "TERM": "xterm"},
        start_new_session=True,
        preexec_fn=_take_terminal,  # noqa: PLW1509 - this process has no threads that hold locks
    )
    os.close(slave)
    try:
        yield Terminal(popen, master)
    finally:
        if popen.poll() is None:
            popen.kill()
            popen.wait()
        os.close(master)


def _take_terminal() -> None:
    """Ctrl-C is for whoever has the terminal as its own."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
