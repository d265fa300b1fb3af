"""`GET /api/v1/registry`: the address of the built-in registry, for clients that push to it or pull from it."""

from typing import Final

from homeport.content.bodies import RegistryBody
from homeport.core.access.actions import Action, Actions, Audit, Level, Scope
from homeport.fleet.central.platform import CentralPlatform
from homeport.serving.capability import Routes
from homeport.serving.routing import Router

NAME_PREFIX: Final = "apps"
ACTIONS: Final[Actions] = {
    ("GET", "/api/v1/registry"): Action("registry.read", Level.KNOWN, Scope.NONE, Audit.NONE),
}


def registry_routes(central: CentralPlatform) -> Routes:
    router = Router(tags=["registry"])

    @router.get("/api/v1/registry", summary="Where the built-in registry is")
    async def show_registry() -> RegistryBody:
        registry = central.registry
        assert registry is not None, "only a simulation has none"
        address, usage = registry.address, await registry.usage()
        return RegistryBody(
            enabled=address is not None,
            host=None if address is None else address.host,
            tls=address is not None and address.is_tls,
            name_prefix=NAME_PREFIX,
            why=registry.why_off if address is None else None,
            used_bytes=usage.blob_bytes + usage.upload_bytes,
            quota_bytes=usage.quota_bytes,
        )

    return Routes(router, ACTIONS)
