"""Status reports to a fleet manager: one for every change of a deployment's state, in order, also of those that
happened while it could not be reached. The site's event log is the queue."""

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Final

import anyio

from homeport.core.margo.status import (
    MARGO_OF,
    ComponentStatus,
    MargoError,
    MargoState,
    MargoStatus,
    overall,
    status_body,
)
from homeport.core.model.event import Event
from homeport.errors import HomeportError, TransientError
from homeport.fleet.shared.backoff import Backoff
from homeport.fleet.site.conductor import Conductor
from homeport.lazy_dataclass import dataclass
from homeport.log import get_log
from homeport.margo.client.state import ClientMemory
from homeport.margo.client.transport import WfmRefused, WfmTransport, wait_seconds
from homeport.ports import Store
from homeport.vocabulary import DeploymentId, EventKind, State

BATCH_MAX: Final = 500
BACKOFF_SECONDS_MAX: Final = 300.0
ABOUT_THE_CLIENT: Final = frozenset({401, 403, 404})
"""It may be the client that is not accepted, or the fleet manager that is not behind its proxy at the moment."""

log = get_log("homeport.margo")


@dataclass(slots=True)
class StatusReporter:
    store: Store
    conductor: Conductor
    transport: WfmTransport
    memory: ClientMemory
    wait_until_open: Any
    """Awaited before each call: outside the configured hours nothing is sent."""
    _last: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    _polled: anyio.Event = field(default_factory=anyio.Event)
    """Set by the next poll that is answered or refused."""
    _is_accepted: bool = True
    """Whether that poll was answered."""
    _refused: int = 0
    """The event whose report was refused last."""
    _left_out: int = 0
    """The event whose report is not sent again."""
    _is_refused_alone: bool = False
    """Whether reports are refused although polls are answered: they do not wait for a poll each."""

    async def begin(self) -> None:
        """What happened before this site followed a fleet manager is not reported."""
        if self.memory.kept.cursor is None:
            async with self.store.read() as reader:
                cursor = await reader.last_event_id()
            await self.memory.save(cursor=cursor)

    async def run(self) -> None:
        backoff = Backoff(first_seconds=1.0, last_seconds=BACKOFF_SECONDS_MAX)
        while True:
            cursor = self.memory.kept.cursor or 0
            try:
                await self.store.wait_for_event(cursor)
                await self.wait_until_open()
                async with self.memory.adopting:
                    await self._report_after(cursor)
                backoff.reset()
            except WfmRefused as refused:
                log.warning("status refused by the fleet manager", why=str(refused))
                await self._until_accepted()
            except TransientError as error:
                log.warning("status not reported, will retry", why=str(error))
                await anyio.sleep(wait_seconds(error, backoff.next_seconds(), chance=backoff.chance.random()))

    def polled(self, *, is_accepted: bool) -> None:
        self._is_accepted = is_accepted
        self._polled.set()
        self._polled = anyio.Event()

    async def _until_accepted(self) -> None:
        """The next poll tells whether it is the report that is refused, or the client as a whole, which goes on where
        it was when it is accepted again."""
        await self._polled.wait()
        if self._is_accepted:
            self._is_refused_alone, self._left_out = True, self._refused
        while not self._is_accepted:
            await self._polled.wait()

    async def report_refusals(self) -> None:
        """What this site cannot take at all. Raises TransientError; what is left then is reported the next time, also
        after a restart: the manifest is adopted, and nothing else would bring it up again."""
        while refusals := self.memory.kept.refusals:
            key, refusal = next(iter(refusals.items()))
            components = tuple(ComponentStatus(name, MargoState.FAILED) for name in refusal["components"])
            error = MargoError(refusal["code"], refusal["source"], refusal["message"])
            await self._send(DeploymentId(key), MargoState.FAILED, components, error)
            await self.memory.save(refusals={other: each for other, each in refusals.items() if other != key})

    async def _report_after(self, cursor: int) -> None:
        """Raises TransientError, and WfmRefused where the report may be taken later; what comes before it is done."""
        async with self.store.read() as reader:
            events = await reader.events(after=cursor, limit=BATCH_MAX)
        done = cursor
        try:
            for event in events:
                state = _state_of(event)
                if state is not None and event.event.deployment_id is not None:
                    await self._report(event, event.event.deployment_id, state)
                done = event.id
        except HomeportError:
            await self._save_cursor(cursor, done)
            raise
        await self._save_cursor(cursor, done)

    async def _save_cursor(self, before: int, cursor: int) -> None:
        if cursor > before:
            await self.memory.save(cursor=cursor)

    async def _report(self, event: Event, deployment_id: DeploymentId, state: MargoState) -> None:
        names = await self._names(deployment_id)
        failure = event.event.data.get("failure")
        error = None
        if failure:
            source = str(event.event.data.get("name") or deployment_id)
            error = MargoError(str(failure["code"]), source, str(failure["message"]))
        components = component_states(names, state, failure)
        await self._send(deployment_id, state, components, error, event)

    async def _names(self, deployment_id: DeploymentId) -> tuple[str, ...]:
        desired = self.conductor.memory.files.get(deployment_id)
        known = self.memory.kept.components.get(deployment_id, ())
        if desired is None:
            return known
        names = tuple(each.name for each in desired.release.components)
        if names != known:
            await self.memory.save(components={**self.memory.kept.components, deployment_id: names})
        return names

    async def _send(
        self,
        deployment_id: DeploymentId,
        state: MargoState,
        components: tuple[ComponentStatus, ...],
        error: MargoError | None,
        event: Event | None = None,
    ) -> None:
        """Raises TransientError, and WfmRefused where it may be taken later; else a refused report is left out."""
        version = self.memory.kept.adopted.version
        if version == 0:
            return  # nothing was adopted from a fleet manager yet
        states = [each.state for each in components]
        shown = overall(states) if states else state
        called = self.memory.kept.announced.get(deployment_id, deployment_id)
        body = status_body(MargoStatus(called, version, shown, components, error))
        if self._last.get(deployment_id) == body:
            return
        try:
            if event is None or event.id != self._left_out:
                await self.transport.send("POST", f"/api/v1/deployments/{called}/status", body)
                self._is_refused_alone = False
        except WfmRefused as refused:
            if event is not None and refused.status in ABOUT_THE_CLIENT and not self._is_refused_alone:
                self._refused = event.id
                raise
            log.warning("status refused by the fleet manager", deployment=deployment_id, why=str(refused))
        if state is MargoState.REMOVED:
            self._last.pop(deployment_id, None)
            kept = self.memory.kept
            left = {key: names for key, names in kept.components.items() if key != deployment_id}
            announced = {key: text for key, text in kept.announced.items() if key != deployment_id}
            await self.memory.save(components=left, announced=announced)
            return
        self._last[deployment_id] = body


def _state_of(event: Event) -> MargoState | None:
    match event.event.kind:
        case EventKind.DEPLOYMENT_CREATED:
            return MargoState.PENDING
        case EventKind.DEPLOYMENT_STATE:
            return MARGO_OF.get(State(str(event.event.data["state"])))
        case _:
            return None


def component_states(
    names: Sequence[str], state: MargoState, failure: Mapping[str, Any] | None
) -> tuple[ComponentStatus, ...]:
    """Components are installed in order, each when the one before it runs: those before the failed one are there,
    those after it were not begun. Where it is not known which one failed, all have."""
    if state is not MargoState.FAILED or failure is None or failure.get("source") not in names:
        return tuple(ComponentStatus(name, state) for name in names)
    at = list(names).index(str(failure["source"]))
    error = MargoError(str(failure["code"]), names[at], str(failure["message"]))
    return (
        *(ComponentStatus(name, MargoState.INSTALLED) for name in names[:at]),
        ComponentStatus(names[at], MargoState.FAILED, error),
        *(ComponentStatus(name, MargoState.PENDING) for name in names[at + 1 :]),
    )
