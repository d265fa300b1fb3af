"""What is done to a whole pool: drain, reload, purge. Each is complete or undone."""

from functools import partial
from typing import TYPE_CHECKING, Final

import anyio

from homeport.core.inference.task import Refusal, TaskCode, TaskRefused
from homeport.errors import HomeportError, PermanentError
from homeport.inference.pools.drains import DrainDeadlines
from homeport.inference.pools.replica import Replica
from homeport.inference.tasks.bodies import PurgeBody
from homeport.log import get_log

if TYPE_CHECKING:
    from homeport.inference.plane import TaskPlane

log = get_log("homeport.inference")

RELOAD_DRAIN_SECONDS: Final = 60.0
"""How long a reload waits for tasks under way; then it is given up and everything stays."""
CANCEL_SECONDS: Final = 5.0
"""How long cancelled tasks of a drained pool may take to end."""
POLL_SECONDS: Final = 0.02
READY_SECONDS: Final = 120.0


async def drain_pool(plane: "TaskPlane", pool_id: str, *, deadline_ms: int) -> None:
    """New tasks go elsewhere from now on, after a restart too. Returns when that is durable; what runs has until the
    deadline and is cancelled then; an engine that still works after that ends. One that is idle stays, so that a
    drain can be taken back. Raises TransientError, and nothing has changed."""
    await plane.drains.add(pool_id, _now_ms(plane) + deadline_ms)
    plane.metrics.drained(pool_id, "request")
    log.narrate(
        "pool drained",
        actor="pools",
        action="drain",
        target=pool_id,
        human="A pool accepts no new tasks.",
        pool_id=pool_id,
    )


def drains_changed(plane: "TaskPlane", before: DrainDeadlines, after: DrainDeadlines) -> None:
    """Here or at another central, or they are known for the first time since a restart."""
    for pool_id in before.keys() - after.keys():
        plane.registry.drain(pool_id, is_on=False)
    for pool_id, deadline_ms in after.items():
        if before.get(pool_id) != deadline_ms:
            plane.registry.drain(pool_id, is_on=True)
            plane.scheduler.reroute(pool_id)
            plane.start(partial(_stop_when_idle, plane, pool_id, deadline_ms))


async def reload_pool(plane: "TaskPlane", pool_id: str, model_ref: str) -> None:
    """Serves another model. Tasks wait meanwhile. Raises TaskRefused CONFLICT with everything as it was before."""
    replicas = plane.registry.replicas(pool_id)
    if all(model_ref in each.models for each in replicas):
        return
    engines = plane.ports.engines
    if engines is None:
        text = "The engines of this pool were started elsewhere, so that their model cannot be changed from here."
        raise TaskRefused(Refusal(TaskCode.CONFLICT, text, pool_id=pool_id))
    if pool_id in plane.scheduler.reloading:
        raise TaskRefused(Refusal(TaskCode.CONFLICT, "The pool is being reloaded already.", pool_id=pool_id))
    plane.scheduler.reloading.add(pool_id)
    began = plane.clock.monotonic()
    try:
        await _reload(plane, list(replicas), model_ref)
    except HomeportError as error:
        plane.metrics.failed_reloads.labels(pool_id).inc()
        text = f"The old model serves on: {error}"
        raise TaskRefused(Refusal(TaskCode.CONFLICT, text, pool_id=pool_id)) from error
    finally:
        plane.scheduler.reloading.discard(pool_id)
        for replica in plane.registry.replicas(pool_id):
            replica.draining = plane.registry.is_draining(pool_id)
        plane.scheduler.wake()
        plane.metrics.reload_ms.labels(pool_id).observe(1000 * (plane.clock.monotonic() - began))
    plane.metrics.reloads.labels(pool_id).inc()


async def purge_pool(plane: "TaskPlane", pool_id: str, body: PurgeBody) -> None:
    """Removes the engines of the pool, models of the catalog, or both. Raises TaskRefused with all as it was."""
    engines = plane.ports.engines
    if engines is None:
        text = "The engines of this pool were started elsewhere, so that nothing of them can be removed from here."
        raise TaskRefused(Refusal(TaskCode.INVALID_PARAMS, text, pool_id=pool_id))
    replicas = list(plane.registry.replicas(pool_id))
    refusal = _unpurgeable(pool_id, replicas, body)
    if refusal is not None:
        raise TaskRefused(refusal)
    if body.purge_engine:
        plane.registry.end(pool_id, is_on=True)
        plane.scheduler.reroute(pool_id)
        try:
            await _stop_all(plane, pool_id, replicas, body)
        except BaseException:
            plane.registry.end(pool_id, is_on=False)
            raise
        await plane.drains.remove(pool_id)
    await engines.remove_models(body.purge_models)


def _unpurgeable(pool_id: str, replicas: list[Replica], body: PurgeBody) -> Refusal | None:
    if body.delete_cache_dirs:
        text = "delete_cache_dirs is not possible from here: nodes keep the files that they fetched. Leave it out."
        return Refusal(TaskCode.INVALID_PARAMS, text, pool_id=pool_id, field="delete_cache_dirs")
    served = {name for each in replicas for name in each.models} & {*body.purge_models}
    if served and not (body.purge_engine or body.force):
        text = f"The pool serves {', '.join(sorted(served))[:200]}. Use purge_engine too, or force."
        return Refusal(TaskCode.CONFLICT, text, pool_id=pool_id, field="purge_models")
    return None


async def _stop_all(plane: "TaskPlane", pool_id: str, replicas: list[Replica], body: PurgeBody) -> None:
    engines = plane.ports.engines
    assert engines is not None
    busy = not await _idle(replicas, RELOAD_DRAIN_SECONDS) if body.drain_first else any(r.leases for r in replicas)
    if busy and not body.force:
        text = "Tasks are still running in this pool. Wait for them, or use force."
        raise TaskRefused(Refusal(TaskCode.CONFLICT, text, pool_id=pool_id))
    for replica in replicas:
        try:
            await engines.stop(replica.handoff)
        except PermanentError as error:
            raise TaskRefused(Refusal(TaskCode.CONFLICT, f"The pool serves on: {error}", pool_id=pool_id)) from error


async def _reload(plane: "TaskPlane", replicas: list[Replica], model_ref: str) -> None:
    """All of them or none: half a pool with another model would answer some requests and not others."""
    engines = plane.ports.engines
    assert engines is not None
    for replica in replicas:
        replica.draining = True
    if not await _idle(replicas, RELOAD_DRAIN_SECONDS):
        text = "The old model serves on: tasks under way did not end in time. Try again later."
        raise TaskRefused(Refusal(TaskCode.CONFLICT, text, pool_id=replicas[0].handoff.pool_id))
    reloaded = await engines.reload([each.handoff for each in replicas], model_ref)
    for replica, handoff in zip(replicas, reloaded, strict=True):
        plane.registry.bind(handoff, replica.opens)
    with anyio.move_on_after(READY_SECONDS):
        while not all(_is_ready(plane, each) for each in replicas):  # noqa: ASYNC110 - health is asked for in rounds
            await anyio.sleep(POLL_SECONDS)


def _is_ready(plane: "TaskPlane", replica: Replica) -> bool:
    found = plane.registry.replica(replica.key)
    return found is not None and found.ready


async def _stop_when_idle(plane: "TaskPlane", pool_id: str, deadline_ms: int) -> None:
    replicas, began = list(plane.registry.replicas(pool_id)), plane.clock.monotonic()
    is_idle = await _idle(replicas, max(0, deadline_ms - _now_ms(plane)) / 1000)
    if plane.drains.deadline_ms(pool_id) != deadline_ms:
        # Taken back, or drained anew with another deadline.
        return
    if not is_idle:
        plane.cancel_pool(pool_id, "drain")
    is_stopped = is_idle or await _idle(replicas, CANCEL_SECONDS)
    took_ms = int(1000 * (plane.clock.monotonic() - began))
    plane.metrics.drain_ms.labels(pool_id).observe(took_ms)
    log.narrate(
        "pool idle after drain",
        actor="pools",
        action="drain",
        target=pool_id,
        human="A drained pool is idle." if is_idle else "What still ran in a drained pool is cancelled.",
        pool_id=pool_id,
        in_time=is_idle,
        drain_duration_ms=took_ms,
    )
    if is_stopped or plane.ports.engines is None:
        return
    for replica in replicas:
        try:
            await plane.ports.engines.stop(replica.handoff)
        except HomeportError as error:
            log.warning("engine not stopped after drain", pool_id=pool_id, why=str(error))


def _now_ms(plane: "TaskPlane") -> int:
    return int(plane.clock.now().timestamp() * 1000)


async def _idle(replicas: list[Replica], seconds: float) -> bool:
    with anyio.move_on_after(seconds):
        while any(each.leases for each in replicas):  # noqa: ASYNC110 - leases are counted, not announced
            await anyio.sleep(POLL_SECONDS)
    return not any(each.leases for each in replicas)
