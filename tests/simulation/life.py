"""One life of a role's process, and how it ends.

A role dies at once: from then on nothing that it still does has any effect, neither on its disk nor on a link nor on
a container. Its tasks are cancelled; those that shield themselves meet an error at their next step outwards.
"""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, NoReturn, TypeVar

import anyio
from anyio.abc import TaskGroup

from homeport.errors import StorageFull, TransientError
from tests.simulation.loop import current_time

T = TypeVar("T")

WRITE_SECONDS = (0.001, 0.002, 0.005, 0.02)
BEGINNING = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


class Side(StrEnum):
    BEFORE = "before"
    AFTER = "after"


@dataclass(slots=True)
class Fuse:
    """Dies at the `writes`-th durable write from now, just before it or just after."""

    writes: int
    side: Side
    is_gentle: bool = False
    """Asked to end, as a service manager does, instead of killed: what it does at its end still has its effect."""


@dataclass(slots=True, eq=False)
class Life:
    name: str
    chance: random.Random
    on_death: Callable[[str], None]
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    is_alive: bool = True
    fuse: Fuse | None = None
    power_cut: bool = False
    """Nobody closes a connection of a machine without power: its peers have to find out."""
    tasks: TaskGroup | None = None
    """Where others may have this process do something for them, as a server would."""
    door: Any = None
    """What this process offers to others, once it is open."""
    is_disk_full: Callable[[], bool] = bool

    def die(self, why: str) -> None:
        if self.is_alive:
            self.is_alive = False
            self.on_death(why)
            self.scope.cancel()

    async def before_write(self) -> None:
        """What a disk takes to write, and the last moment at which a crash leaves nothing of it."""
        await anyio.sleep(self.chance.choice(WRITE_SECONDS))
        self._burn(Side.BEFORE)
        if not self.is_alive:
            await self.vanish()

    def insist_on_space(self) -> None:
        """Just before what was written is kept."""
        if self.is_disk_full():
            raise StorageFull("The disk is full; nothing was written.")

    async def after_write(self) -> None:
        """The first moment at which a crash leaves all of it, and nobody who knows."""
        self._burn(Side.AFTER)
        if not self.is_alive:
            await self.vanish()

    async def breathe(self) -> None:
        """Before every step outwards."""
        if not self.is_alive:
            await self.vanish()

    async def vanish(self) -> NoReturn:
        if anyio.current_effective_deadline() == -math.inf:
            await anyio.sleep_forever()
        raise TransientError("this process has died")

    async def in_thread(self, work: Callable[..., T], /, *arguments: Any) -> T:
        """In place of a thread whose work is a durable write: a crash comes just before it or just after.

        It never raises by itself, as a thread would not: whoever is dead goes on for a step that nobody sees.
        """
        await anyio.sleep(self.chance.choice(WRITE_SECONDS))
        self._burn(Side.BEFORE)
        if not self.is_alive:
            return None  # type: ignore[return-value]
        done = work(*arguments)
        self._burn(Side.AFTER)
        return done

    async def thinking(self, work: Callable[..., T], /, *arguments: Any) -> T:
        """In place of a thread whose work changes nothing."""
        await anyio.sleep(0.001)
        return work(*arguments)

    def _burn(self, side: Side) -> None:
        fuse = self.fuse
        if fuse is None or fuse.side is not side:
            return
        fuse.writes -= 1
        if fuse.writes <= 0 and fuse.is_gentle:
            self.fuse = None
            self.scope.cancel()
        elif fuse.writes <= 0:
            self.die(f"killed {side} a write")


@dataclass(slots=True, eq=False)
class MachineClock:
    """The clock of one machine. Somebody may set its time of day; its monotonic time knows nothing of that."""

    offset: timedelta = timedelta(0)
    boot: float = 0.0
    set_at: float = -math.inf
    """When somebody last set it."""

    def now(self) -> datetime:
        return BEGINNING + timedelta(seconds=current_time()) + self.offset

    def monotonic(self) -> float:
        return current_time() + self.boot


@dataclass(slots=True, eq=False)
class SeededIds:
    chance: random.Random

    def new(self) -> str:
        text = f"{self.chance.getrandbits(128):032x}"
        return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-a{text[17:20]}-{text[20:]}"
