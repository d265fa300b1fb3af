"""Runs a role in this process until Ctrl-C or SIGTERM, and makes sure that it then ends within five seconds."""

import errno
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Final

import anyio
import click

from homeport.cli.ages import took
from homeport.cli.output import done
from homeport.errors import HomeportError

STOP_SECONDS: Final = 5.0
FULL: Final = (errno.ENOSPC, errno.EDQUOT)

Ready = Callable[[], None]
Role = Callable[[Ready], Awaitable[None]]
"""A role runs until it is cancelled, and calls what it is given once it serves."""


def run_role(title: str, role: Role, *, address: str, notes: tuple[str, ...] = ()) -> None:
    """Prints one line when the role is up; returns when it has stopped as asked. Raises what ended it otherwise."""
    began = time.monotonic()

    def ready() -> None:
        tell(f"{title:<36}  {address:<28}  {took(time.monotonic() - began)}", by=done)
        for note in (*notes, "Ctrl-C stops it."):
            tell(f"  {note}")

    try:
        anyio.run(_until_signal, role, ready)
    except BaseExceptionGroup as group:
        raise first_of(group) from group


def tell(message: str, *, by: Callable[[str], None] = click.echo) -> None:
    """What a role says of itself. One whose output goes to a full disk says nothing, and runs all the same."""
    try:
        by(message)
    except OSError as error:
        if error.errno not in FULL:
            raise


async def _until_signal(role: Role, ready: Ready) -> None:
    async with anyio.create_task_group() as tasks:

        async def work() -> None:
            await role(ready)
            tasks.cancel_scope.cancel()

        tasks.start_soon(work)
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async for _ in signals:
                if tasks.cancel_scope.cancel_called:
                    break
                _end_at_the_latest_in(STOP_SECONDS)
                tasks.cancel_scope.cancel()
                return


def _end_at_the_latest_in(seconds: float) -> None:
    """A supervisor waits for us: whatever hangs is cut. The journals make that harmless."""

    def cut() -> None:
        time.sleep(seconds)
        try:
            click.echo(f"Stopping took longer than {seconds:g} s; leaving without waiting any more.", err=True)
        finally:
            os._exit(1)

    threading.Thread(target=cut, name="last-resort", daemon=True).start()


def first_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The cause to show: one of ours if there is one, for it has a sentence for a person."""
    leaves = list(_leaves(group))
    return next((leaf for leaf in leaves if isinstance(leaf, HomeportError)), leaves[0])


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in _leaves(inner)]
    return [error]
