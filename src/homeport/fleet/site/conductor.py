"""The conductor of a site: turns snapshots, node reports and missed heartbeats into recorded transitions and orders.

One lock serialises all changes: decide in memory, make it durable, then update the memory and send the orders.
Nothing here waits for a node. Affected deployments are marked, and planned by the planner's task.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime

import anyio
import anyio.to_thread

from homeport.core.lifecycle.record import Recorded
from homeport.core.lifecycle.replay import observe_health
from homeport.core.model.access import SecretRecord
from homeport.core.model.instance import Instance, Transition
from homeport.core.model.node import NodeInfo, Tunable
from homeport.core.model.order import DEPLOYMENT, Held, Progress, Result
from homeport.core.model.report import FileProblem, Progressed
from homeport.core.placement.choose import is_written_off
from homeport.core.reconcile.check import Checked, older_orders
from homeport.core.reconcile.deadline import overdue
from homeport.core.reconcile.instances import Key
from homeport.core.reconcile.orders import (
    OrderContext,
    lost_its_secret,
    needs_order,
    outcome,
    unanswered,
)
from homeport.core.reconcile.outlook import Expected, outlook
from homeport.core.reconcile.plan import Move, can_roll_back, is_due_by_time, secret_missing
from homeport.core.secrets import missing
from homeport.core.tracing import TraceContext
from homeport.errors import TransientError
from homeport.fleet.shared.progress import restated_health, with_known_health
from homeport.fleet.shared.snapshot import Snapshot
from homeport.fleet.site.desired_state import DesiredStateRecorder
from homeport.fleet.site.maintenance import Decide, expire_holds
from homeport.fleet.site.nodes import orphans
from homeport.fleet.site.nodes.problems import NodeProblems
from homeport.fleet.site.nodes.roster import NodeRoster
from homeport.fleet.site.nodes.takeover import Older, find_releases, newer, restore_rollbacks, take_over
from homeport.fleet.site.orders.moves import given_after, transition_of
from homeport.fleet.site.orders.retries import waiting
from homeport.fleet.site.orders.sender import OrderSender, Reveal, SendOrder, no_secrets
from homeport.fleet.site.planner import InThread, SitePlanner, copy_of
from homeport.fleet.site.recorder import TransitionRecorder
from homeport.fleet.site.reports.queue import ReportQueue
from homeport.fleet.site.reports.resync import OUTBOX_BYTES_MAX, Encode
from homeport.fleet.site.state import (
    ABOVE,
    BY_HAND,
    ROLLED_BACK,
    SiteState,
    dump_rolled_back,
)
from homeport.fleet.site.traces import SiteTraces
from homeport.fleet.site.work import SiteWork, connect_others, take_others
from homeport.lazy_dataclass import dataclass
from homeport.log import get_log
from homeport.ports import Ahead, Clock, NodeNews, Notice, Owned, Store, Transaction, Unreadable
from homeport.vocabulary import (
    Code,
    DeploymentId,
    Generation,
    Incarnation,
    Liveness,
    NodeId,
    NoticeCode,
    State,
    Trigger,
)

log = get_log(__name__)


# Results that need planning at once. HEALTHY waits for the sweep: a thousand installs cost one plan.
_NEEDS_PLAN = frozenset({Trigger.GAVE_UP, Trigger.REMOVED})
RESYNC_SECONDS = 60.0
"""How often everything is planned, whether it is marked or not."""

ORPHAN_GRACE_SECONDS = 600.0
"""How long a site waits after its start before an unknown node counts as gone."""

Seek = Callable[[], Awaitable[None]]
"""Fetches secrets from central that may be new; failures are ignored."""


async def _nothing_older(_deployment_id: DeploymentId) -> Sequence[bytes]:
    return ()


@dataclass(slots=True, eq=False)
class _Arrival:
    """A node that has opened its stream and waits for its welcome."""

    info: NodeInfo
    held: Sequence[Held]
    is_open: Callable[[], bool]
    is_done: bool = False


class Conductor:
    def __init__(
        self,
        memory: SiteState,
        store: Store,
        clock: Clock,
        *,
        encode: Encode,
        send: SendOrder,
        stale_seconds: float,
        lost_seconds: float,
        overdue_seconds: float = 60.0,
        orphan_grace_seconds: float = ORPHAN_GRACE_SECONDS,
        reveal: Reveal = no_secrets,
        traces: SiteTraces | None = None,
        outbox_bytes_max: int = OUTBOX_BYTES_MAX,
        in_thread: InThread = anyio.to_thread.run_sync,
        works: Mapping[str, SiteWork] | None = None,
    ) -> None:
        self.memory = memory
        self._store = store
        self._clock = clock
        self.queue = ReportQueue(memory, store, clock, encode, bytes_max=outbox_bytes_max)
        self._works = works or {}
        """Kinds of work other than deployments, by kind."""
        self._roster = NodeRoster(
            memory, store, clock, self.queue, stale_seconds=stale_seconds, lost_seconds=lost_seconds
        )
        self._problems = NodeProblems(memory, clock, self.queue, self._roster)
        self._overdue_seconds = overdue_seconds
        self.traces = traces or SiteTraces(memory.site, None, clock)
        self._desired = DesiredStateRecorder(memory, store, clock, self.queue, self.traces)
        self._recorder = TransitionRecorder(memory, clock, self.queue, self.traces)
        self._orders = OrderSender(memory, send, reveal, self.traces)
        self.seek: Seek | None = None
        """Set where there is a central: a secret set just before a deploy must not count as missing."""
        self.tell_settings: Callable[[NodeId, Tunable], None] = lambda node_id, tunable: None
        """Sends changed settings to a node; set where there are streams."""
        self.older: Older = _nothing_older
        """Set where there is a repository."""
        self._ownership = orphans.OwnershipLookup(memory, store)
        self._held: dict[NodeId, tuple[Held, ...]] = {}
        """The journals that nodes reported, until they are compared with the site's own state."""
        self._lock = anyio.Lock()
        self._orphan_grace_seconds = orphan_grace_seconds
        self._started = clock.monotonic()
        self._in_thread = in_thread
        self.planner = SitePlanner(memory, clock, self._carry_out, in_thread=in_thread)
        self._failed: list[Transition] = []
        """Failures recorded since the last plan."""
        self._arrivals: list[_Arrival] = []
        self._resync_at = clock.monotonic() + RESYNC_SECONDS
        self._written_off: set[NodeId] = set()
        """Nodes that have been lost for so long that their instances were placed elsewhere."""

    # --- what is wanted -----------------------------------------------------------------------------------

    async def adopt(
        self,
        snapshot: Snapshot,
        *,
        author: str,
        touched: Collection[DeploymentId] = (),
        origins: Mapping[DeploymentId, TraceContext] | None = None,
        without_data: Collection[DeploymentId] = (),
    ) -> None:
        """Makes a verified snapshot the desired state, then plans. `touched` are the deployments whose file changed
        in Git since the last one, even if its content is the same again; `origins` are the traces of the changes. The
        deleted deployments in `without_data` lose their data too."""
        lacks = any(missing(item.release, self.memory.secrets) for item in snapshot.desired.values())
        if self.seek is not None and lacks:
            await self.seek()
        async with self._turn():
            is_first = not self.memory.knows_what_is_wanted
            changed = await self._desired.adopt(
                snapshot, author=author, touched=touched, origins=origins or {}, without_data=without_data
            )
            if is_first:
                self.planner.mark_all()
            self.planner.mark({*changed, *self._waiting_for_room()})
            await self._compare_held()

    async def take_secrets(self, changed: Sequence[SecretRecord], versions: Mapping[str, int]) -> None:
        """Stores the secrets that central has sent, deletes those that it no longer has, then plans: what uses a
        changed one is updated."""
        async with self._turn():
            if await self._desired.take_secrets(changed, versions):
                self.planner.mark_all()

    async def confirm(self) -> None:
        """Git was read, and its state is the one applied here."""
        if self.memory.has_looked:
            return
        async with self._turn():
            self.memory.has_looked = True
            self.planner.mark_all()
            await self._compare_held()

    async def source_followed(self, problems: Sequence[FileProblem]) -> None:
        """The source can be followed at the applied commit: exactly the problems of that commit are shown. A problem
        of the source is cleared, one of a file stays until the file changes."""
        async with self._turn():
            await self._desired.followed(problems)

    async def source_failed(self, message: str) -> None:
        """The source as a whole cannot be followed: report it, once, and keep everything."""
        async with self._turn():
            await self._desired.failed(message)

    # --- nodes --------------------------------------------------------------------------------------------

    async def register(self, info: NodeInfo) -> None:
        """Registers a node. The same id again replaces the earlier registration."""
        async with self._turn():
            if await self._roster.register([info]):
                self.planner.mark_all()

    async def connected(
        self, info: NodeInfo, held: Sequence[Held], *, is_open: Callable[[], bool] = lambda: True
    ) -> None:
        """A node has opened its stream: it is sent every order that it lacks or has not finished. A node whose stream
        ended while it waited is not welcomed: it may have been removed in that moment."""
        arrival = _Arrival(info, held, is_open)
        self._arrivals.append(arrival)
        try:
            async with self._turn():
                if not arrival.is_done:
                    arrivals = [*self._arrivals]
                    await self._welcome([each for each in arrivals if each.is_open()])
                    self._arrivals = [each for each in self._arrivals if each not in arrivals]
                    for each in arrivals:
                        each.is_done = True
            await connect_others(info.id, held, self._works)
        finally:
            if not arrival.is_done:
                self._arrivals.remove(arrival)

    async def _welcome(self, arrivals: Sequence[_Arrival]) -> None:
        """Welcomes all waiting nodes in one transaction: a thousand that reconnect at once are one change."""
        memory = self.memory
        highest = max((item.generation for each in arrivals for item in each.held), default=Generation(0))
        memory.is_behind |= highest > memory.generation
        memory.generation = Generation(max(memory.generation, highest))
        if await self._roster.register([arrival.info for arrival in arrivals]):
            self.planner.mark_all()
        for arrival in arrivals:
            await self._problems.admitted(arrival.info.id)
            self._held[arrival.info.id] = tuple(item for item in arrival.held if item.work == DEPLOYMENT)
        await self._compare_held()

    async def _compare_held(self) -> None:
        """Compares nodes' journals with the site's state: newer entries are adopted, missing orders are sent, and
        orphans are removed. Waits for Git, without which the desired state is unknown."""
        if not self.memory.knows_what_is_wanted:
            return
        greeted, self._held = self._held, {}
        try:
            await self._compare(greeted)
        except TransientError:  # It cannot be written now: the next plan waits for it.
            self._held = greeted
            raise

    async def _compare(self, greeted: Mapping[NodeId, Sequence[Held]]) -> None:
        memory, now = self.memory, self._clock.now()
        news: list[Progressed] = []
        for node_id, held in greeted.items():
            by_deployment = {item.deployment_id: item for item in held}
            taken = newer(node_id, held, memory, now)
            if taken:
                await take_over(taken, await find_releases(taken, memory, self.older), memory, self.queue, now)
            await restore_rollbacks(node_id, memory, self.older, self.queue, now)
            memory.welcomed.add(node_id)
            for deployment_id, instance in sorted(memory.instances.on_node(node_id).items()):
                order, has = self._orders.current(instance), by_deployment.get(deployment_id)
                if order is not None and needs_order(order, has, instance.state):
                    lacking = await self._orders.send(node_id, order)
                    if lacking and lost_its_secret(instance, order, has):
                        failure = secret_missing(memory.site, lacking)
                        await self._record([unanswered(instance, failure, self._order_context(instance))], ())
            news += restated_health(node_id, by_deployment, memory.instances, now)
            for order in orphans.removals(node_id, held, memory, self._clock.monotonic()):
                self._orders.send_plain(node_id, order)
            self.planner.mark(memory.instances.on_node(node_id))
        if news:
            await self._record((), news)

    def heartbeat(self, node_id: NodeId) -> None:
        """Raises NotFound for a node that must register first."""
        self._roster.heartbeat(node_id)

    def tunable(self, node_id: NodeId) -> Tunable:
        """The settings that an operator has made for a node."""
        node = self.memory.nodes.get(node_id)
        return Tunable() if node is None else node.tunable

    async def distrust(self, node_id: NodeId) -> None:
        """A node's identity was removed: it is not live until it is accepted again and sends a heartbeat."""
        async with self._turn():
            await self._roster.distrust(node_id)

    async def forget(self, node_id: NodeId, *, dismiss: Callable[[], None] = lambda: None) -> None:
        """Removes a node permanently, with its instances. `dismiss` notifies it, once that is durable: a node that
        was notified but is still expected would be waited for forever."""
        async with self._turn():
            await self._roster.forget(node_id)
            self._held.pop(node_id, None)
            dismiss()
            self.planner.mark_all()

    async def sweep(self) -> None:
        """What only depends on time: missed heartbeats, expired holds, order timeouts."""
        async with self._turn():
            if await self._roster.look():
                self.planner.mark_all()
            now, moment = self._clock.now(), self._clock.monotonic()
            await self._problems.forget_old(moment)
            await self._alter(expire_holds)
            if given_up := list(self._unanswered(moment)):
                await self._record(given_up, ())
            self.planner.mark(self._due(now, moment))
            for node_id, order in orphans.due(self.memory, moment, now):
                self._orders.send_plain(node_id, order)
        self.planner.wake()

    def _due(self, now: datetime, moment: float) -> Iterator[DeploymentId]:
        """The deployments to plan because time has passed."""
        memory = self.memory
        yield from (key[0] for key in memory.instances.unsettled if is_due_by_time(memory.instances[key], now))
        lost = {node.id for node in memory.nodes.values() if is_written_off(node, now)}
        for node_id in lost - self._written_off:
            yield from memory.instances.on_node(node_id)
        self._written_off = lost
        if moment >= self._resync_at:
            self._resync_at = moment + RESYNC_SECONDS
            self.planner.mark_all()

    def _unanswered(self, moment: float) -> Iterator[Transition]:
        """Timeouts of orders to connected nodes."""
        memory = self.memory
        for instance in memory.order_timers.outstanding(memory.instances, moment):
            node = memory.nodes.get(instance.node_id)
            if node is None or node.liveness is Liveness.LOST:
                del memory.order_timers.asked[instance.key]  # Sent again when the node reconnects.
                continue
            failure = overdue(
                instance,
                memory.wanted_of(instance),
                node,
                waited_seconds=memory.order_timers.waited(instance, moment),
                spent_seconds=memory.order_timers.spent.get(instance.key, 0.0),
                margin_seconds=self._overdue_seconds,
            )
            if failure is not None:
                yield unanswered(instance, failure, self._order_context(instance))

    def _order_context(self, instance: Instance) -> OrderContext:
        wanted = self.memory.wanted_of(instance)
        return OrderContext(
            now=self._clock.now(),
            policy=None if wanted is None else wanted.policy,
            can_roll_back=can_roll_back(instance, self.memory.past),
            spent_seconds=self.memory.order_timers.spent_by(instance, self._clock.monotonic()),
        )

    async def alter(self, decide: Decide) -> None:
        """An operator's request about nodes or holds: validated against the current state, made durable, then
        planned."""
        async with self._turn():
            await self._alter(decide)

    async def _alter(self, decide: Decide) -> None:
        made = decide(self.memory, self._clock.now())
        if made is None:
            return
        by_hand = (
            self.memory.by_hand_after(made.rolled_back.pin, made.rolled_back.is_here) if made.rolled_back else ()
        )

        async def work(tx: Transaction) -> None:
            for node in made.nodes:
                await tx.put_node(node)
            if made.holds is not None:
                await tx.put_holds(self.memory.site, made.holds)
            if made.rolled_back is not None:
                await tx.drop_pins([made.rolled_back.pin.deployment_id])
                await tx.put_pin(made.rolled_back.pin)
                await tx.set_value(BY_HAND, json.dumps(sorted(by_hand)))
            await tx.append_events(made.events)
            await self.queue.put(tx, made.reports)

        await self.queue.commit(work)
        for node in made.nodes:
            if node.tunable != self.memory.nodes[node.id].tunable:
                self.tell_settings(node.id, node.tunable)
        self.memory.nodes.update({node.id: node for node in made.nodes})
        self.memory.holds = self.memory.holds if made.holds is None else made.holds
        if made.rolled_back is not None:
            pin = made.rolled_back.pin
            self.memory.pins[pin.deployment_id] = pin
            self.memory.by_hand = frozenset(by_hand)
            self.memory.remember({pin.deployment_id: made.rolled_back.desired})
        for event in made.events:
            log.info("operator change recorded", kind=event.kind.value, what=event.message)
        self.planner.mark_all()

    async def resync(self, why: str) -> None:
        """Replaces the queued reports by a full resync."""
        async with self._turn():
            await self.queue.resync(why)

    async def restate(self, deployment_ids: Collection[DeploymentId]) -> None:
        """Queues how these deployments stand, after what is queued already."""
        async with self._turn():
            await self.queue.restate(deployment_ids)

    async def start_epoch(self, epoch: str, ahead: Ahead) -> None:
        """Central has records that this site has lost: numbering continues above them, what was rolled back stays
        rolled back, and central gets a full resync."""
        async with self._turn():
            memory = self.memory
            memory.generation = Generation(max(memory.generation, ahead.generation))
            memory.incarnation = Incarnation(max(memory.incarnation, ahead.incarnation))
            above = json.dumps([ahead.generation, ahead.incarnation])
            await self.queue.start_epoch(epoch, {ROLLED_BACK: dump_rolled_back(ahead.rolled_back), ABOVE: above})
            memory.rolled_back = {item.key: item for item in ahead.rolled_back}
            for node_id in sorted(memory.welcomed) if memory.knows_what_is_wanted else ():
                for instance in await restore_rollbacks(node_id, memory, self.older, self.queue, self._clock.now()):
                    if (order := self._orders.current(instance)) is not None:
                        await self._orders.send(node_id, order)

    async def wait_no_longer(self) -> None:
        """Central has sent its recorded rollbacks, or is unreachable: a new database continues with what it has."""
        if not self.memory.awaits_central:
            return
        async with self._turn():
            self.memory.awaits_central = False
            self.planner.mark_all()
            await self._compare_held()

    def seen(self) -> Mapping[NodeId, datetime]:
        return self._roster.seen()

    # --- news ---------------------------------------------------------------------------------------------

    async def take(self, news: Sequence[tuple[NodeId, NodeNews]]) -> None:
        """Makes reports of nodes durable. Returns when they are, so that nodes may delete them."""
        own = await take_others(news, self._works, self._refused)
        async with self._turn():
            transitions: list[Transition] = []
            progressed: list[Progressed] = []
            for node_id, item in _without_repeats(own):
                if isinstance(item, Unreadable):
                    why = f"a {item.what} of the node was refused: {item.why}"
                    await self._problems.notice(node_id, NoticeCode.MESSAGE_REFUSED, why)
                    continue
                instance = self.memory.instances.get((item.deployment_id, node_id))
                if instance is None:
                    orphans.note(node_id, item, self.memory, self._clock.monotonic())
                    continue
                if isinstance(item, Result):
                    transitions += outcome(item, instance, self._order_context(instance))
                elif item.generation == instance.generation and not _is_known(item, instance):
                    progressed.append(Progressed(node_id, item))
            if transitions or progressed:
                await self._record(transitions, progressed)
            if self._held:
                told = [(node_id, item) for node_id, item in own if not isinstance(item, Unreadable)]
                self._held = with_known_health(self._held, told, self.memory.instances)

    async def _refused(self, node_id: NodeId, why: str) -> None:
        await self.notice(node_id, Notice(NoticeCode.MESSAGE_REFUSED, f"news of the node was refused: {why}"))

    async def notice(self, node_id: NodeId, notice: Notice) -> None:
        """Something that a node did or refused, or that was detected about it: an event here and at central."""
        async with self._turn():
            await self._problems.notice(node_id, notice.code, notice.message)

    async def report_problem(self, node_id: NodeId, code: NoticeCode, message: str) -> None:
        """Why a node was not admitted: an event, and a problem on the node until it was not detected for a while."""
        async with self._turn():
            await self._problems.report(node_id, code, message)

    async def orphans_of(self, node_id: NodeId, found: Sequence[Owned]) -> tuple[Owned, ...]:
        """Which of these, found on a node's engine, belong to no node any more."""
        if self._clock.monotonic() - self._started < self._orphan_grace_seconds:
            return ()  # A node that has not connected since this site started may be the owner.
        known, had, placed = await self._ownership.look_up(node_id, found, self.older)
        async with self._turn():
            now = self._clock.now()
            return orphans.orphaned_workloads(node_id, found, self.memory, known, now=now, had=had, placed=placed)

    # --- planning -----------------------------------------------------------------------------------------

    async def reconcile(self) -> None:
        """Plans everything and carries it out, now."""
        self.planner.mark_all()
        await self.planner.plan()

    async def outlook(self) -> tuple[Expected, ...]:
        """What would happen next, for the operator; changes nothing."""
        found: tuple[Expected, ...] = await self._in_thread(outlook, copy_of(self.memory.view()), self._clock.now())
        return found

    async def _carry_out(self, make: Callable[[], Checked], looked_at: Collection[DeploymentId] | None) -> None:
        """Records the moves of a plan and sends its orders."""
        async with self._turn():
            if not self.memory.knows_what_is_wanted:
                return  # Without a verified snapshot nothing may be started or removed.
            await self._compare_held()
            began = self._clock.now()
            checked = make()
            steps = [(move, transition_of(move, self.memory, began)) for move in checked.moves]
            older = older_orders(steps, self.memory.instances)
            await self._recorder.set_aside({**checked.set_aside, **older}, looked_at, began)
            if steps := [step for step in steps if step[0].deployment_id not in older]:
                await self._make(steps, began)
            failed, self._failed = self._failed, []
            if waits := waiting(self.memory, failed, began):
                await self._record((), waits)

    async def _make(self, steps: Sequence[tuple[Move, Transition]], began: datetime) -> None:
        moves = [move for move, _ in steps]
        self.traces.plan(steps, began)
        for move in moves:
            log.info(
                "decided",
                deployment=move.deployment_id,
                node=move.node_id or None,
                trigger=move.trigger.value,
                order=None if move.order is None else move.order.value,
                why=move.why,
            )
        await self._record([transition for _, transition in steps], (), given_after(moves, self.memory))
        for move in moves:
            await self._orders.send_for(move)

    def _waiting_for_room(self) -> Iterator[DeploymentId]:
        """Deployments that no node could take: any change of nodes or instances may make room."""
        for key in self.memory.instances.unsettled:
            failure = self.memory.instances[key].failure
            if failure is not None and failure.code == Code.NO_ELIGIBLE_NODE:
                yield key[0]

    def _mark(self, transitions: Sequence[Transition], recorded: Recorded) -> None:
        """Marks deployments for planning: at once those that failed or were removed, with the next sweep healthy
        ones."""
        self._failed += [each for each in transitions if each.trigger is Trigger.GAVE_UP]
        self.planner.mark(each.deployment_id for each in transitions if each.trigger in _NEEDS_PLAN)
        healthy = (each.deployment_id for each in transitions if each.trigger is Trigger.HEALTHY)
        self.planner.mark(healthy, wake=False)
        if any(item.state is State.DELETED for item in recorded.instances):
            self.planner.mark(set(self._waiting_for_room()))

    def room_freed(self) -> None:
        """Work of another kind has ended."""
        self.planner.mark(set(self._waiting_for_room()))

    # --- writing ------------------------------------------------------------------------------------------

    async def _record(
        self,
        transitions: Sequence[Transition],
        progressed: Sequence[Progressed],
        given: dict[Key, dict[str, int]] | None = None,
    ) -> None:
        self._mark(transitions, await self._recorder.record(transitions, progressed, given))

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """One decision at a time, shielded from cancellation: a lost stream or cancelled caller may keep one from
        beginning, but never separate the store from the memory. The store bounds each wait."""
        async with self._lock:
            with anyio.CancelScope(shield=True):
                yield
                await self.queue.keep_bounded()


def _without_repeats(news: Sequence[tuple[NodeId, NodeNews]]) -> Iterator[tuple[NodeId, NodeNews]]:
    """A node answers an order each time that it is sent: of several results of one order the last counts."""
    last = {
        (node_id, item.deployment_id, item.generation): item for node_id, item in news if isinstance(item, Result)
    }
    for node_id, item in news:
        if not isinstance(item, Result) or last[node_id, item.deployment_id, item.generation] is item:
            yield node_id, item


def _is_known(progress: Progress, instance: Instance) -> bool:
    """Whether it repeats the health that the node reported on connecting."""
    return progress.healthy is not None and observe_health(instance, progress) is instance
