"""News on its way to the site. Results, and drift that was found and repaired, wait in the journal until they are
acknowledged; progress is best effort: throttled per deployment, and only the newest is kept while the link is down.
"""

from collections import deque

import anyio

from homeport.core.model.order import Progress, Result
from homeport.node.metrics import NodeMetrics
from homeport.ports import Clock
from homeport.vocabulary import DeploymentId, Step

PROGRESS_SECONDS = 0.2
"""At most five a second for each deployment; a new step is always told."""
PROGRESS_KEPT = 256


class Outlet:
    def __init__(self, clock: Clock, metrics: NodeMetrics) -> None:
        self._clock = clock
        self._metrics = metrics
        self._progress: deque[Progress] = deque(maxlen=PROGRESS_KEPT)
        self._told: dict[DeploymentId, tuple[Step, str, float]] = {}
        self._unrecorded: deque[Result] = deque(maxlen=PROGRESS_KEPT)
        self._changed = anyio.Event()

    def unrecorded(self, result: Result) -> None:
        """A refusal that could not be written down. It is told once; should it be lost, the site asks again."""
        self._unrecorded.append(result)
        self.wake()

    def progress(self, progress: Progress) -> None:
        now = self._clock.monotonic()
        step, component, at = self._told.get(progress.deployment_id, (None, "", 0.0))
        if (step, component) == (progress.step, progress.component) and now - at < PROGRESS_SECONDS:
            return
        self._told[progress.deployment_id] = (progress.step, progress.component, now)
        if len(self._progress) == PROGRESS_KEPT:
            self._metrics.progress_dropped.inc()
        self._progress.append(progress)
        self.wake()

    def forget(self, deployment_id: DeploymentId) -> None:
        """An order has ended: what was told for it is no measure for the next."""
        self._told.pop(deployment_id, None)

    def take(self) -> tuple[Progress | Result, ...]:
        """What need not be acknowledged. Taken is taken: should the link break now, it is lost."""
        taken: tuple[Progress | Result, ...] = (*self._progress, *self._unrecorded)
        self._progress.clear()
        self._unrecorded.clear()
        return taken

    def wake(self) -> None:
        """There is something to send, here or in the journal's outbox."""
        self._changed.set()

    async def wait(self) -> None:
        await self._changed.wait()
        self._changed = anyio.Event()
