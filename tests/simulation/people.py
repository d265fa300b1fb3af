"""People who ask central or a site for something, as they do through its API: what they were answered is a promise.

Whoever dies over a request has promised nothing, and may have done it all the same.
"""

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

import anyio

from homeport.central.parts import CentralCore
from homeport.core.model.caller import Caller, Role
from homeport.errors import HomeportError, PeerUnavailable, PermanentError, TransientError
from homeport.site.parts import SiteCore
from tests.simulation.loop import start_in
from tests.simulation.roles import Process, Site
from tests.simulation.trace import who
from tests.simulation.world import World

C = TypeVar("C")
T = TypeVar("T")

ANN = Caller("ann", Role.ADMIN)
Refused = Callable[[HomeportError], object]


def _nothing(_answer: object) -> None:
    pass


@dataclass(slots=True, eq=False)
class People:
    world: World
    answered: Counter[str] = field(default_factory=Counter)
    """How often each thing was asked for and done."""

    def at_central(
        self,
        what: str,
        act: Callable[[CentralCore], Awaitable[T]],
        done: Callable[[T], object] = _nothing,
        refused: Refused = _nothing,
    ) -> None:
        central = self.world.central
        self._ask(central, central.core, what, act, done, refused)

    def at_site(
        self,
        site: Site,
        what: str,
        act: Callable[[SiteCore], Awaitable[T]],
        done: Callable[[T], object] = _nothing,
        refused: Refused = _nothing,
    ) -> None:
        self._ask(site, site.core, what, act, done, refused)

    def _ask(
        self,
        process: Process,
        core: C | None,
        what: str,
        act: Callable[[C], Awaitable[T]],
        done: Callable[[T], object],
        refused: Refused,
    ) -> None:
        life = process.life
        if life is None or life.tasks is None or life.door is None or core is None:
            self.world.trace.note(f"nobody at {process.name} hears: {what}")
            return

        async def work() -> None:
            who.set(process.name)
            try:
                answer = await act(core)
                await life.breathe()
            except anyio.get_cancelled_exc_class():
                refused(PeerUnavailable(f"{process.name} died over it"))
                raise
            except (TransientError, PermanentError) as error:
                self.world.trace.note(f"refused: {what}", why=str(error))
                refused(error)
                return
            self.world.trace.note(f"done: {what}")
            self.answered[what.split(maxsplit=1)[0]] += 1
            done(answer)

        self.world.trace.note(f"asked of {process.name}: {what}")
        start_in(process.name, life.tasks, work)
