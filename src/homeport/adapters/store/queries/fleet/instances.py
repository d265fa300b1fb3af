"""Instances: deployments on nodes, one row for each. A newer incarnation replaces the row of an older one."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Row, bindparam, delete, select, update

from homeport.adapters.store import schema
from homeport.adapters.store.commit.guards import put_all
from homeport.adapters.store.commit.statements import pieces
from homeport.adapters.store.databases.errors import SqlConnection
from homeport.adapters.store.rows import records
from homeport.core.model.instance import Failure, Instance, Unhealthy
from homeport.vocabulary import DeploymentId, NodeId, State

_INSTANCES = schema.instances.c
_KEY = (
    _INSTANCES.deployment_id == bindparam("key_deployment", type_=_INSTANCES.deployment_id.type),
    _INSTANCES.node_id == bindparam("key_node", type_=_INSTANCES.node_id.type),
)


async def find_instances(
    connection: SqlConnection, deployment_ids: Sequence[DeploymentId] | None
) -> Sequence[Instance]:
    query = select(schema.instances).order_by(_INSTANCES.deployment_id, _INSTANCES.node_id)
    if deployment_ids is None:
        return await records(connection, query, _instance, schema.instances)
    found: list[Instance] = []
    for piece in pieces(sorted(set(deployment_ids))):
        some = query.where(_INSTANCES.deployment_id.in_(piece))
        found += await records(connection, some, _instance, schema.instances)
    return found


async def put_instances(connection: SqlConnection, instances: Sequence[Instance]) -> None:
    rows = ((instance.key, _instance_row(instance)) for instance in instances)
    await put_all(connection, schema.instances, rows, _instance, only_if="incarnation")


async def drop_instances(connection: SqlConnection, keys: Sequence[tuple[DeploymentId, NodeId]]) -> None:
    if not keys:
        return
    parameters = [{"key_deployment": deployment, "key_node": node} for deployment, node in keys]
    await connection.run(delete(schema.instances).where(*_KEY), parameters)


async def set_steps(connection: SqlConnection, steps: Mapping[tuple[DeploymentId, NodeId], str]) -> None:
    if not steps:
        return
    statement = update(schema.instances).where(*_KEY).values(step=bindparam("new_step", type_=_INSTANCES.step.type))
    parameters = [
        {"key_deployment": deployment, "key_node": node, "new_step": step}
        for (deployment, node), step in steps.items()
    ]
    await connection.run(statement, parameters)


async def set_health(
    connection: SqlConnection, observed: Mapping[tuple[DeploymentId, NodeId], Unhealthy | None]
) -> None:
    if not observed:
        return
    statement = (
        update(schema.instances)
        .where(*_KEY)
        .values(
            unhealthy_since=bindparam("new_since", type_=_INSTANCES.unhealthy_since.type),
            unhealthy_why=bindparam("new_why", type_=_INSTANCES.unhealthy_why.type),
        )
    )
    parameters = [
        {
            "key_deployment": deployment,
            "key_node": node,
            "new_since": None if unhealthy is None else unhealthy.since,
            "new_why": None if unhealthy is None else unhealthy.why,
        }
        for (deployment, node), unhealthy in observed.items()
    ]
    await connection.run(statement, parameters)


def _instance(row: Row[Any]) -> Instance:
    return Instance(
        deployment_id=row.deployment_id,
        node_id=row.node_id,
        incarnation=row.incarnation,
        state=State(row.state),
        version=row.version,
        generation=row.generation,
        revision=row.revision,
        running_revision=row.running_revision,
        attempt=row.attempt,
        step=row.step,
        failure=to_failure(row),
        updated_at=row.updated_at,
        rejected_revision=row.rejected_revision,
        next_at=row.next_at,
        unhealthy=None if row.unhealthy_since is None else Unhealthy(row.unhealthy_since, row.unhealthy_why or ""),
        rejected_for=_failure(row.rejected_code, row.rejected_message, row.rejected_source),
    )


def _instance_row(instance: Instance) -> dict[str, Any]:
    return {
        "deployment_id": instance.deployment_id,
        "node_id": instance.node_id,
        "incarnation": instance.incarnation,
        "state": instance.state.value,
        "version": instance.version,
        "generation": instance.generation,
        "revision": instance.revision,
        "running_revision": instance.running_revision,
        "attempt": instance.attempt,
        "step": instance.step,
        "updated_at": instance.updated_at,
        "rejected_revision": instance.rejected_revision,
        "next_at": instance.next_at,
        "unhealthy_since": None if instance.unhealthy is None else instance.unhealthy.since,
        "unhealthy_why": None if instance.unhealthy is None else instance.unhealthy.why,
        **failure_columns(instance.failure),
        **_failure_columns("rejected", instance.rejected_for),
    }


def to_failure(row: Row[Any]) -> Failure | None:
    return _failure(row.failure_code, row.failure_message, row.failure_source)


def failure_columns(failure: Failure | None) -> dict[str, str | None]:
    return _failure_columns("failure", failure)


def _failure(code: str | None, message: str, source: str) -> Failure | None:
    return None if code is None else Failure(code, message, source)


def _failure_columns(prefix: str, failure: Failure | None) -> dict[str, str | None]:
    values = (None, None, None) if failure is None else (failure.code, failure.message, failure.source)
    return dict(zip((f"{prefix}_code", f"{prefix}_message", f"{prefix}_source"), values, strict=True))
