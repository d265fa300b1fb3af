"""Carries out the orders for deployments: `OrderWork` applies and removes releases, and the result is reported."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from homeport.capability.node import Done
from homeport.core.model.instance import Failure
from homeport.core.model.order import Order, Result
from homeport.core.node.entry import JournalEntry
from homeport.core.secrets import masked, secret_values
from homeport.errors import EngineUnavailable, HomeportError, WorkFailed
from homeport.log import get_log
from homeport.node.orders.tracing import OrderSpans
from homeport.node.orders.work import OrderWork, Trail
from homeport.node.watch.drift import runs
from homeport.ports import Clock, Observation, Runtime
from homeport.vocabulary import Code, DeploymentId, NodeId, OrderKind, Step

log = get_log("homeport.node")

SpansOf = Callable[[Order], OrderSpans]


class DeploymentHandler:
    def __init__(self, *, runtime: Runtime, work: OrderWork, clock: Clock, spans_of: SpansOf | None = None) -> None:
        self._runtime = runtime
        self._work = work
        self._clock = clock
        self._spans_of = spans_of or partial(OrderSpans, None, clock, NodeId(""))

    def accepted(self, order: Order) -> None:
        message = order.reason or f"{order.kind.value} accepted"
        self._work.tell(order.generation, order.deployment_id, Step.ACCEPTED, "", message)

    async def carry_out(self, entry: JournalEntry) -> Done:
        order = entry.order
        trail = Trail(self._spans_of(order))
        failure: Failure | None = None
        try:
            if order.kind is OrderKind.REMOVE:
                await self._work.remove(order, entry.components, trail)
            else:
                assert order.release is not None, "an order to apply carries a release"
                await self._work.apply(order, order.release, entry.components, trail)
        except WorkFailed as error:
            failure = Failure(error.code, str(error), error.source)
        except EngineUnavailable as error:
            failure = Failure(Code.ENGINE_UNREACHABLE, f"{error} {error.hint or ''}".strip())
        except Exception as error:
            # Last resort for this order: it must not end the workers of other deployments.
            log.exception("order failed with an internal error", deployment=order.deployment_id)
            failure = Failure(Code.INTERNAL, f"{type(error).__name__}: {error}")
        if failure is not None:
            # A program may have printed its secrets.
            failure = replace(failure, message=masked(failure.message, secret_values(order.release)))
        trail.spans.end(failure)
        return await self._done(entry, failure, has_changed=trail.has_changed)

    async def give_up(self, entry: JournalEntry, failure: Failure) -> Done:
        return await self._done(entry, failure, has_changed=True)

    async def refused(self, order: Order, failure: Failure, entry: JournalEntry | None) -> Result:
        # What runs was not touched, and the site must not try to restore it.
        return self._failed(order, failure, await self._observe(order.deployment_id) or (), entry)

    async def _done(self, entry: JournalEntry, failure: Failure | None, *, has_changed: bool) -> Done:
        order = entry.order
        if failure is None:
            result = Result(
                deployment_id=order.deployment_id,
                generation=order.generation,
                kind=order.kind,
                succeeded=True,
                at=self._clock.now(),
                deleted=order.kind is OrderKind.REMOVE,
                release_runs=order.kind is OrderKind.APPLY,
            )
            return Done(result)
        observed = await self._observe(order.deployment_id)
        result = self._failed(order, failure, observed or (), entry)
        return Done(result, keeps_good=result.release_runs or not has_changed)

    def _failed(
        self, order: Order, failure: Failure, observed: Sequence[Observation], entry: JournalEntry | None
    ) -> Result:
        is_removal = order.kind is OrderKind.REMOVE
        if is_removal and failure.code != Code.ENGINE_UNREACHABLE:
            failure = replace(failure, code=Code.REMOVE_FAILED)
        return Result(
            deployment_id=order.deployment_id,
            generation=order.generation,
            kind=order.kind,
            succeeded=False,
            at=self._clock.now(),
            failure=failure,
            exit_code=1 if is_removal else 0,
            release_runs=entry is not None and runs(entry.good, observed),
        )

    async def _observe(self, deployment_id: DeploymentId) -> Sequence[Observation] | None:
        try:
            return await self._runtime.observe(deployment_id)
        except HomeportError as error:
            log.warning("could not list running components", deployment=deployment_id, error=str(error))
            return None
