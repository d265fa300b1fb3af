"""Gives waiting tasks the slots of replicas. The queue and placement decide; this carries it out.

Everything here is synchronous and runs between two awaits, so that counts of leases are never seen half changed. A
ticket is a task's place: it waits in a queue, then holds a lease, and its holder returns it.
"""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache, partial
from typing import Any

from homeport.core.inference import admission
from homeport.core.inference.admission import Situation
from homeport.core.inference.key_limits import KeyRate
from homeport.core.inference.placement import Misfit, PoolDecision, ReplicaCandidate, code_of, place
from homeport.core.inference.queue import PoolQueue, QueueEntry, predicted_start_ms
from homeport.core.inference.scaling import PoolUse
from homeport.core.inference.sessions import Session
from homeport.core.inference.settings import InferenceSettings
from homeport.core.inference.task import PoolPlacementMode, Priority, Refusal, Task, TaskCode, TaskRefused
from homeport.inference.metrics import InferenceMetrics
from homeport.inference.pools.preparation import preparation
from homeport.inference.pools.registry import PoolRegistry
from homeport.inference.pools.replica import LOAD_MS_GUESS, CacheOwner, Labels, Replica
from homeport.inference.tasks.shared_limits import SharedLimits
from homeport.lazy_dataclass import dataclass
from homeport.ports import InferencePorts

RETRY_MS = 1_000
KEYS_MAX = 10_000
"""Keys whose rate is remembered."""
PLACEMENTS_KEPT = 200


@dataclass(eq=False, slots=True)
class PlacedTask:
    """A task that got a slot, and why there."""

    task_id: str
    caller: str
    model: str
    priority: Priority
    pool_id: str
    replica_id: str
    waited_ms: int
    at: float
    decision: PoolDecision | None
    is_running: bool = True

    @property
    def sentence(self) -> str:
        return "" if self.decision is None else self.decision.sentence


@dataclass(eq=False, slots=True)
class Ticket:
    task: Task
    caller: str
    sites: tuple[str, ...]
    pool_id: str
    since: float
    position: int = 0
    predicted_start_ms: int = 0
    affine: tuple[str, str] | None = None
    replica: Replica | None = None
    where: Labels | None = None
    """Of the replica that it got last; stays when it gives the lease back."""
    decision: PoolDecision | None = None
    correlation_id: str = ""
    excluded: frozenset[tuple[str, str]] = frozenset()
    """Replicas that failed it already."""
    granted: "asyncio.Future[None] | None" = None
    refusal: Refusal | None = None
    """Why it was dropped from the queue."""
    on_moved: "Callable[[Ticket], None] | None" = None
    """Called once, when it has a lease or was dropped, for what does not wait in a task of its own."""
    preparation: tuple[Mapping[str, Any], ...] = ()
    """What had to be done before it could start, when it was admitted."""
    placed: PlacedTask | None = None
    """The last time that it got a slot."""
    is_narrated: bool = False

    async def wait(self) -> Replica:
        """Until it has a lease. Raises TaskRefused when it was dropped from the queue."""
        if self.is_waiting:
            self.granted = asyncio.get_running_loop().create_future()
            await self.granted
        if self.refusal is not None:
            raise TaskRefused(self.refusal)
        assert self.replica is not None
        return self.replica

    @property
    def is_waiting(self) -> bool:
        return self.replica is None and self.refusal is None

    def is_in(self, pool_id: str) -> bool:
        """Whether it runs there."""
        return self.replica is not None and self.replica.handoff.pool_id == pool_id

    @property
    def cache_owner(self) -> CacheOwner:
        return self.caller, self.task.session_id or self.task.task_id

    def refuse(self, refusal: Refusal) -> None:
        if self.is_waiting:
            self.refusal = refusal
            self.moved()

    def moved(self) -> None:
        """Wakes who waits for it."""
        if self.granted is not None and not self.granted.done():
            self.granted.set_result(None)
        call, self.on_moved = self.on_moved, None
        if call is not None:
            call(self)


class Scheduler:
    def __init__(
        self,
        registry: PoolRegistry,
        ports: InferencePorts,
        settings: InferenceSettings,
        metrics: InferenceMetrics,
        monotonic: Callable[[], float],
    ) -> None:
        self.registry = registry
        self._ports = ports
        self._settings = settings
        self._metrics = metrics
        self._monotonic = monotonic
        self._queues: dict[str, PoolQueue[Ticket]] = {}
        self.placements: deque[PlacedTask] = deque(maxlen=PLACEMENTS_KEPT)
        """The newest last."""
        self.reloading: set[str] = set()
        """Pools that will be back: tasks wait for them instead of being refused."""
        self._rate = KeyRate(settings.key_requests_per_minute)
        self._paid_until: OrderedDict[str, float] = OrderedDict()
        """By key, least recently used first."""
        self._running: Counter[str] = Counter()
        """By key, where that is limited."""
        self.shared: SharedLimits | None = None
        """Where several centrals serve the same keys."""
        self._on_demand: list[Callable[[], None]] = []
        metrics.queues = self._measured_queues
        registry.on_changed(self.wake)
        registry.on_load_failed(self._refuse_unloaded)

    # --- admission --------------------------------------------------------------------------------------------

    def admit(self, task: Task, *, caller: str, sites: tuple[str, ...], session: Session | None = None) -> Ticket:
        """Raises TaskRefused. The ticket has a lease already where a slot is free and the queue is empty."""
        now = self._monotonic()
        try:
            ticket = self._admitted(task, caller, sites, session, now)
        except TaskRefused as refused:
            self._metrics.rejected(task.engine or "", refused.refusal.code)
            raise
        self._metrics.enqueued(ticket)
        return ticket

    def admit_again(self, task: Task, *, caller: str, sites: tuple[str, ...]) -> Ticket:
        """A task from before a restart, which was admitted then: that it has to wait for its pool is no refusal, and
        not counted as one. Raises TaskRefused."""
        ticket = self._admitted(task, caller, sites, None, self._monotonic())
        self._metrics.enqueued(ticket)
        return ticket

    def _admitted(
        self, task: Task, caller: str, sites: tuple[str, ...], session: Session | None, now: float
    ) -> Ticket:
        affine = None if session is None else session.replica
        decision = self._place(task, sites, now, affine, needs_slot=False)
        chosen = decision.chosen
        pool_id = "" if chosen is None else chosen.pool_id
        queue = self._queues.get(pool_id)
        waiting = 0 if queue is None else len(queue)
        has_slot = chosen is not None and chosen.ready and chosen.slots_free > waiting
        predicted = 0 if has_slot else self._predicted(pool_id, waiting, now)
        models = self._ports.models
        situation = Situation(
            session=session,
            ctx_limit=self.registry.serving(task.model_ref).ctx_max,
            pool_ids=self.registry.pool_ids(),
            waiting_of_key=0 if queue is None else queue.count_of(caller),
            key_waiting_max=self._settings.key_waiting_max,
            key_wait_seconds=self._rate.wait_seconds(self._paid_until.get(caller, 0.0), now),
            model=None if models is None else models.find(task.model_ref),
            predicted_start_ms=predicted,
        )
        found = admission.refusal(task, situation)
        if found is not None:
            raise TaskRefused(found)
        if chosen is None:
            started = self._on_request(task, sites, now)
            decision = started or decision
            chosen = decision.chosen
            if chosen is None:
                is_known = started is None and situation.model is not None
                raise TaskRefused(self._unplaceable(task, decision, is_known=is_known))
        pool_id = chosen.pool_id
        if self._rate.per_minute:
            self._pay(caller, now)
        ticket = Ticket(task, caller, sites, pool_id, now, affine=affine, decision=decision)
        if not waiting and self._grant(ticket, now):
            return ticket
        self._enqueue(ticket, now)
        if self._settings.key_running_max:
            # Those before it may wait for their own key only.
            self._dispatch(pool_id)
        return ticket

    def _pay(self, caller: str, now: float) -> None:
        if self.shared is not None:
            self.shared.submitted(caller)
        self.paid(caller, now)

    def paid(self, caller: str, now: float) -> None:
        """Here, or at another central."""
        self._paid_until[caller] = self._rate.paid(self._paid_until.get(caller, 0.0), now)
        self._paid_until.move_to_end(caller)
        if len(self._paid_until) > KEYS_MAX:
            self._paid_until.popitem(last=False)

    def _enqueue(self, ticket: Ticket, now: float) -> None:
        queue = self.queue(ticket.pool_id)
        offered = queue.offer(QueueEntry(ticket.task.task_id, ticket.caller, ticket.task.priority, now, ticket))
        policy = queue.policy.value
        code = TaskCode.ADMISSION_REJECT if policy == "reject" else TaskCode.QUEUE_FULL_DROP_LRU
        if not offered.accepted or offered.evicted is not None:
            self._metrics.backpressure(ticket.task.engine or "", policy)
        if not offered.accepted:
            wait_ms = max(RETRY_MS, min(self._predicted(ticket.pool_id, len(queue), now), 60_000))
            text = f"{len(queue)} tasks wait for this pool already. Try again later."
            if not queue.capacity:
                code = TaskCode.REPLICA_EXHAUSTED
                text = "Every slot of this pool is in use, and no task may wait for one here. Try again later."
            raise TaskRefused(
                Refusal(code, text, pool_id=ticket.pool_id, retry_after_ms=wait_ms, policy_label=policy)
            )
        if offered.evicted is not None:
            text = "It was dropped for a newer task, because the queue is full."
            gone = Refusal(code, text, pool_id=ticket.pool_id, retry_after_ms=RETRY_MS, policy_label=policy)
            offered.evicted.content.refuse(gone)
        ticket.preparation = preparation(ticket.pool_id, self.registry.replicas(ticket.pool_id))
        self._use(ticket.pool_id)
        ticket.position = offered.position
        ticket.predicted_start_ms = self._predicted(ticket.pool_id, offered.position, now)

    # --- slots ------------------------------------------------------------------------------------------------

    def again(self, ticket: Ticket, failed: Replica) -> bool:
        """Tries another replica after a failure, at once or at the head of its pool's order. False where there is
        none."""
        ticket.excluded |= {failed.key}
        ticket.replica, ticket.granted = None, None
        now = self._monotonic()
        decision = self._place(ticket.task, ticket.sites, now, None, needs_slot=False, excluded=ticket.excluded)
        if decision.chosen is None:
            return False
        ticket.pool_id, ticket.affine = decision.chosen.pool_id, None
        if self._grant(ticket, now):
            return True
        try:
            self._enqueue(ticket, ticket.since)
        except TaskRefused:
            return False
        return True

    def release(self, ticket: Ticket) -> None:
        """Gives the lease back, or the place in the queue. May be called twice."""
        replica, ticket.replica = ticket.replica, None
        if ticket.placed is not None:
            ticket.placed.is_running = False
        if replica is not None:
            replica.leases -= 1
            assert replica.leases >= 0
            if self._settings.key_running_max:
                self._running[ticket.caller] -= 1
                if self.shared is not None:
                    self.shared.runs(ticket.caller, self._running[ticket.caller])
                if not self._running[ticket.caller]:
                    del self._running[ticket.caller]
                # Another task of the key may wait in any pool.
                self.wake()
            if replica.handoff.idle_seconds:
                replica.used_at = self._monotonic()
                self._use(replica.handoff.pool_id)
            self._dispatch(replica.handoff.pool_id)
            return
        queue = self._queues.get(ticket.pool_id)
        if queue is not None:
            queue.cancel(ticket.task.task_id)

    def wake(self) -> None:
        """Something about replicas has changed."""
        now = self._monotonic()
        for pool_id, queue in list(self._queues.items()):
            if len(queue) and not self._may_serve(pool_id, now):
                self._move_elsewhere(queue, pool_id, now)
            elif not len(queue) and not self.registry.replicas(pool_id):
                del self._queues[pool_id]
        for pool_id in list(self._queues):
            self._dispatch(pool_id)

    def _may_serve(self, pool_id: str, now: float) -> bool:
        return pool_id in self.reloading or any(
            each.takes_tasks(now) or each.is_awaited(now) or each.is_coming(now)
            for each in self.registry.replicas(pool_id)
        )

    def _move_elsewhere(self, queue: PoolQueue[Ticket], pool_id: str, now: float) -> None:
        """The pool is gone, or all its engines are: what can run in another goes there, the rest waits for them as
        long as it may."""
        for entry in queue:
            ticket = entry.content
            others = self.registry.serving(ticket.task.model_ref).replicas
            if not any(each.takes_tasks(now) and each.handoff.pool_id != pool_id for each in others):
                continue
            decision = self._place(ticket.task, ticket.sites, now, None, needs_slot=False)
            if decision.chosen is not None:
                queue.cancel(entry.id)
                self._enqueue_at(decision.chosen.pool_id, ticket)

    def _enqueue_at(self, pool_id: str, ticket: Ticket) -> None:
        ticket.pool_id = pool_id
        try:
            self._enqueue(ticket, ticket.since)
        except TaskRefused as refused:
            ticket.refuse(refused.refusal)

    def reroute(self, pool_id: str) -> None:
        """The pool is drained: what waits there goes elsewhere, or is refused."""
        queue, now = self._queues.get(pool_id), self._monotonic()
        if queue is None:
            return
        for entry in queue:
            ticket = entry.content
            decision = self._place(ticket.task, ticket.sites, now, None, needs_slot=False)
            queue.cancel(entry.id)
            if decision.chosen is None:
                ticket.refuse(self._unplaceable(ticket.task, decision))
                continue
            self._enqueue_at(decision.chosen.pool_id, ticket)
        self.wake()

    # --- loading by use -----------------------------------------------------------------------------------------

    def on_demand(self, listener: Callable[[], None]) -> None:
        """Called when the use of a pool that is loaded by its use has changed. Must not block."""
        self._on_demand.append(listener)

    def use_of(self, pool_id: str) -> PoolUse:
        replicas = self.registry.replicas(pool_id)
        measured = [each.task_seconds for each in replicas if each.task_seconds is not None]
        waiting = self.depth(pool_id)
        return PoolUse(
            waiting=waiting,
            busy=sum(each.leases for each in replicas),
            used_at=self._monotonic() if waiting else max((each.used_at for each in replicas), default=0.0),
            task_seconds=sum(measured) / len(measured) if measured else None,
        )

    def busy_of(self, pool_id: str) -> dict[str, int]:
        return {each.handoff.replica_id: each.leases for each in self.registry.replicas(pool_id)}

    def _use(self, pool_id: str) -> None:
        if pool_id in self.registry.scaled:
            for listener in self._on_demand:
                listener()

    def _refuse_unloaded(self, failed: Replica) -> None:
        """Loading has failed: what waits for the pool fails with the reason, unless another replica of it may still
        come."""
        pool_id, now = failed.handoff.pool_id, self._monotonic()
        if any(each.takes_tasks(now) or each.is_coming(now) for each in self.registry.replicas(pool_id)):
            return
        text = f"The model could not be loaded: {failed.handoff.problem}"
        self.refuse_waiting(pool_id, Refusal(TaskCode.POOL_UNREADY, text, pool_id=pool_id, retry_after_ms=30_000))

    def refuse_waiting(self, pool_id: str, refusal: Refusal) -> None:
        queue = self._queues.get(pool_id)
        for entry in () if queue is None else list(queue):
            self.queue(pool_id).cancel(entry.id)
            entry.content.refuse(refusal)

    def queue(self, pool_id: str) -> PoolQueue[Ticket]:
        found = self._queues.get(pool_id)
        if found is None:
            settings = self._settings
            found = PoolQueue(
                settings.queue_capacity, settings.full_policy, wait_seconds_max=settings.wait_seconds_max
            )
            self._queues[pool_id] = found
        return found

    def waiting(self) -> list[Ticket]:
        """By pool, in the order of arrival."""
        return [entry.content for pool_id in sorted(self._queues) for entry in self._queues[pool_id]]

    def position(self, ticket: Ticket) -> int:
        """How many tasks of its pool and priority came before it and still wait."""
        queue = self._queues.get(ticket.pool_id)
        return 0 if queue is None else queue.position(ticket.task.task_id) or 0

    def waits_for(self, ticket: Ticket) -> str:
        """Why a task has no slot yet, for people: `homeport why TASK`."""
        return self.reasons()(ticket)

    def reasons(self) -> Callable[[Ticket], str]:
        """The same for many tickets at one moment: each pool is looked at once for all that may have the same
        replicas."""
        lack_of, most = cache(partial(self._lack_of, self._monotonic())), self._settings.key_running_max

        def reason(ticket: Ticket) -> str:
            takes_tasks, lack = lack_of(ticket.pool_id, ticket.sites, ticket.excluded)
            if takes_tasks and most and self._running_of(ticket.caller) >= most:
                return f"Its key runs as many tasks as it may at once: {most}."
            return lack

        return reason

    def _lack_of(
        self, now: float, pool_id: str, sites: tuple[str, ...], excluded: frozenset[tuple[str, str]]
    ) -> tuple[bool, str]:
        """Whether the pool takes tasks of this scope, and why it starts none more. Of other sites nothing is said."""
        if pool_id in self.reloading:
            return False, f"Pool {pool_id} is being reloaded."
        replicas = [each for each in self.registry.replicas(pool_id) if not sites or each.site in sites]
        ready = [each for each in replicas if each.takes_tasks(now)]
        if not ready:
            why = next((f": {each.last_error}" for each in replicas if each.last_error), "")
            return False, f"No replica of pool {pool_id} takes tasks{why}."
        left = [each for each in ready if each.key not in excluded]
        if not left or any(each.slots_free for each in left):
            return True, f"No free replica of pool {pool_id} suits this task."
        slots = sum(each.slots_total for each in left)
        return True, f"All slots of pool {pool_id} are in use, {slots} of {slots}."

    def depth(self, pool_id: str) -> int:
        queue = self._queues.get(pool_id)
        return 0 if queue is None else len(queue)

    def _dispatch(self, pool_id: str) -> None:
        queue = self._queues.get(pool_id)
        if queue is None or not len(queue):
            return
        now = self._monotonic()
        swaps = any(each.in_memory is not None for each in self.registry.replicas(pool_id))
        is_preferred = (lambda ticket: self._is_loaded(ticket, now)) if swaps else None
        while len(queue) and self._has_slot(pool_id, now):
            entry = queue.take(lambda ticket: self._grant(ticket, now), now, is_preferred)
            if entry is None:
                break
            entry.content.moved()

    def _measured_queues(self) -> Iterator[tuple[str, PoolQueue[Ticket] | None, Replica | None]]:
        """Of pools in which nothing has waited yet too: no sample would look like no pool."""
        for pool_id in {*self._queues, *self.registry.pool_ids()}:
            yield pool_id, self._queues.get(pool_id), next(iter(self.registry.replicas(pool_id)), None)

    def _is_loaded(self, ticket: Ticket, now: float) -> bool:
        """A replica of its pool that is free has its model in memory."""
        model = ticket.task.model_ref
        return any(
            each.slots_free and each.takes_tasks(now) and each.has_loaded(model)
            for each in self.registry.replicas(ticket.pool_id)
        )

    def _has_slot(self, pool_id: str, now: float) -> bool:
        return any(each.slots_free and each.takes_tasks(now) for each in self.registry.replicas(pool_id))

    def _grant(self, ticket: Ticket, now: float) -> bool:
        """Takes a lease for it where one is free."""
        most = self._settings.key_running_max
        if most and self._running_of(ticket.caller) >= most:
            return False
        replica = self._only_fitting(ticket, now)
        if replica is None:
            replicas = {each.key: each for each in self.registry.replicas(ticket.pool_id)}
            free = [each for each in replicas.values() if each.slots_free and each.key not in ticket.excluded]
            if not free:
                return False
            candidates = (self._candidate(each, ticket.task, now, ticket.affine, needs_slot=True) for each in free)
            decision = place(ticket.task, candidates, sites=ticket.sites)
            if decision.chosen is None:
                return False
            ticket.decision = decision
            replica = replicas[decision.chosen.pool_id, decision.chosen.replica_id]
        replica.leases += 1
        if most:
            self._running[ticket.caller] += 1
            if self.shared is not None:
                self.shared.runs(ticket.caller, self._running[ticket.caller])
        if replica.handoff.idle_seconds:
            replica.used_at = now
            self._use(ticket.pool_id)
        replica.breaker = replica.breaker.started(now)
        replica.cached(ticket.task.prefix)
        replica.occupied(ticket.cache_owner)
        replica.loads(ticket.task.model_ref)
        ticket.replica, ticket.where = replica, replica.labels
        self._metrics.started(ticket)
        waited_ms = int((now - ticket.since) * 1000)
        task = ticket.task
        ticket.placed = PlacedTask(
            task.task_id,
            ticket.caller,
            task.model_ref,
            task.priority,
            *replica.key,
            waited_ms,
            now,
            ticket.decision,
        )
        self.placements.append(ticket.placed)
        return True

    def _running_of(self, caller: str) -> int:
        elsewhere = 0 if self.shared is None else self.shared.running_elsewhere(caller)
        return self._running[caller] + elsewhere

    def _only_fitting(self, ticket: Ticket, now: float) -> Replica | None:
        """The usual case: admission has just chosen a replica of a pool that has no other."""
        replicas = self.registry.replicas(ticket.pool_id)
        if len(replicas) != 1 or ticket.excluded:
            return None
        replica, decision = replicas[0], ticket.decision
        chosen = None if decision is None else decision.chosen
        is_it = chosen is not None and (chosen.pool_id, chosen.replica_id) == replica.key
        return replica if is_it and replica.slots_free and replica.takes_tasks(now) else None

    # --- placement --------------------------------------------------------------------------------------------

    def _place(
        self,
        task: Task,
        sites: tuple[str, ...],
        now: float,
        affine: tuple[str, str] | None,
        *,
        needs_slot: bool,
        excluded: frozenset[tuple[str, str]] = frozenset(),
    ) -> PoolDecision:
        # The explanation of a wish for one pool, or after a failure, is about each replica.
        is_about_all = bool(excluded) or task.wish.mode is PoolPlacementMode.PIN
        serving = self.registry.serving(task.model_ref)
        candidates = [
            self._candidate(each, task, now, affine, needs_slot=needs_slot)
            for each in (self.registry.replicas() if is_about_all else serving.replicas)
            if not excluded or each.key not in excluded
        ]
        others = None if is_about_all else serving.others
        decision = place(task, candidates, sites=sites, needs_slot=needs_slot, others=others)
        self._metrics.placed(decision)
        return decision

    def _candidate(
        self, replica: Replica, task: Task, now: float, affine: tuple[str, str] | None, *, needs_slot: bool
    ) -> ReplicaCandidate:
        pool_id = replica.handoff.pool_id
        queued = self.depth(pool_id)
        candidate = replica.candidate(now, model=task.model_ref, queued=queued, prefix=task.prefix, affine=affine)
        if not needs_slot and (pool_id in self.reloading or replica.is_awaited(now)):
            return replace(candidate, ready=True)
        if not needs_slot and not candidate.ready and replica.is_coming(now):
            return replace(candidate, ready=True, load_ms=replica.load_ms or LOAD_MS_GUESS)
        return candidate

    def _on_request(self, task: Task, sites: tuple[str, ...], now: float) -> PoolDecision | None:
        """Where the policy lets the model's engine be started for this task: it is expected from now on."""
        starter = self._ports.on_request
        expected = None if starter is None else starter.offer(task.model_ref)
        if starter is None or expected is None:
            return None
        present = [each.handoff for each in self.registry.replicas(expected.pool_id)]
        if not all(each.preparation and each.problem for each in present):
            return None
        self.registry.bind(expected)
        decision = self._place(task, sites, now, None, needs_slot=False)
        if decision.chosen is None:
            self.registry.unbind(*expected.key)
        else:
            starter.start(expected)
        return decision

    def _unplaceable(self, task: Task, decision: PoolDecision, *, is_known: bool = False) -> Refusal:
        """`is_known`: the catalog has the model, and nothing starts an engine for it."""
        code = code_of(decision)
        text = f'Nothing can run the model "{task.model_ref[:100]}" now: {decision.sentence}.'
        serving = self.registry.serving(task.model_ref).replicas
        problems = [each.handoff.problem for each in serving if task.model_ref in each.models]
        if is_known and code is TaskCode.POOL_UNAVAILABLE and not serving:
            code, name = TaskCode.POOL_UNREADY, task.model_ref[:100]
            text = f'The model "{name}" is in the catalog, and no pool serves it.'
            text += f" Serve it:  homeport models serve {name}"
        elif code is TaskCode.POOL_UNAVAILABLE and not serving:
            text += " GET /v1/models lists what can be asked for."
        if any(problems):
            text += f" It could not be loaded: {next(filter(None, problems))}"
        if any(kind is Misfit.VRAM for kind, _ in decision.misfits):
            text += " It is larger than the free memory of its GPU, and may fit when another model was unloaded."
        if any(kind is Misfit.WORKLOAD for kind, _ in decision.misfits):
            text += f" Its engine was not started for {task.workload.value}: see the options of its engine."
        retry_ms = RETRY_MS if code is not TaskCode.INVALID_PARAMS else None
        return Refusal(code, text, engine=task.engine, pool_id=task.wish.pin_pool_id, retry_after_ms=retry_ms)

    def _predicted(self, pool_id: str, position: int, now: float) -> int:
        total = free = measured = 0
        seconds = 0.0
        for each in self.registry.replicas(pool_id):
            if each.takes_tasks(now):
                total += each.slots_total
                free += each.slots_free
                if each.task_seconds is not None:
                    measured += 1
                    seconds += each.task_seconds
        mean = seconds / measured if measured else None
        loading = 0 if total else self._loading_ms(pool_id, now)
        return loading + predicted_start_ms(position, slots_total=total, slots_free=free, seconds_per_task=mean)

    def _loading_ms(self, pool_id: str, now: float) -> int:
        """Until the first replica is loaded, as far as that was measured."""
        left = [
            each.load_ms - (0.0 if each.loading_since is None else 1000 * (now - each.loading_since))
            for each in self.registry.replicas(pool_id)
            if each.load_ms is not None and each.is_coming(now)
        ]
        return max(0, int(min(left, default=0.0)))
