"""Virtual time: an event loop without sockets, threads or waiting, whose clock jumps to the next timer.

What runs on it is a function of its seed alone. For that, nothing may depend on where objects lie in memory: tasks
are numbered in the order of their birth and are hashed by that number, and so are anyio's cancel scopes, for both are
kept in sets whose order decides who hears of a cancellation first.
"""

import asyncio
import gc
import os
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from functools import partial
from heapq import heapify, heappop, heappush
from typing import Any, NoReturn, TypeVar, TypeVarTuple
from unittest.mock import patch

import anyio
from anyio._backends import _asyncio as backend
from anyio._core import _eventloop as eventloop
from anyio.abc import TaskGroup

from homeport.adapters.files import folder_watch

T = TypeVar("T")
Args = TypeVarTuple("Args")


TIME_MAX = 10 * 365 * 86_400.0
LEAP_SECONDS_MAX = 86_400.0
RESOLUTION_SECONDS = 1e-6
TIMERS_FEW = 100
"""So many timers are left in their place when they are cancelled."""


runs_on: ContextVar[str] = ContextVar("runs_on", default="")
"""In whose process the present code runs; empty for the world."""


class Stalled(Exception):
    """Nobody is ready and no timer is set, or none but for the end of days: the world has come to a standstill."""


class NumberedTask(asyncio.Task[Any]):
    _born = 0

    def __init__(self, coroutine: Coroutine[Any, Any, Any], **options: Any) -> None:
        NumberedTask._born += 1
        self._number = NumberedTask._born
        super().__init__(coroutine, **options)

    def __hash__(self) -> int:
        return self._number


class _Call(asyncio.Handle):
    """A handle that asks nobody whether it is debugged: there are some ten thousand in each story."""

    __slots__ = ()
    _callback: Any
    _args: Any

    def __init__(
        self, callback: Callable[..., object], args: Sequence[Any], loop: "VirtualLoop", context: Context | None
    ) -> None:
        self._context = copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = self._source_traceback = None

    def cancel(self) -> None:
        self._cancelled = True
        self._callback = self._args = None


class _Timer(_Call, asyncio.TimerHandle):
    __slots__ = ()

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: Sequence[Any],
        loop: "VirtualLoop",
        context: Context | None,
    ) -> None:
        _Call.__init__(self, callback, args, loop, context)
        self._when = when
        self._scheduled = True

    def cancel(self) -> None:
        if not self._cancelled:
            self._loop._timer_handle_cancelled(self)
            _Call.cancel(self)


class _Due(float):
    """When a timer is due, and the timer: numbers are compared much faster than handles."""

    __slots__ = ("timer",)
    timer: _Timer


class VirtualLoop(asyncio.BaseEventLoop):
    """Goes through its calls in the order of the standard library's loop, without what that does for sockets, threads
    and debugging: much of the time of a story is spent here."""

    _ready: deque[_Call]
    _timer_cancelled_count: int
    _timer_handle_cancelled: Callable[[asyncio.TimerHandle], None]
    _stopping: bool
    get_debug = staticmethod(bool)
    """Every future asks for it: that is always False, and `bool` says so without a frame of its own."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._due: list[_Due] = []
        self._frozen: dict[str, list[_Call]] = {}
        """Processes that stand still, and the calls that wait for them."""
        NumberedTask._born = 0
        self.set_task_factory(lambda loop, coroutine, **options: NumberedTask(coroutine, loop=loop, **options))

    def time(self) -> float:
        return self._now

    def call_soon(self, callback: Callable[[*Args], object], *args: *Args, context: Context | None = None) -> _Call:
        call = _Call(callback, args, self, context)
        self._ready.append(call)
        return call

    def call_later(
        self, delay: float, callback: Callable[[*Args], object], *args: *Args, context: Context | None = None
    ) -> _Timer:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Args], object], *args: *Args, context: Context | None = None
    ) -> _Timer:
        due = _Due(when)
        due.timer = _Timer(when, callback, args, self, context)
        heappush(self._due, due)
        return due.timer

    def add_reader(self, fd: Any, callback: Callable[[*Args], object], *args: *Args) -> None:
        """Nothing from outside is ever heard here: whoever reads also looks from time to time, or waits for ever."""

    def remove_reader(self, fd: Any) -> bool:
        return True

    def _run_once(self) -> None:
        """All rounds until somebody stops the loop."""
        ready = self._ready
        while True:
            self._forget_cancelled()
            if not ready and not self._stopping:
                self._leap()
            due, end = self._due, self._now + RESOLUTION_SECONDS
            while due and due[0] < end:
                timer = heappop(due).timer
                timer._scheduled = False
                ready.append(timer)
            for _ in range(len(ready)):
                call = ready.popleft()
                if self._frozen and (held := self._frozen.get(call._context.get(runs_on, ""))) is not None:
                    held.append(call)
                elif not call._cancelled:
                    try:
                        call._context.run(call._callback, *call._args)
                    except (SystemExit, KeyboardInterrupt):
                        raise
                    except BaseException as error:  # noqa: BLE001 - as the standard library does
                        said = {"message": f"Exception in {call}", "exception": error, "handle": call}
                        self.call_exception_handler(said)
            if self._stopping:
                return

    def freeze(self, name: str) -> None:
        """Nothing of this process runs, and the world goes on."""
        self._frozen.setdefault(name, [])

    def thaw(self, name: str) -> None:
        """Everything that became due meanwhile runs at once, in its order."""
        self._ready.extend(self._frozen.pop(name, ()))

    def _leap(self) -> None:
        """Waiting takes no time and moves the clock."""
        if not self._due:
            raise Stalled
        wait = min(max(0.0, self._due[0] - self._now), LEAP_SECONDS_MAX)
        if wait > 0 and self._now > TIME_MAX:
            raise Stalled
        self._now += wait

    def _forget_cancelled(self) -> None:
        due = self._due
        if len(due) > TIMERS_FEW and self._timer_cancelled_count * 2 > len(due):
            self._due = [each for each in due if not each.timer._cancelled]
            heapify(self._due)
            self._timer_cancelled_count = 0
        else:
            while due and due[0].timer._cancelled:
                self._timer_cancelled_count -= 1
                heappop(due).timer._scheduled = False

    def _write_to_self(self) -> None:
        pass


def current_time() -> float:
    """As anyio's, which asks each time whose loop it is."""
    return asyncio.get_running_loop().time()


def start_in(process: str, tasks: TaskGroup, work: Callable[..., Coroutine[Any, Any, Any]], *arguments: Any) -> None:
    """Starts a task of another process than the one that runs now, or of the world."""
    before = runs_on.set(process)
    try:
        tasks.start_soon(work, *arguments)
    finally:
        runs_on.reset(before)


def the_loop() -> VirtualLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop


def run(main: Callable[[], Awaitable[T]]) -> T:
    """Runs `main` in virtual time."""
    loop = VirtualLoop()

    async def alone() -> T:
        with _no_other(loop):
            return await main()

    with _scopes_in_order(), _no_threads(), _no_inotify(), _no_collection():
        return anyio.run(alone, backend_options={"loop_factory": lambda: loop})


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
def _no_inotify() -> Iterator[None]:
    """The kernel tells of a changed folder in real time, and takes ten milliseconds to forget that it was asked. Who
    watches one looks from time to time besides."""
    with patch.object(folder_watch, "_inotify", lambda folder: os.open(os.devnull, os.O_RDONLY)):
        yield


@contextmanager
def _no_other(loop: VirtualLoop) -> Iterator[None]:
    """There is one loop: anyio asks which task runs in it, and of which library it is, ten thousand times in each
    story."""
    running = partial(asyncio.tasks._current_tasks.get, loop)  # type: ignore[attr-defined]
    library = partial(str, "asyncio")
    with patch.object(backend, "current_task", running), patch.object(eventloop, "current_async_library", library):
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
        return scope._host_task._number  # type: ignore[union-attr, no-any-return]

    before = backend.CancelScope.__hash__
    setattr(backend.CancelScope, "__hash__", number)  # noqa: B010 - a checker would forbid it said plainly
    try:
        yield
    finally:
        setattr(backend.CancelScope, "__hash__", before)  # noqa: B010
