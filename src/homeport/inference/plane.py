"""The task plane of one role: everything that `/v2` and `/v1` need, and its loops."""

import hashlib
import json
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from json.encoder import encode_basestring_ascii
from typing import Any, Final, NamedTuple

import anyio
from anyio.abc import TaskGroup

from homeport.core.inference.engines.gpus import GpusOfNode, free_bytes, gpus_of_replica
from homeport.core.inference.engines.handoff import Handoff, Loading
from homeport.core.inference.records import StoredArtifact, StoredTask, TaskState
from homeport.core.inference.sessions import Budgets, Session
from homeport.core.inference.settings import InferenceSettings
from homeport.core.inference.task import Refusal, Task, TaskCode, TaskRefused
from homeport.errors import InvalidInput, TransientError
from homeport.inference.key_usage import KeyUsage
from homeport.inference.metrics import InferenceMetrics
from homeport.inference.pools.drains import PoolDrains
from homeport.inference.pools.operations import drains_changed
from homeport.inference.pools.registry import Connect, PoolRegistry, close_idle
from homeport.inference.pools.replica import Replica
from homeport.inference.tasks.artifacts import artifact_of
from homeport.inference.tasks.bodies import read_task
from homeport.inference.tasks.changes import QueueChanges
from homeport.inference.tasks.deadlines import TaskDeadlines
from homeport.inference.tasks.journal import TaskJournal
from homeport.inference.tasks.narration import Narrator
from homeport.inference.tasks.ownership import TaskOwnership, owner_of
from homeport.inference.tasks.running import Runner, TaskRun
from homeport.inference.tasks.scheduler import Scheduler, Ticket
from homeport.inference.tasks.sessions import Sessions
from homeport.inference.tasks.shared_limits import SharedLimits
from homeport.inference.tasks.stream import TaskStream, as_content
from homeport.lazy_dataclass import dataclass
from homeport.log import get_log
from homeport.ports import Bus, Clock, InferencePorts, Store

log = get_log("homeport.inference")

ENDED_KEPT: Final = 512
"""Streams of tasks that have ended and can still be read from memory; older ones are read from their artifact."""
UNLIMITED: Final = Budgets()
SUBMITTED_MAX: Final = 10_000
"""Of one key at another central, in one message."""
RECOVERY_SECONDS: Final = 60.0
"""How long a task from before a restart waits for its pool to be announced again."""
CANCEL_SECONDS: Final = 2.0
"""How long a cancelled task may take to end before its cancel is acknowledged all the same."""
RECOVERY_LOOK_SECONDS: Final = 1.0
"""How long it waits for a change of the pools before it tries again all the same: its queue may have been full."""
_LOST: Final = Refusal(TaskCode.WORKER_RESET, "Homeport was restarted while the task ran.", retry_after_ms=1000)
_NOT_BACK: Final = Refusal(
    TaskCode.WORKER_RESET,
    "Homeport was restarted while the task waited, and no pool took it in time. Send it again with a new id.",
    retry_after_ms=1000,
)
_OVERDUE: Final = Refusal(
    TaskCode.WORKER_RESET,
    "Homeport was restarted while the task waited, and its deadline passed. Send it again with a new id.",
    retry_after_ms=1000,
)
_TOO_LATE: Final = Refusal(
    TaskCode.WORKER_RESET,
    "Homeport was restarted while the task waited, and its deadline would pass before it could start. Send it again "
    "with a new id.",
    retry_after_ms=1000,
)


@dataclass(frozen=True, slots=True)
class Submitter:
    """Who submits, as far as the task plane cares."""

    key: str
    """A token's id, or the name of a local user: limits, fairness, usage and ownership are by it."""
    sites: tuple[str, ...] = ()
    sees_all: bool = False
    """An administrator or operator of every site may look at and cancel what others submitted."""

    def may_see(self, key: str) -> bool:
        """What this key has submitted."""
        return self.sees_all or key == self.key


class _Submission(NamedTuple):
    """A task that has its place, and is not durable yet."""

    run: TaskRun
    stored: StoredTask
    session: Session
    submitter: Submitter


class TaskPlane:
    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        ports: InferencePorts,
        connect: Connect,
        settings: InferenceSettings | None = None,
        site_of: Callable[[Handoff], str] = lambda handoff: "",
        ownership: TaskOwnership | None = None,
    ) -> None:
        """`ownership` where several planes share the database."""
        self._ownership = ownership if ownership is not None and ownership.is_shared else None
        self.settings = settings or InferenceSettings()
        self.store = store
        self.clock = clock
        self.ports = ports
        self.metrics = InferenceMetrics()
        self.key_usage = KeyUsage()
        self.registry = PoolRegistry(connect, site_of, clock.monotonic)
        self.scheduler = Scheduler(self.registry, ports, self.settings, self.metrics, clock.monotonic)
        self.drains = PoolDrains(store, partial(drains_changed, self))
        self.journal = TaskJournal(store, clock, self._ownership)
        self.sessions = Sessions(clock.monotonic)
        self.changes = QueueChanges(self.registry, self.scheduler, clock.monotonic)
        self.narrator = Narrator(clock.monotonic)
        self._runner = Runner(
            self.scheduler, self.journal, self.sessions, self.metrics, self.settings, clock.monotonic, self.narrator
        )
        self._begun: dict[str, StoredTask] = {}
        """Submitted, and not durable yet."""
        self._runs: dict[str, TaskRun] = {}
        self.requests: dict[Ticket, Callable[[Refusal], None]] = {}
        """Of `/v1`, under way, and how each is ended."""
        self._ended: OrderedDict[str, TaskRun] = OrderedDict()
        self._stored: dict[str, StoredTask] = {}
        self._tasks: TaskGroup | None = None
        self._on_moved = self._begin_moved
        """Made once, for all tasks that wait."""
        self._deadlines = TaskDeadlines(self._waiting_seconds_left, self._expire)
        self.metrics.model_states = lambda: {} if ports.models is None else ports.models.states()
        self.metrics.gpus = self._gpus
        self.metrics.pools = self._measured_pools
        ports.verified = self.metrics.verified
        self._recovered = anyio.Event()
        """What was unfinished at the start is queued again, or has ended."""
        self._changed = anyio.Event()
        self.registry.on_changed(self._notice)
        self.registry.on_doubt(lambda replica: self.start(partial(self._check_at_once, replica)))

    def share_limits(self, bus: Bus) -> SharedLimits:
        """With the other centrals of the bus: limits of keys and budgets of sessions hold for all together."""
        scheduler, monotonic = self.scheduler, self.clock.monotonic

        def submitted(key: str, count: int) -> None:
            for _ in range(min(count, SUBMITTED_MAX)):
                scheduler.paid(key, monotonic())

        sessions = self.sessions
        shared = SharedLimits(
            bus,
            monotonic,
            on_submitted=submitted,
            on_admitted=sessions.admitted,
            on_spent=sessions.spent,
            on_deleted=sessions.deleted,
            on_known=sessions.known,
            on_freed=scheduler.wake,
            sessions=sessions.everything,
        )
        scheduler.shared = self.sessions.shared = shared
        return shared

    # --- tasks ------------------------------------------------------------------------------------------------

    async def submit(
        self,
        task: Task,
        body: bytes,
        submitter: Submitter,
        budgets: Budgets = UNLIMITED,
        *,
        correlation_id: str = "",
    ) -> str:
        """The admission's answer as JSON, when the task is durable. The same task again gets the same answer.

        Raises TaskRefused.
        """
        begun = self._begin(task, body, submitter, budgets, correlation_id)
        if isinstance(begun, str):
            return begun
        try:
            earlier = await self.journal.add(begun.stored)
        except BaseException:
            self._abandon(begun)
            raise
        return self._admitted(begun, earlier)

    def submit_soon(
        self,
        task: Task,
        body: bytes,
        submitter: Submitter,
        budgets: Budgets,
        done: Callable[[str | TaskRefused | TransientError], None],
        *,
        correlation_id: str = "",
    ) -> None:
        """The same without a task that waits: what `submit` would return, or raise when it is to be durable, is given
        to `done`. Raises TaskRefused where that is known at once."""
        begun = self._begin(task, body, submitter, budgets, correlation_id)
        if isinstance(begun, str):
            done(begun)
            return
        context = copy_context()

        def settled(earlier: StoredTask | None, error: TransientError | None) -> None:
            if error is not None:
                self._abandon(begun)
                done(error)
                return
            try:
                answer = self._admitted(begun, earlier)
            except TaskRefused as refused:
                done(refused)
            else:
                done(answer)

        self.journal.add_soon(begun.stored, lambda earlier, error: context.run(settled, earlier, error))

    def _begin(
        self, task: Task, body: bytes, submitter: Submitter, budgets: Budgets, correlation_id: str
    ) -> "_Submission | str":
        """Everything up to the write; the answer where the task was submitted before."""
        digest = hashlib.sha256(body).hexdigest()
        known = self._stored.get(task.task_id) or self._begun.get(task.task_id)
        if known is not None:
            return _replayed(known, digest, submitter)
        session = self.sessions.current(submitter.key, task.session_id, self._at_most(budgets))
        judged = self.sessions.judged(submitter.key, session)
        ticket = self.scheduler.admit(task, caller=submitter.key, sites=submitter.sites, session=judged)
        ticket.correlation_id = correlation_id
        self.sessions.begin(submitter.key, session, task.max_tokens)
        run = TaskRun(ticket)
        answer = admission_answer(ticket)
        stored = StoredTask(
            id=task.task_id,
            caller=submitter.key,
            digest=digest,
            state=TaskState.QUEUED,
            body=_kept(submitter.sites, body, "" if self._ownership is None else self._ownership.id),
            answer=answer,
            at=self.clock.now(),
        )
        self._begun[task.task_id] = stored
        return _Submission(run, stored, session, submitter)

    def _admitted(self, begun: "_Submission", earlier: StoredTask | None) -> str:
        """The task is durable, or `earlier` has had its id before."""
        if earlier is not None:
            self._abandon(begun)
            if self._ownership is None:
                self._resume(earlier)
            return _replayed(earlier, begun.stored.digest, begun.submitter)
        self._runs[begun.stored.id], self._stored[begun.stored.id] = begun.run, self._begun.pop(begun.stored.id)
        self.sessions.tell(begun.submitter.key, begun.session)
        self._start(begun.run)
        self.narrator.admitted(begun.run.ticket, "/v2/tasks")
        return begun.stored.answer

    def _abandon(self, begun: "_Submission") -> None:
        """Only what this submission has begun: the task itself may be here from before a restart."""
        self._begun.pop(begun.stored.id, None)
        task = begun.run.task
        self.sessions.withdraw(begun.submitter.key, task.session_id, task.max_tokens)
        self.scheduler.release(begun.run.ticket)

    def _at_most(self, budgets: Budgets) -> Budgets:
        most = self.settings.session_tokens_max
        return budgets if most is None else budgets.at_most(Budgets(tokens=most))

    def find(self, task_id: str, submitter: Submitter) -> TaskRun:
        """Raises TaskRefused NOT_FOUND, for another's task too."""
        run = self._runs.get(task_id) or self._ended.get(task_id)
        if run is None or not submitter.may_see(run.ticket.caller):
            raise TaskRefused(Refusal(TaskCode.NOT_FOUND, f'There is no task "{task_id[:64]}".'))
        return run

    async def find_ended(self, task_id: str, submitter: Submitter) -> tuple[StoredTask, StoredArtifact | None]:
        """A task that only the database remembers."""
        stored = await self._find_stored(task_id)
        if stored is None or not submitter.may_see(stored.caller):
            raise TaskRefused(Refusal(TaskCode.NOT_FOUND, f'There is no task "{task_id[:64]}".'))
        ownership = self._ownership
        if ownership is not None and stored.state is not TaskState.ENDED and owner_of(stored) != ownership.id:
            text = "The task is with another replica of central, which runs it or was lost a moment ago. Try again."
            raise TaskRefused(Refusal(TaskCode.POOL_UNAVAILABLE, text, retry_after_ms=1000))
        artifact_id = json.loads(stored.outcome or "{}").get("artifact_id")
        if artifact_id is None:
            return stored, None
        async with self.store.read() as reader:
            return stored, await reader.artifact(artifact_id)

    async def cancel(self, task_id: str, submitter: Submitter) -> None:
        """No token follows once this has returned, also when Homeport is killed then. Raises TaskRefused, and
        TransientError for a task from before a restart that is not known yet."""
        try:
            run: TaskRun | None = self.find(task_id, submitter)
        except TaskRefused:
            run = await self._cancel_stored(task_id, submitter)
        if run is not None:
            run.cancel("client")
            with anyio.move_on_after(CANCEL_SECONDS):
                await run.stream.wait_until_over()
        with suppress(TransientError):  # then it is written as soon as the database can be
            await self.journal.settle()

    async def _cancel_stored(self, task_id: str, submitter: Submitter) -> TaskRun | None:
        """One that waits for its pool since a restart is not begun any more. Returns it where it runs by now."""
        stored, _ = await self.find_ended(task_id, submitter)
        if stored.state is TaskState.ENDED:
            return None
        with anyio.move_on_after(CANCEL_SECONDS):
            await self._recovered.wait()
        if task_id in self._runs:
            return self._runs[task_id]
        if task_id in self._stored:
            self._end_stored(self._stored[task_id], None)
            return None
        await self.journal.settle()
        stored, _ = await self.find_ended(task_id, submitter)
        if stored.state is not TaskState.ENDED:
            raise TransientError("Tasks from before the restart are still being read. Try again.")
        return None

    async def wait_recovered(self, task_id: str) -> TaskRun | None:
        """A task from before a restart, once it is queued again; None where it has ended instead."""
        with anyio.move_on_after(RECOVERY_SECONDS):
            while True:
                run = self._runs.get(task_id) or self._ended.get(task_id)
                stored = None if run is not None else await self._find_stored(task_id)
                if run is not None or stored is None or stored.state is TaskState.ENDED:
                    return run
                await anyio.sleep(0.1)
        return None

    def explain(self, run: TaskRun) -> dict[str, Any]:
        """Why it ran where it ran and how it ended, or what it waits for: for `homeport why`."""
        if run.stream.is_over:
            return self._outcome(run)
        found = _placement_of(run)
        if run.ticket.is_waiting:
            position = self.scheduler.position(run.ticket)
            found |= {"queue_position": position, "waits_for": self.scheduler.waits_for(run.ticket)}
        return found

    def _outcome(self, run: TaskRun) -> dict[str, Any]:
        return {
            "model": run.task.model_ref,
            "tokens_in": run.tokens_in,
            "tokens_out": run.tokens_out,
            "canceled": bool(run.cancel_reason),
            "error": None if run.error is None else run.error.to_data(),
            "artifact_id": run.artifact_id,
            **_placement_of(run),
        }

    def find_request(self, task_id: str, submitter: Submitter) -> dict[str, Any] | None:
        """Why a request of `/v1` waits, or ran where it ran: no task of `/v2` has its id, and only the last ones are
        known."""
        for ticket in self.requests:
            if ticket.task.task_id == task_id and ticket.is_waiting and submitter.may_see(ticket.caller):
                place = {"queue_position": self.scheduler.position(ticket)}
                return {"state": "active", **place, "waits_for": self.scheduler.waits_for(ticket)}
        for each in reversed(self.scheduler.placements):
            if each.task_id == task_id and submitter.may_see(each.caller):
                state = "active" if each.is_running else "ended"
                return {"state": state, "placement": each.sentence, "waited_ms": each.waited_ms}
        return None

    def cancel_pool(self, pool_id: str, reason: str) -> None:
        """All tasks that run there; requests of `/v1` end with the reason."""
        text = "The pool was drained before the answer was complete. Send it again."
        cut = Refusal(TaskCode.POOL_UNREADY, text, pool_id=pool_id, retry_after_ms=1000)
        for run in list(self._runs.values()):
            if run.ticket.is_in(pool_id):
                run.cancel(reason)
        self._end_requests(pool_id, cut)

    def end_retired(self, pool_id: str) -> None:
        """Its model is retired, and the deadline of its accepted tasks has passed."""
        text = "The model was retired, and the deadline of its accepted tasks has passed. Use another."
        over = Refusal(TaskCode.MODEL_DEPRECATED, text, pool_id=pool_id)
        self.scheduler.refuse_waiting(pool_id, over)
        for run in list(self._runs.values()):
            if run.ticket.is_in(pool_id):
                run.abort(over)
        self._end_requests(pool_id, over)

    def _end_requests(self, pool_id: str, refusal: Refusal) -> None:
        for ticket, end in list(self.requests.items()):
            if ticket.is_in(pool_id):
                end(refusal)

    def used(self, ticket: Ticket, *, tokens_in: int, tokens_out: int) -> None:
        """By a task or request that has ended, on the account of its key."""
        self.journal.used(ticket.caller, ticket.task.model_ref, tokens_in=tokens_in, tokens_out=tokens_out)
        self.key_usage.used(ticket.caller, tokens_in=tokens_in, tokens_out=tokens_out)

    def start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Runs it beside the requests, as long as the role lives."""
        if self._tasks is not None:
            self._tasks.start_soon(work)

    def _gpus(self) -> Iterator[tuple[Replica, GpusOfNode]]:
        replicas = {each: (each.site, each.handoff.node_id) for each in self.registry.replicas()}
        nodes = {} if self.ports.gpus is None else self.ports.gpus(set(replicas.values()))
        for replica, node in replicas.items():
            yield replica, gpus_of_replica(replica.handoff, nodes.get(node, {}))

    def _measured_pools(self) -> Iterator[tuple[str, bool, Sequence[Replica]]]:
        now = self.clock.monotonic()
        for pool_id in self.registry.pool_ids():
            replicas = self.registry.replicas(pool_id)
            yield pool_id, any(each.takes_tasks(now) for each in replicas), replicas

    # --- loops ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        try:
            async with anyio.create_task_group() as tasks:
                if self._ownership is not None:
                    await self._ownership.begin()
                    tasks.start_soon(self._ownership.keep, self._recover, self._give_up)
                tasks.start_soon(self.journal.run)
                # No replica is ready before its health was checked, and none takes tasks before this is known.
                await self.drains.until_loaded()
                tasks.start_soon(self._check_health)
                async with anyio.create_task_group() as runs:
                    self._tasks = runs
                    for run in list(self._runs.values()):
                        self._start(run)
                    await self._recover()
                    self._recovered.set()
                    log.narrate(
                        "inference plane started", actor="tasks", action="start-up", target="tasks", human=_TAKEN
                    )
                    await anyio.sleep_forever()
        finally:
            self._tasks = None
            self._deadlines.close()
            with anyio.CancelScope(shield=True), anyio.move_on_after(2):
                for replica in (*self.registry.replicas(), *self.registry.leaving):
                    await replica.engine.close()

    async def _check_health(self) -> None:
        while True:
            now, self._changed = self.clock.monotonic(), anyio.Event()
            for replica, gpus in self._gpus():
                replica.vram_free_bytes = free_bytes(gpus)
            async with anyio.create_task_group() as checks:
                loaded = (each for each in self.registry.replicas() if each.handoff.loading is Loading.LOADED)
                for replica in loaded:
                    checks.start_soon(self.registry.check, replica, now)
            await close_idle(self.registry.leaving)
            self.scheduler.wake()
            is_watched = self.registry.replicas() or self.registry.leaving
            with anyio.move_on_after(self.settings.health_seconds if is_watched else None):
                await self._changed.wait()

    async def _check_at_once(self, replica: Replica) -> None:
        await self.registry.check(replica, self.clock.monotonic())

    def _notice(self) -> None:
        self._changed.set()

    async def _recover(self) -> None:
        """Tasks from before a restart: those without any output yet are queued again, the others end."""
        async with self.store.read() as reader:
            unfinished = await reader.unfinished_tasks()
        if self._ownership is not None:
            unfinished = await self._adopted(self._ownership, unfinished)
        for stored in unfinished:
            self._resume(stored)
        if unfinished:
            log.narrate(
                "tasks recovered after a restart",
                actor="tasks",
                action="recover",
                target="tasks",
                human="Tasks from before a restart are queued again, or end with an error.",
                count=len(unfinished),
            )

    def _resume(self, stored: StoredTask) -> None:
        """Unless it is here already, or was sent again in this very moment: then that submission resumes it."""
        is_known = any(stored.id in here for here in (self._begun, self._stored, self._ended))
        if is_known or stored.state is TaskState.ENDED or self._tasks is None:
            return
        if stored.state is TaskState.STARTED:
            self._end_stored(stored, _LOST)
            return
        # Known at once, before its pool is back: who sends it again gets its answer, and no second run.
        self._stored[stored.id] = stored
        self._tasks.start_soon(self._queue_again, stored)

    async def _adopted(self, ownership: TaskOwnership, unfinished: Sequence[StoredTask]) -> list[StoredTask]:
        """Those of centrals that are gone, as ours."""
        by_owner: dict[str, list[StoredTask]] = {}
        for stored in unfinished:
            by_owner.setdefault(owner_of(stored), []).append(stored)
        by_owner.pop(ownership.id, None)
        found: list[StoredTask] = []
        for owner, tasks in by_owner.items():
            found += await ownership.adopt(self.store, owner, tasks)
        return found

    def _give_up(self) -> None:
        """Another central has adopted the tasks of this one, which was away for too long."""
        for run in list(self._runs.values()):
            run.cancel("taken_over")

    async def _queue_again(self, stored: StoredTask) -> None:
        try:
            kept = json.loads(stored.body)
            task, sites = read_task(kept["request"].encode()), tuple(kept["sites"])
        except (TaskRefused, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            self._end_stored(stored, _LOST)
            return
        why = _NOT_BACK
        with anyio.move_on_after(RECOVERY_SECONDS):
            while stored.id in self._stored:  # not cancelled meanwhile
                changed, left = self._changed, self._in_time(task, stored)
                if left is None:
                    why = _OVERDUE
                    break
                try:
                    ticket = self.scheduler.admit_again(left, caller=stored.caller, sites=sites)
                except TaskRefused as refused:
                    if not refused.refusal.is_retriable:
                        is_late = refused.refusal.code is TaskCode.DEADLINE_UNMET
                        why = _TOO_LATE if is_late else refused.refusal
                        break
                    with anyio.move_on_after(RECOVERY_LOOK_SECONDS):
                        await changed.wait()
                    continue
                self._runs[stored.id] = TaskRun(ticket)
                self._start(self._runs[stored.id])
                return
        if stored.id in self._stored:
            self._end_stored(stored, why)

    def _in_time(self, task: Task, stored: StoredTask) -> Task | None:
        """With what is left of its deadline, which began when it was admitted; None where that has passed."""
        waited_ms = max(0, int((self.clock.now() - stored.at).total_seconds() * 1000))
        return replace(task, deadline_ms=task.deadline_ms - waited_ms) if waited_ms < task.deadline_ms else None

    def _end_stored(self, stored: StoredTask, error: Refusal | None) -> None:
        """Ends a task from before a restart that does not run here: cancelled, or failed with `error`."""
        self._forget(stored.id)
        stream, said = TaskStream(), None if error is None else error.to_data()
        if said is None:
            stream.end({"tokens_out": 0, "decode_time_ms": 0, "decode_ms": 0, "canceled": True})
        else:
            stream.error(said)
        try:
            job = _job(read_task(json.loads(stored.body)["request"].encode()))
        except (TaskRefused, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            job = {"job_id": stored.id, "session_id": ""}
        artifact = self._transcript(job, stored.caller, stream, {})
        outcome = {"canceled": said is None, "error": said, "artifact_id": artifact.id}
        self.journal.end(replace(stored, state=TaskState.ENDED, body="", outcome=json.dumps(outcome)), artifact)

    # --- one run ------------------------------------------------------------------------------------------------

    def _start(self, run: TaskRun) -> None:
        if run.ticket.is_waiting and not run.cancel_reason:
            run.ticket.on_moved = self._on_moved
            self._deadlines.watch(run.task.task_id, self._runner.seconds_left(run))
        else:
            self._begin_run(run)

    def _begin_moved(self, ticket: Ticket) -> None:
        run = self._runs.get(ticket.task.task_id)
        if run is not None and run.ticket is ticket:
            self._begin_run(run)

    def _waiting_seconds_left(self, task_id: str) -> float | None:
        run = self._runs.get(task_id)
        return None if run is None or run.ticket.on_moved is None else self._runner.seconds_left(run)

    def _expire(self, task_id: str) -> None:
        self._runs[task_id].ticket.moved()

    def _begin_run(self, run: TaskRun) -> None:
        if self._tasks is not None:
            self._tasks.start_soon(self._run, run)

    async def _run(self, run: TaskRun) -> None:
        try:
            await self._runner.run(run)
        finally:
            if run.stream.is_over:
                self._end(run)

    def _end(self, run: TaskRun) -> None:
        task, ticket = run.task, run.ticket
        stored = self._stored.get(task.task_id)
        self._forget(task.task_id)
        if stored is None:
            return
        metadata: dict[str, Any] = {}
        if run.replica_key is not None:
            metadata = {
                "engine": run.engine[0],
                "engine_version": run.engine[1],
                "pool_id": run.replica_key[0],
                "replica_id": run.replica_key[1],
            }
        artifact = None
        if self.settings.transcripts:
            counts = (run.tokens_in, run.tokens_out, run.decode_ms)
            artifact = self._transcript(_job(task, *counts), ticket.caller, run.stream, metadata)
            run.artifact_id = artifact.id
        outcome = json.dumps(self._outcome(run))
        self.journal.end(replace(stored, state=TaskState.ENDED, body="", outcome=outcome), artifact)
        self.used(ticket, tokens_in=run.tokens_in, tokens_out=run.tokens_out)
        self._ended[task.task_id] = run
        while len(self._ended) > ENDED_KEPT:
            self._ended.popitem(last=False)
        self.narrator.ended(
            ticket,
            tokens_in=run.tokens_in,
            tokens_out=run.tokens_out,
            decode_ms=run.decode_ms,
            canceled=run.cancel_reason,
            error=run.error,
        )

    def _transcript(
        self, job: Mapping[str, Any], caller: str, stream: TaskStream, metadata: Mapping[str, Any]
    ) -> StoredArtifact:
        task_id, session_id = job["job_id"], job["session_id"]
        tags = ("sse", "stream", f"task:{task_id}", *((f"session:{session_id}",) if session_id else ()))
        content = {**job, **as_content(stream)}
        created_ms = int(self.clock.now().timestamp() * 1000)
        try:
            return artifact_of(
                "transcript", content, created_ms=created_ms, tags=tags, metadata=metadata, owner=caller
            )
        except InvalidInput as error:
            log.warning("transcript not kept", task=task_id, why=str(error))
            lost = {**job, "events": []}
            return artifact_of("transcript", lost, created_ms=created_ms, tags=tags, metadata=metadata, owner=caller)

    def _forget(self, task_id: str) -> None:
        self._runs.pop(task_id, None)
        self._stored.pop(task_id, None)

    async def _find_stored(self, task_id: str) -> StoredTask | None:
        async with self.store.read() as reader:
            return await reader.task(task_id)


def admission_answer(ticket: Ticket) -> str:
    """As JSON, which is written here by hand: a task's id is a UUID, and thousands are answered in a second."""
    task_id, steps = ticket.task.task_id, json.dumps(ticket.preparation) if ticket.preparation else "[]"
    return (
        f'{{"task_id": "{task_id}", "queue_position": {ticket.position}, '
        f'"predicted_start_ms": {ticket.predicted_start_ms}, "backoff_ms": 0, "streams": {{'
        f'"sse": "/v2/tasks/{task_id}/events", "sse_verbose": "/v2/tasks/{task_id}/events?verbose=true"}}, '
        f'"preparation": {{"steps": {steps}}}}}'
    )


def _placement_of(run: TaskRun) -> dict[str, Any]:
    decision = run.ticket.decision
    return {
        "placement": "" if decision is None else decision.sentence,
        "queue_position": run.ticket.position,
        "predicted_start_ms": run.ticket.predicted_start_ms,
        "retried": run.retried,
    }


def _kept(sites: tuple[str, ...], body: bytes, owner: str) -> str:
    """What a restart needs to queue the task again, as JSON."""
    request = encode_basestring_ascii(body.decode("utf-8", "replace"))
    by = f', "by": "{owner}"' if owner else ""
    return f'{{"sites": {json.dumps(sites) if sites else "[]"}, "request": {request}{by}}}'


def _job(task: Task, tokens_in: int = 0, tokens_out: int = 0, decode_ms: int = 0) -> dict[str, Any]:
    """What its artifact says beside the transcript: how it was asked for, without what was asked."""
    return {
        "job_id": task.task_id,
        "session_id": task.session_id,
        "request": {
            "workload": task.workload.value,
            "model_ref": task.model_ref,
            "engine": task.engine,
            "ctx": task.ctx,
            "priority": task.priority.value,
            "max_tokens": task.max_tokens,
            "deadline_ms": task.deadline_ms,
            "determinism": task.determinism,
            "sampler_profile_version": task.sampler_profile_version,
        },
        "seed": task.seed,
        "tokens_in": tokens_in,
        "tokens_out": tokens_out,
        "decode_time_ms": decode_ms,
    }


def _replayed(stored: StoredTask, digest: str, submitter: Submitter) -> str:
    if stored.caller != submitter.key or stored.digest != digest:
        raise TaskRefused(_CONFLICT)
    return stored.answer


_TAKEN: Final = "Tasks are accepted."
_CONFLICT: Final = Refusal(
    TaskCode.CONFLICT, "There is a task with this id already, and its request is another. Use a new UUID."
)
