"""Every list comes in pages, with filters and fields, and what is wrong with the question is said."""

from typing import Any
from urllib.parse import quote

import pytest

from homeport.central.app import CentralApp
from homeport.core.model.instance import Failure
from homeport.vocabulary import Trigger
from tests.integration.central.test_tokens import make
from tests.support.running_central import Client, FakeSite, node_changed, transition

pytestmark = pytest.mark.anyio

NOT_LISTS = {
    "/api/v1/plan",  # one plan
    "/api/v1/overview",  # what needs attention is bounded
    "/api/v1/authority",
    "/api/v1/tokens/self",
    "/api/v1/deployments/{deployment_id}",
    "/api/v1/deployments/{deployment_id}/diff",
    "/api/v1/deployments/{deployment_id}/status",
    "/api/v1/deployments/{deployment_id}/revisions",  # as many as are kept of one
    "/api/v1/apps/{app_id}",
    "/api/v1/sites/{site}",
    "/api/v1/nodes/{node_id}",
    "/api/v1/nodes/{node_id}/telemetry",  # series of a range of time, with a step
    "/api/v1/deployments/{deployment_id}/telemetry",
    "/api/v1/nodes/{node_id}/heartbeats",
    "/api/v1/nodes/{node_id}/volumes",  # those of one machine, asked of it
    "/api/v1/pipelines/{name}",
    "/api/v1/pipeline-runs/{run}",  # its steps are bounded, and so are the items of one
    "/api/v1/pipeline-runs/{run}/steps/{step}",
    "/api/v1/jobs/{job}",
    "/api/v1/logs",  # lines have an order of their own, and no fields to choose
    "/api/v1/sites/{site}/devices",  # those of one Margo gateway
    "/api/v1/sites/{site}/devices/matches",
    "/api/v1/rollouts/{rollout}",
    "/api/v1/filter-values",  # the ten that leave most
    "/api/v1/why/{thing}",
    "/api/v1/jobs/{job}/why",
    "/api/v1/pipeline-runs/{run}/why",
}


async def test_every_list_takes_a_limit_a_cursor_an_order_and_fields(client: Client) -> None:
    document = (await client.get("/openapi.json")).body
    lists = {
        path: {parameter["name"] for parameter in item["get"].get("parameters", ())}
        for path, item in document["paths"].items()
        if path.startswith("/api/") and "get" in item and _has_array(document, item["get"]) and path not in NOT_LISTS
    }
    assert len(lists) >= 13, sorted(lists)
    unpaged = [path for path in lists if not {"limit", "cursor", "sort", "fields"} <= lists[path]]
    assert unpaged == [], "\n".join(unpaged)


def _has_array(document: Any, operation: Any) -> bool:
    content = operation["responses"].get("200", {}).get("content", {})
    schema = content.get("application/json", {}).get("schema", {})
    schema = document["components"]["schemas"].get(schema.get("$ref", "").rpartition("/")[2], schema)
    return schema.get("type") == "array" or any(
        each.get("type") == "array" for each in schema.get("properties", {}).values()
    )


async def paged(client: Client, path: str, key: str) -> list[Any]:
    found: list[Any] = []
    cursor = ""
    while True:
        answer = (await client.get(f"{path}{'&' if '?' in path else '?'}limit=2{cursor}")).body
        assert len(answer[key]) <= 2
        found += answer[key]
        if answer["next"] is None:
            return found
        cursor = f"&cursor={quote(answer['next'])}"


async def five_deployments(client: Client) -> list[str]:
    for name in ("a", "b", "c"):
        assert (await client.deploy("home", name=name)).status == 202
    await FakeSite(client, "line").join()
    for name in ("a", "b"):
        assert (await client.deploy("line", name=name)).status == 202
    return [each["id"] for each in (await client.get("/api/v1/deployments")).body["deployments"]]


async def test_pages_together_are_the_list_and_name_no_more_than_was_asked_for(
    client: Client, home: FakeSite
) -> None:
    ids = await five_deployments(client)
    assert [each["id"] for each in await paged(client, "/api/v1/deployments", "deployments")] == ids
    newest = await paged(client, "/api/v1/deployments?sort=updated&fields=site,name", "deployments")
    assert newest[0] == {"site": "line", "name": "b"} and len(newest) == 5
    assert len(await paged(client, "/api/v1/sites?fields=name", "sites")) == 2
    assert [each["version"] for each in await paged(client, "/api/v1/apps", "apps")] == ["1.1.0", "1.0.0"]
    entries = await paged(client, "/api/v1/audit?after=0", "entries")
    assert [each["position"] for each in entries] == list(range(1, len(entries) + 1))
    history = await paged(client, f"/api/v1/deployments/{ids[0]}/history", "history")
    assert history == (await client.get(f"/api/v1/deployments/{ids[0]}/history")).body["history"]


async def test_a_bare_array_has_its_next_page_in_a_header(client: Client, home: FakeSite) -> None:
    await home.say(*(node_changed(f"node-{number}") for number in range(3)))
    first = await client.get("/api/nodes?limit=2&fields=id")
    assert first.body == [{"id": "node-0"}, {"id": "node-1"}]
    following = first.headers["link"].partition(">")[0].removeprefix("<")
    last = await client.get(following)
    assert (last.body, "link" in last.headers) == ([{"id": "node-2"}], False)


async def test_a_question_that_cannot_be_answered_is_met_with_a_sentence(client: Client, home: FakeSite) -> None:
    cases = {
        "/api/v1/deployments?cursor=nonsense": (422, "bad-cursor", "cursor"),
        "/api/v1/deployments?fields=id,colour": (422, "invalid-input", '"colour" is not a field of deployments'),
        "/api/v1/deployments?sort=size": (422, "invalid-input", '"size" is not an order of deployments'),
        "/api/v1/deployments?limit=0": (422, "invalid-input", "limit"),
        "/api/v1/deployments?limit=1001": (422, "invalid-input", "limit"),
        "/api/v1/deployments?state=running": (422, "invalid-input", "use one of PENDING, INSTALLING"),
        "/api/v1/deployments?filter=sate:FAILED": (422, "invalid-input", '"sate:" is not a word of this filter'),
        "/api/v1/nodes?filter=site:": (422, "invalid-input", '"site:" has no value. Write site:VALUE'),
        "/api/v1/sites?filter=label:%2A": (422, "invalid-input", '"label:*" is not a label'),
        f"/api/v1/sites?filter={'x' * 301}": (422, "invalid-input", "filter"),
        "/api/v1/filter-values?list=nodes&word=name": (422, "invalid-input", '"name" is not a word of this filter'),
        "/api/v1/filter-values?list=apps&word=site": (422, "invalid-input", "list"),
        "/api/v1/deployments?site=nothere": (404, "not-found", 'There is no site "nothere"'),
        "/api/v1/nodes?site=nothere": (404, "not-found", 'There is no site "nothere"'),
        "/api/v1/secrets?site=nothere": (404, "not-found", 'There is no site "nothere"'),
        "/api/v1/jobs?site=nothere": (404, "not-found", 'There is no site "nothere"'),
        "/api/v1/pipeline-runs?site=nothere": (404, "not-found", 'There is no site "nothere"'),
        "/api/v1/sites/nothere/cache": (404, "not-found", 'There is no site "nothere"'),
    }
    for path, (status, code, words) in cases.items():
        answer = await client.get(path)
        assert (answer.status, answer.body["code"]) == (status, code), path
        assert words in answer.body["detail"], path
    invited = await client.post("/api/v1/sites/nothere/nodes/join-token", {})
    assert (invited.status, invited.body["detail"]) == (404, 'There is no site "nothere".')
    assert (await client.get("/api/v1/deployments?state=installed&site=home")).body["deployments"] == []


async def test_lists_are_filtered_by_the_server_and_a_field_is_offered_values(client: Client, home: FakeSite) -> None:
    await five_deployments(client)
    await home.say(node_changed())
    asked = {
        "/api/v1/deployments?filter=site:li*&fields=name,site": [{"name": each, "site": "line"} for each in "ab"],
        "/api/v1/deployments?filter=-site:line+-name:a+-c&fields=name": [{"name": "b"}],
        "/api/v1/nodes?filter=state:live+site:home&fields=id": [{"id": "node-a"}],
        "/api/v1/sites?filter=-node:*&fields=name": [{"name": "line"}],
        "/api/v1/rollouts?contains=nothing": [],
        "/api/v1/jobs?contains=nothing": [],
    }
    for path, expected in asked.items():
        answer = await client.get(path)
        assert (answer.status, next(iter(answer.body.values()))) == (200, expected), path
    offered = await client.get("/api/v1/filter-values?list=deployments&word=site&text=O&filter=-name:c")
    assert offered.body == {"values": [{"value": "home", "count": 2}]}


async def test_a_caller_limited_to_sites_is_offered_their_values_alone(client: Client, home: FakeSite) -> None:
    await five_deployments(client)
    limited = await make(client, "vera", "viewer", sites=["line"])
    for word, expected in {"site": {"line": 2}, "name": {"a": 1, "b": 1}}.items():
        answer = await client.get(f"/api/v1/filter-values?list=deployments&word={word}", headers=limited)
        assert {each["value"]: each["count"] for each in answer.body["values"]} == expected


async def test_a_deployment_is_found_by_its_name_where_only_one_site_has_it(client: Client, home: FakeSite) -> None:
    await five_deployments(client)
    assert (await client.get("/api/v1/deployments/c")).body["site"] == "home"
    several = await client.get("/api/v1/deployments/a")
    assert (several.status, several.body["hint"]) == (409, "Name one of  a@home, a@line")
    missing = await client.get("/api/v1/deployments/hm")
    assert (missing.status, missing.body["detail"]) == (404, 'There is no deployment "hm".')


async def test_the_overview_counts_and_lists_what_needs_attention(
    central: CentralApp, client: Client, home: FakeSite
) -> None:
    ids = await five_deployments(client)
    await home.say(node_changed())
    revision = (await client.get(f"/api/v1/deployments/{ids[0]}")).body["revision"]
    failure = Failure("PULL_FAILED", "the registry does not answer", "web")
    for each, trigger, of in (
        (ids[0], Trigger.HEALTHY, revision),
        (ids[1], Trigger.GAVE_UP, None),
        (ids[2], Trigger.HEALTHY, "sha256:" + "0" * 64),
    ):
        await home.say(
            transition(each, Trigger.SCHEDULED, revision=of),
            transition(each, trigger, revision=of, failure=failure if trigger is Trigger.GAVE_UP else None),
        )
    overview = (await client.get("/api/v1/overview")).body
    assert overview["sites"] == {"count": 2, "reachable": 2}
    assert overview["nodes"] == {"live": 1, "stale": 0, "lost": 0, "unknown": 0}
    assert overview["deployments"] == {"FAILED": 1, "INSTALLED": 2, "PENDING": 2}
    assert overview["attention_counts"] == {"site": 0, "node": 0, "deployment": 2}
    assert [(each["name"], each["why"]) for each in overview["attention"]] == [
        ("b", "node-a: the registry does not answer (PULL_FAILED)"),
        ("c", "runs 00000000, Git asks for 1.1.0"),
    ]
    shown = (await client.get("/api/v1/deployments?attention=true&fields=name")).body["deployments"]
    assert shown == [{"name": "b"}, {"name": "c"}]
    assert (await client.get("/api/v1/sites/home")).body["deployments"] == {"FAILED": 1, "INSTALLED": 2}
    metrics = (await client.get("/metrics")).body
    assert 'homeport_deployments{state="FAILED"} 1.0' in metrics


async def test_a_stream_can_be_limited_to_some_things_and_to_a_site(client: Client, home: FakeSite) -> None:
    ids = await five_deployments(client)
    path = f"/api/v1/events?subject=deployment/{ids[0]}&subject=deployment/{ids[3]}"
    frames = [sent async for sent in _until_snapshot(client, path)]
    assert {sent.data.get("deployment_id") for sent in frames[:-1]} == {ids[0], ids[3]}
    at_line = [sent async for sent in _until_snapshot(client, "/api/v1/events?site=line")]
    assert [sent.data["site"] for sent in at_line[:-1]] == ["line", "line"]
    async for sent in client.events(f"{path}&after=0&site=line"):
        assert (sent.data["site"], sent.data["deployment_id"]) == ("line", ids[3])
        break


async def _until_snapshot(client: Client, path: str) -> Any:
    async for sent in client.events(path):
        yield sent
        if sent.event == "snapshot":
            return
