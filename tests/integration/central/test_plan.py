"""A plan says what would happen, at which site and node and to which component, and changes nothing."""

from typing import Any

import pytest

from homeport.core.model.deployment import Hold
from homeport.core.model.report import HoldsChanged
from homeport.vocabulary import Happening, Liveness, SiteName
from tests.support.running_central import AT, Client, FakeSite, node_changed, transition

pytestmark = pytest.mark.anyio


async def plan(client: Client, **body: Any) -> Any:
    wanted = {"app_name": "hello", "sites": [{"site_id": "home"}], **body}
    before = await look(client)
    answer = await client.post("/api/v1/deployments?plan=true", wanted)
    assert answer.status == 200, answer.body
    assert await look(client) == before, "a plan changes nothing"
    return answer.body


async def look(client: Client) -> tuple[Any, ...]:
    overview = (await client.get("/api/v1/overview")).body
    return overview["commit"], overview["last_event_id"], overview["deployments"]


async def installed(client: Client, home: FakeSite, *nodes: str, **body: Any) -> str:
    (id_,) = (await client.deploy(**body)).body["deployment_ids"]
    revision = (await client.get(f"/api/v1/deployments/{id_}")).body["revision"]
    for node in nodes:
        await home.say(
            node_changed(node),
            transition(id_, Happening.SCHEDULED, node=node, revision=revision),
            transition(id_, Happening.HEALTHY, node=node, revision=revision),
        )
    return str(id_)


async def test_a_first_deploy_installs_every_component_on_every_node(client: Client, home: FakeSite) -> None:
    await home.say(node_changed("node-a"), node_changed("node-b", liveness=Liveness.LOST))
    found = await plan(client, version="1.0.0")
    (only,) = found["deployments"]
    assert (found["changes"], found["restarts"], found["deletions"]) == (True, 0, 0)
    assert (only["action"], only["deployment_id"], only["version_after"]) == ("create", None, "1.0.0")
    (node,) = only["nodes"]
    assert node["node_id"] == "node-a"
    assert [(part["component"], part["action"]) for part in node["components"]] == [
        ("web", "install"),
        ("cache", "install"),
    ]
    (refused,) = only["refused"]
    assert refused["node_id"] == "node-b"
    assert only["parameters"][0] == {"name": "greeting", "before": None, "after": "Hello"}


async def test_an_update_replaces_what_differs_keeps_the_rest_and_says_why(client: Client, home: FakeSite) -> None:
    await installed(client, home, "node-a", version="1.0.0")
    found = await plan(client, version="1.1.0", parameters={"greeting": "Ahoy"})
    (only,) = found["deployments"]
    assert (only["action"], only["version_before"], only["version_after"]) == ("update", "1.0.0", "1.1.0")
    web, cache = only["nodes"][0]["components"]
    assert (web["action"], web["why"]) == ("replace", "revision 1.0.0 → 1.1.0, environment GREETING changed")
    assert (cache["action"], cache["why"]) == ("keep", "unchanged")
    assert found["restarts"] == 1
    assert only["parameters"] == [{"name": "greeting", "before": "Hello", "after": "Ahoy"}]


async def test_nothing_to_do_is_no_change(client: Client, home: FakeSite) -> None:
    await installed(client, home, "node-a")
    found = await plan(client)
    assert found["changes"] is False
    assert [part["action"] for part in found["deployments"][0]["nodes"][0]["components"]] == ["keep", "keep"]


async def test_naming_nodes_takes_it_away_from_the_others(client: Client, home: FakeSite) -> None:
    await installed(client, home, "node-a", "node-b")
    found = await plan(client, sites=[{"site_id": "home", "host_ids": ["node-b"]}])
    (only,) = found["deployments"]
    by_node = {node["node_id"]: [part["action"] for part in node["components"]] for node in only["nodes"]}
    assert by_node == {"node-a": ["remove", "remove"], "node-b": ["keep", "keep"]}
    assert found["deletions"] == 2


async def test_a_plan_for_a_site_on_hold_says_until_when_it_waits(client: Client, home: FakeSite) -> None:
    id_ = await installed(client, home, "node-a", version="1.0.0")
    await home.say(HoldsChanged((Hold(SiteName("home"), None, "night shift", "anna", AT, AT.replace(year=2999)),)))
    held = "site home is held until 2999-01-01 00:00 UTC by anna: night shift"
    assert (await plan(client, version="1.1.0"))["deployments"][0]["waits"] == held
    assert (await plan(client, version="1.0.0"))["deployments"][0]["waits"] is None, "nothing is to change"
    gone = await client.delete(f"/api/v1/deployments/{id_}?plan=true")
    assert gone.body["deployments"][0]["waits"] == held


async def test_a_site_without_nodes_waits_and_says_so(client: Client, home: FakeSite) -> None:
    found = await plan(client)
    assert found["deployments"][0]["waits"] == "site home has no node yet"


async def test_a_deletion_is_planned_too(client: Client, home: FakeSite) -> None:
    id_ = await installed(client, home, "node-a")
    before = await look(client)
    answer = await client.delete(f"/api/v1/deployments/{id_}?plan=true")
    assert (answer.status, await look(client)) == (200, before)
    (only,) = answer.body["deployments"]
    assert (only["action"], answer.body["deletions"], answer.body["changes"]) == ("delete", 2, True)
