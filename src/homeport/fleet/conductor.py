"""Conducts a site: turns snapshots, node news and silence into recorded transitions and orders.

One lock makes every change follow the last: decide on the memory, make it durable, then remember it and send
the orders. Nothing here waits for a node.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime

import anyio
import structlog

from homeport.core.lifecycle.record import Recorded
from homeport.core.model.access import SecretRecord
from homeport.core.model.event import NewEvent, Site
from homeport.core.model.instance import Instance, Transition
from homeport.core.model.node import NodeInfo
from homeport.core.model.order import Held, Order, Result
from homeport.core.model.report import Progressed, Synced, SyncFailed
from homeport.core.reconcile.deadline import overdue
from homeport.core.reconcile.orders import Circumstances, must_hear, outcome, standing_order, unanswered
from homeport.core.reconcile.plan import Key, Move, can_go_back, plan
from homeport.core.secrets import SecretValue, filled, missing, needed
from homeport.core.tracing import TraceContext
from homeport.fleet import strays
from homeport.fleet.adoption import adoption, problem_text
from homeport.fleet.maintenance import Decide, expire_holds
from homeport.fleet.memory import BY_HAND, GIVEN, Memory, dump_given
from homeport.fleet.moves import given_after, transition_of
from homeport.fleet.patience import SPENT, dump_spent
from homeport.fleet.progress import key_of, progress_event, step_text
from homeport.fleet.queueing import ReportQueue
from homeport.fleet.record import record_transitions
from homeport.fleet.restating import OUTBOX_BYTES_MAX, PROGRESS_QUEUED_MAX, Encode
from homeport.fleet.revisions import REVISIONS_KEPT, kept_revisions
from homeport.fleet.roster import Roster
from homeport.fleet.site_traces import SiteTraces
from homeport.fleet.snapshot import Snapshot
from homeport.fleet.waits import waiting
from homeport.ports import Clock, DesiredFile, NodeNews, Store, Transaction
from homeport.vocabulary import (
    Commit,
    DeploymentId,
    EventKind,
    Generation,
    Happening,
    Liveness,
    NodeId,
    State,
)

log = structlog.get_logger(__name__)


# A result that leaves something to decide. HEALTHY does not, so a thousand installs cost no thousand plans.
_NEEDS_PLAN = frozenset({Happening.GAVE_UP, Happening.REMOVED})

SendOrder = Callable[[NodeId, Order], None]
"""Hands an order to a node's stream if there is one; never waits."""
Reveal = Callable[[Collection[str]], Awaitable[Mapping[str, SecretValue]]]
"""The values of these secrets, as far as this site has them."""
Seek = Callable[[], Awaitable[None]]
"""Asks central for secrets that may be new, and takes no for an answer."""


async def _no_secrets(_names: Collection[str]) -> Mapping[str, SecretValue]:
    return {}


class Conductor:
    def __init__(
        self,
        memory: Memory,
        store: Store,
        clock: Clock,
        *,
        encode: Encode,
        send: SendOrder,
        stale_seconds: float,
        lost_seconds: float,
        overdue_seconds: float = 60.0,
        reveal: Reveal = _no_secrets,
        traces: SiteTraces | None = None,
        outbox_bytes_max: int = OUTBOX_BYTES_MAX,
    ) -> None:
        self.memory = memory
        self._store = store
        self._clock = clock
        self.queue = ReportQueue(memory, store, clock, encode, bytes_max=outbox_bytes_max)
        self._send = send
        self._roster = Roster(
            memory, store, clock, self.queue, stale_seconds=stale_seconds, lost_seconds=lost_seconds
        )
        self._overdue_seconds = overdue_seconds
        self._reveal = reveal
        self.traces = traces or SiteTraces(memory.site, None, clock)
        self.seek: Seek | None = None
        """Set where there is a central to ask: a secret set just before a deploy must not be missed by a moment."""
        self._lock = anyio.Lock()

    # --- what is wanted -----------------------------------------------------------------------------------

    async def adopt(
        self, snapshot: Snapshot, *, author: str, origins: Mapping[DeploymentId, TraceContext] | None = None
    ) -> None:
        """Makes a verified snapshot what this site wants, then plans. `origins` are the traces of what changed."""
        if self.seek is not None and any(
            missing(item.release, self.memory.secrets) for item in snapshot.desired.values()
        ):
            await self.seek()
        async with self._turn():
            now, memory = self._clock.now(), self.memory
            gone = frozenset(memory.wanted - snapshot.desired.keys() - snapshot.kept)
            mended = frozenset(memory.kept & snapshot.desired.keys())
            touched = sorted(snapshot.contents.keys() | gone | mended | snapshot.kept)
            older = {key: memory.files[key] for key in snapshot.contents if key in memory.files}
            unpinned = [key for key in memory.pins if key in snapshot.contents or key in gone]
            syncs = self.traces.adopt(
                {key: each for key, each in (origins or {}).items() if key in gone or key in snapshot.contents}
            )

            async def work(tx: Transaction) -> None:
                known = {item.id: item for item in await tx.deployments_by_ids(touched)}
                adopted = adoption(
                    snapshot, known, gone, mended, self._states(), site=memory.site, author=author, now=now
                )
                await tx.put_deployments(adopted.deployments)
                await tx.put_desired_files(_files(snapshot))
                await tx.put_revisions(
                    kept_revisions(snapshot, snapshot.contents, author=author, now=now), keep=REVISIONS_KEPT
                )
                await tx.drop_pins(unpinned)
                await _forget(tx, [item.id for item in adopted.deployments if item.archived_at is not None])
                await tx.append_events(adopted.events)
                await tx.set_value("applied_commit", snapshot.commit)
                problem = problem_text(snapshot.problems[0]) if snapshot.problems else None
                await self._put_site(tx, now, applied=snapshot.commit, problem=problem)
                await self.queue.put(
                    tx, [Synced(snapshot.commit, tuple(sorted(snapshot.desired)), snapshot.problems)]
                )
                await self.traces.save(tx)

            await self.queue.commit(work)
            self.traces.saved()
            memory.applied = snapshot.commit
            memory.wanted = set(snapshot.desired) | (memory.wanted & snapshot.kept)
            memory.files.update(snapshot.desired)
            memory.pins = {key: pin for key, pin in memory.pins.items() if key not in unpinned}
            memory.remember(older)
            memory.kept = snapshot.kept
            memory.complaint = problem_text(snapshot.problems[0]) if snapshot.problems else None
            self._forget_finished()
            log.info(
                "adopted commit",
                commit=snapshot.commit[:8],
                deployments=len(memory.wanted),
                changed=len(snapshot.contents),
                removed=len(gone),
                problems=len(snapshot.problems),
            )
            self.traces.synced(syncs, snapshot.commit, now)
            await self._reconcile()

    async def take_secrets(self, changed: Sequence[SecretRecord], versions: Mapping[str, int]) -> None:
        """Keeps the secrets that central has sent, forgets those that it no longer has, then plans: what uses a
        changed one is updated."""
        async with self._turn():
            memory = self.memory
            gone = sorted(memory.secrets.keys() - versions.keys())
            if not changed and not gone:
                return

            async def work(tx: Transaction) -> None:
                for secret in changed:
                    await tx.put_secret(secret)
                for name in gone:
                    await tx.remove_secret(memory.site, name)

            await self._store.write(work)
            memory.secrets.update({secret.name: secret.version for secret in changed})
            for name in gone:
                del memory.secrets[name]
            log.info("secrets changed", set=[secret.name for secret in changed], removed=gone)
            await self._reconcile()

    async def settle(self) -> None:
        """The source can be followed again at the commit that is applied: a complaint about it is taken back."""
        async with self._turn():
            applied = self.memory.applied
            if self.memory.complaint is None or applied is None:
                return
            now = self._clock.now()

            async def work(tx: Transaction) -> None:
                await self._put_site(tx, now, problem=None)
                await self.queue.put(tx, [Synced(applied, tuple(sorted(self.memory.wanted)))])

            await self.queue.commit(work)
            self.memory.complaint = None

    async def complain(self, message: str) -> None:
        """The source as a whole cannot be followed: say so, once, and keep everything."""
        async with self._turn():
            if self.memory.complaint == message:
                return
            now = self._clock.now()

            async def work(tx: Transaction) -> None:
                await self._put_site(tx, now, problem=message)
                await tx.append_events([NewEvent(EventKind.SITE_PROBLEM, now, message, site=self.memory.site)])
                await self.queue.put(tx, [SyncFailed(message)])

            await self.queue.commit(work)
            self.memory.complaint = message
            log.warning("desired state cannot be followed", why=message)

    # --- nodes --------------------------------------------------------------------------------------------

    async def register(self, info: NodeInfo) -> None:
        """A node says who it is. The same id again replaces what was known."""
        async with self._turn():
            await self._roster.register(info)
            await self._reconcile()

    async def greet(self, info: NodeInfo, held: Sequence[Held]) -> None:
        """A node has opened its stream: it hears every order that it lacks or has not ended."""
        async with self._turn():
            memory = self.memory
            highest = max((item.generation for item in held), default=Generation(0))
            memory.generation = Generation(max(memory.generation, highest))
            await self._roster.register(info)
            by_deployment = {item.deployment_id: item for item in held}
            for (deployment_id, node_id), instance in sorted(memory.instances.items()):
                if node_id != info.id:
                    continue
                order = self._standing(instance)
                if order is not None and must_hear(order, by_deployment.get(deployment_id)):
                    await self._send_filled(node_id, order)
            for order in strays.removals(info.id, held, memory, self._clock.monotonic()):
                self._send(info.id, order)
            await self._reconcile()

    def hear(self, node_id: NodeId) -> None:
        """A beat. Raises NotFound for a node that must register first."""
        self._roster.hear(node_id)

    async def disbelieve(self, node_id: NodeId) -> None:
        """A node's identity was removed: it is not live from this moment on, until it is let in and heard again."""
        async with self._turn():
            await self._roster.disbelieve(node_id)

    async def forget(self, node_id: NodeId) -> None:
        """A node leaves for good; its instances are no longer counted on."""
        async with self._turn():
            await self._roster.forget(node_id)
            await self._reconcile()

    async def sweep(self) -> None:
        """What time alone decides: who is silent, which hold has ended, which order is not answered."""
        async with self._turn():
            await self._roster.look()
            now, moment = self._clock.now(), self._clock.monotonic()
            await self._alter(expire_holds)
            if given_up := list(self._unanswered(moment)):
                await self._record(given_up, ())
            await self._reconcile()
            for node_id, order in strays.due(self.memory, moment, now):
                self._send(node_id, order)

    def _unanswered(self, moment: float) -> Iterator[Transition]:
        """Orders that nodes which can be heard have not answered for too long."""
        memory = self.memory
        memory.patience.look(memory.instances.values(), moment)
        for key in list(memory.patience.asked):
            instance, node = memory.instances[key], memory.nodes.get(key[1])
            if node is None or node.liveness is Liveness.LOST:
                del memory.patience.asked[key]  # When it is back, it hears the order anew.
                continue
            failure = overdue(
                instance,
                memory.wanted_of(instance),
                node,
                waited_seconds=memory.patience.waited(instance, moment),
                spent_seconds=memory.patience.spent.get(instance.key, 0.0),
                margin_seconds=self._overdue_seconds,
            )
            if failure is not None:
                yield unanswered(instance, failure, self._circumstances(instance))

    def _circumstances(self, instance: Instance) -> Circumstances:
        wanted = self.memory.wanted_of(instance)
        return Circumstances(
            now=self._clock.now(),
            policy=None if wanted is None else wanted.policy,
            can_go_back=can_go_back(instance, self.memory.past),
            spent_seconds=self.memory.patience.spent_by(instance, self._clock.monotonic()),
        )

    async def alter(self, decide: Decide) -> None:
        """A person's word about nodes or holds: judged on what is known, made durable, then planned for."""
        async with self._turn():
            if await self._alter(decide):
                await self._reconcile()

    async def _alter(self, decide: Decide) -> bool:
        made = decide(self.memory, self._clock.now())
        if made is None:
            return False
        by_hand = self.memory.by_hand_after(made.went_back.pin, made.went_back.is_here) if made.went_back else ()

        async def work(tx: Transaction) -> None:
            for node in made.nodes:
                await tx.put_node(node)
            if made.holds is not None:
                await tx.put_holds(self.memory.site, made.holds)
            if made.went_back is not None:
                await tx.put_pin(made.went_back.pin)
                await tx.set_value(BY_HAND, json.dumps(sorted(by_hand)))
            await tx.append_events(made.events)
            await self.queue.put(tx, made.reports)

        await self.queue.commit(work)
        self.memory.nodes.update({node.id: node for node in made.nodes})
        self.memory.holds = self.memory.holds if made.holds is None else made.holds
        if made.went_back is not None:
            pin = made.went_back.pin
            self.memory.pins[pin.deployment_id] = pin
            self.memory.by_hand = frozenset(by_hand)
            self.memory.remember({pin.deployment_id: made.went_back.desired})
        for event in made.events:
            log.info("somebody's word", kind=event.kind.value, what=event.message)
        return True

    async def restate(self, why: str) -> None:
        """Tells central anew how everything stands, instead of what waits to be told."""
        async with self._turn():
            await self.queue.restate(why)

    def seen(self) -> Mapping[NodeId, datetime]:
        return self._roster.seen()

    # --- news ---------------------------------------------------------------------------------------------

    async def take(self, news: Sequence[tuple[NodeId, NodeNews]]) -> None:
        """Makes what nodes said durable. Returns when it is, so that they may forget it."""
        async with self._turn():
            transitions: list[Transition] = []
            progressed: list[Progressed] = []
            for node_id, item in news:
                instance = self.memory.instances.get((item.deployment_id, node_id))
                if instance is None:
                    strays.note(node_id, item, self.memory, self._clock.monotonic())
                    continue
                if isinstance(item, Result):
                    transition = outcome(item, instance, self._circumstances(instance))
                    if transition is not None:
                        transitions.append(transition)
                elif item.generation == instance.generation:
                    progressed.append(Progressed(node_id, item))
            if transitions or progressed:
                await self._record(transitions, progressed)
            if any(transition.happening in _NEEDS_PLAN for transition in transitions):
                await self._reconcile()
                if waits := waiting(self.memory, transitions, self._clock.now()):
                    await self._record((), waits)

    # --- planning -----------------------------------------------------------------------------------------

    async def reconcile(self) -> None:
        async with self._turn():
            await self._reconcile()

    def planned(self) -> tuple[Move, ...]:
        """What would happen next; changes nothing."""
        return plan(self.memory.view(), self._clock.now())

    async def _reconcile(self) -> None:
        if self.memory.applied is None:
            return  # Without a verified snapshot nothing may be started or removed.
        began = self._clock.now()
        moves = plan(self.memory.view(), began)
        if not moves:
            return
        transitions = [transition_of(move, self.memory, began) for move in moves]
        self.traces.plan(list(zip(moves, transitions, strict=True)), began)
        for move in moves:
            log.info(
                "decided",
                deployment=move.deployment_id,
                node=move.node_id or None,
                happening=move.happening.value,
                order=None if move.order is None else move.order.value,
                why=move.why,
            )
        await self._record(transitions, (), given_after(moves, self.memory))
        for move in moves:
            await self._send_standing(move)
        if any(move.happening is Happening.REMOVED for move in moves):
            await self._reconcile()  # What was taken back may be placed anew at once.

    async def _send_filled(self, node_id: NodeId, order: Order) -> None:
        """Puts the values of secrets into an order at the last moment: nothing of ours stores or shows them."""
        order = self.traces.marked(node_id, order)
        names = frozenset() if order.release is None else needed(order.release)
        if not names or order.release is None:
            self._send(node_id, order)
            return
        values = await self._reveal(names)
        if names <= values.keys():
            self._send(node_id, replace(order, release=filled(order.release, values)))
        else:
            log.warning(
                "order waits for a secret", deployment=order.deployment_id, lacks=sorted(names - values.keys())
            )

    async def _send_standing(self, move: Move) -> None:
        instance = self.memory.instances.get((move.deployment_id, move.node_id))
        if move.order is None or instance is None:
            return
        order = self._standing(instance)
        if order is not None:
            await self._send_filled(move.node_id, order)

    def _standing(self, instance: Instance) -> Order | None:
        spent = self.memory.patience.spent.get(instance.key, 0.0)
        return standing_order(instance, self.memory.wanted_of(instance), spent_seconds=spent)

    # --- writing ------------------------------------------------------------------------------------------

    async def _record(
        self,
        transitions: Sequence[Transition],
        progressed: Sequence[Progressed],
        given: dict[Key, dict[str, int]] | None = None,
    ) -> None:
        now, moment = self._clock.now(), self._clock.monotonic()
        memory = self.memory
        contexts = self.traces.contexts(transitions)
        self.traces.end(transitions, memory.files)

        async def work(tx: Transaction) -> tuple[Recorded, dict[Key, float]]:
            recorded = await record_transitions(tx, transitions, now)
            refused = {id(transition) for transition, _ in recorded.refused}
            await tx.drop_instances([item.key for item in recorded.instances if item.state is State.DELETED])
            await _forget(tx, [item.id for item in recorded.deployments if item.archived_at is not None])
            await tx.set_steps({key_of(item): step_text(item.progress) for item in progressed})
            await tx.append_events(
                [
                    progress_event(item, memory.site, f"{item.node_id}: {step_text(item.progress)}")
                    for item in progressed
                ]
            )
            accepted = [item for item in transitions if id(item) not in refused]
            # Progress is commentary: while central is gone for long it is the first to go, so that what matters fits.
            if progressed and await tx.outbox_size() < PROGRESS_QUEUED_MAX:
                await self.queue.put(tx, progressed)
            await self.queue.put(tx, accepted, contexts)
            await self.traces.save(tx)
            await tx.set_value("generation", str(memory.generation))
            await tx.set_value("incarnation", str(memory.incarnation))
            if given is not None and given != memory.given:
                await tx.set_value(GIVEN, dump_given(given))
            spent = memory.patience.after(memory.instances, recorded.instances, moment)
            if spent != memory.patience.spent:
                await tx.set_value(SPENT, dump_spent(spent))
            return recorded, spent

        recorded, memory.patience.spent = await self.queue.commit(work)
        self.traces.saved()
        memory.given = memory.given if given is None else given
        for transition, why in recorded.refused:
            log.error("refused a transition", deployment=transition.deployment_id, node=transition.node_id, why=why)
        for instance in recorded.instances:
            if instance.state is State.DELETED:
                memory.instances.pop(instance.key, None)
                memory.given.pop(instance.key, None)
            else:
                memory.instances[instance.key] = instance
        memory.patience.look(recorded.instances, moment)
        for item in progressed:
            if key_of(item) in memory.instances:
                memory.instances[key_of(item)] = replace(
                    memory.instances[key_of(item)], step=step_text(item.progress)
                )
        self.traces.forget((item.deployment_id for item in transitions), memory.instances)
        self._forget_finished()

    def _forget_finished(self) -> None:
        """A deployment that is neither wanted nor placed anywhere leaves the memory."""
        placed = {deployment_id for deployment_id, _ in self.memory.instances}
        for deployment_id in [
            key for key in self.memory.files if key not in self.memory.wanted and key not in placed
        ]:
            del self.memory.files[deployment_id]
            self.memory.pins.pop(deployment_id, None)
        self.memory.remember({})

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """One decision at a time, and each to its end: a stream that breaks or a caller that gives up may keep one
        from beginning, but never part what is durable from what is remembered. The store bounds each wait."""
        async with self._lock:
            with anyio.CancelScope(shield=True):
                yield
                await self.queue.keep_bounded()

    async def _put_site(
        self, tx: Transaction, now: datetime, *, applied: Commit | None = None, problem: str | None
    ) -> None:
        site = await tx.site(self.memory.site) or Site(self.memory.site, now, None, None)
        await tx.put_site(
            replace(site, last_seen=now, applied_commit=applied or site.applied_commit, problem=problem)
        )

    def _states(self) -> dict[DeploymentId, list[tuple[NodeId, State]]]:
        states: dict[DeploymentId, list[tuple[NodeId, State]]] = {}
        for (deployment_id, node_id), instance in self.memory.instances.items():
            states.setdefault(deployment_id, []).append((node_id, instance.state))
        return states


async def _forget(tx: Transaction, deployment_ids: Sequence[DeploymentId]) -> None:
    """What is gone for good leaves nothing behind but its history."""
    await tx.drop_desired_files(deployment_ids)
    await tx.drop_revisions(deployment_ids)
    await tx.drop_pins(deployment_ids)


def _files(snapshot: Snapshot) -> list[DesiredFile]:
    return [
        DesiredFile(key, snapshot.desired[key].path, snapshot.desired[key].revision, content)
        for key, content in snapshot.contents.items()
    ]
