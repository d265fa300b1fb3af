"""Virtual time: an event loop without sockets, threads or waiting, whose clock jumps to the next timer.

What runs on it is a function of its seed alone. For that, nothing may depend on where objects lie in memory: tasks
are numbered in the order of their birth and are hashed by that number, and so are anyio's cancel scopes, for both are
kept in sets whose order decides who hears of a cancellation first.
"""

import asyncio
import gc
import os
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar
from unittest.mock import patch

import anyio
from anyio._backends import _asyncio as backend

T = TypeVar("T")


TIME_MAX = 10 * 365 * 86_400.0


class Stalled(Exception):
    """Nobody is ready and no timer is set, or none but for the end of days: the world has come to a standstill."""


class _Leap:
    """In the place of a selector: waiting takes no time and moves the clock."""

    def __init__(self) -> None:
        self.now = 0.0

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None or (timeout > 0 and self.now > TIME_MAX):
            raise Stalled
        self.now += timeout
        return []

    def close(self) -> None:
        pass


class NumberedTask(asyncio.Task[Any]):
    _born = 0

    def __init__(self, coroutine: Coroutine[Any, Any, Any], **options: Any) -> None:
        NumberedTask._born += 1
        self._number = NumberedTask._born
        super().__init__(coroutine, **options)

    def __hash__(self) -> int:
        return self._number


class VirtualLoop(asyncio.BaseEventLoop):
    def __init__(self) -> None:
        super().__init__()
        self._selector = _Leap()
        self._clock_resolution = 1e-6
        NumberedTask._born = 0
        self.set_task_factory(lambda loop, coroutine, **options: NumberedTask(coroutine, loop=loop, **options))

    def time(self) -> float:
        return self._selector.now

    def _process_events(self, events: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass


def run(main: Callable[[], Awaitable[T]]) -> T:
    """Runs `main` in virtual time."""
    with _scopes_in_order(), _no_threads(), _no_collection():
        return anyio.run(main, backend_options={"loop_factory": VirtualLoop})


def insist_on_one_order() -> None:
    """Strings in sets must come in the same order in every process; only a fresh interpreter can promise that."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "PYTHONHASHSEED": "0"})


@contextmanager
def _no_threads() -> Iterator[None]:
    """When a thread is done is a matter of real time: whoever wants one has not been given `in_thread`."""

    async def refuse(work: Callable[..., object], *_: object, **__: object) -> NoReturn:
        raise AssertionError(f"{work} wants a real thread in virtual time")

    with patch.object(backend.AsyncIOBackend, "run_sync_in_worker_thread", staticmethod(refuse)):
        yield


@contextmanager
def _no_collection() -> Iterator[None]:
    """When garbage is collected depends on all that the process did before, and what is collected may still act:
    an abandoned generator runs its last lines then. What is left is not looked at again: that took a quarter of the
    time of each story."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def _scopes_in_order() -> Iterator[None]:
    def number(scope: backend.CancelScope) -> int:
        return hash(scope._host_task)

    before = backend.CancelScope.__hash__
    setattr(backend.CancelScope, "__hash__", number)  # noqa: B010 - a checker would forbid it said plainly
    try:
        yield
    finally:
        setattr(backend.CancelScope, "__hash__", before)  # noqa: B010
