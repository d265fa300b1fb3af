"""A model of the catalog that no pool has: the first task for it deploys its engine, says what is prepared, and
waits."""

import json
import uuid
from dataclasses import replace
from typing import Any

import pytest

from homeport.central.app import CentralApp
from homeport.core.inference.engines.handoff import EngineName, Handoff, HandoffModel, Loading, to_data
from homeport.core.inference.engines.preparing import PreparingStep, begun, moved, steps_of
from homeport.core.model.instance import Failure
from homeport.models.network import network_id
from homeport.vocabulary import Trigger
from tests.integration.central.test_engine_control import added
from tests.integration.inference.conftest import TASK
from tests.support.running_central import Client, FakeSite, node_changed, transition
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio

POLICY = {
    "site": "home",
    "app": "llama-cpp",
    "version": "1.0.0",
    "engine": "llamacpp",
    "name": "later",
    "parameters": {"device": "cpu", "slots": "2", "idle_seconds": "60"},
}
MODEL = {"id": "rare", "source_url": "https://models.example/rare.gguf?token=s3cret", "on_request": POLICY}
PREPARING = Handoff(
    engine=EngineName.LLAMACPP,
    url="http://preparing.invalid",
    model=HandoffModel("rare"),
    provisioning_mode="package",
    pool_id="later",
    replica_id="node-a",
    node_id="node-a",
    slots_total=2,
    loading=Loading.LOADING,
    preparation=moved(
        begun(
            steps_of(engine="llamacpp", model="rare", pool_id="later", provisions=False, fetches=True),
            PreparingStep.MODEL,
        ),
        30,
        100,
    ),
)


async def announce(client: Client, *handoffs: Handoff) -> None:
    body = {"network": network_id(), "replicas": [to_data(each) for each in handoffs]}
    answer = await client.call("POST", "/api/v1/sites/home/calls?topic=replicas", data=json.dumps(body))
    assert answer.status == 200, answer.body


async def a_site(client: Client) -> FakeSite:
    await added(client)
    site = FakeSite(client)
    await site.join()
    await site.say(node_changed(site="home"))
    return site


def a_task(**changes: Any) -> dict[str, Any]:
    ids = {"task_id": str(uuid.uuid4()), "session_id": str(uuid.uuid4())}
    return {**TASK, **ids, "model_ref": "rare", **changes}


async def the_deployment(client: Client) -> dict[str, Any]:
    async def found() -> Any:
        rows = (await client.get("/api/v1/deployments")).body["deployments"]
        return next((row for row in rows if row["name"] == "later"), None)

    row: dict[str, Any] = await eventually(found, what="the deployment of the engine")
    return row


async def frames(client: Client, task: dict[str, Any], **query: str) -> str:
    answer = await client.call("GET", f"/v2/tasks/{task['task_id']}/events", params=query)
    return str(answer.body)


async def test_the_first_task_deploys_the_engine_lists_what_is_prepared_and_then_runs(
    empty: tuple[CentralApp, Client], llama: str
) -> None:
    _, client = empty
    site = await a_site(client)
    assert (await client.post("/v2/catalog/models", MODEL)).status == 201
    assert [each["id"] for each in (await client.get("/v1/models")).body["data"]] == ["rare"]

    first = a_task()
    accepted = await client.post("/v2/tasks", first)
    assert accepted.status == 202, accepted.body
    steps = accepted.body["preparation"]["steps"]
    assert [(step["kind"], step["group"], step["status"]) for step in steps] == [
        ("model_fetch", "model", "pending"),
        ("pool_warmup", "pool", "pending"),
    ]
    assert "s3cret" not in str(accepted.body)
    row = await the_deployment(client)
    parameters = (await client.get(f"/api/v1/deployments/{row['id']}")).body["parameters"]
    assert (parameters["model_id"], parameters["device"], parameters["slots"]) == ("rare", "cpu", "2")
    assert parameters["model"] == "https://models.example/rare.gguf?token=s3cret"
    health = (await client.get("/v2/pools/later/health")).body
    assert (health["live"], health["ready"]) == (False, False)
    assert health["last_error"] == "it is being prepared"

    # The node says how far it is: that is what the next task hears.
    await announce(client, PREPARING)

    async def only_the_nodes_own() -> bool:
        replicas = (await client.get("/v2/pools/later")).body["replicas"]
        return [each["replica_id"] for each in replicas] == ["home/node-a"]

    await eventually(only_the_nodes_own, what="the expected replica to give way to the one of the node")
    second = a_task(priority="batch")
    steps = (await client.post("/v2/tasks", second)).body["preparation"]["steps"]
    assert [(step["kind"], step["status"]) for step in steps] == [
        ("model_fetch", "running"),
        ("pool_warmup", "pending"),
    ]
    assert (steps[0]["bytes_done"], steps[0]["bytes_total"]) == (30, 100)

    await site.say(
        transition(row["id"], Trigger.SCHEDULED, revision=row["revision"]),
        transition(row["id"], Trigger.HEALTHY, revision=row["revision"]),
    )
    ready = replace(PREPARING, url=llama, loading=Loading.LOADED, preparation=(), idle_seconds=60)
    await announce(client, ready)
    said = await frames(client, first, verbose="true")
    assert "event: end" in said
    completed = [line for line in said.splitlines() if '"prep"' in line]
    assert '"model_fetch' not in completed[0] and '"model:rare":{"status":"completed"' in completed[0].replace(
        " ", ""
    )
    assert "event: end" in await frames(client, second)
    third = a_task()
    assert (await client.post("/v2/tasks", third)).body["preparation"]["steps"] == []


async def test_a_site_that_cannot_serve_it_is_the_reason_for_every_task_that_waits(
    empty: tuple[CentralApp, Client],
) -> None:
    _, client = empty
    site = await a_site(client)
    assert (await client.post("/v2/catalog/models", MODEL)).status == 201
    task = a_task()
    assert (await client.post("/v2/tasks", task)).status == 202
    row = await the_deployment(client)
    broken = Failure("PREFLIGHT_FAILED", "there is no GPU")
    await site.say(
        transition(row["id"], Trigger.SCHEDULED, revision=row["revision"]),
        transition(row["id"], Trigger.GAVE_UP, revision=row["revision"], failure=broken),
    )
    said = await frames(client, task)
    assert "POOL_UNREADY" in said and "there is no GPU" in said
    refused = await client.post("/v2/tasks", a_task())
    assert (refused.status, refused.body["code"], refused.body["retriable"]) == (503, "POOL_UNREADY", True)
    assert "there is no GPU" in refused.body["message"]
    health = (await client.get("/v2/pools/later/health")).body
    assert "there is no GPU" in health["last_error"]


async def test_a_node_that_fails_while_it_prepares_says_why_to_who_waits(empty: tuple[CentralApp, Client]) -> None:
    _, client = empty
    await a_site(client)
    assert (await client.post("/v2/catalog/models", MODEL)).status == 201
    task = a_task()
    assert (await client.post("/v2/tasks", task)).status == 202
    await the_deployment(client)
    # Within the moment in which the expected replica is still there.
    await announce(client, PREPARING)
    await announce(client, replace(PREPARING, problem="the disk is full", problem_at_ms=1))
    said = await frames(client, task)
    assert "POOL_UNREADY" in said and "the disk is full" in said
    refused = await client.post("/v2/tasks", a_task())
    assert (refused.status, "the disk is full" in refused.body["message"]) == (503, True), refused.body


async def test_an_app_that_is_not_there_is_said_to_who_waits(empty: tuple[CentralApp, Client]) -> None:
    _, client = empty
    site = FakeSite(client)
    await site.join()
    assert (await client.post("/v2/catalog/models", MODEL)).status == 201
    task = a_task()
    assert (await client.post("/v2/tasks", task)).status == 202
    said = await frames(client, task)
    assert "POOL_UNREADY" in said and "llama-cpp" in said


async def test_what_no_policy_starts_is_refused_with_what_to_do(empty: tuple[CentralApp, Client]) -> None:
    _, client = empty
    await a_site(client)
    known = {"id": "known", "source_url": "hf:org/repo/known.gguf"}
    assert (await client.post("/v2/catalog/models", known)).status == 201
    refused = await client.post("/v2/tasks", a_task(model_ref="known"))
    assert (refused.status, refused.body["code"]) == (503, "POOL_UNREADY")
    assert "homeport models serve known" in refused.body["message"]
    unknown = await client.post("/v2/tasks", a_task(model_ref="unheard-of"))
    assert (unknown.status, unknown.body["code"]) == (503, "POOL_UNAVAILABLE")
    assert "/v1/models" in unknown.body["message"]
    chat = {"model": "unheard-of", "messages": [{"role": "user", "content": "x"}]}
    answer = await client.post("/v1/chat/completions", chat)
    assert (answer.status, answer.body["error"]["code"]) == (404, "model_not_found")

    # An engine that could not take the task is not started for it.
    assert (await client.post("/v2/catalog/models", MODEL)).status == 201
    for changes, code in (
        ({"engine": "vllm"}, "POOL_UNAVAILABLE"),
        ({"ctx": 8192}, "INVALID_PARAMS"),
        ({"workload": "embedding"}, "INVALID_PARAMS"),
        ({"placement": {"avoid_pools": ["later"]}}, "POOL_UN"),
    ):
        answer = await client.post("/v2/tasks", a_task(**changes))
        assert answer.body["code"].startswith(code), answer.body
    assert (await client.get("/v2/pools")).body["pools"] == []
    assert (await client.get("/api/v1/deployments")).body["deployments"] == []
    assert (await client.post("/v2/catalog/models/rare/state", {"state": "Retired"})).status == 202
    retired = await client.post("/v2/tasks", a_task())
    assert (retired.status, retired.body["code"]) == (400, "MODEL_DEPRECATED")
    assert (await client.get("/v1/models")).body["data"] == []


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"site": "No Site"}, "on_request.site"),
        ({"parameters": {"nonsense": "1"}}, "on_request.parameters"),
        ({"parameters": {"context": "many"}}, "on_request.parameters"),
        ({"engine": "abacus"}, "on_request.parameters"),
        ({"count": 0}, "on_request.count"),
        ({"name": ""}, "on_request.name"),
    ],
)
async def test_a_policy_that_cannot_be_carried_out_is_refused_when_it_is_given(
    empty: tuple[CentralApp, Client], changes: dict[str, Any], field: str
) -> None:
    _, client = empty
    answer = await client.post("/v2/catalog/models", {**MODEL, "on_request": {**POLICY, **changes}})
    assert (answer.status, answer.body["code"]) == (400, "INVALID_PARAMS")
    assert field in json.dumps(answer.body), answer.body
    assert (await client.get("/v2/catalog/models")).body["models"] == []
