"""The catalog of apps."""

from collections.abc import Sequence
from typing import Annotated, Any, Final

from fastapi import Depends, Path, Query, Response

from homeport.adapters.network.reach import public_addresses_only
from homeport.central.parts import CentralParts
from homeport.core.access.actions import Action, Actions, Audit, Level, Scope
from homeport.core.access.reach import may_reach_private
from homeport.errors import InvalidInput, Problem
from homeport.fleet.central.apps import AppQuery, AppsAdded, add_apps, check_reach, find_app, remove_app
from homeport.fleet.central.registering import NewApp, register_app
from homeport.ports import APPS, AppFilter, AppRecord, ComponentRecord, ProfileRecord
from homeport.serving.bodies.apps import (
    AddApps,
    AppBody,
    AppDetailBody,
    AppsAddedBody,
    AppsBody,
    ComponentBody,
    ProfileBody,
)
from homeport.serving.bodies.deployments import Deploy
from homeport.serving.capability import Routes
from homeport.serving.middleware.callers import CallerOf
from homeport.serving.pages import PageRequest, asked
from homeport.serving.routing import Router
from homeport.vocabulary import AppId

AppRef = Annotated[str, Path(max_length=64)]
Name = Annotated[str | None, Query(max_length=200)]


_READ: Final = Action("apps.read", Level.VIEWER, Scope.NONE, Audit.NONE)
# fmt: off
ACTIONS: Final[Actions] = {
    ("GET", "/api/v1/apps"): _READ,
    ("GET", "/api/v1/apps/{app_id}"): _READ,
    ("POST", "/api/v1/apps"): Action("apps.add", Level.OPERATOR, Scope.FLEET, Audit.WAIT),
    ("DELETE", "/api/v1/apps/{app_id}"): Action("apps.remove", Level.OPERATOR, Scope.FLEET, Audit.WAIT),
}
# fmt: on


def apps_routes(central: CentralParts) -> Routes:
    router = Router(tags=["apps"])

    @router.post(
        "/api/v1/apps",
        summary="Add apps from a registry, or one app",
        status_code=201,
        responses={404: {}, 409: {}},
    )
    async def add_from_registry(caller: CallerOf, body: AddApps) -> AppsAddedBody:
        """Adds every app of the registry that passes the filters, or none: all of them must be valid."""
        if body.repository is None:
            added = await register_app(
                new_app(body), caller, store=central.store, clock=central.clock, ids=central.ids
            )
            return _added(added)
        if body.description is not None:
            raise InvalidInput(problems=[Problem("description", "cannot be combined with repository.")])
        check_reach(body.repository, caller)
        with public_addresses_only(is_limited=not may_reach_private(caller)):
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
        return _added(added)

    @router.get("/api/v1/apps", summary="List apps", response_model=AppsBody)
    async def list_apps(
        caller: CallerOf,
        page: Annotated[PageRequest, Depends(asked(APPS, AppBody))],
        *,
        category: Name = None,
        app_name: Name = None,
        version: Name = None,
        contains: Annotated[
            str | None,
            Query(max_length=200, description="Only those whose name contains this text; case is ignored."),
        ] = None,
    ) -> Response:
        """By category and name, the newest version of each first."""
        where = AppFilter(category=category, app_name=app_name, version=version, contains=contains)
        async with central.store.read() as reader:
            found = await reader.page(APPS, where, page.cut)
        return page.answer("apps", [AppBody(**_fields(app)) for app in found.items], found.next)

    @router.get("/api/v1/apps/{app_id}", summary="Show one app", responses={404: {}})
    async def show_app(caller: CallerOf, app_id: AppRef) -> AppDetailBody:
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
    async def remove_one_app(caller: CallerOf, app_id: AppRef) -> Response:
        await remove_app(AppId(app_id), caller, store=central.store, clock=central.clock)
        return Response(status_code=204)

    return Routes(router, ACTIONS)


def new_app(body: AddApps | Deploy) -> NewApp:
    """The app that a request contains."""
    needed = {"description": body.description, "category": body.category, "app_name": body.app_name}
    missing = [Problem(field, "is missing.") for field, value in needed.items() if value is None]
    if missing:
        raise InvalidInput(problems=missing)
    assert body.description is not None and body.category is not None and body.app_name is not None
    return NewApp(body.category, body.app_name, body.description.encode(), body.version)


def _added(added: AppsAdded) -> AppsAddedBody:
    return AppsAddedBody(
        added=[AppBody(**_fields(app)) for app in added.added],
        unchanged=[AppBody(**_fields(app)) for app in added.unchanged],
    )


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
