"""The values of a word of the filter language, with how many items of a list each would leave: offered while
an operator types.

Candidates come from the fleet as a whole, and each is counted together with the rest of the filter, so that the
number is what choosing it gives.
"""

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from homeport.core.values.filters import DRAINED, LENGTH_MAX, Part, Parts, contains
from homeport.lazy_dataclass import dataclass
from homeport.ports import (
    DEPLOYMENTS,
    NODES,
    SITES,
    Cut,
    DeploymentFilter,
    NodeFilter,
    ReachWindow,
    SeenReader,
    SiteFilter,
)
from homeport.vocabulary import Liveness, State

VALUES_MAX: Final = 10
READ_MAX: Final = 1_000
"""Rows from which labels and codes are gathered."""
_STATES: Final = [state.value for state in State if state is not State.DELETED]


class Filtered(StrEnum):
    """The lists that read the filter language."""

    DEPLOYMENTS = "deployments"
    NODES = "nodes"
    SITES = "sites"


@dataclass(frozen=True, slots=True)
class FilterValue:
    value: str
    count: int


async def filter_values(
    reader: SeenReader, filtered: Filtered, word: str, text: str, *, parts: Parts, window: ReachWindow | None
) -> list[FilterValue]:
    """At most `VALUES_MAX` that contain `text`, those with most items first; none that would leave nothing."""
    found = []
    for value in await _candidates(reader, filtered, word, text):
        if len(value) > LENGTH_MAX:
            continue  # it cannot be written in a filter
        count = await _count(reader, filtered, (*parts, Part(word, (value,))), window)
        if count:
            found.append(FilterValue(value, count))
    return sorted(found, key=lambda each: (-each.count, each.value))


async def _count(reader: SeenReader, filtered: Filtered, parts: Parts, window: ReachWindow | None) -> int:
    match filtered:
        case Filtered.DEPLOYMENTS:
            return (await reader.counts(DEPLOYMENTS, DeploymentFilter(parts=parts)))[()]
        case Filtered.NODES:
            return (await reader.counts(NODES, NodeFilter(parts=parts, window=window)))[()]
        case Filtered.SITES:
            return (await reader.counts(SITES, SiteFilter(parts=parts, window=window)))[()]


async def _candidates(reader: SeenReader, filtered: Filtered, word: str, text: str) -> Sequence[str]:
    wanted = (Part(word, (f"*{text}*",)),)
    match word:
        case "site":
            return [row.name for row in (await reader.page(SITES, SiteFilter(parts=wanted), Cut(VALUES_MAX))).items]
        case "node":
            nodes = await reader.page(NODES, NodeFilter(parts=wanted), Cut(VALUES_MAX))
            return list(dict.fromkeys(row.id for row in nodes.items))
        case "state":
            return [each for each in _states(filtered) if contains(text, each)]
        case "label":
            return _commonest(await _labels(reader), text)
        case "code":
            return _commonest(await _codes(reader, DeploymentFilter(parts=wanted)), text)
        case _:
            column = "app_name" if word == "app" else "name"
            counts = await reader.counts(DEPLOYMENTS, DeploymentFilter(parts=wanted), (column,))
            return _commonest(Counter({str(key[0]): count for key, count in counts.items()}), text)


def _states(filtered: Filtered) -> list[str]:
    match filtered:
        case Filtered.DEPLOYMENTS:
            return _STATES
        case Filtered.NODES:
            return [*(each.value for each in Liveness), DRAINED, *_STATES]
        case Filtered.SITES:
            return [Liveness.LIVE.value, Liveness.LOST.value, *_STATES]


def _commonest(values: Counter[str], text: str) -> list[str]:
    fitting = [(value, count) for value, count in values.items() if contains(text, value)]
    return [value for value, _ in sorted(fitting, key=lambda each: (-each[1], each[0]))[:VALUES_MAX]]


async def _labels(reader: SeenReader) -> Counter[str]:
    sites = (await reader.page(SITES, SiteFilter(), Cut(READ_MAX))).items
    nodes = (await reader.page(NODES, NodeFilter(), Cut(READ_MAX))).items
    labels = [*(site.labels for site in sites), *(node.labels for node in nodes)]
    return Counter(f"{key}={value}" for each in labels for key, value in each.items())


async def _codes(reader: SeenReader, where: DeploymentFilter) -> Counter[str]:
    rows = (await reader.page(DEPLOYMENTS, where, Cut(READ_MAX))).items
    instances = await reader.instances([row.id for row in rows]) if rows else ()
    return Counter(each.failure.code for each in instances if each.failure is not None)
