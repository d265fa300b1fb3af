"""A site's part of a deploy's trace: from the commit it adopts to the result of each order.

Open spans are stored in the site's store together with the change that they belong to, so a restart in between does
not break the trace: an order that is sent again carries its context, and its span ends with its result, in whichever
process that arrives. Without a tracer here a context is passed on unchanged.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from homeport.core.model.deployment import Desired
from homeport.core.model.instance import Failure, Instance, Transition
from homeport.core.model.order import Order
from homeport.core.reconcile.instances import Key
from homeport.core.reconcile.plan import Move
from homeport.core.tracing import Span, SpanKind, TraceContext, parse_context
from homeport.fleet.site.instance_values import TRACES
from homeport.lazy_dataclass import dataclass
from homeport.ports import Clock, Tracer, Transaction
from homeport.vocabulary import Commit, DeploymentId, Generation, NodeId, OrderKind, SiteName, State, Trigger

ROLE: Final = "site"
NO_NODE: Final = NodeId("")
"""In the key of a deployment's own span."""
TRACES_MAX: Final = 2000
"""Maximum number of traced deployments, and of traced orders; further ones are not traced."""
_ENDS: Final = frozenset({Trigger.HEALTHY, Trigger.GAVE_UP, Trigger.REMOVED})
_SUPERSEDED: Final = "superseded"


@dataclass(frozen=True, slots=True)
class OpenOrder:
    """An order without a result so far."""

    generation: Generation
    kind: OrderKind
    name: str
    context: TraceContext
    parent: TraceContext
    began: datetime
    reason: str


class SiteTraces:
    def __init__(
        self,
        site: SiteName,
        tracer: Tracer | None,
        clock: Clock,
        stored: Mapping[Key, "TraceContext | OpenOrder"] | None = None,
    ) -> None:
        self._site = site
        self._tracer = tracer
        self._clock = clock
        self._changed: set[Key] = set()
        """What is not stored yet as it is now."""
        self._deployments: dict[DeploymentId, TraceContext] = {}
        self._orders: dict[Key, OpenOrder] = {}
        for key, value in (stored or {}).items():
            if isinstance(value, OpenOrder):
                self._orders[key] = value
            else:
                self._deployments[key[0]] = value

    @property
    def is_tracing(self) -> bool:
        return self._tracer is not None

    async def save(self, tx: Transaction) -> None:
        """Writes the open spans that changed, in the same transaction as the change that they belong to."""
        current = {key: dump_trace(value) for key in self._changed if (value := self._open_span(key)) is not None}
        await tx.put_instance_values(TRACES, current)
        await tx.drop_instance_values(TRACES, sorted(self._changed - current.keys()))

    def saved(self) -> None:
        """That transaction is durable."""
        self._changed.clear()

    def _open_span(self, key: Key) -> "TraceContext | OpenOrder | None":
        return self._deployments.get(key[0]) if key[1] == NO_NODE else self._orders.get(key)

    # --- from Git to the orders -----------------------------------------------------------------------------

    def adopt(self, origins: Mapping[DeploymentId, TraceContext]) -> dict[TraceContext, TraceContext]:
        """Starts the trace of each changed deployment; returns a sync span's context for each that arrived."""
        syncs = {context: self._below(context) for context in dict.fromkeys(origins.values())}
        for deployment_id, context in origins.items():
            if deployment_id in self._deployments or len(self._deployments) < TRACES_MAX:
                self._deployments[deployment_id] = syncs[context]
                self._changed.add((deployment_id, NO_NODE))
        return syncs

    def synced(self, syncs: Mapping[TraceContext, TraceContext], commit: Commit, began: datetime) -> None:
        for parent, context in syncs.items():
            self._export("sync", context, parent, began, about={"homeport.commit": commit})

    def plan(self, moves: Sequence[tuple[Move, Transition]], began: datetime) -> None:
        """Opens a span for each order of the moves; the spans of superseded orders end here."""
        plans: dict[TraceContext | None, TraceContext] = {}
        for move, transition in moves:
            if move.order is None:
                continue
            parent = self._deployments.get(move.deployment_id)
            if parent is None and self._tracer is None:
                continue
            if parent not in plans:
                plans[parent] = self._below(parent)
            self._open((move.deployment_id, move.node_id), move, transition, plans[parent])
        for parent, context in plans.items():
            self._export("plan", context, parent, began, about={"homeport.moves": len(moves)})

    def _open(self, key: Key, move: Move, transition: Transition, parent: TraceContext) -> None:
        assert move.order is not None, "only orders are opened"
        self._close(key, None, Failure(_SUPERSEDED, f"a newer order came first: {move.why}"))
        if len(self._orders) < TRACES_MAX:
            context, at = self._below(parent), transition.at
            name = f"order {'rollback' if move.trigger is Trigger.ROLLED_BACK else move.order.value}"
            self._changed.add(key)
            self._orders[key] = OpenOrder(transition.generation, move.order, name, context, parent, at, move.why)

    def marked(self, node_id: NodeId, order: Order) -> Order:
        """The order with the context of its span, for the node."""
        known = self._orders.get((order.deployment_id, node_id))
        if known is None or known.generation != order.generation:
            return order
        return replace(order, traceparent=str(known.context))

    # --- what came of them ----------------------------------------------------------------------------------

    def contexts(self, transitions: Iterable[Transition]) -> dict[int, str]:
        """The context that is sent to central with each transition, by the transition's `id()`."""
        found = {}
        for transition in transitions:
            known = self._orders.get((transition.deployment_id, transition.node_id))
            context = known.context if known is not None else self._deployments.get(transition.deployment_id)
            if context is not None:
                found[id(transition)] = str(context)
        return found

    def end(self, transitions: Iterable[Transition], files: Mapping[DeploymentId, Desired]) -> None:
        """Ends the span of each order that has a result."""
        for transition in transitions:
            key = transition.deployment_id, transition.node_id
            known = self._orders.get(key)
            if known is None or transition.trigger not in _ENDS or known.generation != transition.generation:
                continue
            self._close(key, files.get(transition.deployment_id), transition.failure, transition)

    def forget(self, arrived: Iterable[DeploymentId], instances: Mapping[Key, Instance]) -> None:
        """Ends the trace of deployments that are installed wherever they should be, or gone."""
        for deployment_id in self._deployments.keys() & set(arrived):
            states = {item.state for (each, _), item in instances.items() if each == deployment_id}
            if states <= {State.INSTALLED, State.DELETED} and not self._is_open(deployment_id):
                del self._deployments[deployment_id]
                self._changed.add((deployment_id, NO_NODE))

    def _is_open(self, deployment_id: DeploymentId) -> bool:
        return any(each == deployment_id for each, _ in self._orders)

    def _close(
        self, key: Key, desired: Desired | None, failure: Failure | None, transition: Transition | None = None
    ) -> None:
        known = self._orders.pop(key, None)
        if known is None:
            return
        self._changed.add(key)
        about: dict[str, str | int] = {
            "homeport.deployment.id": key[0],
            **({} if desired is None else {"homeport.deployment.name": desired.name}),
            "homeport.node.id": key[1],
            "homeport.revision": (transition.revision if transition else None) or "",
            "homeport.order.kind": known.kind.value,
            "homeport.order.generation": known.generation,
            "homeport.reason": known.reason,
        }
        self._export(
            known.name, known.context, known.parent, known.began, about=about, failure=failure, kind=SpanKind.CLIENT
        )

    # --- spans ----------------------------------------------------------------------------------------------

    def _below(self, parent: TraceContext | None) -> TraceContext:
        if self._tracer is not None:
            return self._tracer.begin(parent)
        assert parent is not None, "without a tracer there is nothing to begin"
        return parent

    def _export(
        self,
        name: str,
        context: TraceContext,
        parent: TraceContext | None,
        began: datetime,
        *,
        about: Mapping[str, str | int],
        failure: Failure | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
    ) -> None:
        if self._tracer is not None:
            about = {"homeport.site": self._site, **about}
            self._tracer.export(Span(name, ROLE, context, parent, began, self._clock.now(), about, failure, kind))


def dump_trace(value: TraceContext | OpenOrder) -> str:
    if not isinstance(value, OpenOrder):
        return json.dumps(str(value))
    contexts = str(value.context), str(value.parent)
    return json.dumps(
        [value.generation, value.kind.value, value.name, *contexts, value.began.isoformat(), value.reason]
    )


def load_trace(text: str) -> TraceContext | OpenOrder:
    """Raises anything for a text that `SiteTraces` cannot continue."""
    body = json.loads(text)
    if isinstance(body, str):
        return _context(body)
    generation, kind, name, context, parent, began, reason = body
    return OpenOrder(
        Generation(int(generation)),
        OrderKind(kind),
        str(name),
        _context(context),
        _context(parent),
        datetime.fromisoformat(began),
        str(reason),
    )


def _context(text: str) -> TraceContext:
    found = parse_context(text)
    if found is None:
        raise ValueError("it is not the context of a trace")
    return found
