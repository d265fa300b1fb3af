"""Sites and nodes join, are renewed and are sent away, over real TLS sockets."""

from pathlib import Path

import pytest

from tests.support.joining import running_fleet
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio


async def test_a_site_and_a_node_join_and_the_node_is_seen_at_central(tmp_path: Path) -> None:
    async with running_fleet(tmp_path) as fleet, fleet.site() as site, fleet.node(site, "n1"):

        async def seen() -> bool:
            nodes = (await fleet.client.get("/api/v1/nodes")).body["nodes"]
            return [node["id"] for node in nodes] == ["n1"]

        await eventually(seen, what="the node to be seen")
        kinds = {
            each["name"]: each["kind"] for each in (await fleet.client.get("/api/v1/identities")).body["identities"]
        }
        assert kinds["north"] in {"client", "site-authority"}
        (node,) = (await site.client.get("/api/v1/identities")).body["identities"]
        assert node["spiffe_id"] == "spiffe://homeport.internal/homeport/site/north/node/n1"
        for folder in ("north/identity", "n1/identity"):
            assert (tmp_path / folder / "key.pem").stat().st_mode & 0o777 == 0o600
