"""Decides when a site plans.

Every change marks the deployments that it affects. One task takes all marks together, plans only those deployments,
and carries the plan out in one turn of the conductor. A plan that may take long is made on a copy, in a thread: what
was marked in the meantime is dropped from it and planned again.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import field
from functools import partial
from typing import Any, Final

import anyio
import anyio.to_thread

from homeport.core.reconcile.check import Checked, checked_plan
from homeport.core.reconcile.instances import Instances
from homeport.core.reconcile.plan import View
from homeport.errors import PermanentError, TransientError
from homeport.fleet.site.state import SiteState
from homeport.lazy_dataclass import dataclass
from homeport.log import get_log
from homeport.ports import Clock
from homeport.vocabulary import DeploymentId

log = get_log(__name__)

INLINE_MAX: Final = 300
"""This many instances and candidates are planned in less than ten milliseconds, short enough for the event loop."""
OVERTAKEN_MAX: Final = 3
"""After this many plans in a row that were outdated before they were finished, the next one is made under the
lock."""
RETRY_SECONDS: Final = 1.0

InThread = Callable[..., Awaitable[Any]]


@dataclass(slots=True)
class Marks:
    """The deployments to plan again."""

    deployments: set[DeploymentId] = field(default_factory=set)
    everything: bool = False

    def __bool__(self) -> bool:
        return self.everything or bool(self.deployments)

    def __contains__(self, deployment_id: object) -> bool:
        return self.everything or deployment_id in self.deployments

    def take(self) -> "Marks":
        taken = Marks(self.deployments, self.everything)
        self.deployments, self.everything = set(), False
        return taken

    def add(self, others: "Marks") -> None:
        self.deployments |= others.deployments
        self.everything = self.everything or others.everything

    @property
    def only(self) -> Collection[DeploymentId] | None:
        """As the `only` of a plan: None for all."""
        return None if self.everything else self.deployments


CarryOut = Callable[[Callable[[], Checked], Collection[DeploymentId] | None], Awaitable[None]]
"""Makes a plan in the conductor's turn, records it and sends its orders; the second argument is what was planned."""


class SitePlanner:
    def __init__(
        self, memory: SiteState, clock: Clock, carry_out: CarryOut, *, in_thread: InThread = anyio.to_thread.run_sync
    ) -> None:
        self._memory = memory
        self._clock = clock
        self._carry_out = carry_out
        self._in_thread = in_thread
        self._overtaken = 0
        self._bell = anyio.Event()
        self._one_at_a_time = anyio.Lock()
        self.marks = Marks()
        self.inline_max = INLINE_MAX

    def mark(self, deployments: Iterable[DeploymentId], *, wake: bool = True) -> None:
        """They are planned soon, or with `wake` false with the next wake-up."""
        self.marks.deployments.update(deployments)
        if wake:
            self.wake()

    def mark_all(self) -> None:
        self.marks.everything = True
        self.wake()

    def wake(self) -> None:
        if self.marks:
            self._bell.set()

    async def run(self) -> None:
        """Begins with everything: what happened while the site was down is unknown."""
        self.mark_all()
        while True:
            await self._bell.wait()
            self._bell = anyio.Event()
            try:
                await self.plan()
            except (TransientError, PermanentError) as error:
                log.warning("plan failed, will retry", why=str(error))
                await anyio.sleep(RETRY_SECONDS)
                self.wake()

    async def plan(self) -> None:
        """Plans what is marked, and what that leads to, until nothing is."""
        async with self._one_at_a_time:
            while self.marks:
                taken = self.marks.take()
                try:
                    await self._plan(taken)
                except BaseException:
                    self.marks.add(taken)
                    raise

    async def _plan(self, taken: Marks) -> None:
        if self._overtaken >= OVERTAKEN_MAX or self._size(taken) <= self.inline_max:
            self._overtaken = 0
            await self._carry_out(partial(self._plan_here, taken), taken.only)
            return
        view = copy_of(self._memory.view())
        made: Checked = await self._in_thread(checked_plan, view, self._clock.now(), taken.only)
        self._overtaken = self._overtaken + 1 if self.marks else 0
        await self._carry_out(lambda: without(made, self.marks), taken.only)

    def _plan_here(self, taken: Marks) -> Checked:
        """In the conductor's turn, so that nothing can change in between."""
        return checked_plan(self._memory.view(), self._clock.now(), taken.only)

    def _size(self, marks: Marks) -> int:
        """The size of the work: each deployment looks at its instances and at every node."""
        deployments = len(self._memory.files) if marks.everything else len(marks.deployments)
        return deployments * len(self._memory.nodes)


def without(made: Checked, marks: Marks) -> Checked:
    """The plan without what has changed since it was made."""
    kept = tuple(move for move in made.moves if move.deployment_id not in marks)
    return Checked(kept, {key: why for key, why in made.set_aside.items() if key not in marks})


def copy_of(view: View) -> View:
    """A snapshot of the view for the thread."""
    return View(
        desired=dict(view.desired),
        unreadable=view.unreadable,
        nodes=dict(view.nodes),
        instances=Instances(view.instances),
        secrets=dict(view.secrets),
        given=dict(view.given),
        holds=view.holds,
        by_hand=view.by_hand,
        spent=dict(view.spent),
        past=dict(view.past),
        others=view.others,
        damaged=view.damaged,
    )
