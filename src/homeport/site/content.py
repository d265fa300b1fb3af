"""The site's cache, and how it reaches registries: central's own by the site's certificate, others as podman and
docker are logged in here. Models of Hugging Face and S3 are fetched with the tokens in the site's environment."""

import os
from dataclasses import field
from pathlib import Path
from typing import Final

import anyio

from homeport.adapters.registry.credentials import default_auth_files
from homeport.adapters.registry.transport import Trust
from homeport.adapters.registry.upstream import RegistryUpstream
from homeport.adapters.registry.web_files import ModelSourceOptions
from homeport.content.cache.cache import Cache, open_cache
from homeport.core.identity.spiffe import SERVER_NAME
from homeport.errors import HomeportError
from homeport.lazy_dataclass import dataclass
from homeport.log import get_log
from homeport.ports import CentralLink, Clock
from homeport.site.identity import SiteIdentity
from homeport.site.settings import SiteSettings
from homeport.vocabulary import SiteName
from homeport.wire.content import REGISTRY_TOPIC, RegistryLocation, decode_registry

ASK_SECONDS: Final = 60.0
"""How long central's answer counts, and how long it is not asked again after none."""
ANSWER_SECONDS: Final = 3.0

log = get_log("homeport.cache")


def open_site_cache(
    settings: SiteSettings, clock: Clock, central: CentralLink | None, identity: SiteIdentity | None
) -> Cache | None:
    if settings.cache_bytes is None:
        return None
    upstream = RegistryUpstream(
        auth_files=default_auth_files(os.environ, Path.home()),
        access_folder=settings.access_folder,
        trust_of=CentralTrust(settings.name, clock, central, identity),
        plain_http_hosts=settings.plain_http_registries,
        web=ModelSourceOptions.from_environment(os.environ),
    )
    return open_cache(settings.data / "cache", upstream, clock, size_max_bytes=settings.cache_bytes)


@dataclass(slots=True)
class CentralTrust:
    """An `adapters.registry.upstream.FindTrust`: the site presents its certificate to central's registry alone."""

    site: SiteName
    clock: Clock
    central: CentralLink | None
    identity: SiteIdentity | None
    _known: RegistryLocation = field(default_factory=lambda: RegistryLocation("", is_tls=False))
    _asked_at: float | None = None
    _trust: Trust | None = None

    async def __call__(self, host: str) -> Trust | None:
        if self.identity is None or self.central is None:
            return None
        await self._ask(self.central)
        if host != self._known.host or not self._known.is_tls:
            return None
        if self._trust is None:
            self._trust = Trust(self.identity.client.client_context(), self.identity.verify_central, SERVER_NAME)
        return self._trust

    async def _ask(self, central: CentralLink) -> None:
        """Central may be away, or of a release without this; then the last answer counts."""
        now = self.clock.monotonic()
        if self._asked_at is not None and now - self._asked_at < ASK_SECONDS:
            return
        self._asked_at = now
        try:
            with anyio.fail_after(ANSWER_SECONDS):
                self._known = decode_registry(await central.call(self.site, REGISTRY_TOPIC, b""))
        except (HomeportError, TimeoutError, ValueError) as error:
            log.debug("central's registry unknown", why=str(error))
