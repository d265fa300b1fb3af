"""The content capability. Central opens the registry's own port, because it has certificates and sockets."""

from typing import Final

from homeport.capability.central import CentralCapability, CentralPart, Loop
from homeport.content.cache.central_routes import central_usage_routes
from homeport.content.importing.routes import import_routes
from homeport.content.routes import registry_routes
from homeport.fleet.central.platform import CentralPlatform
from homeport.vocabulary import SiteName
from homeport.wire.content import REGISTRY_TOPIC, RegistryLocation, encode_registry


async def keep_registry(central: CentralPlatform) -> None:
    """Each replica has its own registry, or none."""
    if central.registry is not None:
        await central.registry.keep()


def _part(central: CentralPlatform) -> CentralPart:
    async def tell_site(site: SiteName, body: bytes) -> bytes:
        address = None if central.registry is None else central.registry.address
        if address is None:
            return encode_registry(RegistryLocation("", is_tls=False))
        return encode_registry(RegistryLocation(address.host, address.is_tls))

    return CentralPart(
        routes=(
            registry_routes(central),
            import_routes(central),
            central_usage_routes(central.questions, central.store),
        ),
        loops=(Loop("registry", keep_registry),),
        from_sites={REGISTRY_TOPIC: tell_site},
    )


CONTENT: Final = CentralCapability("content", _part)
