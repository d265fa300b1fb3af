"""Messages to the site. Results, and repaired drift, stay in the journal until they are acknowledged; progress is
best effort: throttled per deployment, and only the newest is kept while disconnected.
"""

from collections import deque

import anyio

from homeport.core.model.order import Progress, Result, WorkKey
from homeport.core.node.lanes import Lane, Lanes
from homeport.node.pages.metrics import NodeMetrics
from homeport.ports import Clock, EngineHandoffs, FoundWorkloads, FromNode, Logs, Notice, Telemetry
from homeport.vocabulary import Step

PROGRESS_SECONDS = 0.2
"""At most five a second for each deployment; a new step is always sent."""
PROGRESS_KEPT = 256
NOTICES_KEPT = 64


class Outlet:
    def __init__(self, clock: Clock, metrics: NodeMetrics) -> None:
        self._clock = clock
        self._metrics = metrics
        self._progress: deque[Progress] = deque(maxlen=PROGRESS_KEPT)
        self._told: dict[WorkKey, tuple[Step, str, float]] = {}
        self._unrecorded: deque[Result] = deque(maxlen=PROGRESS_KEPT)
        self._notices: deque[Notice] = deque(maxlen=NOTICES_KEPT)
        self._found: FoundWorkloads | None = None
        self._replicas: EngineHandoffs | None = None
        self._is_replicas_sent = False
        self.lanes = Lanes[FromNode]()
        """The send queues. Logs and telemetry are queued here while disconnected, too."""
        self._changed = anyio.Event()

    def unrecorded(self, result: Result) -> None:
        """A refusal that could not be stored. It is sent once; if it is lost, the site asks again."""
        self._unrecorded.append(result)
        self.wake()

    def notice(self, notice: Notice) -> None:
        """Something without an order. Sent to a site that supports it, best effort like progress."""
        self._notices.append(notice)
        self.wake()

    def logs(self, logs: Logs) -> None:
        """Never blocks: when lines come faster than they can be sent, the oldest are dropped."""
        self._best_effort(Lane.LOGS, logs)

    def telemetry(self, telemetry: Telemetry) -> None:
        self._best_effort(Lane.TELEMETRY, telemetry)

    def _best_effort(self, lane: Lane, message: FromNode) -> None:
        dropped = self.lanes.dropped[lane]
        self.lanes.put(lane, message)
        self._metrics.lane_dropped.labels(lane.value).inc(self.lanes.dropped[lane] - dropped)
        self.wake()

    def found(self, found: FoundWorkloads) -> None:
        """Only the newest is sent: it is the complete list."""
        self._found = found
        self.wake()

    def replicas(self, replicas: EngineHandoffs) -> None:
        """The complete list, so only the newest counts; it is sent again on every new stream."""
        self._replicas, self._is_replicas_sent = replicas, False
        self.wake()

    def reopened(self) -> None:
        """A new stream: the site may have been restarted."""
        self._is_replicas_sent = False

    def take_replicas(self) -> EngineHandoffs | None:
        taken = None if self._is_replicas_sent else self._replicas
        self._is_replicas_sent = True
        return taken

    def take_found(self) -> FoundWorkloads | None:
        taken, self._found = self._found, None
        return taken

    def take_notices(self) -> tuple[Notice, ...]:
        taken = tuple(self._notices)
        self._notices.clear()
        return taken

    def progress(self, progress: Progress) -> None:
        now = self._clock.monotonic()
        step, component, at = self._told.get(progress.key, (None, "", 0.0))
        if (step, component) == (progress.step, progress.component) and now - at < PROGRESS_SECONDS:
            return
        self._told[progress.key] = (progress.step, progress.component, now)
        if len(self._progress) == PROGRESS_KEPT:
            self._metrics.progress_dropped.inc()
        self._progress.append(progress)
        self.wake()

    def forget(self, key: WorkKey) -> None:
        """An order has ended: its throttling does not apply to the next."""
        self._told.pop(key, None)

    def take(self) -> tuple[Progress | Result, ...]:
        """Messages without acknowledgement. If the connection breaks after this, they are lost."""
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
