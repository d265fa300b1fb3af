"""What waits, what was placed and why, which sessions and artifacts there are: for people who look at the task plane.

Everybody sees their own; operators of every site see all.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import anyio

from homeport.core.inference.task import Refusal, TaskCode, TaskRefused
from homeport.inference.http.exchange import Exchange
from homeport.inference.http.tasks import SSE_HEADERS
from homeport.inference.plane import TaskPlane
from homeport.inference.tasks.artifacts import shown
from homeport.inference.tasks.stream import render
from homeport.serving.server.draining import STOPPING, Stopping

WAITING_SHOWN_MAX: Final = 1_000
LIMIT_DEFAULT: Final = 100
LIMIT_MAX: Final = 1_000
ALIVE_SECONDS: Final = 15.0
ALIVE: Final = b": alive\n\n"
CHANGED: Final = render(("changed", {}))


async def show_queue(plane: TaskPlane, exchange: Exchange) -> None:
    """Positions begin at 1 and count the tasks of the same pool and priority, also those of others."""
    names, now = await _names(plane), plane.clock.monotonic()
    submitter, counts = exchange.submitter, Counter[tuple[str, str]]()
    waiting: list[dict[str, Any]] = []
    why = plane.scheduler.reasons()
    for ticket in plane.scheduler.waiting():
        task = ticket.task
        counts[ticket.pool_id, task.priority] += 1
        if not submitter.may_see(ticket.caller) or len(waiting) >= WAITING_SHOWN_MAX:
            continue
        waiting.append(
            {
                "task_id": task.task_id,
                "pool_id": ticket.pool_id,
                "priority": task.priority.value,
                "position": counts[ticket.pool_id, task.priority],
                "from": names.get(ticket.caller, ticket.caller),
                "model": task.model_ref,
                "waits_ms": int((now - ticket.since) * 1000),
                "why": why(ticket),
            }
        )
    placed = [
        {
            "task_id": each.task_id,
            "pool_id": each.pool_id,
            "replica_id": each.replica_id,
            "priority": each.priority.value,
            "from": names.get(each.caller, each.caller),
            "model": each.model,
            "waited_ms": each.waited_ms,
            "ago_ms": int((now - each.at) * 1000),
            "running": each.is_running,
            "why": each.sentence,
        }
        for each in reversed(plane.scheduler.placements)
        if submitter.may_see(each.caller)
    ]
    await exchange.json(200, {"waiting": waiting, "placed": placed})


async def follow_queue(plane: TaskPlane, exchange: Exchange) -> None:
    """`changed` whenever something waits, begins, ends or a pool changes: the reader then asks for what it shows."""
    stopping: Stopping | None = exchange.scope.get("extensions", {}).get(STOPPING)
    with exchange.while_connected(lambda: None) as connected, plane.changes as changes:
        await exchange.start(200, SSE_HEADERS)
        async with anyio.create_task_group() as tasks:
            if stopping is not None:
                tasks.start_soon(_cancel_when, stopping, tasks.cancel_scope)
            version, frame = changes.version, CHANGED
            while True:
                with anyio.move_on_after(plane.settings.slow_client_seconds) as writing:
                    await exchange.write(frame)
                if writing.cancelled_caught:
                    connected.end("slow client")
                frame = ALIVE
                with anyio.move_on_after(ALIVE_SECONDS):
                    version, frame = await changes.after(version), CHANGED
        await exchange.finish()


async def _cancel_when(stopping: Stopping, scope: anyio.CancelScope) -> None:
    await stopping.wait()
    scope.cancel()


async def list_sessions(plane: TaskPlane, exchange: Exchange) -> None:
    submitter, limit = exchange.submitter, _limit(exchange)
    names, now = await _names(plane), plane.clock.monotonic()
    found = plane.sessions.newest(None if submitter.sees_all else submitter.key, limit)
    sessions = [
        {
            "session_id": session.id,
            "from": names.get(caller, caller),
            "replica": None if session.replica is None else "/".join(session.replica),
            **session.to_data(now, kv_bytes=plane.registry.kv_bytes(caller, session)),
        }
        for caller, session in found
    ]
    await exchange.json(200, {"sessions": sessions})


async def list_artifacts(plane: TaskPlane, exchange: Exchange) -> None:
    submitter, limit = exchange.submitter, _limit(exchange)
    async with plane.store.read() as reader:
        found = await reader.artifacts(None if submitter.sees_all else submitter.key, limit=limit)
    await exchange.json(200, {"artifacts": [shown(each, whole=False) for each in found]})


async def _names(plane: TaskPlane) -> Mapping[str, str]:
    async with plane.store.read() as reader:
        return {token.id: token.name for token in await reader.tokens()}


def _limit(exchange: Exchange) -> int:
    text = exchange.query.get("limit", [str(LIMIT_DEFAULT)])[-1]
    if not (text.isascii() and text.isdigit() and len(text) <= 4 and 1 <= int(text) <= LIMIT_MAX):
        raise TaskRefused(Refusal(TaskCode.INVALID_PARAMS, f"limit must be from 1 to {LIMIT_MAX}.", field="limit"))
    return int(text)
