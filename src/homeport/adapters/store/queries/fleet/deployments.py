"""Deployments: their desired state, and the state derived from their instances."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, Row, and_, exists, or_, select

from homeport.adapters.store import schema
from homeport.adapters.store.columns import object_from_json, to_json
from homeport.adapters.store.commit.guards import put_all
from homeport.adapters.store.commit.statements import pieces
from homeport.adapters.store.databases.errors import SqlConnection
from homeport.adapters.store.queries.paging import (
    Conditions,
    ListSource,
    SortOrder,
    at_sites,
    containing,
    labelled_as,
    like,
    matching,
)
from homeport.adapters.store.rows import record, records
from homeport.core.model.event import Deployment
from homeport.core.values.filters import TEXT
from homeport.ports import DeploymentFilter
from homeport.vocabulary import DeploymentId, State

_DEPLOYMENTS = schema.deployments.c
_INSTANCES = schema.instances.c
_SITES = schema.sites.c
_NODES = schema.nodes.c
_NAMES: Final = tuple(column.name for column in schema.deployments.columns)
_BY_SITE = (_DEPLOYMENTS.site, _DEPLOYMENTS.name, _DEPLOYMENTS.id)


async def find_deployment(connection: SqlConnection, deployment_id: DeploymentId) -> Deployment | None:
    query = select(schema.deployments).where(_DEPLOYMENTS.id == deployment_id)
    return await record(connection, query, _deployment, schema.deployments)


async def find_by_ids(connection: SqlConnection, deployment_ids: Sequence[DeploymentId]) -> Sequence[Deployment]:
    found: list[Deployment] = []
    for piece in pieces(sorted(set(deployment_ids))):
        query = select(schema.deployments).where(_DEPLOYMENTS.id.in_(piece))
        found += await records(connection, query, _deployment, schema.deployments)
    return sorted(found, key=lambda deployment: (deployment.site, deployment.name, deployment.id))


async def find_by_prefix(connection: SqlConnection, prefix: str) -> Sequence[Deployment]:
    """As a range of the key, so that both databases use its index."""
    query = select(schema.deployments).order_by(*_BY_SITE)
    if prefix:
        behind = prefix[:-1] + chr(min(ord(prefix[-1]) + 1, 0x10FFFF))
        query = query.where(_DEPLOYMENTS.id >= prefix, _DEPLOYMENTS.id < behind)
    return await records(connection, query, _deployment, schema.deployments)


async def put_deployments(connection: SqlConnection, deployments: Sequence[Deployment]) -> None:
    rows = ((deployment.id, _deployment_row(deployment)) for deployment in deployments)
    await put_all(connection, schema.deployments, rows, _deployment)


def _conditions(where: DeploymentFilter) -> Conditions:
    archived = _DEPLOYMENTS.archived_at
    found = [archived.is_not(None) if where.archived else archived.is_(None), *at_sites(where, _DEPLOYMENTS.site)]
    for column, value in (
        (_DEPLOYMENTS.name, where.name),
        (_DEPLOYMENTS.app_name, where.app_name),
        (_DEPLOYMENTS.state, where.state),
        (_DEPLOYMENTS.rollout_id, where.rollout_id),
    ):
        if value is not None:
            found.append(column == str(value))
    found += containing(where.contains, _DEPLOYMENTS.name + "@" + _DEPLOYMENTS.site)
    found += matching(where.parts, _WORDS)
    if where.node is not None:
        found.append(_has_instance(_INSTANCES.node_id == where.node, _INSTANCES.state != State.DELETED.value))
    if where.attention:
        found.append(_needs_attention())
    return found


def _needs_attention() -> ColumnElement[bool]:
    """One subquery on the instances of each: two would take half as long again."""
    is_at_rest = _DEPLOYMENTS.state == State.INSTALLED.value
    runs_another = and_(is_at_rest, _INSTANCES.running_revision != _DEPLOYMENTS.revision)
    return or_(
        _DEPLOYMENTS.state == State.FAILED.value,
        _DEPLOYMENTS.problem.is_not(None),
        _has_instance(or_(_INSTANCES.unhealthy_since.is_not(None), runs_another)),
    )


def _has_instance(*conditions: ColumnElement[bool]) -> ColumnElement[bool]:
    return exists().where(_INSTANCES.deployment_id == _DEPLOYMENTS.id, *conditions)


def _has_failed_as(pattern: str) -> ColumnElement[bool]:
    return _has_instance(_INSTANCES.failure_code.is_not(None), like(pattern, _INSTANCES.failure_code))


def _is_labelled(value: str) -> ColumnElement[bool]:
    """Its site is, or a node that has it."""
    sites = select(_SITES.name).where(labelled_as(value, _SITES.labels))
    is_there = (_NODES.site == _DEPLOYMENTS.site, _NODES.id == _INSTANCES.node_id)
    return or_(
        _DEPLOYMENTS.site.in_(sites), _has_instance(*is_there, labelled_as(value, _NODES.labels, _NODES.tunable))
    )


_WORDS: Final[Mapping[str, Callable[[str], ColumnElement[bool]]]] = {
    TEXT: lambda value: like(value, _DEPLOYMENTS.name + "@" + _DEPLOYMENTS.site, within=True),
    "site": lambda value: like(value, _DEPLOYMENTS.site),
    "name": lambda value: like(value, _DEPLOYMENTS.name),
    "app": lambda value: like(value, _DEPLOYMENTS.app_name),
    "state": lambda value: like(value, _DEPLOYMENTS.state),
    "node": lambda value: _has_instance(like(value, _INSTANCES.node_id), _INSTANCES.state != State.DELETED.value),
    "code": _has_failed_as,
    "label": _is_labelled,
}


def _deployment(row: Row[Any]) -> Deployment:
    values: dict[str, Any] = dict(zip(_NAMES, row, strict=True))
    values["parameters"] = object_from_json(values["parameters"])
    values["state"] = State(values["state"])
    return Deployment(**values)


def _deployment_row(deployment: Deployment) -> dict[str, Any]:
    row = {name: getattr(deployment, name) for name in _NAMES}
    row["parameters"] = to_json(deployment.parameters)
    row["state"] = deployment.state.value
    return row


SOURCE: ListSource[Deployment, DeploymentFilter] = ListSource(
    table=schema.deployments,
    record=_deployment,
    conditions=_conditions,
    words={"state": State},
    orders={
        "site": SortOrder(_BY_SITE),
        "updated": SortOrder((_DEPLOYMENTS.updated_at, _DEPLOYMENTS.id), descending=frozenset({"updated_at", "id"})),
    },
)
