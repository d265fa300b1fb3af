"""The list of a site's engines, as central takes it."""

import json
from typing import Any

import pytest

from homeport.central.app import CentralApp
from tests.support.running_central import Client, FakeSite

pytestmark = pytest.mark.anyio

GOOD = {"engine": "llamacpp", "url": "http://127.0.0.1:8100", "model": {"id": "tiny"}, "replica_id": "n1"}


async def tell(client: Client, **content: Any) -> int:
    path = "/api/v1/sites/home/calls?topic=replicas"
    return (await client.call("POST", path, data=json.dumps({"network": "n", **content}))).status


async def test_an_engine_that_only_a_newer_version_knows_hides_no_other_of_its_site(
    central: CentralApp, client: Client
) -> None:
    await FakeSite(client).join()
    odd = [{**GOOD, "engine": "abacus", "pool_id": "new"}, 3, {**GOOD, "device_mask": "all of them"}]
    assert await tell(client, replicas=[*odd, GOOD], behind_nodes=[{**GOOD, "pool_id": "far"}, None]) == 200
    shown = (await client.get("/v2/pools")).body["pools"]
    assert [each["pool_id"] for each in shown] == ["default", "far"]
    assert await tell(client, replicas="all", behind_nodes=[]) == 422
    assert len((await client.get("/v2/pools")).body["pools"]) == 2, "a list that cannot be read changes nothing"
    assert await tell(client, replicas=[], behind_nodes=[]) == 200
    assert (await client.get("/v2/pools")).body["pools"] == []
