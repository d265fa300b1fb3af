"""A site keeps a trail of its own, so that it can say who did what while central is gone."""

import json
import urllib.error
import urllib.request
from typing import Any

import aiohttp
import anyio.to_thread
import pytest

from homeport.site.app import SiteApp
from tests.integration.site.conftest import OpenSite
from tests.support.git import Person
from tests.support.local import local_key
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio


def session_to(site: SiteApp) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(f"http://127.0.0.1:{site.http_port}", headers=local_key(site))


async def test_what_is_asked_of_a_site_itself_is_in_its_own_trail(start: OpenSite, person: Person) -> None:
    async with start() as site:
        url, key = f"http://127.0.0.1:{site.http_port}", local_key(site)

        def get(path: str) -> Any:
            with urllib.request.urlopen(urllib.request.Request(url + path, headers=key), timeout=60) as answer:
                return json.load(answer)

        def remove_and_look() -> tuple[list[object], object]:
            request = urllib.request.Request(f"{url}/api/v1/nodes/no-such-node", headers=key, method="DELETE")
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(request, timeout=60)
            refused.value.close()
            entries = get("/api/v1/audit")["entries"]
            done: list[object] = [(entry["action"], entry["target"], entry["result"]) for entry in entries]
            return done, get("/api/v1/audit/verify")

        entries, verdict = await anyio.to_thread.run_sync(remove_and_look)
    assert entries == [("nodes.remove", "no-such-node", "failed")]
    assert isinstance(verdict, dict)
    assert verdict["ok"]


async def test_setting_and_lifting_a_hold_are_told_apart_with_their_detail(start: OpenSite, person: Person) -> None:
    async with start() as site, session_to(site) as session:
        await eventually(lambda: site.parts.conductor.memory.applied is not None, what="the site to be known")
        path = "/api/v1/sites/home/holds"
        async with session.post(path, json={"reason": "stock-taking", "lasts_seconds": 60}) as answer:
            assert answer.status == 200, await answer.text()
            held = await answer.json()
        async with session.delete(path) as answer:
            assert answer.status == 200, await answer.text()
        async with session.get("/api/v1/audit") as answer:
            hold, release = (await answer.json())["entries"]
    assert (hold["action"], hold["target"], hold["detail"]["reason"]) == ("sites.hold", "home", "stock-taking")
    assert hold["detail"]["until"] == held["expires_at"].replace("Z", "+00:00")
    assert (release["action"], release["target"], release["detail"]["deployment_id"]) == ("sites.release", "home", "")
