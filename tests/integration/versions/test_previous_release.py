"""The previous release and this one in one fleet, in both directions, as processes with joined identities.

Two fleets have all four pairs of neighbours: an old site between a new central and a new node, and a new site between
an old central and an old node. In each a deploy is installed, and what happens while central is gone arrives later.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from homeport.core.model.protocol import FIRST, VERSION
from homeport.site.app import SiteApp, open_site
from homeport.site.settings import SiteSettings
from homeport.vocabulary import NodeId, SiteName
from tests.support import previous as module
from tests.support.git import Person
from tests.support.joining import Fleet, running_fleet, running_node
from tests.support.ports import free_port
from tests.support.previous import OldProcess, Previous, previous_release
from tests.support.running_central import Client, write_app
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio

HISTORY = ["INSTALLING", "INSTALLED"]
WHILE_AWAY = ["DELETING", "DELETED"]


async def installed(client: Client, registry: Path) -> str:
    write_app(registry)
    assert (await client.post("/api/v1/apps", {"repository": str(registry)})).status == 201
    made = await client.deploy("north")
    assert made.status == 202, made.body
    (key,) = made.body["deployment_ids"]
    await eventually(lambda: has_state(client, key, "INSTALLED"), what="the deploy to be installed")
    assert await steps(client, key) == HISTORY
    return str(key)


async def has_state(client: Client, key: str, state: str) -> bool:
    return bool((await client.get(f"/api/v1/deployments/{key}")).body["state"] == state)


async def steps(client: Client, key: str) -> list[str]:
    entries = (await client.get(f"/api/v1/deployments/{key}/history")).body["history"]
    return [entry["after"] for entry in sorted(entries, key=lambda each: str(each["at"])) if entry["node_id"]]


async def kinds(client: Client) -> set[str]:
    last = (await client.get("/api/v1/overview")).body["last_event_id"]
    found = set()
    async for sent in client.events(**{"Last-Event-ID": "0"}):
        found.add(sent.event)
        if int(sent.id or 0) >= last:
            break
    return found


def delete_by_hand(repository: Path, folder: Path, key: str) -> None:
    person = Person(str(repository), folder)
    person.remove(f"deployments/north/{key}.yaml")
    person.push("remove it while central is gone")


def old_site(previous: Previous, fleet_url: str, git: Path, data: Path, ticket: dict[str, Any]) -> list[str]:
    return [
        "site", "--name", "north", "--central", fleet_url, "--git", str(git), "--data", str(data), "--poll", "0.3",
        "--http", f"127.0.0.1:{free_port()}", "--grpc", f"127.0.0.1:{free_port()}",
        "--join", ticket["token"], "--pin", ticket["pin"],
    ]  # fmt: skip


def given(arguments: list[str], option: str) -> str:
    return arguments[arguments.index(option) + 1]


async def test_an_old_site_between_a_new_central_and_a_new_node_then_upgraded_in_place(tmp_path: Path) -> None:
    address, repository = ("127.0.0.1", free_port()), tmp_path / "central" / "deployments.git"
    with previous_release(tmp_path) as previous:
        async with running_fleet(tmp_path, http_address=address) as fleet:
            line = old_site(previous, fleet.url, repository, tmp_path / "north", await fleet.site_ticket())
            process = previous.start(*line)
            await process.ready(f"https://{given(line, '--http')}")
            ticket = await fleet.node_ticket()
            settings = fleet.node_settings("n1", ticket, given(line, "--grpc"))
            async with running_node(settings):
                key = await installed(fleet.client, tmp_path / "registry")
                shown = (await fleet.client.get("/api/v1/sites/north")).body
                assert (shown["protocol"], shown["features"], shown["problem"]) == (FIRST, [], None)
        async with running_node(fleet.node_settings("n1", None, given(line, "--grpc"))):
            delete_by_hand(repository, tmp_path / "person", key)
            await eventually(lambda: was_deleted(tmp_path / "n1"), what="the site to delete it alone")
            async with running_fleet(tmp_path, http_address=address) as fleet:
                await eventually(lambda: has_state(fleet.client, key, "DELETED"), what="late reports")
                assert await steps(fleet.client, key) == [*HISTORY, *WHILE_AWAY]
                assert "report.set-aside" not in await kinds(fleet.client)
                process.stop()
                await upgraded(fleet, tmp_path, line)
        assert_refused(previous, line)


async def upgraded(fleet: Fleet, folder: Path, line: list[str]) -> None:
    """The site is this release from now on, with the data and the identity that the previous one left."""
    async with fleet.site(grpc_address=given(line, "--grpc"), poll_seconds=0.3) as site:
        await eventually(lambda: fleet.is_connected(site, "n1"), what="the node to be connected")

        async def is_new() -> bool:
            return bool((await fleet.client.get("/api/v1/sites/north")).body["protocol"] == VERSION)

        await eventually(is_new, what="the site to have said its protocol")
        again = await fleet.client.deploy("north")
        await eventually(lambda: has_state(fleet.client, again.body["deployment_ids"][0], "INSTALLED"), what="it")


def assert_refused(previous: Previous, line: list[str]) -> None:
    """The previous release does not touch what this one has upgraded."""
    data = Path(given(line, "--data"))
    before = (data / "site.db").read_bytes()
    refused = previous.start(*line[: line.index("--join")])
    assert refused.popen.wait(30) != 0
    assert "written by another version of Homeport" in refused.log.read_text()
    assert (data / "site.db").read_bytes() == before


def was_deleted(node: Path) -> bool:
    """By what the null runtime has kept: the last line of each component says that it is gone."""
    lines = [json.loads(line) for line in (node / "runtime" / "null.jsonl").read_text().splitlines()]
    return bool(lines) and not any({component: state for _, component, state in lines}.values())


async def test_a_new_site_between_an_old_central_and_an_old_node(tmp_path: Path) -> None:
    url, repository = f"https://127.0.0.1:{free_port()}", tmp_path / "central" / "deployments.git"
    line = [
        "central", "--tls", "--http", url.removeprefix("https://"), "--grpc", f"127.0.0.1:{free_port()}",
        "--data", str(tmp_path / "central"),
    ]  # fmt: skip
    connector = aiohttp.TCPConnector(ssl=False)
    with previous_release(tmp_path) as previous:
        async with aiohttp.ClientSession(connector=connector) as session:
            client, central = Client(url, session), previous.start(*line)
            await central.ready(url)
            ticket = (await client.post("/api/v1/sites/north/join-token", {})).body
            async with new_site(tmp_path, url, repository, ticket) as site, old_node(previous, client, site):
                key = await installed(client, tmp_path / "registry")
                assert [node.info.protocol.version for node in site.parts.conductor.memory.nodes.values()] == [FIRST]
                central.stop()
                delete_by_hand(repository, tmp_path / "person", key)
                gone = site.parts.conductor.memory
                await eventually(lambda: not gone.instances, what="the site to delete it alone")
                central = previous.start(*line)
                await central.ready(url)
                await eventually(lambda: has_state(client, key, "DELETED"), what="late reports")
                assert await steps(client, key) == [*HISTORY, *WHILE_AWAY]


@asynccontextmanager
async def new_site(folder: Path, url: str, repository: Path, ticket: dict[str, Any]) -> AsyncIterator[SiteApp]:
    settings = SiteSettings(
        name=SiteName("north"),
        data=folder / "north",
        git_url=str(repository),
        central_url=url,
        http_address=("127.0.0.1", free_port()),
        grpc_address=f"127.0.0.1:{free_port()}",
        pin=ticket["pin"],
        join_token=ticket["token"],
        poll_seconds=0.3,
    )
    async with open_site(settings) as site:
        yield site


@asynccontextmanager
async def old_node(previous: Previous, client: Client, site: SiteApp) -> AsyncIterator[OldProcess]:
    async def invited() -> Any:
        answer = await client.post("/api/v1/sites/north/nodes/join-token", {})
        return answer.body if answer.status == 200 else None

    ticket = await eventually(invited, what="a token for a node")
    line = [
        "node", "--site", f"127.0.0.1:{site.grpc_port}", "--data", str(previous.folder / "n1"), "--id", "n1",
        "--http", f"127.0.0.1:{free_port()}", "--runtime", "null",
        "--join-url", ticket["api"], "--join", ticket["token"], "--pin", ticket["pin"],
    ]  # fmt: skip
    process = previous.start(*line)
    await eventually(lambda: NodeId("n1") in site.parts.sessions.connected, what="the old node")
    yield process


def test_a_clone_without_the_previous_release_fails_and_says_how_to_fetch_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "COMMIT", "0" * 40)
    with pytest.raises(pytest.fail.Exception, match="git fetch --unshallow"):
        module.unpack(tmp_path)
