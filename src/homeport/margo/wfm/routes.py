"""`/api/v1/sites/{site}/devices`: devices of a Margo client, what it reports about them, and what they may take."""

from typing import Annotated, Final

from fastapi import Path, Query

from homeport.core.access.actions import Action, Actions, Audit, Level, Scope
from homeport.core.margo.matching import misfit
from homeport.core.margo.records import MargoDevice, StatusRecord
from homeport.core.margo.text import gateway_of
from homeport.errors import NotFound
from homeport.fleet.central.platform import CentralPlatform
from homeport.margo.bodies import (
    ComponentStatusBody,
    DeviceBody,
    DeviceMatchBody,
    DevicesBody,
    DeviceStatusBody,
    MatchesBody,
    ProfileMatchBody,
)
from homeport.ports import AppRecord, Reader
from homeport.serving.capability import Routes
from homeport.serving.routing import Router
from homeport.vocabulary import SITE_NAME_PATTERN, SiteName

SiteRef = Annotated[str, Path(pattern=SITE_NAME_PATTERN, description="Small letters, digits and dashes.")]
ACTIONS: Final[Actions] = {
    ("GET", "/api/v1/sites/{site}/devices"): Action("devices.read", Level.VIEWER, Scope.SITE, Audit.NONE),
    ("GET", "/api/v1/sites/{site}/devices/matches"): Action("devices.match", Level.VIEWER, Scope.SITE, Audit.NONE),
}


def device_routes(central: CentralPlatform) -> Routes:
    router = Router(tags=["devices"])

    @router.get("/api/v1/sites/{site}/devices", summary="Devices of a Margo client", responses={404: {}})
    async def list_devices(site: SiteRef) -> DevicesBody:
        name = SiteName(site)
        async with central.store.read() as reader:
            await _require_site(reader, name)
            manifests = await reader.margo_manifests_of([name])
            return DevicesBody(
                site=name,
                manifest_version=manifests[0].version if manifests else None,
                items=[_device(each) for each in await reader.margo_devices(name)],
                statuses=[_status(each) for each in await reader.margo_statuses(name)],
            )

    @router.get(
        "/api/v1/sites/{site}/devices/matches",
        summary="Which devices of a Margo client may take an app, and why not",
        responses={404: {}},
    )
    async def match_devices(
        site: SiteRef,
        app_name: Annotated[str, Query(max_length=200)],
        app_version: Annotated[str | None, Query(max_length=200)] = None,
    ) -> MatchesBody:
        name = SiteName(site)
        async with central.store.read() as reader:
            await _require_site(reader, name)
            app = await _app(reader, app_name, app_version)
            devices = await reader.margo_devices(name)
            profiles = []
            for profile in await reader.profiles(app.id):
                found = [
                    DeviceMatchBody(device_id=each.id, fits=why is None, why=why)
                    for each in devices
                    for why in (misfit(each, profile.type.value, profile.device_constraints),)
                ]
                profiles.append(
                    ProfileMatchBody(
                        profile=profile.profile_id,
                        type=profile.type.value,
                        placeable=any(each.fits for each in found),
                        devices=found,
                    )
                )
        return MatchesBody(app_name=app.app_name, app_version=app.version, site=name, profiles=profiles)

    return Routes(router, ACTIONS)


async def _require_site(reader: Reader, site: SiteName) -> None:
    if await reader.site(site) is None:
        raise NotFound(f'There is no site "{site}".', hint="See  homeport sites list")


async def _app(reader: Reader, name: str, version: str | None) -> AppRecord:
    found = await reader.apps(app_name=name, version=version)
    if not found:
        raise NotFound(f'There is no app "{name}"{f" in version {version}" if version else ""}.')
    return found[0]


def _device(device: MargoDevice) -> DeviceBody:
    return DeviceBody(
        site=device.site,
        id=device.id,
        gateway=gateway_of(device.id),
        hosting=device.is_hosting,
        properties=device.properties,
        labels=device.labels,
        extensions=device.extensions,
        reported_at=device.reported_at,
    )


def _status(status: StatusRecord) -> DeviceStatusBody:
    return DeviceStatusBody(
        deployment_id=status.deployment_id,
        device_id=status.device_id or status.site,
        adopted_manifest_version=status.adopted_version,
        state=status.state,
        error=status.error,
        components=[
            ComponentStatusBody(name=each["name"], state=each["state"], error=each.get("error"))
            for each in status.components
        ],
        at=status.at,
    )
