"""The catalog of apps."""

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Response

from homeport.central.parts import CentralParts
from homeport.core.model.caller import Caller
from homeport.fleet.apps import AppQuery, add_apps, find_app, remove_app
from homeport.fleet.versions import newest_first
from homeport.ports import AppRecord, ComponentRecord, ProfileRecord
from homeport.serving.bodies.apps import (
    AddApps,
    AppBody,
    AppDetailBody,
    AppsAddedBody,
    AppsBody,
    ComponentBody,
    ProfileBody,
)
from homeport.serving.callers import allowed
from homeport.vocabulary import AppId

AppRef = Annotated[str, Path(max_length=64)]
Name = Annotated[str | None, Query(max_length=200)]
AppReader = Annotated[Caller, Depends(allowed("apps.read"))]


def apps_router(central: CentralParts) -> APIRouter:
    router = APIRouter(tags=["apps"])

    @router.post(
        "/api/v1/apps",
        summary="Add apps from a registry",
        status_code=201,
        responses={404: {}, 409: {}},
    )
    async def add_from_registry(
        caller: Annotated[Caller, Depends(allowed("apps.add"))], body: AddApps
    ) -> AppsAddedBody:
        """Adds every app of the registry that the filters leave, or none: all of them must be valid."""
        added = await add_apps(
            body.repository,
            body.branch,
            AppQuery(body.category, body.app_name, body.version),
            caller,
            open_tree=central.open_tree,
            store=central.store,
            clock=central.clock,
            ids=central.ids,
        )
        return AppsAddedBody(
            added=[AppBody(**_fields(app)) for app in added.added],
            unchanged=[AppBody(**_fields(app)) for app in added.unchanged],
        )

    @router.get("/api/v1/apps", summary="List apps")
    async def list_apps(
        caller: AppReader, *, category: Name = None, app_name: Name = None, version: Name = None
    ) -> AppsBody:
        async with central.store.read() as reader:
            found = await reader.apps(category=category, app_name=app_name, version=version)
        newest = newest_first(found, lambda app: app.version)
        ordered = sorted(newest, key=lambda app: (app.category, app.app_name))
        return AppsBody(apps=[AppBody(**_fields(app)) for app in ordered])

    @router.get("/api/v1/apps/{app_id}", summary="Show one app", responses={404: {}})
    async def show_app(caller: AppReader, app_id: AppRef) -> AppDetailBody:
        async with central.store.read() as reader:
            app = await find_app(reader, app_id=app_id, query=AppQuery())
            profiles = await reader.profiles(app.id)
            components = await reader.components(app.id)
        return AppDetailBody(
            **_fields(app),
            profiles=[_profile_body(profile, components) for profile in profiles],
            parameters=app.descriptor.get("parameters") or {},
            configuration=app.descriptor.get("configuration"),
        )

    @router.delete("/api/v1/apps/{app_id}", summary="Remove an app", status_code=204, responses={404: {}, 409: {}})
    async def remove_one_app(caller: Annotated[Caller, Depends(allowed("apps.remove"))], app_id: AppRef) -> Response:
        await remove_app(AppId(app_id), caller, store=central.store, clock=central.clock)
        return Response(status_code=204)

    return router


def _fields(app: AppRecord) -> dict[str, Any]:
    return {name: getattr(app, name) for name in AppBody.model_fields}


def _profile_body(profile: ProfileRecord, components: Sequence[ComponentRecord]) -> ProfileBody:
    return ProfileBody(
        id=profile.profile_id,
        type=profile.type.value,
        description=profile.description,
        device_constraints=profile.device_constraints,
        components=[
            ComponentBody(name=component.name, properties=component.properties)
            for component in components
            if component.profile_id == profile.profile_id
        ],
    )
