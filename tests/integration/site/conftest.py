"""A site on a real repository and a real store, in this process."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from homeport.capability.site import SiteCapability
from homeport.catalog.deployment import marker_path
from homeport.catalog.marker import render_marker
from homeport.ports import CentralLink
from homeport.site.app import SiteApp, open_site
from homeport.site.settings import SiteSettings
from homeport.vocabulary import SiteName
from tests.support.git import Person, bare_repository

OpenSite = Callable[..., AbstractAsyncContextManager[SiteApp]]


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    return bare_repository(tmp_path / "deployments.git")


@pytest.fixture
def person(remote: Path, tmp_path: Path) -> Person:
    """Somebody with a working copy, who has already marked the site's folder as real."""
    person = Person(str(remote), tmp_path / "person")
    person.write(marker_path(SiteName("home")), render_marker(SiteName("home")).decode())
    person.push("mark the site")
    return person


@pytest.fixture
def start(remote: Path, tmp_path: Path) -> OpenSite:
    @asynccontextmanager
    async def start(
        central: CentralLink | None = None, capabilities: Sequence[SiteCapability] = (), **changes: object
    ) -> AsyncIterator[SiteApp]:
        settings = SiteSettings(
            **{
                "name": SiteName("home"),
                "data": tmp_path / "site",
                "git_url": str(remote),
                "http_address": ("127.0.0.1", 0),
                "grpc_address": "127.0.0.1:0",
                **changes,
            }  # type: ignore[arg-type]
        )
        async with open_site(settings, central, capabilities=capabilities) as site:
            yield site

    return start
