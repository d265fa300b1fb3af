"""`/v2`, as its contract says, against the real llama.cpp."""

import io
import json
import uuid
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest

from homeport.central.app import CentralApp
from homeport.core.inference.engines.handoff import EngineName, HandoffModel
from homeport.models.store.gguf import cache_bytes_per_token
from tests.integration.inference.conftest import TASK, bind, handoff
from tests.support import engines_on_wire
from tests.support.engines_on_wire import served
from tests.support.llama_server import llama_server
from tests.support.running_central import Client, Sent
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio


def a_task(**changes: Any) -> dict[str, Any]:
    return {**TASK, "task_id": str(uuid.uuid4()), "session_id": str(uuid.uuid4()), **changes}


async def submitted(client: Client, **changes: Any) -> dict[str, Any]:
    answer = await client.post("/v2/tasks", a_task(**changes))
    assert answer.status == 202, answer.body
    body: dict[str, Any] = answer.body
    return body


async def _measures(client: Client, metric: str, value: str) -> bool:
    lines = (await client.get("/metrics")).body.splitlines()
    return any(line.startswith(f"{metric}{{") and line.endswith(value) for line in lines)


async def test_a_cold_task_uses_nothing_of_earlier_ones(client: Client, llama: str) -> None:
    """As the engine counts it: what it computed of the prompt, and what it had in its cache."""
    prompt = "The same beginning of every prompt. " * 8
    computed = []
    for number, hint in enumerate(("cold", "reuse", "cold")):
        before = await _prompt_tokens(client, llama)
        task = {**TASK, "task_id": f"6b1f0f6e-30c1-4d4f-9d0c-00000000c01{number}", "prompt": prompt, "kv_hint": hint}
        assert (await client.post("/v2/tasks", task)).status == 202
        assert (await all_events(client, str(task["task_id"])))[-1].event == "end"
        computed.append(await _prompt_tokens(client, llama) - before)
    assert computed[0] == computed[2] > 10 * computed[1]


async def _prompt_tokens(client: Client, llama: str) -> float:
    async with client.session.get(f"{llama}/metrics", headers={"Authorization": ""}) as answer:
        lines = (await answer.text()).splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("llamacpp:prompt_tokens_total "))


async def test_metrics_have_the_correlation_id_too_and_their_problems_stay_what_they_are(client: Client) -> None:
    page = await client.get("/metrics", headers={"X-Correlation-Id": "abc-2"})
    assert (page.status, page.headers["X-Correlation-Id"]) == (200, "abc-2")
    refused = await client.call("DELETE", "/metrics")
    assert (refused.status, refused.headers["content-type"]) == (405, "application/problem+json")
    assert refused.headers["X-Correlation-Id"]


async def all_events(client: Client, task_id: str) -> list[Sent]:
    return [each async for each in client.events(f"/v2/tasks/{task_id}/events")]


async def test_a_task_is_admitted_streamed_and_ended(client: Client) -> None:
    answer = await client.post("/v2/tasks", TASK, headers={"X-Correlation-Id": "abc-1"})
    assert answer.status == 202
    assert answer.headers["X-Correlation-Id"] == "abc-1"
    for name in ("X-Budget-Tokens-Remaining", "X-Budget-Time-Remaining-Ms", "X-Budget-Cost-Remaining"):
        assert name in answer.headers
    assert answer.body["task_id"] == TASK["task_id"]
    assert (answer.body["queue_position"], answer.body["predicted_start_ms"], answer.body["backoff_ms"]) == (0, 0, 0)
    path = f"/v2/tasks/{TASK['task_id']}/events"
    assert answer.body["streams"] == {"sse": path, "sse_verbose": f"{path}?verbose=true"}
    assert answer.body["preparation"] == {"steps": []}
    events = await all_events(client, TASK["task_id"])
    kinds = [each.event for each in events]
    assert kinds[0] == "started"
    assert kinds[-1] == "end"
    assert kinds.count("started") == kinds.count("end") == 1
    assert "error" not in kinds
    assert events[0].data["pool_id"] == "default"
    tokens = [each.data for each in events if each.event == "token"]
    assert [each["i"] for each in tokens] == list(range(len(tokens)))
    assert events[-1].data["tokens_out"] == TASK["max_tokens"]
    assert events[-1].data["decode_time_ms"] == events[-1].data["decode_ms"]


async def test_every_answer_has_the_clients_correlation_id_and_every_stream_the_contracts_headers(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also a stream that is read again when only the database remembers the task."""
    monkeypatch.setattr("homeport.inference.plane.ENDED_KEPT", 0)
    own, task, unknown = 'my own; "id=7"', a_task(), uuid.uuid4()
    mine = {"X-Correlation-Id": own}
    stream = f"{client.url}/v2/tasks/{task['task_id']}/events"
    assert (await client.post("/v2/tasks", task, headers=mine)).headers["X-Correlation-Id"] == own
    texts = []
    for _ in range(2):
        async with client.session.get(stream, headers=mine) as answer:
            texts.append(await answer.text())
        found = {name: answer.headers[name] for name in ("Cache-Control", "Connection", "X-Accel-Buffering")}
        assert found == {"Cache-Control": "no-cache", "Connection": "keep-alive", "X-Accel-Buffering": "no"}
        assert answer.headers["Content-Type"] == "text/event-stream"
        assert answer.headers["X-Correlation-Id"] == own
        for name in ("X-Budget-Tokens-Remaining", "X-Budget-Time-Remaining-Ms", "X-Budget-Cost-Remaining"):
            assert name in answer.headers
        await eventually(lambda: _usage(client), what="the end to be written")
    assert [text.count("event: token") for text in texts] == [TASK["max_tokens"]] * 2
    for method, path, status in (
        ("DELETE", f"/v2/sessions/{unknown}", 204),
        ("GET", f"/v2/sessions/{unknown}", 404),
        ("GET", "/v2/meta/version", 200),
        ("POST", "/v1/completions", 400),
    ):
        sent = await client.call(method, path, headers=mine, data=b"{" if method == "POST" else None)
        assert (sent.status, sent.headers["X-Correlation-Id"]) == (status, own), path


async def test_a_verbose_stream_begins_with_started_and_explains_its_metrics(client: Client) -> None:
    assert (await client.post("/v2/tasks", TASK)).status == 202
    path = f"/v2/tasks/{TASK['task_id']}/events?verbose=true"
    events = [each async for each in client.events(path)]
    assert [each.event for each in events[:2]] == ["started", "narration"]
    metrics = [each.data for each in events if each.event == "metrics"]
    assert metrics
    assert all(each["phase"] and each["human"] and each["prep"] == {} for each in metrics)
    assert all(0.0 <= each["on_time_probability"] <= 1.0 for each in metrics)
    assert [each.event for each in events[-2:]] == ["narration", "end"]
    assert events[-2].data == {"human": "The task has ended."}


async def test_the_same_seed_gives_the_same_tokens(client: Client) -> None:
    texts = []
    for _ in range(2):
        task = await submitted(client, determinism="strict", max_tokens=16)
        events = await all_events(client, task["task_id"])
        texts.append("".join(each.data["t"] for each in events if each.event == "token"))
    assert texts[0] == texts[1]


async def test_a_repeated_task_replays_its_answer_and_another_body_is_a_conflict(client: Client) -> None:
    body = a_task()
    first = await client.post("/v2/tasks", body)
    again = await client.post("/v2/tasks", body)
    assert (again.status, again.body) == (202, first.body)
    await all_events(client, body["task_id"])
    after_the_end = await client.post("/v2/tasks", body)
    assert (after_the_end.status, after_the_end.body) == (202, first.body)
    other = await client.post("/v2/tasks", {**body, "prompt": "something else"})
    assert (other.status, other.body["code"]) == (409, "CONFLICT")


@pytest.mark.parametrize(
    ("change", "status", "code", "word"),
    [
        ({"task_id": "7"}, 400, "INVALID_PARAMS", "task_id must be a UUID, such as "),
        ({"engine": "abacus"}, 400, "INVALID_PARAMS", "engine must be one of 'llamacpp', 'vllm', "),
        ({"priority": 3}, 400, "INVALID_PARAMS", "priority must be one of 'interactive' or 'batch'."),
        ({"model_ref": ""}, 400, "INVALID_PARAMS", "model_ref must not be empty."),
        ({"prompt": 3, "inputs": "x"}, 400, "INVALID_PARAMS", "prompt must be a text. inputs must be a list."),
        (
            {"placement": {"avoid_pools": ["a/b"]}},
            400,
            "INVALID_PARAMS",
            "placement.avoid_pools[0] must be a name of",
        ),
        ({"ctx": -1}, 400, "INVALID_PARAMS", "ctx"),
        ({"ctx": 100_000}, 400, "INVALID_PARAMS", "ctx"),
        ({"max_tokens": 60_000}, 400, "INVALID_PARAMS", "max_tokens"),
        ({"prompt": "x" * 20_000}, 400, "INVALID_PARAMS", "prompt"),
        ({"deadline_ms": 0}, 400, "DEADLINE_UNMET", "deadline_ms"),
        ({"ctx": "many"}, 400, "INVALID_PARAMS", "ctx must be a whole number."),
        ({"model_ref": "unheard-of"}, 503, "POOL_UNAVAILABLE", "unheard-of"),
        ({"engine": "vllm"}, 503, "POOL_UNAVAILABLE", "ENGINE_MISMATCH"),
        ({"placement": {"mode": "pin", "pin_pool_id": "nowhere"}}, 400, "INVALID_PARAMS", "nowhere"),
        ({"seed": 2**70}, 400, "INVALID_PARAMS", "seed must be less than 9223372036854775808."),
        ({"placement": {"mode": "pin"}}, 400, "INVALID_PARAMS", "pin_pool_id is missing"),
        (
            {"placement": {"mode": "prefer", "prefer_pools": ["nowhere"], "allow_fallback": False}},
            503,
            "POOL_UNAVAILABLE",
            "none of the preferred pools",
        ),
        ({"placement": {"require_device_mask": "0, one"}}, 400, "INVALID_PARAMS", "require_device_mask must be"),
        ({"placement": {"require_device_mask": "GPU9"}}, 503, "POOL_UNAVAILABLE", "DEVICE_MASK_MISMATCH"),
        ({"placement": {"avoid_pools": ["default"]}}, 503, "POOL_UNAVAILABLE", "AVOIDED"),
        ({"inputs": ["a second text"]}, 400, "INVALID_PARAMS", "A completion has one text"),
        ({"workload": "embedding", "inputs": ["a second text"]}, 400, "INVALID_PARAMS", "one of the two"),
        ({"workload": "embedding", "prompt": ""}, 400, "INVALID_PARAMS", "one of the two"),
        ({"workload": "rerank"}, 400, "INVALID_PARAMS", "the documents as inputs"),
        ({"workload": "rerank", "prompt": "", "inputs": ["x"]}, 400, "INVALID_PARAMS", "the query as prompt"),
        ({"expected_tokens": "12"}, 400, "INVALID_PARAMS", "expected_tokens must be a whole number"),
        ({"expected_tokens": True}, 400, "INVALID_PARAMS", "expected_tokens must be a whole number"),
        ({"placement": {"allow_fallback": "no"}}, 400, "INVALID_PARAMS", "allow_fallback must be true or false"),
    ],
)
async def test_a_wrong_task_is_refused_with_its_code_and_a_sentence(
    client: Client, change: dict[str, Any], status: int, code: str, word: str
) -> None:
    answer = await client.post("/v2/tasks", a_task(**change))
    assert (answer.status, answer.body["code"]) == (status, code)
    assert word in answer.body["message"]
    assert uuid.UUID(answer.headers["X-Correlation-Id"]).version == 4, "one of ours, where the client has none"
    if status == 503:
        assert answer.body["retriable"] is True
        assert int(answer.headers["Retry-After"]) >= 1


@pytest.mark.parametrize(
    ("change", "body", "word"),
    [
        ("drain", {}, "deadline_ms is missing"),
        ("drain", {"deadline_ms": True}, "deadline_ms must be a whole number"),
        ("drain", {"deadline_ms": "60"}, "deadline_ms must be a whole number"),
        ("drain", {"deadline_ms": -1}, "deadline_ms must be at least 0"),
        ("reload", {}, "new_model_ref is missing"),
        ("purge", {"purge_engine": "off"}, "purge_engine must be true or false"),
        ("purge", {"force": 1}, "force must be true or false"),
    ],
)
async def test_a_wrong_change_of_a_pool_is_refused_with_the_field_and_changes_nothing(
    client: Client, change: str, body: dict[str, Any], word: str
) -> None:
    answer = await client.post(f"/v2/pools/default/{change}", body)
    assert (answer.status, answer.body["code"]) == (400, "INVALID_PARAMS")
    assert word in answer.body["message"]
    health = (await client.get("/v2/pools/default/health")).body
    assert (health["ready"], health["draining"]) == (True, False)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff\xfe", b'{"task_id": "\xc3\x28"}', b"[" * 5000])
async def test_a_body_that_is_not_json_is_refused(client: Client, body: bytes) -> None:
    answer = await client.call("POST", "/v2/tasks", data=body, headers={"Content-Type": "application/json"})
    assert (answer.status, answer.body["code"]) == (400, "INVALID_PARAMS")
    assert answer.body["message"].startswith(
        "The body " + ("must be an object." if body == b"[]" else "is not JSON:")
    )


@pytest.mark.parametrize("path", ["/v2/tasks", "/v1/completions"])
async def test_a_body_beyond_the_limit_is_refused(client: Client, path: str) -> None:
    body = io.BytesIO(json.dumps({**a_task(prompt="x" * 9_000_000), "model": "tiny"}).encode())
    answer = await client.call("POST", path, data=body)
    assert answer.status == 413
    if path == "/v2/tasks":
        assert answer.body["code"] == "INVALID_PARAMS"
    else:
        assert answer.body["error"]["type"] == "invalid_request_error"
    assert answer.headers["X-Correlation-Id"]


async def test_who_has_no_token_is_told_so_in_the_contracts_words(client: Client) -> None:
    answer = await client.post("/v2/tasks", TASK, headers={"Authorization": "Bearer wrong"})
    assert answer.status == 401
    assert answer.body["code"] == "40102 BAD_TOKEN"
    assert answer.headers["X-Correlation-Id"]
    async with aiohttp.ClientSession() as nobody:
        missing = await Client(client.url, nobody).post("/v2/tasks", TASK)
    assert (missing.status, missing.body["code"]) == (401, "40101 MISSING_TOKEN")
    assert missing.body["hint"]


async def test_a_retired_model_takes_no_new_task(client: Client) -> None:
    await client.post("/v2/catalog/models", {"id": "tiny", "source_url": "file:/models/tiny.gguf"})
    assert (await client.post("/v2/catalog/models/tiny/state", {"state": "Retired"})).status == 202
    refused = await client.post("/v2/tasks", TASK)
    assert (refused.status, refused.body["code"], refused.body["retriable"]) == (400, "MODEL_DEPRECATED", False)
    as_openai = await client.post("/v1/completions", {"model": "tiny", "prompt": "x"})
    assert (as_openai.status, as_openai.body["error"]["param"]) == (400, "model")
    assert (await client.post("/v2/catalog/models/tiny/state", {"state": "Active"})).status == 202
    assert (await client.post("/v2/tasks", TASK)).status == 202


async def test_what_is_unknown_is_404(client: Client) -> None:
    unknown = uuid.uuid4()
    for method, path in (
        ("GET", f"/v2/tasks/{unknown}/events"),
        ("POST", f"/v2/tasks/{unknown}/cancel"),
        ("GET", f"/v2/sessions/{unknown}"),
        ("GET", "/v2/pools/nowhere/health"),
        ("POST", "/v2/pools/nowhere/drain"),
        ("GET", f"/v2/artifacts/{'0' * 64}"),
        ("GET", "/v2/replicasets"),
    ):
        answer = await client.call(method, path, json={} if method == "POST" else None)
        assert (answer.status, answer.body["code"]) == (404, "NOT_FOUND"), path


async def test_no_token_follows_a_cancel_and_the_slot_is_free(client: Client) -> None:
    task = await submitted(client, max_tokens=900)
    stream = client.events(f"/v2/tasks/{task['task_id']}/events")
    assert (await anext(stream)).event == "started"
    cancelled = await client.post(f"/v2/tasks/{task['task_id']}/cancel", None)
    assert cancelled.status == 204
    again = await client.post(f"/v2/tasks/{task['task_id']}/cancel", None)
    assert again.status == 204
    last = [each async for each in stream][-1]
    assert last.event == "end"
    assert last.data["canceled"] is True
    replayed = await all_events(client, task["task_id"])
    assert replayed[-1].data["canceled"] is True
    await eventually(lambda: _is_idle(client), what="the slot to be free")


async def test_a_vanished_reader_cancels_its_task(client: Client) -> None:
    for _ in range(5):  # the engine may be done with all that its context holds before this process is scheduled
        task = await submitted(client, max_tokens=900)
        async with client.session.get(f"{client.url}/v2/tasks/{task['task_id']}/events") as answer:
            await answer.content.readany()
        await eventually(lambda: _is_idle(client), what="the slot to be free")
        last = (await all_events(client, task["task_id"]))[-1]
        if last.data.get("tokens_out") != 900:
            assert last.data.get("canceled") is True
            return
    pytest.fail("no task was cancelled")


async def test_a_finished_task_leaves_its_transcript_as_an_artifact(client: Client) -> None:
    task = {**TASK, "task_id": str(uuid.uuid4()), "session_id": str(uuid.uuid4())}
    assert (await client.post("/v2/tasks", task)).status == 202
    events = await all_events(client, task["task_id"])

    async def outcome() -> Any:
        return (await client.get(f"/v2/tasks/{task['task_id']}/why")).body

    why = await outcome()
    assert "placed on default/r0" in why["placement"]

    async def listed() -> Any:
        found = (await client.get("/v2/artifacts")).body["artifacts"]
        return next((each for each in found if f"task:{task['task_id']}" in each["tags"]), None)

    artifact = await eventually(listed, what="the transcript to be written")
    assert set(artifact["tags"]) == {"sse", "stream", f"task:{task['task_id']}", f"session:{task['session_id']}"}
    kept = (await client.get(f"/v2/artifacts/{artifact['id']}")).body
    assert kept["kind"] == "transcript"
    assert kept["metadata"]["engine"] == "llamacpp"
    assert kept["metadata"]["engine_version"] == events[0].data["engine_version"]
    assert (kept["metadata"]["pool_id"], kept["metadata"]["replica_id"]) == ("default", "r0")
    content = kept["content"]
    assert [(each["type"], each["data"]) for each in content["events"]] == [(e.event, e.data) for e in events]
    end = events[-1].data
    assert (content["tokens_out"], content["decode_time_ms"]) == (end["tokens_out"], end["decode_time_ms"])
    assert (content["job_id"], content["session_id"]) == (task["task_id"], task["session_id"])
    assert content["seed"] == task["seed"]
    assert content["request"]["max_tokens"] == task["max_tokens"]
    assert task["prompt"] not in json.dumps(content), "what was asked is not kept"
    usage = await eventually(lambda: _usage(client), what="usage to be written")
    assert usage[-1]["tokens_out"] >= TASK["max_tokens"]
    assert len(events) > 2


async def test_an_artifact_is_found_by_the_digest_of_its_content(client: Client) -> None:
    wanted = {"kind": "plan", "content": {"steps": [1, 2]}, "tags": ["a"], "metadata": {"by": "me"}}
    first = await client.post("/v2/artifacts", wanted)
    again = await client.post("/v2/artifacts", wanted)
    assert first.status == again.status == 201
    assert first.body == again.body, "the one that was kept, with its time"
    assert first.body["digest"] == f"sha256:{first.body['id']}"
    found = await client.get(f"/v2/artifacts/{first.body['id']}")
    assert found.body["content"] == wanted["content"]
    assert (await client.post("/v2/artifacts", {"kind": "joke", "content": {}})).status == 400


async def test_an_artifact_is_read_by_every_key_that_posted_it_and_by_no_other(
    empty: tuple[CentralApp, Client],
) -> None:
    _, client = empty
    document = {"kind": "plan", "content": {"steps": ["one"]}}

    async def key(name: str) -> dict[str, str]:
        made = await client.post("/api/v1/tokens", {"name": name, "role": "viewer"})
        return {"authorization": f"Bearer {made.body['token']}"}

    async def seen_by(headers: dict[str, str]) -> tuple[int, list[str]]:
        listed = await client.get("/v2/artifacts", headers=headers)
        found = await client.get(f"/v2/artifacts/{posted[0].body['id']}", headers=headers)
        return found.status, [each["id"] for each in listed.body["artifacts"]]

    ann, bob, eve = [await key(name) for name in ("ann", "bob", "eve")]
    posted = [await client.post("/v2/artifacts", document, headers=each) for each in (ann, bob)]
    assert [each.status for each in posted] == [201, 201]
    assert posted[0].body == posted[1].body
    for each in (ann, bob):
        assert await seen_by(each) == (200, [posted[0].body["id"]])
    assert await seen_by(eve) == (404, [])


async def test_a_session_counts_its_turns_and_ends(client: Client) -> None:
    session_id = str(uuid.uuid4())
    for _ in range(8):
        task = await submitted(client, session_id=session_id, max_tokens=1)
        await all_events(client, task["task_id"])
    session = await client.get(f"/v2/sessions/{session_id}")
    assert (session.body["turns"], session.body["kv_warmth"]) == (8, True)
    assert 0 < session.body["ttl_ms_remaining"] <= 600_000
    ninth = await client.post("/v2/tasks", a_task(session_id=session_id))
    assert (ninth.status, ninth.body["code"]) == (400, "INVALID_PARAMS")
    for _ in range(2):
        assert (await client.delete(f"/v2/sessions/{session_id}")).status == 204
    assert (await client.get(f"/v2/sessions/{session_id}")).status == 404


async def test_a_session_says_how_much_of_the_engines_cache_is_its(
    empty: tuple[CentralApp, Client], model_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the engine counts itself, times what its model needs for a token."""
    monkeypatch.setattr("homeport.inference.pools.registry.PROPS_SECONDS", 0.0)
    central, client = empty
    each_token = cache_bytes_per_token(model_file)
    session_id = str(uuid.uuid4())

    async def kv_bytes() -> int | None:
        found: int | None = (await client.get(f"/v2/sessions/{session_id}")).body["kv_bytes"]
        return found

    with llama_server(model_file, slots=1) as (address, _):
        known = HandoffModel("tiny", str(model_file), kv_token_bytes=each_token)
        await bind(client, central, handoff(address, model=known, slots_total=1))
        slot: dict[str, Any] = {}
        for max_tokens in (4, 9):
            task = await submitted(client, session_id=session_id, max_tokens=max_tokens)
            await all_events(client, task["task_id"])
            async with client.session.get(f"{address}/slots") as slots:
                (slot,) = await slots.json()
            assert await kv_bytes() == slot["n_prompt_tokens"] * each_token > 0
        ratio = f" {slot['n_prompt_tokens'] / slot['n_ctx']}"
        await eventually(lambda: _measures(client, "kv_cache_usage_ratio", ratio), what="the metric to follow")
        other = await submitted(client, session_id=str(uuid.uuid4()))
        await all_events(client, other["task_id"])
        assert await kv_bytes() == 0, "the only slot holds another's"
        await bind(client, central, handoff(address, slots_total=1))
        task = await submitted(client, session_id=session_id)
        await all_events(client, task["task_id"])
        assert await kv_bytes() is None, "the shape of this model is not known"


async def test_a_session_spends_the_budget_that_its_client_gave_it(client: Client) -> None:
    task = a_task(max_tokens=8)
    first = await client.post("/v2/tasks", task, headers={"X-Budget-Tokens": "20", "X-Budget-Cost": "0.5"})
    assert (first.status, first.headers["X-Budget-Tokens-Remaining"]) == (202, "20")
    assert (await all_events(client, task["task_id"]))[-1].event == "end"
    session = (await client.get(f"/v2/sessions/{task['session_id']}")).body
    assert (session["tokens_budget_remaining"], session["cost_budget_remaining"]) == (12, 0.5 - 8 * 0.000002)
    more = await client.post(
        "/v2/tasks",
        a_task(session_id=task["session_id"], max_tokens=13),
        headers={"X-Budget-Tokens": "999"},
    )
    assert (more.status, more.body["code"]) == (400, "INVALID_PARAMS")
    assert "12 tokens left" in more.body["message"]
    wrong = await client.post("/v2/tasks", a_task(), headers={"X-Budget-Tokens": "many"})
    assert (wrong.status, wrong.body["code"]) == (400, "INVALID_PARAMS")


async def test_pools_capabilities_and_metrics_say_what_there_is(client: Client) -> None:
    health = (await client.get("/v2/pools/default/health")).body
    assert (health["live"], health["ready"], health["draining"]) == (True, True, False)
    assert health["metrics"]["slots_total"] == 2
    (pool,) = (await client.get("/v2/pools")).body["pools"]
    (replica,) = pool["replicas"]
    assert (pool["draining"], replica["slots_total"], replica["slots_free"]) == (False, 2, 2)
    assert {"vram_free_bytes", "device_mask", "loading", "circuit", "last_error"} <= {*replica}
    capabilities = (await client.get("/v2/meta/capabilities")).body
    assert capabilities["api_version"] == "2.0.0"
    assert capabilities["engines"][0]["engine"] == "llamacpp"
    shown = (await client.get("/v2/meta/version")).body
    assert shown["api_version"] == "2.0.0"
    head = await anyio.run_process(["git", "log", "-1", "--format=%H %cI"])
    assert [shown["build_commit"], shown["build_time"]] == head.stdout.decode().split()
    task = await submitted(client)
    await all_events(client, task["task_id"])
    text = str((await client.get("/metrics")).body)
    for name in ("tasks_enqueued_total", "tasks_started_total", "tokens_out_total", "pool_ready", "queue_depth"):
        assert f"# TYPE {name.removesuffix('_total')}" in text or f"# TYPE {name}" in text
    assert 'tasks_started_total{engine="llamacpp"' in text
    assert 'latency_first_token_ms_bucket{engine="llamacpp"' in text
    await eventually(lambda: _measures(client, "tokens_out_total", f" {TASK['max_tokens']}.0"), what="its tokens")


async def test_capabilities_follow_the_replicas_of_each_pool(empty: tuple[CentralApp, Client], llama: str) -> None:
    central, client = empty
    async with client.session.get(f"{llama}/props") as props:
        context = (await props.json())["default_generation_settings"]["n_ctx"]

    async def told() -> Any:
        engines = (await client.get("/v2/meta/capabilities")).body["engines"]
        return {
            each["pool_id"]: (each["ctx_max"], each["concurrency"], each["features"]["models"]) for each in engines
        }

    assert await told() == {}
    small = handoff(llama, pool_id="a", model=HandoffModel("small"), ctx_max=256)
    large = handoff(llama, pool_id="a", replica_id="r1", model=HandoffModel("large"), ctx_max=512, slots_total=3)
    await bind(client, central, small, large, handoff(llama, pool_id="b"))
    assert (await told())["a"][:2] == (512, 5)
    assert {"small", "large"} <= {*(await told())["a"][2]}
    assert (await told())["b"][:2] == (context, 2), "what the engine itself says"
    pools = central.parts.inference.pools
    assert pools is not None
    pools.unbind("a", "r1")
    pools.unbind("b", "r0")
    assert {pool: found[:2] for pool, found in (await told()).items()} == {"a": (256, 2)}


async def test_a_pool_says_which_of_its_models_are_in_memory(empty: tuple[CentralApp, Client], llama: str) -> None:
    central, client = empty
    async with served(engines_on_wire.ollama()) as url:
        ollama = handoff(url, engine=EngineName.OLLAMA, model=HandoffModel("m"), pool_id="several")
        await bind(client, central, ollama, handoff(llama))
        (several,) = (await client.get("/v2/pools/several")).body["replicas"]
        assert (several["models"], several["models_in_memory"]) == (["m", "other:latest"], ["m"])
        (one,) = (await client.get("/v2/pools/default")).body["replicas"]
        assert one["models_in_memory"] is None
        described = (await client.get("/openapi.json")).body["components"]["schemas"]["Replica"]
        assert described["properties"].keys() == several.keys(), "each field is documented"
        assert described["properties"]["models_in_memory"]["type"] == ["array", "null"]


async def test_what_no_engine_was_started_for_is_refused_before_one_is_asked(
    empty: tuple[CentralApp, Client], llama: str
) -> None:
    central, client = empty
    await bind(client, central, handoff(llama, provisioning_mode="package"))
    engines = (await client.get("/v2/meta/capabilities")).body["engines"]
    assert [each["supported_workloads"] for each in engines] == [["completion"]]
    refused = await client.post("/v2/tasks", a_task(workload="embedding"))
    assert (refused.status, refused.body["code"]) == (400, "INVALID_PARAMS")
    assert "not started for embedding" in refused.body["message"]
    as_openai = await client.post("/v1/embeddings", {"model": "tiny", "input": "x"})
    assert (as_openai.status, as_openai.body["error"]["type"]) == (400, "invalid_request_error")


async def test_a_reload_of_an_external_engine_is_refused_and_it_serves_on(client: Client) -> None:
    answer = await client.post("/v2/pools/default/reload", {"new_model_ref": "other"})
    assert (answer.status, answer.body["code"]) == (409, "CONFLICT")
    same = await client.post("/v2/pools/default/reload", {"new_model_ref": "tiny"})
    assert same.status == 202
    await submitted(client)


async def test_a_drained_pool_takes_no_tasks_until_the_drain_is_lifted(client: Client) -> None:
    assert (await client.post("/v2/pools/default/drain", {})).status == 400
    assert (await client.post("/v2/pools/default/drain", {"deadline_ms": 1000})).status == 202
    refused = await client.post("/v2/tasks", a_task())
    assert (refused.status, refused.body["code"]) == (503, "POOL_UNREADY")
    assert (await client.delete("/v2/pools/default/drain")).status == 202
    await submitted(client)


async def _is_idle(client: Client) -> bool:
    pool = (await client.get("/v2/pools/default")).body
    return bool(pool["metrics"]["active_leases"] == 0)


async def _usage(client: Client) -> Any:
    return (await client.get("/v2/usage")).body["usage"]


async def test_a_stream_is_read_slowly_without_losing_tokens(client: Client) -> None:
    task = await submitted(client, max_tokens=200)
    seen = []
    async for event in client.events(f"/v2/tasks/{task['task_id']}/events"):
        if event.event == "token":
            seen.append(event.data["i"])
            if len(seen) % 20 == 0:
                await anyio.sleep(0.01)
    assert seen == list(range(len(seen)))
