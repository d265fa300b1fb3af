"""Live events: named, with ids, resumed without a gap, also across a restart of central."""

from contextlib import aclosing
from pathlib import Path

import aiohttp
import anyio
import pytest

from homeport.central.app import open_central
from homeport.central.settings import CentralSettings
from homeport.core.model.order import Progress
from homeport.core.model.report import Progressed
from homeport.vocabulary import DeploymentId, Generation, NodeId, Step, Trigger
from tests.support.git import Person, bare_repository
from tests.support.git_http import serve_git
from tests.support.local import local_key
from tests.support.running_central import (
    AT,
    Client,
    FakeSite,
    Sent,
    indexed,
    node_changed,
    running_central,
    transition,
    write_app,
)

pytestmark = pytest.mark.anyio


async def take(client: Client, path: str, until: str, **headers: str) -> list[Sent]:
    """Events up to and with the first one of the named kind."""
    found: list[Sent] = []
    with anyio.fail_after(60):
        async with aclosing(client.events(path, **headers)) as events:
            async for sent in events:
                found.append(sent)
                if sent.event == until:
                    break
    return found


async def test_a_late_joiner_gets_the_present_state_first_and_then_what_happens(
    client: Client, home: FakeSite
) -> None:
    (id_,) = (await client.deploy()).body["deployment_ids"]
    seen: list[Sent] = []
    async with anyio.create_task_group() as tasks:

        async def listen() -> None:
            seen.extend(await take(client, "/api/v1/events", "deployment.state"))
            seen.extend(await take(client, "/api/v1/events", "instance.state", **{"Last-Event-ID": seen_id[0]}))

        seen_id = [str((await client.get("/api/v1/overview")).body["last_event_id"])]
        tasks.start_soon(listen)
        await home.say(transition(id_, Trigger.SCHEDULED))
    assert (seen[0].event, seen[0].data["deployment_id"], seen[0].id) == ("deployment.state", id_, None)
    assert seen[-1].event == "instance.state"
    assert seen[-1].data["data"]["after"] == "INSTALLING"


async def test_the_stream_of_one_deployment_shows_its_progress_and_ends_when_it_is_settled(
    client: Client, home: FakeSite
) -> None:
    (id_,) = (await client.deploy()).body["deployment_ids"]
    (other,) = (await client.deploy(name="other")).body["deployment_ids"]
    revision = (await client.get(f"/api/v1/deployments/{id_}")).body["revision"]
    seen: list[Sent] = []
    started = anyio.Event()

    async def listen() -> None:
        async for sent in client.events(f"/api/v1/deployments/{id_}/events?until=settled"):
            seen.append(sent)
            if sent.event == "snapshot":
                started.set()

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listen)
            await started.wait()
            progress = Progress(
                DeploymentId(id_), Generation(1), Step.PULLING, "web", "pulling web 61 %", AT, 61, 100
            )
            await home.say(
                node_changed(),
                transition(other, Trigger.SCHEDULED),
                transition(id_, Trigger.SCHEDULED, revision=revision),
                Progressed(NodeId("node-a"), progress),
            )
            shown = (await client.get(f"/api/v1/deployments/{id_}")).body
            assert shown["note"] == "node-a: pulling web 61 %"
            await home.say(transition(id_, Trigger.HEALTHY, revision=revision))
    live = [sent for sent in seen if sent.id is not None and sent.event != "snapshot"]
    assert [sent.event for sent in live] == [
        "instance.state",
        "deployment.state",
        "deployment.progress",
        "instance.state",
        "deployment.state",
    ]
    assert live[-1].data["data"]["state"] == "INSTALLED"
    assert {sent.data["deployment_id"] for sent in live} == {id_}


async def test_an_instance_that_turns_unhealthy_is_shown_with_reason_and_event(
    client: Client, home: FakeSite
) -> None:
    (id_,) = (await client.deploy()).body["deployment_ids"]
    revision = (await client.get(f"/api/v1/deployments/{id_}")).body["revision"]
    sick = Progress(
        DeploymentId(id_), Generation(1), Step.DRIFTED, "web", "web: GET / answered 500", AT, healthy=False
    )
    await home.say(
        node_changed(),
        transition(id_, Trigger.SCHEDULED, revision=revision),
        transition(id_, Trigger.HEALTHY, revision=revision),
        Progressed(NodeId("node-a"), sick),
    )
    shown = (await client.get(f"/api/v1/deployments/{id_}")).body
    (instance,) = shown["instances"]
    assert (shown["state"], instance["health"]) == ("INSTALLED", "unhealthy")
    assert instance["health_reason"] == "web: GET / answered 500"
    assert "unhealthy for" in shown["note"]
    seen = await take(client, "/api/v1/events", "instance.unhealthy", **{"Last-Event-ID": "0"})
    assert seen[-1].data["node_id"] == "node-a"


async def test_a_stream_that_waits_for_an_update_is_not_fooled_by_the_old_release(
    client: Client, home: FakeSite
) -> None:
    (id_,) = (await client.deploy(version="1.0.0")).body["deployment_ids"]
    revision = (await client.get(f"/api/v1/deployments/{id_}")).body["revision"]
    await home.say(
        transition(id_, Trigger.SCHEDULED, revision=revision), transition(id_, Trigger.HEALTHY, revision=revision)
    )
    assert [sent.event async for sent in client.events(f"/api/v1/deployments/{id_}/events?until=settled")][-1] == (
        "snapshot"
    )
    await client.deploy(version="1.1.0")
    with anyio.move_on_after(0.5) as waited:
        async for _ in client.events(f"/api/v1/deployments/{id_}/events?until=settled"):
            pass
    assert waited.cancelled_caught


async def test_a_stream_resumes_without_a_gap_across_a_restart(tmp_path: Path) -> None:
    write_app(tmp_path / "registry")
    async with running_central(tmp_path / "central") as (_, client):
        await client.post("/api/v1/apps", {"repository": str(tmp_path / "registry")})
        await FakeSite(client).join()
        first = await take(client, "/api/v1/events?after=0", "site.joined")
        await client.deploy(name="before")
    async with running_central(tmp_path / "central") as (_, client):
        await client.deploy(name="after")
        rest: list[Sent] = []
        with anyio.fail_after(60):
            async for sent in client.events("/api/v1/events", **{"Last-Event-ID": str(first[-1].id)}):
                rest.append(sent)
                if sent.data["message"].startswith("after"):
                    break
    ids = [int(sent.id or 0) for sent in first + rest]
    assert ids == list(range(1, len(ids) + 1)), "every event once, in order, none missing"
    assert [sent.data["data"]["name"] for sent in rest if sent.event == "deployment.created"] == ["before", "after"]


async def test_a_cursor_from_another_life_of_the_log_starts_over(client: Client, home: FakeSite) -> None:
    await client.deploy()
    seen = await take(client, "/api/v1/events?after=999999", "snapshot")
    assert [sent.event for sent in seen] == ["deployment.state", "snapshot"]
    bad = await client.get("/api/v1/events", headers={"Last-Event-ID": "yesterday"})
    assert (bad.status, bad.fields) == (422, ["Last-Event-ID"])


async def test_open_streams_do_not_keep_central_from_stopping(tmp_path: Path) -> None:
    settings = CentralSettings(data=tmp_path / "central", http_address=("127.0.0.1", 0), grpc_address=None)
    async with aiohttp.ClientSession() as session, anyio.create_task_group() as tasks:
        async with open_central(settings) as central:
            session.headers.update(local_key(central))
            client = Client(f"http://127.0.0.1:{central.http_port}", session)
            opened = anyio.Event()

            async def listen() -> None:
                async for _ in client.events():
                    opened.set()

            for _ in range(5):
                tasks.start_soon(listen)
            await opened.wait()
            began = anyio.current_time()
        assert anyio.current_time() - began < 30, "followers do not end by themselves: it waited for them"


async def test_a_site_hears_at_once_that_the_repository_moved(client: Client, home: FakeSite) -> None:
    heard: list[str] = []
    changed = anyio.Event()

    async def listen() -> None:
        async for sent in client.events("/api/v1/sites/home/watch"):
            assert sent.event == "moved"
            heard.append(sent.data["commit"])
            changed.set()
            if len(heard) == 2:
                return

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listen)
            await changed.wait()
            commit = (await client.deploy()).body["commit"]
    assert heard[1] == commit
    assert (await client.get("/api/v1/overview")).body["commit"] == commit


async def test_a_webhook_makes_central_look_at_once(tmp_path: Path) -> None:
    """The remote is reached by a URL and polled once an hour, so only the webhook can be what is heard."""
    bare_repository(tmp_path / "remotes" / "deployments.git")
    with serve_git(tmp_path / "remotes") as server:
        url = server.url("deployments.git")
        async with running_central(tmp_path / "central", git_url=url, poll_seconds=3600) as (_, client):
            person = await anyio.to_thread.run_sync(Person, url, tmp_path / "work")
            person.write("deployments/far/site.yaml", "site: far\n")
            commit = await anyio.to_thread.run_sync(person.push)
            answer = await client.call("POST", "/api/v1/webhooks/git", data=b"payload=whatever")
            assert answer.status == 202
            await indexed(client, commit)
            assert (await client.get("/api/v1/sites/far")).body["last_seen"] is None


async def test_a_stream_about_one_thing_has_that_alone(client: Client, home: FakeSite) -> None:
    made = [(await client.deploy(version="1.0.0", name=name)).body["deployment_ids"][0] for name in ("one", "two")]
    await home.say(*(transition(key, Trigger.SCHEDULED) for key in made))
    path = f"/api/v1/events?subject=deployment/{made[1]}"
    seen = await take(client, path, "instance.state", **{"Last-Event-ID": "0"})
    assert {sent.data["subject"] for sent in seen} == {f"deployment/{made[1]}"}
    assert seen[0].event == "deployment.created"
    of_site = await take(client, "/api/v1/events?subject=site/home", "site.joined", **{"Last-Event-ID": "0"})
    assert {sent.data["subject"] for sent in of_site} == {"site/home"}
    wrong = await client.get("/api/v1/events?subject=deployment")
    assert (wrong.status, wrong.fields) == (422, ["subject[0]"])
