"""A plan says what would happen, at which site and node and to which component, and changes nothing."""

from typing import Any

import pytest

from homeport.core.model.deployment import Hold
from homeport.core.model.instance import Failure
from homeport.core.model.report import HoldsChanged
from homeport.vocabulary import Code, Liveness, SiteName, Trigger
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
            transition(id_, Trigger.SCHEDULED, node=node, revision=revision),
            transition(id_, Trigger.HEALTHY, node=node, revision=revision),
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


async def test_a_node_that_the_site_does_not_have_is_refused_and_nothing_is_written(
    client: Client, home: FakeSite
) -> None:
    await installed(client, home, "node-a", version="1.0.0")
    before = await look(client)
    body = {"app_name": "hello", "version": "1.1.0", "sites": [{"site_id": "home", "host_ids": ["node-b"]}]}
    for path in ("/api/v1/deployments", "/api/v1/deployments?plan=true"):
        refused = await client.post(path, body)
        assert (refused.status, refused.body["detail"]) == (404, 'Site "home" has no node called "node-b".')
        assert 'Did you mean "node-a"?' in refused.body["hint"]
    assert await look(client) == before


async def test_a_site_without_nodes_may_be_prepared_for_one(client: Client, home: FakeSite) -> None:
    found = await plan(client, sites=[{"site_id": "home", "host_ids": ["node-a"]}])
    assert found["deployments"][0]["waits"] == "site home has no node yet"


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


async def test_a_plan_after_an_automatic_rollback_compares_with_what_runs(client: Client, home: FakeSite) -> None:
    id_ = await installed(client, home, "node-a", version="1.0.0")
    path = f"/api/v1/deployments/{id_}"
    old = (await client.get(path)).body["revision"]
    await client.deploy(version="1.1.0")
    bad = (await client.get(path)).body["revision"]
    failure = Failure(Code.EXITED, "web ended with exit code 1.", "web")
    await home.say(
        transition(id_, Trigger.CHANGED, node="node-a", generation=2, revision=bad),
        transition(id_, Trigger.GAVE_UP, node="node-a", generation=2, revision=bad, failure=failure),
        transition(id_, Trigger.ROLLED_BACK, node="node-a", generation=3, revision=old),
        transition(id_, Trigger.HEALTHY, node="node-a", generation=3, revision=old),
    )
    (instance,) = (await client.get(path)).body["instances"]
    assert instance["failure"]["message"] == failure.message
    back = await plan(client, version="1.0.0")
    (node,) = back["deployments"][0]["nodes"]
    assert [part["action"] for part in node["components"]] == ["keep", "keep"], "1.0.0 runs already"
    assert back["restarts"] == 0
    removal = (await client.delete(f"{path}?plan=true")).body
    (node,) = removal["deployments"][0]["nodes"]
    assert [part["component"] for part in node["components"]] == ["web", "cache"]
    # Git asks for it too: what failed is past, for the node as for the deployment.
    assert (await client.post(f"{path}/rollback", {"to": old})).status == 202
    shown = (await client.get(path)).body
    assert (shown["note"], shown["instances"][0]["failure"]) == ("", None)


async def test_an_update_keeps_what_was_given_before_and_the_plan_and_the_answer_say_so(
    client: Client, home: FakeSite
) -> None:
    given = {"parameters": {"greeting": "Ahoy"}, "policy": {"retries": 7}, "placement": {"mode": "one"}}
    await installed(client, home, "node-a", version="1.0.0", **given)
    kept = {"greeting": '"Ahoy"', "retries": "7", "placement": "one"}
    (only,) = (await plan(client, version="1.1.0"))["deployments"]
    assert (only["kept"], only["dropped"], only["parameters"]) == (kept, {}, [])
    answer = await client.deploy(version="1.1.0")
    assert answer.body["kept"] == [{"site": "home", "kept": kept, "dropped": {}}]
    (id_,) = answer.body["deployment_ids"]
    assert (await client.get(f"/api/v1/deployments/{id_}")).body["parameters"]["greeting"] == "Ahoy"
    assert (await client.deploy(version="1.1.0")).body["unchanged"] == [id_]
    (only,) = (await plan(client, version="1.1.0", reset_values=True))["deployments"]
    assert only["parameters"] == [{"name": "greeting", "before": "Ahoy", "after": "Hello"}]
    assert only["kept"] == {}


async def test_a_rollout_keeps_what_each_site_was_given(client: Client, home: FakeSite) -> None:
    await client.deploy(version="1.0.0", parameters={"greeting": "Ahoy"})
    answer = await client.deploy(version="1.1.0", waves=["100%"])
    assert answer.status == 202, answer.body
    (id_,) = answer.body["deployment_ids"]
    shown = (await client.get(f"/api/v1/deployments/{id_}")).body
    assert (shown["app_version"], shown["parameters"]["greeting"]) == ("1.1.0", "Ahoy")


async def failed(client: Client, home: FakeSite, id_: str) -> str:
    revision = str((await client.get(f"/api/v1/deployments/{id_}")).body["revision"])
    failure = Failure("IMAGE_PULL_FAILED", "no such image", "web")
    await home.say(
        node_changed("node-a"),
        transition(id_, Trigger.SCHEDULED, node="node-a", revision=revision),
        transition(id_, Trigger.GAVE_UP, node="node-a", revision=revision, failure=failure),
    )
    return revision


async def test_deploying_again_after_a_failure_asks_again_and_so_does_retry(client: Client, home: FakeSite) -> None:
    (id_,) = (await client.deploy(version="1.0.0")).body["deployment_ids"]
    before = await failed(client, home, id_)
    again = (await client.deploy(version="1.0.0")).body
    shown = (await client.get(f"/api/v1/deployments/{id_}")).body
    assert again["unchanged"] == [] and shown["revision"] != before
    assert (await client.post(f"/api/v1/deployments/{id_}/retry", {})).status == 409, (
        "the new revision has not failed"
    )
    assert (await client.deploy(version="1.0.0")).body["unchanged"] == [id_], "it is asked for once, until that fails"


async def test_what_failed_can_be_tried_again_and_what_runs_restarted(client: Client, home: FakeSite) -> None:
    (id_,) = (await client.deploy(version="1.0.0")).body["deployment_ids"]
    before = await failed(client, home, id_)
    tried = await client.post(f"/api/v1/deployments/{id_}/retry", {"reason": "the image is there now"})
    assert tried.status == 202 and tried.body["revision"] != before
    restarted = await client.post(f"/api/v1/deployments/{id_}/restart", {})
    assert restarted.status == 202
    (only,) = (await plan(client, version="1.0.0"))["deployments"]
    assert only["action"] == "unchanged", "a restart stays in the file, or the next deploy would restart once more"
    entries = (await client.get("/api/v1/audit")).body["entries"]
    assert {"deployments.retry", "deployments.restart"} <= {entry["action"] for entry in entries}
