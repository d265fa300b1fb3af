"""`/v2` beside tasks: sessions, pools, artifacts, workers, capabilities, usage."""

import hashlib
import json
from datetime import timedelta
from importlib.metadata import version
from typing import Any, Final

from anyio.to_thread import run_sync
from pydantic import TypeAdapter

from homeport.adapters.git.build import current_build
from homeport.core.inference.engines.handoff import EngineName, Handoff, HandoffModel
from homeport.core.inference.records import TaskState
from homeport.core.inference.task import CTX_CAP, MAX_TOKENS_CAP, Refusal, TaskCode, TaskRefused
from homeport.errors import InvalidInput
from homeport.fleet.shared.answers.suggestion import did_you_mean
from homeport.inference.http.exchange import Exchange
from homeport.inference.http.tasks import task_id_of
from homeport.inference.plane import TaskPlane
from homeport.inference.pools.operations import drain_pool, purge_pool, reload_pool
from homeport.inference.tasks.artifacts import artifact_of, shown
from homeport.inference.tasks.bodies import (
    ArtifactBody,
    DrainBody,
    PurgeBody,
    RegisterBody,
    ReloadBody,
    is_artifact_id,
    is_uuid,
    read,
)

API_VERSION: Final = "2.0.0"
_DRAIN: Final = TypeAdapter(DrainBody)
_RELOAD: Final = TypeAdapter(ReloadBody)
_PURGE: Final = TypeAdapter(PurgeBody)
_REGISTER: Final = TypeAdapter(RegisterBody)
_ARTIFACT: Final = TypeAdapter(ArtifactBody)
USAGE_DAYS_MAX: Final = 366
_SINCE_RESTART: Final = "Its pool was not announced again since the restart."


# --- sessions -----------------------------------------------------------------------------------------------------


async def get_session(plane: TaskPlane, exchange: Exchange) -> None:
    session = plane.sessions.find(exchange.submitter.key, _session_id(exchange))
    if session is None:
        raise TaskRefused(Refusal(TaskCode.NOT_FOUND, "There is no such session, or it has expired."))
    kv_bytes = plane.registry.kv_bytes(exchange.submitter.key, session)
    await exchange.json(200, session.to_data(plane.clock.monotonic(), kv_bytes=kv_bytes))


async def touch_session(plane: TaskPlane, exchange: Exchange) -> None:
    if not plane.sessions.touch(exchange.submitter.key, _session_id(exchange)):
        raise TaskRefused(Refusal(TaskCode.NOT_FOUND, "There is no such session, or it has expired."))
    await exchange.answer(204, b"")


async def delete_session(plane: TaskPlane, exchange: Exchange) -> None:
    plane.sessions.delete(exchange.submitter.key, _session_id(exchange))
    await exchange.answer(204, b"")


# --- pools --------------------------------------------------------------------------------------------------------


async def list_pools(plane: TaskPlane, exchange: Exchange) -> None:
    sites = exchange.submitter.sites
    pools = [_pool(plane, pool_id) for pool_id in plane.registry.pool_ids() if _is_seen(plane, pool_id, sites)]
    await exchange.json(200, {"pools": pools})


async def get_pool(plane: TaskPlane, exchange: Exchange) -> None:
    await exchange.json(200, _pool(plane, _pool_id(plane, exchange)))


async def pool_health(plane: TaskPlane, exchange: Exchange) -> None:
    pool_id = _pool_id(plane, exchange)
    depth, now = plane.scheduler.depth(pool_id), plane.clock.monotonic()
    await exchange.json(200, plane.registry.health(pool_id, queue_depth=depth, now=now))


async def drain(plane: TaskPlane, exchange: Exchange) -> None:
    pool_id = _pool_id(plane, exchange)
    body = read(_DRAIN, await exchange.body())
    await drain_pool(plane, pool_id, deadline_ms=body.deadline_ms)
    await exchange.json(202, {"pool_id": pool_id, "draining": True})


async def undrain(plane: TaskPlane, exchange: Exchange) -> None:
    pool_id = exchange.params["id"]
    if plane.drains.deadline_ms(pool_id) is None:
        # The drain of a pool that is gone can be taken back too: one of its name may come later.
        _pool_id(plane, exchange)
    await plane.drains.remove(pool_id)
    await exchange.json(202, {"pool_id": pool_id, "draining": False})


async def reload(plane: TaskPlane, exchange: Exchange) -> None:
    pool_id = _pool_id(plane, exchange)
    body = read(_RELOAD, await exchange.body())
    await reload_pool(plane, pool_id, body.new_model_ref)
    await exchange.json(202, {"pool_id": pool_id, "model": body.new_model_ref})


async def purge(plane: TaskPlane, exchange: Exchange) -> None:
    pool_id = _pool_id(plane, exchange)
    body = read(_PURGE, await exchange.body() or b"{}")
    await purge_pool(plane, pool_id, body)
    await exchange.json(202, {"pool_id": pool_id})


async def register_worker(plane: TaskPlane, exchange: Exchange) -> None:
    """Binds the fake engine, where the settings allow it: for development without a model."""
    body = read(_REGISTER, await exchange.body() or b"{}")
    if not plane.settings.allow_fake:
        text = "Workers register with a handoff file on their node. For development --task-fake binds a fake engine."
        raise TaskRefused(Refusal(TaskCode.INVALID_PARAMS, text))
    fake = Handoff(
        engine=EngineName.FAKE,
        url="http://fake.invalid",
        model=HandoffModel("fake"),
        pool_id=body.pool_id,
        replica_id=body.replica_id,
    )
    plane.registry.bind(fake)
    key = exchange.submitter.key
    identity = "localhost" if key == "local" else f"token:{hashlib.sha256(key.encode()).hexdigest()[:6]}"
    answer = {"ok": True, "identity": identity, "pool_id": body.pool_id, "replica_id": body.replica_id}
    await exchange.json(200, answer)


# --- artifacts ----------------------------------------------------------------------------------------------------


async def post_artifact(plane: TaskPlane, exchange: Exchange) -> None:
    body = read(_ARTIFACT, await exchange.body())
    try:
        made = artifact_of(
            body.kind,
            body.content,
            created_ms=int(plane.clock.now().timestamp() * 1000),
            tags=body.tags,
            parent=body.parent,
            metadata=body.metadata,
            owner=exchange.submitter.key,
        )
    except InvalidInput as error:
        raise TaskRefused(Refusal(TaskCode.INVALID_PARAMS, str(error), field="content")) from error
    await plane.journal.keep(made)
    async with plane.store.read() as reader:
        # The same document a second time is the one that was kept.
        kept = await reader.artifact(made.id) or made
    await exchange.json(201, shown(kept, whole=False))


async def get_artifact(plane: TaskPlane, exchange: Exchange) -> None:
    submitter, artifact_id = exchange.submitter, exchange.params["id"].removeprefix("sha256:")
    if not is_artifact_id(artifact_id):
        raise TaskRefused(Refusal(TaskCode.NOT_FOUND, "There is no such artifact: its id is not a SHA-256."))
    async with plane.store.read() as reader:
        found = await reader.artifact(artifact_id)
        is_seen = submitter.sees_all or await reader.owns_artifact(artifact_id, submitter.key)
    if found is None or not is_seen:
        raise TaskRefused(Refusal(TaskCode.NOT_FOUND, "There is no such artifact."))
    await exchange.json(200, shown(found, whole=True))


# --- meta ---------------------------------------------------------------------------------------------------------


async def capabilities(plane: TaskPlane, exchange: Exchange) -> None:
    sites = exchange.submitter.sites
    engines = [
        _capability(plane, pool_id) for pool_id in plane.registry.pool_ids() if _is_seen(plane, pool_id, sites)
    ]
    await exchange.json(200, {"api_version": API_VERSION, "engines": engines})


async def show_version(plane: TaskPlane, exchange: Exchange) -> None:
    """Without the commit and its time where they are not known."""
    build = await run_sync(current_build)
    known = {} if build is None else {"build_commit": build.commit, "build_time": build.time}
    await exchange.json(200, {"api_version": API_VERSION, "version": version("homeport"), **known})


async def usage(plane: TaskPlane, exchange: Exchange) -> None:
    days = exchange.query.get("days", ["30"])[-1]
    if not (days.isascii() and days.isdigit() and len(days) <= 3 and 1 <= int(days) <= USAGE_DAYS_MAX):
        raise TaskRefused(Refusal(TaskCode.INVALID_PARAMS, f"days must be from 1 to {USAGE_DAYS_MAX}.", field="days"))
    since = (plane.clock.now() - timedelta(days=int(days) - 1)).date().isoformat()
    await plane.journal.settle()
    async with plane.store.read() as reader:
        found = [("", each) for each in await reader.usage(since)] + [*await reader.site_usage(since)]
        names = {token.id: token.name for token in await reader.tokens()}
    submitter = exchange.submitter
    rows = [
        {
            "key": each.caller,
            "site": site or None,
            "name": names.get(each.caller, each.caller),
            "day": each.day,
            "model": each.model,
            "requests": each.requests,
            "tokens_in": each.tokens_in,
            "tokens_out": each.tokens_out,
        }
        for site, each in found
        if submitter.may_see(each.caller)
    ]
    await exchange.json(200, {"since": since, "usage": rows})


async def why_task(plane: TaskPlane, exchange: Exchange) -> None:
    task_id = task_id_of(exchange)
    try:
        run = plane.find(task_id, exchange.submitter)
    except TaskRefused:
        try:
            stored, _ = await plane.find_ended(task_id, exchange.submitter)
        except TaskRefused:
            request = plane.find_request(task_id, exchange.submitter)
            if request is None:
                raise
            await exchange.json(200, {"task_id": task_id, **request})
            return
        is_over = stored.state is TaskState.ENDED
        known = json.loads(stored.outcome or "{}") if is_over else {"waits_for": _SINCE_RESTART}
        await exchange.json(200, {"task_id": task_id, "state": _state(is_over), **known})
        return
    await exchange.json(200, {"task_id": task_id, "state": _state(run.stream.is_over), **plane.explain(run)})


def _state(is_over: bool) -> str:
    return "ended" if is_over else "active"


def _pool(plane: TaskPlane, pool_id: str) -> dict[str, Any]:
    now = plane.clock.monotonic()
    health = plane.registry.health(pool_id, queue_depth=plane.scheduler.depth(pool_id), now=now)
    replicas = [
        {
            "replica_id": each.handoff.replica_id,
            "engine": each.handoff.engine.value,
            "engine_version": each.engine_version,
            "models": sorted(each.models),
            "models_in_memory": None if each.in_memory is None else sorted(each.in_memory),
            "site": each.site or None,
            "node_id": each.handoff.node_id or None,
            "device_mask": each.handoff.device_mask,
            "loading": each.handoff.loading.value,
            "live": each.live,
            "ready": each.takes_tasks(now),
            "slots_total": each.slots_total,
            "slots_free": each.slots_free,
            "active_leases": each.leases,
            "circuit": each.breaker.circuit(now).value,
            "tokens_per_second": each.tokens_per_second,
            "first_token_ms": each.first_token_ms,
            "vram_free_bytes": each.vram_free_bytes,
            "last_error": each.last_error or None,
        }
        for each in plane.registry.replicas(pool_id)
    ]
    return {"pool_id": pool_id, **health, "replicas": replicas}


def _capability(plane: TaskPlane, pool_id: str) -> dict[str, Any]:
    replicas = plane.registry.replicas(pool_id)
    first = replicas[0]
    return {
        "pool_id": pool_id,
        "engine": first.handoff.engine.value,
        "engine_version": first.engine_version,
        "sampler_profile_version": None,
        "ctx_max": max(each.handoff.ctx_max or each.props.ctx_max or CTX_CAP for each in replicas),
        "max_tokens_out": MAX_TOKENS_CAP,
        "concurrency": sum(each.slots_total for each in replicas),
        "supported_workloads": sorted(frozenset().union(*(each.handoff.workloads for each in replicas))),
        "rate_limits": {
            "waiting_per_key": plane.settings.key_waiting_max,
            "running_per_key": plane.settings.key_running_max or None,
            "requests_per_minute": plane.settings.key_requests_per_minute or None,
        },
        "features": {
            "batching": any(each.slots_total > 1 for each in replicas),
            "models": sorted(frozenset().union(*(each.models for each in replicas))),
        },
    }


def _pool_id(plane: TaskPlane, exchange: Exchange) -> str:
    pool_id = exchange.params["id"]
    if not _is_seen(plane, pool_id, exchange.submitter.sites):
        known = [each for each in plane.registry.pool_ids() if _is_seen(plane, each, exchange.submitter.sites)]
        text = f'There is no pool "{pool_id[:100]}". {did_you_mean(pool_id[:100], known, "homeport pools list")}'
        raise TaskRefused(Refusal(TaskCode.NOT_FOUND, text))
    return pool_id


def _is_seen(plane: TaskPlane, pool_id: str, sites: tuple[str, ...]) -> bool:
    replicas = plane.registry.replicas(pool_id)
    return bool(replicas) and (not sites or any(each.site in sites for each in replicas))


def _session_id(exchange: Exchange) -> str:
    session_id = exchange.params["id"]
    if not is_uuid(session_id):
        raise TaskRefused(Refusal(TaskCode.INVALID_PARAMS, "A session's id is a UUID.", field="session_id"))
    return session_id.lower()
