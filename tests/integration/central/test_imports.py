"""A compose file that a browser sends becomes an app of the catalog, whose content is in central's own registry."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.running_central import Answer, Client, running_central

pytestmark = pytest.mark.anyio

COMPOSE = "name: shop\nservices:\n  web:\n    image: nginx:${TAG:-1.25}\n    volumes: ['./html:/html:ro']\n"
FILES = {"compose.yaml": COMPOSE, "html/index.html": "hello"}


async def send(client: Client, files: Any = FILES, *, plan: bool = False, **more: Any) -> Answer:
    return await client.post(f"/api/v1/apps/imports?plan={str(plan).lower()}", {"files": files, **more})


async def test_a_plan_writes_nothing_and_the_import_is_repeatable(tmp_path: Path) -> None:
    async with running_central(tmp_path, registry_address=("127.0.0.1", 0)) as (_, client):
        planned = await send(client, plan=True)
        assert (planned.status, planned.body["app"], planned.body["app_name"]) == (201, None, "shop")
        assert [each["default"] for each in planned.body["parameters"]] == ["1.25"]
        assert planned.body["files"] == ["compose.yaml", "html/index.html"]
        assert (await client.get("/api/v1/apps")).body["apps"] == []
        assert (await client.get("/api/v1/registry")).body["used_bytes"] == 0

        made = (await send(client)).body["app"]
        assert (made["app_name"], made["version"]) == ("shop", "1.0.0")
        assert (await client.get("/api/v1/registry")).body["used_bytes"] > 0
        assert (await send(client)).body["app"]["id"] == made["id"], "equal content keeps its version"
        other = (await send(client, {**FILES, "html/index.html": "bye"})).body["app"]
        assert other["version"] == "1.0.1"
        actions = [entry["action"] for entry in (await client.get("/api/v1/audit?limit=100")).body["entries"]]
        assert "apps.import" in actions


async def test_what_nodes_cannot_do_is_said_with_its_line_and_changes_nothing(client: Client) -> None:
    refused = await send(client, {"compose.yaml": "services:\n  web:\n    build: .\n"}, plan=True)
    assert refused.status == 422
    (problem,) = refused.body["errors"]
    assert (problem["line"], problem["field"]) == (3, "services.web.build")
    assert (await send(client)).status == 409, "this central has no registry"
    assert (await client.get("/api/v1/apps")).body["apps"] == []


@pytest.mark.parametrize(
    "body", [{"files": {}}, {"files": {f"f{n}": "" for n in range(51)}}, {"files": {"compose.yaml": "x" * 600_000}}]
)
async def test_too_much_or_nothing_is_refused(client: Client, body: Any) -> None:
    assert (await client.post("/api/v1/apps/imports", body)).status == 422
