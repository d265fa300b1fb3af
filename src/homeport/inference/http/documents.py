"""The task plane in the OpenAPI document: what the raw routes take and answer."""

from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel

from homeport.core.inference.breaker import Circuit
from homeport.core.inference.engines.handoff import Loading
from homeport.inference.tasks.bodies import (
    ArtifactBody,
    DrainBody,
    PurgeBody,
    RegisterBody,
    ReloadBody,
    TaskBody,
)

_REF: Final = "#/components/schemas/Task{model}"
"""With a prefix, since deployments have schemas of the same names."""
_STRING: Final = {"type": "string"}
_INTEGER: Final = {"type": "integer"}
_BOOLEAN: Final = {"type": "boolean"}
_NUMBER_OR_NULL: Final = {"type": ["number", "null"]}
_STRING_OR_NULL: Final = {"type": ["string", "null"]}
_INTEGER_OR_NULL: Final = {"type": ["integer", "null"]}


def _object(required: Mapping[str, Any], optional: Mapping[str, Any] | None = None) -> dict[str, Any]:
    return {"type": "object", "properties": {**required, **(optional or {})}, "required": sorted(required)}


def _list(items: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _named(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


ERROR: Final = _object(
    {"code": _STRING, "message": _STRING},
    {
        "engine": _STRING,
        "pool_id": _STRING,
        "retriable": _BOOLEAN,
        "retry_after_ms": _INTEGER,
        "policy_label": _STRING,
        "hint": _STRING,
    },
)
OPENAI_ERROR: Final = _object(
    {
        "error": _object(
            {"message": _STRING, "type": _STRING},
            # An engine's own error is passed on as it is, and some engines number theirs.
            {"param": {"type": ["string", "null"]}, "code": {"type": ["string", "integer", "null"]}},
        )
    }
)
STEP: Final = _object(
    {
        "id": _STRING,
        "kind": {"type": "string", "enum": ["engine_provision", "model_fetch", "pool_warmup"]},
        "group": {"type": "string", "enum": ["engine", "model", "pool"]},
        "description": _STRING,
        "status": {"type": "string", "enum": ["pending", "running", "completed", "failed"]},
    },
    {"estimated_ms": _INTEGER, "bytes_total": _INTEGER},
)
ADMISSION: Final = _object(
    {
        "task_id": _STRING,
        "queue_position": _INTEGER,
        "predicted_start_ms": _INTEGER,
        "backoff_ms": _INTEGER,
        "streams": _object({"sse": _STRING, "sse_verbose": _STRING}),
        "preparation": _object({"steps": _list(STEP)}),
    }
)
SESSION: Final = _object(
    {
        "ttl_ms_remaining": _INTEGER,
        "turns": _INTEGER,
        "kv_bytes": _INTEGER_OR_NULL,
        "kv_warmth": _BOOLEAN,
        "tokens_budget_remaining": _NUMBER_OR_NULL,
        "time_budget_remaining_ms": _NUMBER_OR_NULL,
        "cost_budget_remaining": _NUMBER_OR_NULL,
    }
)
LISTED_SESSION: Final = _object(
    {**SESSION["properties"], "session_id": _STRING, "from": _STRING, "replica": _STRING_OR_NULL}
)
METRICS: Final = _object(
    dict.fromkeys(("queue_depth", "slots_total", "slots_free", "active_leases", "replicas"), _INTEGER),
    {"preparation": _list({"type": "object"})},
)
HEALTH: Final = _object(
    {
        "live": _BOOLEAN,
        "ready": _BOOLEAN,
        "draining": _BOOLEAN,
        "metrics": _named("PoolMetrics"),
        "last_error": _STRING_OR_NULL,
    }
)
REPLICA: Final = _object(
    {
        **dict.fromkeys(("replica_id", "engine", "engine_version"), _STRING),
        "models": _list(_STRING),
        "models_in_memory": {**_list(_STRING), "type": ["array", "null"]},
        **dict.fromkeys(("site", "node_id", "device_mask"), _STRING_OR_NULL),
        "loading": {"type": "string", "enum": [each.value for each in Loading]},
        **dict.fromkeys(("live", "ready"), _BOOLEAN),
        **dict.fromkeys(("slots_total", "slots_free", "active_leases"), _INTEGER),
        "circuit": {"type": "string", "enum": [each.value for each in Circuit]},
        **dict.fromkeys(("tokens_per_second", "first_token_ms"), _NUMBER_OR_NULL),
        "vram_free_bytes": _INTEGER_OR_NULL,
        "last_error": _STRING_OR_NULL,
    }
)
POOL: Final = _object({**HEALTH["properties"], "pool_id": _STRING, "replicas": _list(_named("Replica"))})
ARTIFACT: Final = _object(
    {"id": _STRING, "kind": _STRING, "digest": _STRING, "created_ms": _INTEGER, "tags": _list(_STRING)},
    {"content": {"type": "object"}, "metadata": {"type": "object"}, "parent": _STRING_OR_NULL},
)
_TASK: Final = dict.fromkeys(("task_id", "pool_id", "priority", "from", "model", "why"), _STRING)
WAITING_TASK: Final = _object({**_TASK, "position": _INTEGER, "waits_ms": _INTEGER})
PLACED_TASK: Final = _object(
    {**_TASK, "replica_id": _STRING, "waited_ms": _INTEGER, "ago_ms": _INTEGER, "running": _BOOLEAN}
)
QUEUE: Final = _object({"waiting": _list(_named("WaitingTask")), "placed": _list(_named("PlacedTask"))})
USAGE_ROW: Final = _object(
    {
        **dict.fromkeys(("key", "name", "day", "model"), _STRING),
        "site": _STRING_OR_NULL,
        **dict.fromkeys(("requests", "tokens_in", "tokens_out"), _INTEGER),
    }
)
CAPABILITIES: Final = _object({"api_version": _STRING, "engines": _list({"type": "object"})})
VERSION: Final = _object(
    {"api_version": _STRING, "version": _STRING}, {"build_commit": _STRING, "build_time": _STRING}
)
REGISTERED: Final = _object({"ok": _BOOLEAN, "identity": _STRING, "pool_id": _STRING, "replica_id": _STRING})
ANYTHING: Final = {"type": "object"}
_SCHEMAS: Final[dict[str, Any]] = {
    **{"TaskError": ERROR, "OpenAiError": OPENAI_ERROR, "Admission": ADMISSION},
    **{"Session": SESSION, "ListedSession": LISTED_SESSION, "Artifact": ARTIFACT, "UsageRow": USAGE_ROW},
    **{"Pool": POOL, "PoolHealth": HEALTH, "PoolMetrics": METRICS, "Replica": REPLICA},
    **{"Queue": QUEUE, "WaitingTask": WAITING_TASK, "PlacedTask": PLACED_TASK},
}


def _operation(
    operation_id: str,
    summary: str,
    answers: Mapping[int, Any],
    *,
    body: type[BaseModel] | dict[str, Any] | None = None,
    params: tuple[str, ...] = (),
    error: str = "TaskError",
    headers: Mapping[str, Any] | None = None,
    can_stream: bool = False,
) -> dict[str, Any]:
    """`headers` are further ones of a success; with `can_stream` it may also be an event stream."""
    responses: dict[str, Any] = {}
    for status, schema in answers.items():
        content = {} if schema in (None, "events") else {"application/json": {"schema": schema}}
        if schema == "events" or can_stream:
            content["text/event-stream"] = {"schema": _STRING}
        shown = {"content": content} if content else {}
        responses[str(status)] = {"description": summary, **shown, "headers": {**_ID, **(headers or {})}}
    for status in _ERRORS:
        shown = {"content": {"application/json": {"schema": _named(error)}}}
        more = _AGAIN if status == 429 else {}
        responses[str(status)] = {"description": "It was refused.", **shown, "headers": {**_ID, **more}}
    found: dict[str, Any] = {
        "operationId": operation_id,
        "summary": summary,
        "tags": ["inference"],
        "responses": responses,
        "parameters": [{"name": name, "in": "path", "required": True, "schema": _STRING} for name in params],
        "$defs": dict(_SCHEMAS),
    }
    if body is not None:
        taken = body if isinstance(body, dict) else body.model_json_schema(ref_template=_REF)
        found["$defs"] |= {f"Task{name}": schema for name, schema in taken.pop("$defs", {}).items()}
        found["requestBody"] = {"required": True, "content": {"application/json": {"schema": taken}}}
    return found


_ERRORS: Final = (400, 401, 403, 404, 409, 413, 421, 429, 500, 502, 503, 504)
_ID: Final = {"X-Correlation-Id": {"schema": _STRING}}
_AGAIN: Final = {"Retry-After": {"schema": _INTEGER}, "X-Backoff-Ms": {"schema": _INTEGER}}
_BUDGETS: Final = {
    name: {"schema": _STRING}
    for name in ("X-Budget-Tokens-Remaining", "X-Budget-Time-Remaining-Ms", "X-Budget-Cost-Remaining")
}
_OPENAI: Final = "OpenAiError"
_LIST: Final = _object({"object": _STRING, "data": _list({"type": "object"})})
_ONE: Final = ("id",)

OPERATIONS: Final[Mapping[tuple[str, str], dict[str, Any]]] = {
    ("POST", "/v2/tasks"): _operation(
        "submit_task",
        "Submit a task",
        {202: _named("Admission")},
        body=TaskBody,
        headers=_BUDGETS,
    ),
    ("GET", "/v2/tasks/{id}/events"): _operation(
        "follow_task",
        "Follow a task: started, token, metrics, end or error",
        {200: "events"},
        params=_ONE,
        headers=_BUDGETS,
    ),
    ("GET", "/v2/tasks/{id}/why"): _operation("why_task", "Why it ran where it ran", {200: ANYTHING}, params=_ONE),
    ("POST", "/v2/tasks/{id}/cancel"): _operation("cancel_task", "Cancel a task", {204: None}, params=_ONE),
    ("GET", "/v2/queue"): _operation(
        "show_queue", "What waits, and what was placed where and why", {200: _named("Queue")}
    ),
    ("GET", "/v2/queue/events"): _operation(
        "follow_queue", "Says when the queue or a pool has changed", {200: "events"}
    ),
    ("GET", "/v2/sessions"): _operation(
        "list_sessions", "Sessions, the last used first", {200: _object({"sessions": _list(_named("ListedSession"))})}
    ),
    ("GET", "/v2/sessions/{id}"): _operation("get_session", "A session", {200: _named("Session")}, params=_ONE),
    ("POST", "/v2/sessions/{id}"): _operation("touch_session", "Extend a session", {204: None}, params=_ONE),
    ("DELETE", "/v2/sessions/{id}"): _operation("delete_session", "End a session", {204: None}, params=_ONE),
    ("GET", "/v2/pools"): _operation("list_pools", "All pools", {200: _object({"pools": _list(_named("Pool"))})}),
    ("GET", "/v2/pools/{id}"): _operation("get_pool", "A pool and its replicas", {200: _named("Pool")}, params=_ONE),
    ("GET", "/v2/pools/{id}/health"): _operation(
        "pool_health", "Its health", {200: _named("PoolHealth")}, params=_ONE
    ),
    ("POST", "/v2/pools/{id}/drain"): _operation(
        "drain_pool", "Take no new tasks", {202: ANYTHING}, body=DrainBody, params=_ONE
    ),
    ("DELETE", "/v2/pools/{id}/drain"): _operation("undrain_pool", "Take tasks again", {202: ANYTHING}, params=_ONE),
    ("POST", "/v2/pools/{id}/reload"): _operation(
        "reload_pool",
        "Serve another model; 409 where the old one serves on",
        {202: ANYTHING},
        body=ReloadBody,
        params=_ONE,
    ),
    ("POST", "/v2/pools/{id}/purge"): _operation(
        "purge_pool",
        "Remove engine or models",
        {202: ANYTHING},
        body=PurgeBody,
        params=_ONE,
    ),
    ("POST", "/v2/workers/register"): _operation(
        "register_worker", "Bind a development engine", {200: REGISTERED}, body=RegisterBody
    ),
    ("GET", "/v2/meta/capabilities"): _operation("inference_capabilities", "Engines", {200: CAPABILITIES}),
    ("GET", "/v2/meta/version"): _operation("inference_version", "Version of this contract", {200: VERSION}),
    ("GET", "/v2/usage"): _operation(
        "inference_usage",
        "Tokens and requests by key, day and model; `site` where a site answered by itself",
        {200: _object({"since": _STRING, "usage": _list(_named("UsageRow"))})},
    ),
    ("POST", "/v2/artifacts"): _operation(
        "post_artifact", "Keep a document", {201: _named("Artifact")}, body=ArtifactBody
    ),
    ("GET", "/v2/artifacts"): _operation(
        "list_artifacts", "Documents, the newest first", {200: _object({"artifacts": _list(_named("Artifact"))})}
    ),
    ("GET", "/v2/artifacts/{id}"): _operation("get_artifact", "A document", {200: _named("Artifact")}, params=_ONE),
    ("GET", "/v1/models"): _operation("openai_models", "Models (OpenAI)", {200: _LIST}, error=_OPENAI),
    ("GET", "/v1/models/{model:path}"): _operation(
        "openai_model", "A model (OpenAI)", {200: ANYTHING}, params=("model",), error=_OPENAI
    ),
    ("GET", "/v1/{path:path}"): _operation(
        "openai_look", "Nothing: only models are looked up (OpenAI)", {}, params=("path",), error=_OPENAI
    ),
    ("POST", "/v1/{path:path}"): _operation(
        "openai_call",
        "Chat completions, completions, embeddings and whatever else the engine offers (OpenAI)",
        {200: ANYTHING},
        body={"type": "object", "required": ["model"], "properties": {"model": _STRING}},
        params=("path",),
        error=_OPENAI,
        can_stream=True,
    ),
}
