"""Runs a role in this process until Ctrl-C or SIGTERM, and ensures that it then ends within five seconds."""

import errno
import gc
import os
import signal
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final

import anyio
import click

from homeport.adapters.system import share_malloc_arenas
from homeport.cli.roles.logs import role_is_up
from homeport.cli.terminal.ages import took
from homeport.cli.terminal.output import done
from homeport.errors import HomeportError

STOP_SECONDS: Final = 5.0
APPS_STAY: Final = "Ctrl-C stops it; the apps keep running."
FULL: Final = (errno.ENOSPC, errno.EDQUOT)
COLLECT_AFTER: Final = (5_000, 10, 5)
"""Garbage collection thresholds of a running role. With those of the start, a million dead objects could pile up;
with Python's defaults, an idle role would collect without need."""

Role = Callable[["Lifetime"], Awaitable[None]]


class Lifetime:
    """A role uses it to signal that it serves, and to wait for the stop request. It then shuts down in its own order;
    before it has begun to wait for that, it is cancelled."""

    def __init__(self, on_ready: Callable[[Sequence[str]], None]) -> None:
        self._on_ready = on_ready
        self.notes: list[str] = []
        """Messages for the user who started it, known only once it serves."""
        self.can_stop = False
        self._stop = anyio.Event()

    def ready(self) -> None:
        self._on_ready(self.notes)

    def stop(self) -> None:
        self._stop.set()

    async def until_stopped(self) -> None:
        self.can_stop = True
        await self._stop.wait()


def run_role(
    title: str, role: Role, *, address: str, notes: tuple[str, ...] = (), stopping: str = "Ctrl-C stops it."
) -> None:
    """Prints one line when the role is up; returns when it was stopped. Raises the error that ended it otherwise."""
    began = time.monotonic()

    def ready(more: Sequence[str]) -> None:
        gc.freeze()  # existing objects stay; no collection has to visit them again
        gc.set_threshold(*COLLECT_AFTER)
        tell(f"{title:<36}  {address:<28}  {took(time.monotonic() - began)}", by=done)
        for note in (*notes, *more, stopping):
            tell(f"  {note}")
        role_is_up()
        notify_supervisor("READY=1")

    share_malloc_arenas()
    try:
        anyio.run(_until_signal, role, ready)
    except BaseExceptionGroup as group:
        raise first_of(group) from group


def tell(message: str, *, by: Callable[[str], None] = click.echo) -> None:
    """Prints a message of the role. If its output is on a full disk, the message is lost and the role continues."""
    try:
        by(message)
    except OSError as error:
        if error.errno not in FULL:
            raise


def notify_supervisor(state: str) -> None:
    """To systemd, or another supervisor with a notify socket (`sd_notify(3)`)."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender, suppress(OSError):
        sender.connect(f"\0{address[1:]}" if address.startswith("@") else address)
        sender.send(state.encode())


async def _until_signal(role: Role, ready: Callable[[Sequence[str]], None]) -> None:
    lifetime = Lifetime(ready)
    async with anyio.create_task_group() as tasks:

        async def work() -> None:
            await role(lifetime)
            tasks.cancel_scope.cancel()

        tasks.start_soon(work)
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            is_stopping = False
            async for _ in signals:
                if is_stopping or not lifetime.can_stop:
                    tasks.cancel_scope.cancel()
                if not is_stopping:
                    notify_supervisor("STOPPING=1")
                    _end_at_the_latest_in(STOP_SECONDS)
                    lifetime.stop()
                is_stopping = True


def _end_at_the_latest_in(seconds: float) -> None:
    """A supervisor waits for us: whatever hangs is killed. The journals make that harmless."""

    def cut() -> None:
        time.sleep(seconds)
        try:
            click.echo(f"Stopping took longer than {seconds:g} s; leaving without waiting any more.", err=True)
        finally:
            os._exit(1)

    threading.Thread(target=cut, name="last-resort", daemon=True).start()


def first_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The cause to show: one of our errors if there is one, because it has a readable message."""
    leaves = list(_leaves(group))
    return next((leaf for leaf in leaves if isinstance(leaf, HomeportError)), leaves[0])


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in _leaves(inner)]
    return [error]
