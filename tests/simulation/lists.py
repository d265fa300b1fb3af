"""Pages and counts of the lists in memory: what `adapters.store.queries.paging` leaves to a database."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from homeport.core.jobs.job import Job
from homeport.core.lifecycle.node import liveness_at_central
from homeport.core.model.access import AuditEntry
from homeport.core.model.event import Deployment, Site
from homeport.core.model.instance import Instance
from homeport.core.model.node import Node
from homeport.core.pipelines.model import Run
from homeport.core.values.filters import DRAINED, TEXT, Parts, contains, has_label, matches
from homeport.core.values.versions import version_order
from homeport.ports import (
    APPS,
    AUDIT,
    DEPLOYMENTS,
    HOLDS,
    IDENTITIES,
    JOBS,
    NODES,
    PIPELINE_RUNS,
    PIPELINES,
    ROLLOUTS,
    SECRETS,
    SITES,
    TOKENS,
    AtSites,
    AuditFilter,
    Counts,
    Cut,
    DeploymentFilter,
    JobFilter,
    Key,
    NodeFilter,
    Page,
    ReachWindow,
    RunFilter,
    SiteFilter,
)
from homeport.vocabulary import Liveness, State

if TYPE_CHECKING:
    from tests.simulation.store import Tables


@dataclass(frozen=True)
class Order:
    key: Callable[[Any], Key]
    down: Sequence[int] = ()
    """Which parts of the key go down."""


@dataclass(frozen=True)
class Source:
    rows: Callable[["Tables"], Iterable[Any]]
    fits: Callable[["Tables", Any, Any], bool]
    orders: Mapping[str, Order]
    column: Callable[["Tables", Any, Any, str], Any] = lambda _tables, row, _where, name: _plain(getattr(row, name))


def find_page(tables: "Tables", name: str, where: Any, cut: Cut) -> Page[Any]:
    source = SOURCES[name]
    order = source.orders[cut.order or next(iter(source.orders))]
    found = [row for row in source.rows(tables) if source.fits(tables, row, where)]
    for place in reversed(range(len(order.key(found[0])) if found else 0)):
        found.sort(key=lambda row: order.key(row)[place], reverse=place in order.down)
    if cut.after is not None:
        found = [row for row in found if _is_behind(order, order.key(row), cut.after)]
    shown = found if cut.limit is None else found[: cut.limit]
    return Page(shown, order.key(shown[-1]) if len(shown) < len(found) else None)


def find_counts(tables: "Tables", name: str, where: Any, by: Sequence[str]) -> Counts:
    source = SOURCES[name]
    found = [row for row in source.rows(tables) if source.fits(tables, row, where)]
    groups = Counter(tuple(source.column(tables, row, where, each) for each in by) for row in found)
    return groups if by else {(): len(found)}


def _is_behind(order: Order, key: Key, after: Key) -> bool:
    for place, (its, given) in enumerate(zip(key, after, strict=True)):
        if its != given:
            return bool(its < given if place in order.down else its > given)  # type: ignore[operator]
    return False


def _plain(value: Any) -> Any:
    return getattr(value, "value", value)


def _at(where: AtSites, site: str | None) -> bool:
    return where.site in (None, site) and (where.sites is None or site in where.sites)


def _equal(row: Any, where: Any, *names: str) -> bool:
    return all(getattr(where, name) in (None, getattr(row, name)) for name in names)


def _contains(where: Any, name: str) -> bool:
    return where.contains is None or where.contains.lower() in name.lower()


Words = Mapping[str, Callable[[str], bool]]


def _as_asked(parts: Parts, words: Words) -> bool:
    return all(part.holds(words[part.word]) for part in parts)


def _deployment_words(tables: "Tables", row: Deployment, own: Sequence[Instance]) -> Words:
    nodes = [node for each in own if (node := tables.nodes.get((row.site, each.node_id))) is not None]
    site = tables.sites.get(row.site)
    labels = [site.labels if site else {}, *(node.labels for node in nodes)]
    return {
        TEXT: lambda value: contains(value, f"{row.name}@{row.site}"),
        "site": lambda value: matches(value, row.site),
        "name": lambda value: matches(value, row.name),
        "app": lambda value: matches(value, row.app_name),
        "state": lambda value: matches(value, row.state.value),
        "node": lambda value: any(matches(value, i.node_id) for i in own if i.state is not State.DELETED),
        "code": lambda value: any(_failed_as(value, each) for each in own),
        "label": lambda value: any(has_label(value, each) for each in labels),
    }


def _failed_as(value: str, instance: Instance) -> bool:
    return instance.failure is not None and matches(value, instance.failure.code)


def _carried(tables: "Tables", site: str) -> list[tuple[Deployment, Instance | None]]:
    """The deployments of a site, once for each instance."""
    rows = [each for each in tables.deployments.values() if each.site == site and each.archived_at is None]
    own = {row.id: [each for key, each in tables.instances.items() if key[0] == row.id] for row in rows}
    none: list[Instance | None] = [None]
    return [(row, each) for row in rows for each in own[row.id] or none]


def _site_words(tables: "Tables", row: Site, in_reach: bool) -> Words:
    carried = _carried(tables, row.name)
    return {
        TEXT: lambda value: contains(value, row.name),
        "site": lambda value: matches(value, row.name),
        "node": lambda value: any(matches(value, node.id) for node in tables.nodes.values() if node.site == row.name),
        "app": lambda value: any(matches(value, each.app_name) for each, _ in carried),
        "state": lambda value: (
            matches(value, "live" if in_reach else "lost")
            or any(matches(value, each.state.value) for each, _ in carried)
        ),
        "code": lambda value: any(own is not None and _failed_as(value, own) for _, own in carried),
        "label": lambda value: has_label(value, row.labels),
    }


def _node_words(tables: "Tables", row: Node, seen: Liveness) -> Words:
    here = [
        (each, own)
        for each, own in _carried(tables, row.site)
        if own is not None and own.node_id == row.id and own.state is not State.DELETED
    ]
    site = tables.sites.get(row.site)
    return {
        TEXT: lambda value: contains(value, f"{row.id}@{row.site}"),
        "site": lambda value: matches(value, row.site),
        "node": lambda value: matches(value, row.id),
        "app": lambda value: any(matches(value, each.app_name) for each, _ in here),
        "state": lambda value: (
            matches(value, seen.value)
            or (row.drain is not None and matches(value, DRAINED))
            or any(matches(value, own.state.value) for _, own in here)
        ),
        "code": lambda value: any(_failed_as(value, own) for _, own in here),
        "label": lambda value: any(has_label(value, each) for each in (row.labels, site.labels if site else {})),
    }


def _deployment_fits(tables: "Tables", row: Deployment, where: DeploymentFilter) -> bool:
    own = [each for key, each in tables.instances.items() if key[0] == row.id]
    return (
        (row.archived_at is not None) == where.archived
        and _at(where, row.site)
        and _contains(where, f"{row.name}@{row.site}")
        and _equal(row, where, "name", "app_name", "state", "rollout_id")
        and _as_asked(where.parts, _deployment_words(tables, row, own))
        and (where.node is None or any((i.node_id, i.state is State.DELETED) == (where.node, False) for i in own))
        and (
            not where.attention
            or row.state is State.FAILED
            or row.problem is not None
            or any(each.unhealthy is not None for each in own)
            or (row.state is State.INSTALLED and any(_runs_another(each.running_revision, row) for each in own))
        )
    )


def _run_fits(_tables: "Tables", row: Run, where: RunFilter) -> bool:
    return (
        _at(where, row.site or "")
        and where.pipeline in (None, row.pipeline)
        and where.depth in (None, row.depth)
        and (where.states is None or row.state in where.states)
    )


def _job_fits(_tables: "Tables", row: Job, where: JobFilter) -> bool:
    return (
        _at(where, row.site)
        and _contains(where, f"{row.id}@{row.site}")
        and (where.states is None or row.state in where.states)
        and where.node in (None, row.node_id)
        and where.delivered in (None, row.is_delivered)
        and where.cancelled in (None, row.cancelled_by is not None)
    )


def _runs_another(running: str | None, row: Deployment) -> bool:
    return running is not None and running != row.revision


def _in_reach(site: Site | None, window: ReachWindow | None) -> bool:
    if window is None:
        return True
    return site is not None and site.last_seen is not None and window.begin < site.last_seen < window.end


def _site_fits(tables: "Tables", row: Site, where: SiteFilter) -> bool:
    in_reach = _in_reach(row, where.window)
    return (
        _at(where, row.name)
        and _contains(where, row.name)
        and _as_asked(where.parts, _site_words(tables, row, in_reach))
        and where.selector.unmet(row.labels) is None
        and where.in_reach in (None, in_reach)
        and (not where.attention or row.problem is not None or not in_reach)
    )


def _liveness(tables: "Tables", node: Node, where: NodeFilter) -> Liveness:
    heard = _in_reach(tables.sites.get(node.site), where.window)
    return liveness_at_central(node, is_site_reachable=heard)


def _node_fits(tables: "Tables", row: Node, where: NodeFilter) -> bool:
    seen = _liveness(tables, row, where)
    return (
        _at(where, row.site)
        and _contains(where, f"{row.id}@{row.site}")
        and _as_asked(where.parts, _node_words(tables, row, seen))
        and (where.ids is None or row.id in where.ids)
        and where.liveness in (None, seen)
        and (not where.attention or row.problem is not None or seen in (Liveness.STALE, Liveness.LOST))
    )


def _node_column(tables: "Tables", row: Node, where: NodeFilter, name: str) -> Any:
    return _liveness(tables, row, where).value if name == "liveness" else _plain(getattr(row, name))


def _entry_fits(_tables: "Tables", row: AuditEntry, where: AuditFilter) -> bool:
    return (
        where.actor in (None, row.entry.actor)
        and (where.action is None or f"{row.entry.action}.".startswith(f"{where.action}."))
        and (where.since is None or row.entry.at >= where.since)
    )


# fmt: off
SOURCES: Final[Mapping[str, Source]] = {
    APPS.name: Source(
        lambda tables: tables.apps.values(),
        lambda _, row, where: (
            _equal(row, where, "category", "app_name", "version") and _contains(where, row.app_name)
        ),
        {
            "name": Order(lambda row: (row.category, row.app_name, version_order(row.version), row.id), down=(2,)),
            "added": Order(lambda row: (row.added_at, row.id), down=(0, 1)),
        },
    ),
    AUDIT.name: Source(
        lambda tables: tables.audit, _entry_fits,
        {"newest": Order(lambda row: (row.position,), down=(0,)), "oldest": Order(lambda row: (row.position,))},
    ),
    DEPLOYMENTS.name: Source(
        lambda tables: tables.deployments.values(), _deployment_fits,
        {
            "site": Order(lambda row: (row.site, row.name, row.id)),
            "updated": Order(lambda row: (row.updated_at, row.id), down=(0, 1)),
        },
    ),
    HOLDS.name: Source(
        lambda tables: [each for held in tables.holds.values() for each in held],
        lambda _, row, where: _at(where, row.site),
        {"site": Order(lambda row: (row.site, row.deployment_id or ""))},
    ),
    IDENTITIES.name: Source(
        lambda tables: tables.identities.values(),
        lambda _, row, where: _equal(row, where, "standing", "kind"),
        {
            "name": Order(lambda row: (row.spiffe_id,)),
            "requested": Order(lambda row: (row.requested_at, row.spiffe_id), down=(0, 1)),
        },
    ),
    JOBS.name: Source(
        lambda tables: tables.jobs.values(), _job_fits,
        {
            "created": Order(lambda row: (row.created_at, row.site, row.id), down=(0, 1, 2)),
            "oldest": Order(lambda row: (row.created_at, row.site, row.id)),
            "updated": Order(lambda row: (row.updated_at, row.site, row.id), down=(0, 1, 2)),
        },
    ),
    NODES.name: Source(
        lambda tables: tables.nodes.values(), _node_fits,
        {
            "site": Order(lambda row: (row.site, row.id)),
            "seen": Order(lambda row: (row.last_seen, row.site, row.id), down=(0, 1, 2)),
        },
        _node_column,
    ),
    PIPELINES.name: Source(
        lambda tables: tables.pipelines.values(), lambda _, row, where: _at(where, row.site or ""),
        {"name": Order(lambda row: (row.name,))},
    ),
    PIPELINE_RUNS.name: Source(
        lambda tables: tables.pipeline_runs.values(), _run_fits,
        {
            "created": Order(lambda row: (row.created_at, row.id), down=(0, 1)),
            "oldest": Order(lambda row: (row.created_at, row.id)),
        },
    ),
    ROLLOUTS.name: Source(
        lambda tables: tables.rollouts.values(),
        lambda _, row, where: (
            where.name in (None, row.name) and _contains(where, row.name)
            and (where.states is None or row.state in where.states)
        ),
        {"created": Order(lambda row: (row.created_at, row.id), down=(0, 1))},
    ),
    SECRETS.name: Source(
        lambda tables: tables.secrets.values(), lambda _, row, where: _at(where, row.site),
        {"site": Order(lambda row: (row.site, row.name))},
    ),
    SITES.name: Source(
        lambda tables: tables.sites.values(), _site_fits,
        {
            "name": Order(lambda row: (row.name,)),
            "joined": Order(lambda row: (row.joined_at, row.name), down=(0, 1)),
        },
    ),
    TOKENS.name: Source(
        lambda tables: tables.tokens.values(), lambda _tables, _row, _where: True,
        {"created": Order(lambda row: (row.created_at, row.id))},
    ),
}
# fmt: on
