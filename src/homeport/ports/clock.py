"""Time, randomness, and threads."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Clock(Protocol):
    def now(self) -> datetime:
        """The wall clock, in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds for measuring and waiting; never jumps."""
        ...


class Ids(Protocol):
    def new(self) -> str:
        """A fresh UUID."""
        ...


class InThread(Protocol):
    """Runs blocking code off the event loop: `anyio.to_thread.run_sync`, in all but simulations."""

    async def __call__(self, work: Callable[..., T], /, *arguments: Any) -> T: ...
