"""Between an App and the rows that the store keeps of it."""

from datetime import datetime

from homeport.catalog.description import Description, app_of
from homeport.catalog.registry_tree import AppPlace
from homeport.core.model.app import App
from homeport.ports import AppRecord, ComponentRecord, ProfileRecord
from homeport.vocabulary import AppId, Commit


def records_of(
    description: Description,
    place: AppPlace,
    *,
    app_id: AppId,
    source: bytes,
    repository: str,
    commit: Commit | None,
    added_at: datetime,
    added_by: str,
) -> tuple[AppRecord, tuple[ProfileRecord, ...], tuple[ComponentRecord, ...]]:
    app = description.app
    record = AppRecord(
        id=app_id,
        category=place.category,
        app_name=place.app_name,
        version=app.version,
        margo_id=app.margo_id,
        name=app.name,
        vendor=app.vendor,
        description=app.description,
        tags=app.tags,
        descriptor=description.descriptor,
        source=source,
        repository=repository,
        commit=commit,
        added_at=added_at,
        added_by=added_by,
    )
    profiles = tuple(
        ProfileRecord(app_id, position, each.id, each.type, each.description, each.device_constraints)
        for position, each in enumerate(app.profiles)
    )
    components = tuple(
        ComponentRecord(app_id, profile.id, position, each.name, each.properties)
        for profile in app.profiles
        for position, each in enumerate(profile.components)
    )
    return record, profiles, components


def app_of_record(record: AppRecord) -> App:
    """Stored descriptors were checked when they came in."""
    return app_of(record.descriptor, category=record.category)
