"""A site's own door: the same tokens and actions as at central, on the site's own store."""

from pathlib import Path

import aiohttp
import pytest

from homeport.adapters.git import create_bare
from homeport.core.model.caller import INTERNAL, Role
from homeport.site.app import open_site
from homeport.site.settings import SiteSettings
from homeport.vocabulary import SiteName

pytestmark = pytest.mark.anyio


async def test_a_closed_site_asks_for_its_own_tokens(tmp_path: Path) -> None:
    create_bare(tmp_path / "deployments.git", "main")
    settings = SiteSettings(
        name=SiteName("home"),
        data=tmp_path / "site",
        git_url=str(tmp_path / "deployments.git"),
        http_address=("127.0.0.1", 0),
        grpc_address=None,
        open_metrics=False,
    )
    async with open_site(settings) as site, aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{site.http_port}"
        made = await site.parts.authenticator.tokens.create(INTERNAL, name="anna", role=Role.VIEWER)
        for path in ("/api/v1/deployments", "/metrics", "/api/v1/plan"):
            async with session.get(url + path) as answer:
                assert answer.status == 401, path
            async with session.get(url + path, headers={"X-Api-Key": made.text}) as answer:
                assert answer.status == 200, path
        async with session.get(url + "/healthz") as answer:
            body = await answer.json()
            assert (answer.status, body["status"], body["role"]) == (200, "ok", "site")
