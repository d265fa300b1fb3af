"""Data folders of the previous release (`scripts/record-release`) are upgraded, and everything is there."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from anyio import to_thread

from homeport.node.settings import NodeSettings
from homeport.site.app import open_site
from homeport.site.settings import SiteSettings
from homeport.vocabulary import NodeId, SiteName
from tests.support.joining import running_node
from tests.support.ports import free_port
from tests.support.previous import RECORDED, previous_release, untar
from tests.support.running_central import Client, running_central
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio

KNOWN = json.loads((RECORDED / "folders.json").read_text())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    untar((RECORDED / "folders.tar.gz").read_bytes(), tmp_path)
    return tmp_path


async def states(client: Client) -> dict[str, str]:
    keys = (KNOWN["stays"], KNOWN["goes"])
    return {key: (await client.get(f"/api/v1/deployments/{key}")).body["state"] for key in keys}


def ports(*options: str) -> list[str]:
    return [word for option in options for word in (option, f"127.0.0.1:{free_port()}")]


async def test_the_previous_release_refuses_the_databases_that_this_one_has_upgraded(folder: Path) -> None:
    """Its node has no format in its journal, so it cannot; later ones do (tests/integration/node/test_journal.py)."""
    async with running_central(folder / "central") as (central, client):
        await goes_on(folder, central, client)
    lines = {
        "central.db": [
            "central",
            "--data",
            str(folder / "central"),
            "--http",
            "127.0.0.1:0",
            "--grpc",
            "127.0.0.1:0",
        ],
        "site.db": [
            *("site", "--name", "north", "--data", str(folder / "site"), *ports("--http", "--grpc")),
            *("--git", str(folder / "central" / "deployments.git")),
        ],
    }
    with previous_release(folder / "old") as previous:
        for name, line in lines.items():
            database = folder / line[0] / name
            before = database.read_bytes()
            refused = previous.start(*line)
            assert await to_thread.run_sync(refused.popen.wait, 60) != 0, line[0]
            assert re.search("written by (another|a newer) version of Homeport", refused.log.read_text()), line[0]
            assert database.read_bytes() == before, line[0]


async def test_a_fleet_of_the_previous_release_goes_on_where_it_stopped(folder: Path) -> None:
    before = running(folder)
    async with running_central(folder / "central") as (central, client):
        assert await states(client) == {KNOWN["stays"]: "INSTALLED", KNOWN["goes"]: "DELETED"}
        events = [sent async for sent in first_events(client, KNOWN["events"])]
        assert [sent["id"] for sent in events] == list(range(1, KNOWN["events"] + 1)), "the log, without gaps"
        assert {(sent["subject"] or "").partition("/")[0] for sent in events} >= {"deployment", "node", "site", "app"}
        assert [each["name"] for each in (await client.get("/api/v1/tokens")).body["tokens"]] == ["ada"]
        verified = await client.get("/api/v1/audit/verify")
        assert (verified.body["ok"], verified.body["fault"]) == (True, None)
        steps = (await client.get(f"/api/v1/deployments/{KNOWN['stays']}/history")).body["history"]
        assert {step["after"] for step in steps} == {"INSTALLING", "INSTALLED"}
        await goes_on(folder, central, client)
    assert len(before) == 2
    after = running(folder)
    assert {key: (each["id"], each["started_at"]) for key, each in after.items()} == {
        key: (each["id"], each["started_at"]) for key, each in before.items()
    }, "nothing was started again"


def running(folder: Path) -> dict[str, Any]:
    """Each component of what stays, with the id and the time of its start."""
    lines = [json.loads(line) for line in (folder / "node" / "runtime" / "null.jsonl").read_text().splitlines()]
    return {component: state for deployment, component, state in lines if deployment == KNOWN["stays"]}


async def first_events(client: Client, count: int) -> Any:
    async for sent in client.events(**{"Last-Event-ID": "0"}):
        yield sent.data
        if sent.data["id"] == count:
            return


async def goes_on(folder: Path, central: Any, client: Client) -> None:
    """With the site and the node on their own upgraded folders, what runs goes on, and a new deploy is installed."""
    site = SiteSettings(
        name=SiteName("north"),
        data=folder / "site",
        git_url=central.parts.git.url,
        central_url=client.url,
        http_address=None,
        grpc_address="127.0.0.1:0",
    )
    async with open_site(site) as app:
        node = NodeSettings(
            data=folder / "node",
            node_id=NodeId("n1"),
            site_address=f"127.0.0.1:{app.grpc_port}",
            http_address=None,
            runtime="null",
        )
        async with running_node(node):
            await eventually(lambda: NodeId("n1") in app.parts.sessions.connected, what="the node to be back")
            made = await client.deploy("north", name="new")
            (key,) = made.body["deployment_ids"]

            async def is_installed() -> bool:
                return bool((await client.get(f"/api/v1/deployments/{key}")).body["state"] == "INSTALLED")

            await eventually(is_installed, what="a new deploy")
            assert await states(client) == {KNOWN["stays"]: "INSTALLED", KNOWN["goes"]: "DELETED"}
