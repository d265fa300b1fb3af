"""Two centrals on one database and one repository are one central to people, programs and sites."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from homeport.central.app import open_central
from homeport.central.settings import CentralSettings
from homeport.core.model.report import NodeChanged
from homeport.errors import Refused
from homeport.vocabulary import Trigger
from tests.support.postgres import PostgresServer
from tests.support.replicas import TwoCentrals, two_centrals
from tests.support.running_central import Client, FakeSite, Sent, node_changed, transition, write_app
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio


@pytest.fixture
async def store_url(postgres: PostgresServer) -> AsyncIterator[str]:
    name = await postgres.copy_database()
    yield postgres.url(name)
    await postgres.drop_database(name)


@pytest.fixture
async def two(tmp_path: Path, store_url: str) -> AsyncIterator[TwoCentrals]:
    async with two_centrals(tmp_path, store_url) as two:
        registry = tmp_path / "registry"
        write_app(registry, version="1.0.0")
        write_app(registry, version="1.1.0")
        added = await two.any.post("/api/v1/apps", {"repository": str(registry)})
        assert added.status == 201, added.body
        yield two


@asynccontextmanager
async def watching(client: Client, site: str) -> AsyncIterator[list[dict[str, Any]]]:
    """What a site hears that is connected to this replica."""
    heard: list[dict[str, Any]] = []

    async def listen() -> None:
        async for sent in client.events(f"/api/v1/sites/{site}/watch"):
            heard.append({"event": sent.event, **sent.data})

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listen)
        yield heard
        tasks.cancel_scope.cancel()


async def read(client: Client, count: int, **headers: str) -> list[Sent]:
    found: list[Sent] = []
    async for sent in client.events(**headers):
        found.append(sent)
        if len(found) == count:
            break
    return found


async def test_a_life_of_a_deployment_through_both(two: TwoCentrals) -> None:
    site = FakeSite(two.any)
    await site.join()
    await site.say(node_changed())
    made = await two.any.deploy("home", version="1.0.0")
    assert made.status == 202, made.body
    (key,) = made.body["deployment_ids"]
    await say_steps(site, two.any, key, Trigger.SCHEDULED, Trigger.HEALTHY, generation=1)
    updated = await two.any.deploy("home", version="1.1.0")
    assert updated.status == 202, updated.body
    await say_steps(site, two.any, key, Trigger.CHANGED, Trigger.HEALTHY, generation=2)
    for client in (two.one, two.other):
        shown = (await client.get(f"/api/v1/deployments/{key}")).body
        assert (shown["state"], shown["app_version"]) == ("INSTALLED", "1.1.0")
    back = await two.any.post(f"/api/v1/deployments/{key}/rollback", {"reason": "not good"})
    assert back.status == 202, back.body
    assert (await two.any.get(f"/api/v1/deployments/{key}")).body["app_version"] == "1.0.0"
    gone = await two.any.delete(f"/api/v1/deployments/{key}")
    assert gone.status == 202, gone.body
    await say_steps(site, two.any, key, Trigger.UNWANTED, Trigger.REMOVED, generation=3)
    for client in (two.one, two.other):
        assert (await client.get(f"/api/v1/deployments/{key}")).body["state"] == "DELETED"


async def say_steps(site: FakeSite, client: Client, key: str, *steps: Trigger, generation: int) -> None:
    revision = (await client.get(f"/api/v1/deployments/{key}")).body["revision"]
    await site.say(*(transition(key, step, generation=generation, revision=revision) for step in steps))


async def test_deploys_at_both_at_once_lose_nothing_and_each_commit_is_shown_once(two: TwoCentrals) -> None:
    sites = [f"site-{number}" for number in range(8)]
    for name in sites:
        await FakeSite(two.any, name, epoch=f"epoch-{name}").join()
    statuses: list[int] = []

    async def deploy(client: Client, site: str) -> None:
        statuses.append((await client.deploy(site, version="1.0.0")).status)

    async with anyio.create_task_group() as tasks:
        for number, site in enumerate(sites):
            tasks.start_soon(deploy, two.one if number % 2 else two.other, site)
    assert statuses == [202] * len(sites)
    for client in (two.one, two.other):
        rows = (await client.get("/api/v1/deployments")).body["deployments"]
        assert sorted(row["site"] for row in rows) == sites
    created = [sent for sent in await everything(two.one) if sent.event == "deployment.created"]
    assert sorted(sent.data["site"] for sent in created) == sites


async def everything(client: Client) -> list[Sent]:
    last = (await client.get("/api/v1/overview")).body["last_event_id"]
    return await read(client, last, **{"Last-Event-ID": "0"})


async def test_both_stream_one_log_and_a_stream_resumes_at_the_other(two: TwoCentrals) -> None:
    site = FakeSite(two.any)
    await site.join()
    async with anyio.create_task_group() as tasks:
        live: list[Sent] = []

        async def follow() -> None:
            async for sent in two.other.events(**{"Last-Event-ID": "0"}):
                live.append(sent)

        tasks.start_soon(follow)
        for number in range(10):
            await site.say(node_changed(f"node-{number}"))
            await two.any.deploy("home", app="hello", name=f"hello-{number}", version="1.0.0")
        first = await everything(two.one)
        assert [sent.id for sent in first] == [str(number) for number in range(1, len(first) + 1)]
        await eventually(lambda: len(live) >= len(first), what="the other replica to stream them too")
        assert [(sent.id, sent.event) for sent in live[: len(first)]] == [(sent.id, sent.event) for sent in first]
        resumed = await read(two.other, len(first) - 5, **{"Last-Event-ID": "5"})
        assert [sent.id for sent in resumed] == [sent.id for sent in first[5:]]
        tasks.cancel_scope.cancel()


async def test_a_request_at_one_reaches_the_site_that_is_connected_to_the_other(two: TwoCentrals) -> None:
    site = FakeSite(two.any)
    await site.join()
    await site.say(node_changed("node-a"))
    statuses: list[int] = []

    async def drain() -> None:
        statuses.append((await two.other.post("/api/v1/nodes/node-a/drain", {"reason": "new disk"})).status)

    async with watching(two.one, "home") as heard:
        await eventually(lambda: any(each["event"] == "moved" for each in heard))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(drain)
            asked = await eventually(lambda: [each for each in heard if each["event"] == "drain-node"])
            assert asked[0]["drain"] == {"node_id": "node-a", "reason": "new disk"}
            await site.say(NodeChanged(replace(node_changed("node-a").node, drain="new disk")))
    assert statuses == [200]


async def test_a_question_at_one_is_answered_through_the_other(two: TwoCentrals) -> None:
    await FakeSite(two.any).join()
    answers: list[Any] = []

    async def ask() -> None:
        answers.append(await two.one.get("/api/v1/sites/home/nodes/identities"))

    async with watching(two.other, "home") as heard:
        await eventually(lambda: heard)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            asked = await eventually(lambda: [each for each in heard if each["event"] == "node-identities"])
            wide = {"identities": [identity(number) for number in range(100)]}
            given = await two.other.post(f"/api/v1/sites/home/answers/{asked[0]['question']}", wide)
            assert given.status == 204, given.body
    assert answers[0].status == 200, answers[0].body
    assert len(answers[0].body["identities"]) == 100, "more than a notification can hold"
    unasked = await two.other.post("/api/v1/sites/home/answers/nobody", {})
    assert unasked.status == 404


def identity(number: int) -> dict[str, Any]:
    return {
        "spiffe_id": f"spiffe://homeport.internal/homeport/site/home/node/node-{number}",
        "kind": "node",
        "name": f"node-{number}",
        "site": "home",
        "standing": "accepted",
        "key": "sha256:0",
        "not_after": None,
        "address": "",
        "requested_at": "2026-01-01T00:00:00Z",
        "decided_at": None,
        "decided_by": "",
    }


async def test_a_site_that_listens_to_neither_is_said_to_be_gone(two: TwoCentrals) -> None:
    site = FakeSite(two.any)
    await site.join()
    await site.say(node_changed("node-a"))
    answer = await two.any.post("/api/v1/nodes/node-a/drain", {"reason": "new disk"})
    assert answer.status == 503
    assert "not connected" in answer.body["detail"]


async def test_a_deploy_at_one_is_told_to_the_sites_of_the_other(two: TwoCentrals) -> None:
    await FakeSite(two.any).join()
    async with watching(two.other, "home") as heard:
        commit = (await two.one.deploy("home", version="1.0.0")).body["commit"]
        await eventually(lambda: any(each.get("commit") == commit for each in heard))


async def test_a_token_counts_everywhere_at_once_and_so_does_its_end(two: TwoCentrals) -> None:
    for number in range(5):
        made = await two.one.post("/api/v1/tokens", {"name": f"ada-{number}", "role": "viewer"})
        assert made.status == 201, made.body
        headers = {"Authorization": f"Bearer {made.body['token']}"}
        assert (await two.other.get("/api/v1/sites", headers=headers)).status == 200
        ended = anyio.Event()

        async def stream(headers: dict[str, str] = headers, ended: anyio.Event = ended) -> None:
            async for _ in two.other.events(**headers):
                pass
            ended.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stream)
            await anyio.sleep(0.05)
            await two.one.delete(f"/api/v1/tokens/{made.body['id']}")
            with anyio.fail_after(60):
                await ended.wait()
        assert (await two.other.get("/api/v1/sites", headers=headers)).status == 401


async def test_secrets_of_one_are_opened_by_the_other_also_after_the_key_has_changed(two: TwoCentrals) -> None:
    await FakeSite(two.any).join()
    for number, client in enumerate((two.one, two.other) * 2):
        done = await client.put(f"/api/v1/sites/home/secrets/name-{number}", {"value": f"value-{number}"})
        assert done.status in (200, 201), done.body
        if number == 1:
            changed = await two.one.post("/api/v1/secrets/rotate-key", {})
            assert changed.status == 200, changed.body
    for client, app in zip((two.one, two.other), two.apps, strict=True):
        headers = {"Authorization": f"Bearer {app.parts.local.machine}"}
        body = (await client.get("/api/v1/sites/home/secrets/values", headers=headers)).body
        assert f"value-{3}" in json.dumps(body)


async def test_a_silent_site_is_said_to_be_silent_once_whoever_sweeps(tmp_path: Path, store_url: str) -> None:
    async with two_centrals(tmp_path, store_url, site_silence_seconds=0.3) as two:
        for name in ("a", "b"):
            await FakeSite(two.any, name, epoch=name).join()

        async def said() -> list[str]:
            return [sent.data["site"] for sent in await everything(two.any) if sent.event == "site.problem"]

        await eventually(said, what="the sites to be said silent")
    # Closing lets go of the leases: whoever comes next takes over, and says nothing again.
    async with two_centrals(tmp_path, store_url, site_silence_seconds=0.3) as two:
        await anyio.sleep(1.0)
        assert sorted(await said_again(two)) == ["a", "b"]


async def said_again(two: TwoCentrals) -> list[str]:
    return [sent.data["site"] for sent in await everything(two.one) if sent.event == "site.problem"]


async def test_a_rollout_moves_through_its_waves_once_whoever_moves_it(tmp_path: Path, store_url: str) -> None:
    settings = {"site_silence_seconds": 60.0}
    async with two_centrals(tmp_path, store_url, **settings) as two:
        write_app(tmp_path / "registry", version="1.0.0")
        await two.any.post("/api/v1/apps", {"repository": str(tmp_path / "registry")})
        sites = {name: FakeSite(two.any, name, epoch=name) for name in ("a", "b", "c")}
        for site in sites.values():
            await site.join()
            await site.say(node_changed(site=site.name))
            await two.any.call("PATCH", f"/api/v1/sites/{site.name}", json={"labels": {"ring": "1"}})
        begun = await two.any.post(
            "/api/v1/deployments",
            {"app_name": "hello", "selector": "ring=1", "waves": [1, 2, "100%"]},
        )
        assert begun.status == 202, begun.body
        rollout = begun.body["rollout_id"]
        for number in range(3):
            rows = await eventually(lambda: deployed(two.any, number + 1), what=f"wave {number + 1}")  # noqa: B023
            for row in rows:
                if row["state"] == "PENDING":
                    site = sites[row["site"]]
                    await say_steps(site, two.any, row["id"], Trigger.SCHEDULED, Trigger.HEALTHY, generation=1)
        await eventually(lambda: state_of(two.other, rollout, "done"))
        told = [sent.data["data"]["state"] for sent in await everything(two.other) if sent.event == "rollout.state"]
        assert told.count("done") == 1, told


async def deployed(client: Client, count: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = (await client.get("/api/v1/deployments")).body["deployments"]
    return rows if len(rows) >= count else []


async def state_of(client: Client, rollout: str, state: str) -> bool:
    return bool((await client.get(f"/api/v1/rollouts/{rollout}")).body["state"] == state)


async def test_a_replica_with_other_keys_is_refused(tmp_path: Path, store_url: str, two: TwoCentrals) -> None:
    settings = CentralSettings(
        data=tmp_path / "third", store_url=store_url, http_address=("127.0.0.1", 0), grpc_address=None
    )
    with pytest.raises(Refused, match="not those of the other centrals"):
        async with open_central(settings):
            pass


async def test_a_rotation_of_the_authority_goes_on_at_the_other_without_a_restart(two: TwoCentrals) -> None:
    async def shows(client: Client, phase: str, anchors: int) -> bool:
        found = (await client.get("/api/v1/authority")).body
        return (found["phase"], found["anchors"]) == (phase, anchors)

    steps = [("begin", "announced", 2), ("switch", "switched", 2), ("finish", "steady", 1)]
    for turn, (step, phase, anchors) in enumerate(steps):
        here, there = (two.one, two.other) if turn % 2 else (two.other, two.one)
        done = await here.post("/api/v1/authority/rotation", {"step": step, "force": True})
        assert (done.status, done.body["phase"]) == (200, phase)
        await eventually(partial(shows, there, phase, anchors), what=f"{phase} at the other replica")
    bundles = [app.parts.identity.authority.bundle() for app in two.apps]
    assert bundles[0] == bundles[1]
    owns = [app.parts.identity.credentials for app in two.apps]
    await eventually(
        lambda: [own.bundle for own in owns] == bundles, what="both to show a certificate of the new root"
    )
