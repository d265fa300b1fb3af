"""The addresses, fields and states of the original orchestrator, answered by the same use-cases."""

import json
from pathlib import Path

import anyio
import pytest

from homeport.vocabulary import Trigger
from tests.support.running_central import Client, FakeSite, transition

pytestmark = pytest.mark.anyio


async def test_a_client_of_the_original_api_deploys_and_follows_to_the_end(client: Client, registry: Path) -> None:
    assert (await client.get("/api/v1/healthz")).body["status"] == "ok"
    added = await client.post("/api/v1/apps", {"repo_url": str(registry)})
    assert added.status == 201, added.body
    home = FakeSite(client)
    await home.join()
    deployed = await client.deploy("home", deploy_type="compose")
    assert deployed.status == 202, deployed.body
    (id_,) = deployed.body["deployment_ids"]
    status = f"/api/v1/deployments/{id_}/status"
    before = (await client.get(status)).body
    assert (before["state"], before["phase"], before["hosts"]) == ("PENDING", "Pending", [])

    await home.say(transition(id_, Trigger.SCHEDULED))
    during = (await client.get(status)).body
    assert (during["state"], during["phase"], len(during["hosts"])) == ("INSTALLING", "Installing", 1)
    await home.say(transition(id_, Trigger.HEALTHY))
    with anyio.fail_after(60):
        answer = await client.get(f"/api/v1/deployments/{id_}/stream")
    lines = [
        json.loads(line.removeprefix("data: ")) for line in answer.body.splitlines() if line.startswith("data: ")
    ]
    assert lines[0]["status"] == "INSTALLED" and lines[0]["site_id"] == "home"


async def test_an_app_is_removed_by_its_name(client: Client, home: FakeSite) -> None:
    unknown = await client.call("DELETE", "/api/v1/apps", json={"app_name": "helo"})
    assert unknown.status == 404 and "hello" in unknown.body["hint"]
    gone = await client.call("DELETE", "/api/v1/apps", json={"app_name": "hello", "version": "1.0.0"})
    assert (gone.status, gone.body["status"], gone.body["version"]) == (200, "deleted", "1.0.0")
    left = (await client.get("/api/v1/apps")).body["apps"]
    assert [app["version"] for app in left] == ["1.1.0"]
