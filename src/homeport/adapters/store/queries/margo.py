"""What central keeps of Margo clients. Every query names the clients it is for."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Row, bindparam, delete, func, select

from homeport.adapters.store import schema
from homeport.adapters.store.columns import from_json, object_from_json, to_json
from homeport.adapters.store.commit.statements import insert_or_update, pieces
from homeport.adapters.store.databases.errors import SqlConnection
from homeport.adapters.store.rows import record, records
from homeport.core.margo.records import ManifestArtifact, ManifestRecord, MargoDevice, StatusRecord
from homeport.vocabulary import DeploymentId, Digest, SiteName

_MANIFESTS = schema.margo_manifests.c
_ARTIFACTS = schema.margo_artifacts.c
_DEVICES = schema.margo_devices.c
_STATUSES = schema.margo_statuses.c
_DROP_ARTIFACTS = delete(schema.margo_artifacts).where(
    _ARTIFACTS.site == bindparam("of_site"), _ARTIFACTS.manifest_version < bindparam("before_version")
)


async def find_manifests(
    connection: SqlConnection, sites: Sequence[SiteName], *, for_update: bool = False
) -> Sequence[ManifestRecord]:
    """Locked in one order, so that two replicas never wait for each other."""
    query = select(schema.margo_manifests).order_by(_MANIFESTS.site)
    if for_update and connection.is_postgresql:
        query = query.with_for_update()
    found: list[ManifestRecord] = []
    for piece in pieces(sorted(sites)):
        found += await records(connection, query.where(_MANIFESTS.site.in_(piece)), _manifest, schema.margo_manifests)
    return found


async def put_manifests(connection: SqlConnection, records: Sequence[ManifestRecord]) -> None:
    rows = [
        {
            "site": record.site,
            "manifest_version": record.version,
            "body": record.body,
            "recent": to_json(list(record.recent)),
            "rendered_at": record.rendered_at,
        }
        for record in records
    ]
    if rows:
        await connection.run(insert_or_update(connection, schema.margo_manifests, only_if="manifest_version"), rows)


async def find_artifact(connection: SqlConnection, site: SiteName, digest: Digest) -> ManifestArtifact | None:
    query = select(schema.margo_artifacts).where(_ARTIFACTS.site == site, _ARTIFACTS.digest == digest)
    return await record(connection, query, _artifact, schema.margo_artifacts)


def _artifact(row: Row[Any]) -> ManifestArtifact:
    return ManifestArtifact(row.site, row.digest, row.deployment_id, row.content, row.manifest_version)


async def put_artifacts(connection: SqlConnection, artifacts: Sequence[ManifestArtifact]) -> None:
    rows = [
        {
            "site": each.site,
            "digest": each.digest,
            "deployment_id": each.deployment_id,
            "content": each.content,
            "manifest_version": each.version,
        }
        for each in artifacts
    ]
    if rows:
        await connection.run(insert_or_update(connection, schema.margo_artifacts), rows)


async def drop_artifacts(connection: SqlConnection, before: Mapping[SiteName, int]) -> None:
    rows = [{"of_site": site, "before_version": version} for site, version in before.items()]
    if rows:
        await connection.run(_DROP_ARTIFACTS, rows)


async def find_devices(connection: SqlConnection, site: SiteName) -> Sequence[MargoDevice]:
    query = select(schema.margo_devices).where(_DEVICES.site == site).order_by(_DEVICES.id)
    return await records(connection, query, _device, schema.margo_devices)


async def find_device_ids(connection: SqlConnection, site: SiteName, among: Sequence[str] | None) -> Sequence[str]:
    query = select(_DEVICES.id).where(_DEVICES.site == site)
    if among is not None:
        query = query.where(_DEVICES.id.in_(among))
    return await records(connection, query, lambda row: str(row.id), schema.margo_devices)


async def find_devices_of(connection: SqlConnection, sites: Sequence[SiteName]) -> Sequence[MargoDevice]:
    query = select(schema.margo_devices)
    found: list[MargoDevice] = []
    for piece in pieces(sites):
        found += await records(connection, query.where(_DEVICES.site.in_(piece)), _device, schema.margo_devices)
    return found


async def count_devices(connection: SqlConnection) -> Mapping[SiteName, int]:
    query = select(_DEVICES.site, func.count().label("devices")).group_by(_DEVICES.site)
    return {SiteName(row.site): int(row.devices) for row in await connection.rows(query)}


async def put_device(connection: SqlConnection, device: MargoDevice) -> None:
    row = {
        "site": device.site,
        "id": device.id,
        "properties": to_json(device.properties),
        "labels": to_json(device.labels),
        "extensions": to_json(device.extensions),
        "reported_at": device.reported_at,
    }
    await connection.run(insert_or_update(connection, schema.margo_devices), row)


async def drop_devices(connection: SqlConnection, site: SiteName, ids: Sequence[str]) -> None:
    if ids:
        await connection.run(delete(schema.margo_devices).where(_DEVICES.site == site, _DEVICES.id.in_(ids)))


async def find_statuses(
    connection: SqlConnection, site: SiteName, deployment_id: DeploymentId | None
) -> Sequence[StatusRecord]:
    query = select(schema.margo_statuses).where(_STATUSES.site == site)
    if deployment_id is not None:
        query = query.where(_STATUSES.deployment_id == deployment_id)
    query = query.order_by(_STATUSES.deployment_id, _STATUSES.device_id)
    return await records(connection, query, _status, schema.margo_statuses)


async def put_status(connection: SqlConnection, status: StatusRecord) -> None:
    row = {
        "site": status.site,
        "deployment_id": status.deployment_id,
        "device_id": status.device_id,
        "adopted_version": status.adopted_version,
        "state": status.state,
        "error": None if status.error is None else to_json(status.error),
        "components": to_json(list(status.components)),
        "at": status.at,
    }
    await connection.run(insert_or_update(connection, schema.margo_statuses), row)


async def drop_client(connection: SqlConnection, site: SiteName) -> None:
    """Everything but the manifest, whose version must never be used again."""
    await connection.run(delete(schema.margo_devices).where(_DEVICES.site == site))
    await connection.run(delete(schema.margo_statuses).where(_STATUSES.site == site))
    await connection.run(delete(schema.margo_artifacts).where(_ARTIFACTS.site == site))


def _manifest(row: Row[Any]) -> ManifestRecord:
    recent = _recent(from_json(row.recent))
    return ManifestRecord(SiteName(row.site), row.manifest_version, row.body, recent, row.rendered_at)


def _recent(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(each) is int for each in value):
        raise ValueError("recent is not a JSON list of numbers")
    return tuple(value)


def _device(row: Row[Any]) -> MargoDevice:
    return MargoDevice(
        SiteName(row.site),
        row.id,
        object_from_json(row.properties),
        object_from_json(row.labels),
        row.reported_at,
        object_from_json(row.extensions),
    )


def _status(row: Row[Any]) -> StatusRecord:
    return StatusRecord(
        SiteName(row.site),
        DeploymentId(row.deployment_id),
        row.device_id,
        row.adopted_version,
        row.state,
        None if row.error is None else object_from_json(row.error),
        from_json(row.components),
        row.at,
    )
