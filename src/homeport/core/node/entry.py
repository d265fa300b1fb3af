"""A node's record of one piece of work: the newest order, how it ended, and the last good release."""

from dataclasses import replace
from enum import StrEnum

from homeport.core.model.deployment import Release
from homeport.core.model.instance import Unhealthy
from homeport.core.model.order import Held, Order, Progress, Result
from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import OrderKind


class OrderOutcome(StrEnum):
    PENDING = "pending"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class JournalEntry:
    order: Order
    result: Result | None = None
    """None while the order is being carried out, also across a crash."""
    good: Release | None = None
    """The last release that was healthy here; failed updates do not change it."""
    keeps_good: bool = False
    """After a failed update: whether `good` is untouched and must be kept running."""
    components: frozenset[str] = frozenset()
    """Every component that may have left something here, so that a removal misses none."""
    starts: int = 1
    """How often the order was started; more than once only after the node was killed."""
    unhealthy: Unhealthy | None = None
    """The health problem that was reported to the site; None while healthy."""

    @property
    def outcome(self) -> OrderOutcome:
        if self.result is None:
            return OrderOutcome.PENDING
        return OrderOutcome.SUCCEEDED if self.result.succeeded else OrderOutcome.FAILED

    @property
    def held(self) -> Held:
        release = self.order.release
        return Held(
            deployment_id=self.order.deployment_id,
            generation=self.order.generation,
            kind=self.order.kind,
            revision=None if release is None else release.revision,
            done=self.result is not None and (self.result.succeeded or self.order.kind is OrderKind.APPLY),
            failed=self.outcome is OrderOutcome.FAILED,
            unhealthy=self.unhealthy,
            good_revision=None if self.good is None else self.good.revision,
            rejection=self.order.rejection,
            work=self.order.work,
        )

    @property
    def kept_release(self) -> Release | None:
        """The release that must run here while no order is being carried out; None when none must.

        A failed update that has already replaced something is not undone here: whether to roll back or to retry is
        the site's decision, because the site has the policy.
        """
        if self.order.kind is OrderKind.REMOVE or self.result is None:
            return None
        if self.result.succeeded:
            return self.order.release
        return self.good if self.keeps_good else None


def accepted(order: Order, before: JournalEntry | None) -> JournalEntry:
    """The entry after a newer order was accepted."""
    names = {part.name for part in order.release.components} if order.release else set()
    return JournalEntry(
        order=order,
        good=before.good if before else None,
        components=frozenset(names | (before.components if before else frozenset())),
    )


def ended(entry: JournalEntry, result: Result, *, keeps_good: bool) -> JournalEntry:
    """The entry after its order ended."""
    order = entry.order
    if not result.succeeded:
        return JournalEntry(order, result, entry.good, keeps_good and entry.good is not None, entry.components)
    if order.release is None:
        return JournalEntry(order, result)
    names = frozenset(part.name for part in order.release.components)
    return JournalEntry(order, result, good=order.release, components=names)


def told_health(entry: JournalEntry, progress: Progress) -> JournalEntry:
    """The entry after its health was reported to the site."""
    if progress.healthy:
        return replace(entry, unhealthy=None)
    since = progress.at if entry.unhealthy is None else entry.unhealthy.since
    return replace(entry, unhealthy=Unhealthy(since, progress.message))
