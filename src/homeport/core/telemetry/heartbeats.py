"""The heartbeat timeline of a node: intervals in which it was live, stale or lost, and gaps in which its site did not
run or was not there to see it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import Liveness, NodeId

INTERVALS_MAX: Final = 1_000
"""Of one node in one answer; the newest."""
KEEP_DAYS: Final = 30


@dataclass(frozen=True, slots=True)
class Interval:
    node_id: NodeId
    start: datetime
    state: Liveness
    """UNKNOWN for a gap."""
    end: datetime | None = None
    """None while it lasts."""


def observe(
    open_intervals: Mapping[NodeId, Interval], seen: Mapping[NodeId, Liveness], now: datetime
) -> Sequence[Interval]:
    """The intervals that begin or end now. A node that was removed ends its last one."""
    changed: list[Interval] = []
    for node_id, liveness in seen.items():
        before = open_intervals.get(node_id)
        if before is not None and before.state is liveness:
            continue
        if before is not None:
            changed.append(replace(before, end=max(now, before.start)))
        changed.append(Interval(node_id, now, liveness))
    changed += [replace(each, end=max(now, each.start)) for node, each in open_intervals.items() if node not in seen]
    return changed


def interrupted(open_intervals: Iterable[Interval], observed_until: datetime) -> Sequence[Interval]:
    """What was open when the site stopped: it ends at the last time the site looked."""
    return [replace(each, end=max(observed_until, each.start)) for each in open_intervals]


def timeline(intervals: Iterable[Interval], *, start: datetime, end: datetime, until: datetime) -> Sequence[Interval]:
    """The intervals within a range, oldest first, with gaps as intervals of their own. Nothing is known after
    `until`, the last time the site is known to have looked."""
    shown: list[Interval] = []
    position = start
    for each in sorted(intervals, key=lambda interval: interval.start):
        first, last = max(each.start, position), min(each.end or until, end)
        if last <= first:
            continue
        if shown and first > position:
            shown.append(Interval(each.node_id, position, Liveness.UNKNOWN, first))
        shown.append(replace(each, start=first, end=last))
        position = last
    if shown and position < end:
        shown.append(Interval(shown[-1].node_id, position, Liveness.UNKNOWN, end))
    return shown[-INTERVALS_MAX:]
