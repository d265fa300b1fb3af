"""The catalog: apps with their profiles and components."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, delete, insert, select

from homeport.adapters.store import schema
from homeport.adapters.store.columns import object_from_json, to_json
from homeport.adapters.store.commit.guards import drop_unreadable
from homeport.adapters.store.commit.statements import insert_or_nothing
from homeport.adapters.store.databases.errors import SqlConnection
from homeport.adapters.store.queries.paging import Conditions, ListSource, SortOrder, containing
from homeport.adapters.store.rows import record, records
from homeport.core.values.stored import strings_of
from homeport.core.values.versions import version_order
from homeport.errors import Conflict
from homeport.ports import AppFilter, AppRecord, ComponentRecord, ProfileRecord
from homeport.vocabulary import AppId, ProfileType

_APPS = schema.apps.c


async def find_app(connection: SqlConnection, app_id: AppId) -> AppRecord | None:
    return await record(connection, select(schema.apps).where(_APPS.id == app_id), _app, schema.apps)


async def find_profiles(connection: SqlConnection, app_id: AppId) -> Sequence[ProfileRecord]:
    columns = schema.profiles.c
    query = select(schema.profiles).where(columns.app_id == app_id).order_by(columns.position)
    return await records(connection, query, _profile, schema.profiles)


async def find_components(connection: SqlConnection, app_id: AppId) -> Sequence[ComponentRecord]:
    """In the order of their profiles, and within each in their own order."""
    columns, profile = schema.components.c, schema.profiles.c
    query = (
        select(schema.components)
        .join(schema.profiles)
        .where(columns.app_id == app_id)
        .order_by(profile.position, columns.position)
    )
    return await records(connection, query, _component, schema.components)


async def add_app(
    connection: SqlConnection,
    app: AppRecord,
    profiles: Sequence[ProfileRecord],
    components: Sequence[ComponentRecord],
) -> None:
    row = {
        "id": app.id,
        "category": app.category,
        "app_name": app.app_name,
        "version": app.version,
        "version_order": version_order(app.version),
        "margo_id": app.margo_id,
        "name": app.name,
        "vendor": app.vendor,
        "description": app.description,
        "tags": to_json(list(app.tags)),
        "descriptor": to_json(app.descriptor),
        "source": app.source,
        "repository": app.repository,
        "commit": app.commit,
        "added_at": app.added_at,
        "added_by": app.added_by,
    }
    is_it = (_APPS.category == app.category, _APPS.app_name == app.app_name, _APPS.version == app.version)
    await drop_unreadable(connection, schema.apps, is_it, _app)
    if not await connection.rows(insert_or_nothing(connection, schema.apps).returning(_APPS.id), row):
        raise Conflict(f'The app "{app.category}/{app.app_name}" is already there in version {app.version}.')
    if profiles:
        await connection.run(insert(schema.profiles), [_profile_row(profile) for profile in profiles])
    if components:
        await connection.run(insert(schema.components), [_component_row(component) for component in components])


async def remove_app(connection: SqlConnection, app_id: AppId) -> None:
    await connection.run(delete(schema.apps).where(_APPS.id == app_id))


def _app(row: Row[Any]) -> AppRecord:
    values = dict(row._mapping)
    values["tags"] = strings_of(values["tags"])
    values["descriptor"] = object_from_json(values["descriptor"])
    del values["version_order"]
    return AppRecord(**values)


def _profile(row: Row[Any]) -> ProfileRecord:
    constraints = row.device_constraints
    return ProfileRecord(
        app_id=row.app_id,
        position=row.position,
        profile_id=row.profile_id,
        type=ProfileType(row.type),
        description=row.description,
        device_constraints=None if constraints is None else object_from_json(constraints),
    )


def _profile_row(profile: ProfileRecord) -> dict[str, Any]:
    constraints = profile.device_constraints
    return {
        "app_id": profile.app_id,
        "position": profile.position,
        "profile_id": profile.profile_id,
        "type": profile.type.value,
        "description": profile.description,
        "device_constraints": None if constraints is None else to_json(constraints),
    }


def _component(row: Row[Any]) -> ComponentRecord:
    return ComponentRecord(
        app_id=row.app_id,
        profile_id=row.profile_id,
        position=row.position,
        name=row.name,
        properties=object_from_json(row.properties),
    )


def _component_row(component: ComponentRecord) -> dict[str, Any]:
    return {
        "app_id": component.app_id,
        "profile_id": component.profile_id,
        "position": component.position,
        "name": component.name,
        "properties": to_json(component.properties),
    }


def _conditions(where: AppFilter) -> Conditions:
    wanted = ((_APPS.category, where.category), (_APPS.app_name, where.app_name), (_APPS.version, where.version))
    found = [column == value for column, value in wanted if value is not None]
    return [*found, *containing(where.contains, _APPS.app_name)]


SOURCE: ListSource[AppRecord, AppFilter] = ListSource(
    table=schema.apps,
    record=_app,
    conditions=_conditions,
    orders={
        "name": SortOrder(
            (_APPS.category, _APPS.app_name, _APPS.version_order, _APPS.id), descending=frozenset({"version_order"})
        ),
        "added": SortOrder((_APPS.added_at, _APPS.id), descending=frozenset({"added_at", "id"})),
    },
)
