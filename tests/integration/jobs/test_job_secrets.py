"""A job goes to a site that has its secrets; a name that no site has is refused before anything is written."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.running_central import Client, FakeSite, node_changed, running_central

pytestmark = pytest.mark.anyio


async def submit(client: Client, **more: Any) -> Any:
    body = {"image": "busybox", "command": ["true"], "secrets": {"PASSWORD": "DB"}, **more}
    return await client.post("/api/v1/jobs", body)


async def test_a_job_goes_to_a_site_that_has_its_secrets(tmp_path: Path) -> None:
    async with running_central(tmp_path / "central") as (_, client):
        for name in ("line-1", "line-2"):
            site = FakeSite(client, name)
            await site.join()
            await site.say(node_changed(site=name))
        refused = await submit(client)
        (problem,) = refused.body["errors"]
        assert (refused.status, problem["message"]) == (422, 'no site has the secret "DB".')
        assert refused.body["hint"] == "Set it first:  homeport secrets set SITE DB"
        assert (await client.get("/api/v1/jobs")).body["jobs"] == []
        assert (await client.put("/api/v1/sites/line-2/secrets/DB", {"value": "hunter22"})).status == 200
        for _ in range(3):
            taken = await submit(client)
            assert (taken.status, taken.body["site"]) == (201, "line-2"), taken.body
        refused = await submit(client, site="line-1")
        (problem,) = refused.body["errors"]
        assert problem["message"] == 'site line-1 has no secret "DB".'
