"""A central whose database has garbage in every column of every table starts, goes on, serves every list, and says
which rows it cannot read."""

from pathlib import Path

import pytest

from homeport.adapters.store.open import open_store
from homeport.vocabulary import EventKind
from tests.support.bad_rows import KEY, put_bad_rows, put_good_rows
from tests.support.running_central import Client, running_central

pytestmark = pytest.mark.anyio


async def readable_paths(client: Client) -> list[str]:
    """Everything that can be read without naming one thing, and without an end."""
    document = (await client.get("/openapi.json")).body
    return sorted(
        path
        for path, item in document["paths"].items()
        if "get" in item and "{" not in path and not path.endswith(("/events", "/watch", "/logs"))
    )


async def test_central_serves_every_list_beside_garbage_in_every_column(tmp_path: Path) -> None:
    data = tmp_path / "central"
    async with open_store(str(data / "central.db")):
        pass
    put_good_rows(data / "central.db")
    put_bad_rows(data / "central.db")
    async with running_central(data) as (app, client):
        paths = await readable_paths(client)
        assert len(paths) > 30
        answers = {path: (await client.get(path)).status for path in paths}
        assert {path: status for path, status in answers.items() if status >= 500} == {}
        shown = (await client.get("/api/v1/deployments")).body["deployments"]
        assert KEY in {each["id"] for each in shown}
        async with app.parts.store.read() as reader:
            events = await reader.events(after=0, limit=10_000)
        told = {each.event.data["table"] for each in events if each.event.kind is EventKind.ROW_LEFT_OUT}
        assert {"apps", "deployments", "instances", "nodes", "pins", "sites"} <= told
