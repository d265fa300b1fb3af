"""A site keeps a trail of its own, so that it can say who did what while central is gone."""

import json
import urllib.error
import urllib.request

import anyio.to_thread
import pytest

from tests.integration.site.conftest import OpenSite
from tests.support.git import Person

pytestmark = pytest.mark.anyio


async def test_what_is_asked_of_a_site_itself_is_in_its_own_trail(start: OpenSite, person: Person) -> None:
    async with start() as site:
        url = f"http://127.0.0.1:{site.http_port}"

        def remove_and_look() -> tuple[list[object], object]:
            request = urllib.request.Request(f"{url}/api/v1/nodes/no-such-node", method="DELETE")
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(request, timeout=10)
            refused.value.close()
            with urllib.request.urlopen(f"{url}/api/v1/audit", timeout=10) as answer:
                entries = json.load(answer)["entries"]
            with urllib.request.urlopen(f"{url}/api/v1/audit/verify", timeout=10) as answer:
                return [(entry["action"], entry["target"], entry["result"]) for entry in entries], json.load(answer)

        entries, verdict = await anyio.to_thread.run_sync(remove_and_look)
    assert entries == [("nodes.remove", "no-such-node", "failed")]
    assert isinstance(verdict, dict)
    assert verdict["ok"]
