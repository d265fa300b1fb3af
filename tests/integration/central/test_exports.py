"""What happened, as lines of JSON: all of it, of one deployment, of a site, of a time."""

import json
from datetime import timedelta
from typing import Any

import pytest

from homeport.central.app import CentralApp
from homeport.core.model.event import NewEvent
from homeport.ports import Transaction
from homeport.serving.routes.export import PAGE
from homeport.vocabulary import DeploymentId, EventKind, SiteName, Trigger
from tests.support.running_central import AT, Client, FakeSite, transition

pytestmark = pytest.mark.anyio


def lines(answer: Any) -> list[dict[str, Any]]:
    assert answer.status == 200, answer.body
    return [json.loads(line) for line in answer.body.splitlines()]


@pytest.fixture
async def ids(client: Client, home: FakeSite) -> tuple[str, str]:
    """A deployment at `home`, installed and gone again, and one at `line-7`."""
    other = FakeSite(client, "line-7")
    await other.join()
    await client.deploy("home", "line-7")
    made = (await client.get("/api/v1/deployments")).body["deployments"]
    first, second = (item["id"] for item in sorted(made, key=lambda item: str(item["site"])))
    await home.say(transition(first, Trigger.SCHEDULED), transition(first, Trigger.HEALTHY))
    await other.say(transition(second, Trigger.SCHEDULED, node="node-b"))
    assert (await client.delete(f"/api/v1/deployments/{first}")).status in (200, 202)
    await home.say(transition(first, Trigger.UNWANTED), transition(first, Trigger.REMOVED))
    return first, second


async def test_every_step_has_time_device_and_reason(client: Client, ids: tuple[str, str]) -> None:
    first, second = ids
    found = lines(await client.get("/api/v1/history/export"))
    assert [(line["deployment_id"], line["site"], line["node_id"], line["after"]) for line in found] == [
        (first, "home", "node-a", "INSTALLING"),
        (first, "home", "node-a", "INSTALLED"),
        (second, "line-7", "node-b", "INSTALLING"),
        (first, "home", "node-a", "DELETING"),
        (first, "home", "node-a", "DELETED"),
    ]
    assert all(line["at"] and line["reason"] and line["actor"] and line["name"] == "hello" for line in found)
    assert [line["id"] for line in found] == sorted(line["id"] for line in found)
    assert lines(await client.get(f"/api/v1/history/export?deployment={second}")) == [found[2]]
    assert lines(await client.get("/api/v1/history/export?site=line-7")) == [found[2]]
    assert lines(await client.get(f"/api/v1/history/export?after={found[2]['id']}")) == found[3:]
    later = (AT + timedelta(seconds=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert lines(await client.get(f"/api/v1/history/export?since={later}")) == []
    assert lines(await client.get(f"/api/v1/history/export?until={later}")) == found
    assert (await client.get("/api/v1/history/export?deployment=nobody@home")).status == 404


async def test_a_long_log_is_exported_whole_page_by_page(client: Client, central: CentralApp) -> None:
    count = 2 * PAGE + 7

    async def work(tx: Transaction) -> None:
        await tx.append_events(
            [
                NewEvent(
                    EventKind.SITE_PROBLEM,
                    AT + timedelta(seconds=number),
                    f"number {number}",
                    site=SiteName("home" if number % 2 else "line-7"),
                    deployment_id=DeploymentId("d") if number < 10 else None,
                )
                for number in range(count)
            ]
        )

    before = (await client.get("/api/v1/overview")).body["last_event_id"]
    await central.parts.store.write(work)
    found = lines(await client.get(f"/api/v1/events/export?after={before}"))
    assert [line["message"] for line in found] == [f"number {number}" for number in range(count)]
    assert [line["id"] for line in found] == [*range(before + 1, before + count + 1)]
    ours = lines(await client.get(f"/api/v1/events/export?after={before}&site=home"))
    assert ours == [line for line in found if line["site"] == "home"]
    since, until = found[100]["at"], found[900]["at"]
    between = lines(await client.get(f"/api/v1/events/export?after={before}&since={since}&until={until}"))
    assert between == found[100:900]


async def test_somebody_limited_to_a_site_exports_only_that(client: Client, ids: tuple[str, str]) -> None:
    made = await client.post("/api/v1/tokens", {"name": "line", "role": "viewer", "sites": ["line-7"]})
    assert made.status == 201, made.body
    headers = {"Authorization": f"Bearer {made.body['token']}"}
    for kind in ("history", "events"):
        found = lines(await client.get(f"/api/v1/{kind}/export", headers=headers))
        sites = {line["site"] for line in found}
        assert "line-7" in sites
        assert "home" not in sites
