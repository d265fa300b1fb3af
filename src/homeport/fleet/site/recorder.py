"""Writes what happened to instances: into the store and the queue of reports in one transaction, then into memory.
Called in the conductor's turn.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from homeport.core.events import set_aside_event
from homeport.core.lifecycle.record import Recorded
from homeport.core.lifecycle.replay import observe_health
from homeport.core.model.instance import Transition
from homeport.core.model.report import PlanSetAside, Progressed
from homeport.core.reconcile.instances import Key
from homeport.fleet.shared.progress import key_of, observed_health, progress_event, step_text
from homeport.fleet.shared.record import record_transitions
from homeport.fleet.site.instance_values import SECONDS_SPENT, SECRETS_GIVEN, dump_seconds, keep_changed
from homeport.fleet.site.reports.queue import ReportQueue
from homeport.fleet.site.reports.resync import PROGRESS_QUEUED_MAX
from homeport.fleet.site.state import SiteState
from homeport.fleet.site.traces import SiteTraces
from homeport.log import get_log
from homeport.ports import Clock, Transaction
from homeport.vocabulary import DeploymentId, State

log = get_log(__name__)


class TransitionRecorder:
    def __init__(self, memory: SiteState, clock: Clock, queue: ReportQueue, traces: SiteTraces) -> None:
        self._memory = memory
        self._clock = clock
        self._queue = queue
        self._traces = traces

    async def record(
        self,
        transitions: Sequence[Transition],
        progressed: Sequence[Progressed],
        given: dict[Key, dict[str, int]] | None = None,
    ) -> Recorded:
        """Makes transitions and progress durable and queues them for central, then updates the memory. `given` is
        which releases each instance was given, if that has changed."""
        now, moment = self._clock.now(), self._clock.monotonic()
        memory = self._memory
        observed = observed_health(memory.instances, progressed)
        contexts = self._traces.contexts(transitions)
        self._traces.end(transitions, memory.files)

        async def work(tx: Transaction) -> tuple[Recorded, dict[Key, dict[str, int]], dict[Key, float]]:
            recorded = await record_transitions(tx, transitions, now)
            refused = {id(transition) for transition, _ in recorded.refused}
            await tx.drop_instances([item.key for item in recorded.instances if item.state is State.DELETED])
            await drop_deployments(tx, [item.id for item in recorded.deployments if item.archived_at is not None])
            await tx.set_steps({key_of(item): step_text(item.progress) for item in progressed})
            await tx.set_health({item.key: item.unhealthy for item in observed.values()})
            await tx.append_events(
                [
                    progress_event(item, memory.site, f"{item.node_id}: {step_text(item.progress)}")
                    for item in progressed
                ]
            )
            accepted = [item for item in transitions if id(item) not in refused]
            # Steps are informational: while central is unreachable for long they are dropped first.
            has_room = not progressed or await tx.outbox_size() < PROGRESS_QUEUED_MAX
            await self._queue.put(tx, [each for each in progressed if has_room and each.progress.healthy is None])
            await self._queue.put(tx, accepted, contexts)
            # As it is applied here: a transition forgets what was observed before it.
            await self._queue.put(tx, [each for each in progressed if each.progress.healthy is not None])
            await self._traces.save(tx)
            await tx.set_value("generation", str(memory.generation))
            await tx.set_value("incarnation", str(memory.incarnation))
            gone = {item.key for item in recorded.instances if item.state is State.DELETED}
            left = memory.given if given is None else given
            left = {key: versions for key, versions in left.items() if key not in gone}
            await keep_changed(tx, SECRETS_GIVEN, memory.given, left)
            spent = memory.order_timers.after(memory.instances, recorded.instances, moment)
            await keep_changed(tx, SECONDS_SPENT, memory.order_timers.spent, spent, dump_seconds)
            return recorded, left, spent

        recorded, memory.given, memory.order_timers.spent = await self._queue.commit(work)
        self._traces.saved()
        for transition, why in recorded.refused:
            log.error("transition rejected", deployment=transition.deployment_id, node=transition.node_id, why=why)
        for instance in recorded.instances:
            if instance.state is State.DELETED:
                memory.instances.pop(instance.key, None)
            else:
                memory.instances[instance.key] = instance
        memory.order_timers.look(recorded.instances, moment)
        for item in progressed:
            if key_of(item) in memory.instances:
                instance = observe_health(memory.instances[key_of(item)], item.progress)
                memory.instances[key_of(item)] = replace(instance, step=step_text(item.progress))
        self._traces.forget((item.deployment_id for item in transitions), memory.instances)
        if any(item.state in (State.INSTALLED, State.DELETED) for item in recorded.instances):
            memory.forget_finished()
        return recorded

    async def set_aside(
        self, found: Mapping[DeploymentId, str], looked_at: Collection[DeploymentId] | None, now: datetime
    ) -> None:
        """Reports each deployment that could not be planned once, with the reason, until it can be planned again;
        here and at central."""
        memory = self._memory
        others = {} if looked_at is None else {k: v for k, v in memory.set_aside.items() if k not in looked_at}
        after = {**others, **found}
        changed = sorted(
            key for key in after.keys() | memory.set_aside if after.get(key) != memory.set_aside.get(key)
        )
        if not changed:
            return

        async def work(tx: Transaction) -> None:
            rows = await tx.deployments_by_ids(changed)
            await tx.put_deployments(
                [replace(row, set_aside=after.get(row.id), updated_at=now, version=row.version + 1) for row in rows]
            )
            names = {row.id: row.name for row in rows}
            await tx.append_events(
                [
                    set_aside_event(memory.site, key, names.get(key, key), after[key], now)
                    for key in changed
                    if key in after
                ]
            )
            await self._queue.put(tx, [PlanSetAside(key, after.get(key), now) for key in changed])

        await self._queue.commit(work)
        memory.set_aside = after
        for key in changed:
            if key in after:
                log.error("deployment set aside", deployment=key, why=after[key])
            else:
                log.info("deployment can be planned again", deployment=key)


async def drop_deployments(tx: Transaction, deployment_ids: Sequence[DeploymentId]) -> None:
    """A permanently removed deployment leaves only its history."""
    await tx.drop_desired_files(deployment_ids)
    await tx.drop_revisions(deployment_ids)
    await tx.drop_pins(deployment_ids)
