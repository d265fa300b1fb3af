"""`/v2/tasks`: submit, follow, cancel."""

import json
import re
from collections.abc import Mapping
from contextlib import aclosing
from functools import lru_cache, partial
from typing import Any, Final

import anyio
from starlette.types import ASGIApp, Receive, Scope, Send

from homeport.core.inference.records import TaskState
from homeport.core.inference.sessions import Budgets
from homeport.core.inference.task import Refusal, TaskCode, TaskRefused
from homeport.errors import InvalidInput, NotFound, PermanentError, TransientError
from homeport.inference.http.errors import refuse_task, task_headers
from homeport.inference.http.exchange import Exchange, submitter_of
from homeport.inference.plane import UNLIMITED, Submitter, TaskPlane
from homeport.inference.tasks.bodies import is_uuid, read_task
from homeport.inference.tasks.running import TaskRun
from homeport.inference.tasks.stream import KEEPALIVE, KEEPALIVE_SECONDS
from homeport.serving.middleware.shortcuts import Finish, ShortRequest

_AMOUNT: Final = re.compile(r"[0-9]{1,12}(\.[0-9]{1,12})?", re.ASCII)
_CODES: Final = ((NotFound, TaskCode.NOT_FOUND), (InvalidInput, TaskCode.INVALID_PARAMS))
_BUDGETS: Final = ("x-budget-tokens", "x-budget-time-ms", "x-budget-cost")
RECOVERED_SOON_SECONDS: Final = 1.0
"""So long a client hears nothing of a task from before a restart: mostly it is back by then."""
SSE_HEADERS: Final = {
    "content-type": "text/event-stream",
    "cache-control": "no-cache",
    "connection": "keep-alive",
    "x-accel-buffering": "no",
}


def raw(handle: Any, plane: TaskPlane) -> ASGIApp:
    """A handler of (plane, exchange) as an application; refusals are answered in the contract's envelope."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        exchange = Exchange(scope, receive, send)
        try:
            await handle(plane, exchange)
        except TaskRefused as refused:
            if exchange.is_started:
                raise
            await refuse_task(exchange, refused.refusal)
        except TransientError as error:
            if exchange.is_started:
                raise
            await refuse_task(exchange, _try_again(error))
        except PermanentError as error:
            if exchange.is_started:
                raise
            code = next((code for kind, code in _CODES if isinstance(error, kind)), TaskCode.CONFLICT)
            await refuse_task(exchange, Refusal(code, str(error)))

    return app


async def submit(plane: TaskPlane, exchange: Exchange) -> None:
    body = await exchange.body()
    task = read_task(body)
    submitter = exchange.submitter
    budgets = _budgets(exchange.headers)
    answer = await plane.submit(task, body, submitter, budgets, correlation_id=exchange.correlation_id)
    headers = budget_headers(plane, submitter, task.session_id)
    await exchange.answer(202, answer.encode(), "application/json", headers)


def submit_shortly(plane: TaskPlane, request: ShortRequest, finish: Finish) -> None:
    """`submit` without a task: thousands of admissions in a second come here."""

    def refuse(refusal: Refusal) -> None:
        finish(refusal.status, json.dumps(refusal.to_data()).encode(), _lines(task_headers(refusal)))

    def done(answer: str | TaskRefused | TransientError) -> None:
        if isinstance(answer, TaskRefused):
            refuse(answer.refusal)
        elif isinstance(answer, TransientError):
            refuse(_try_again(answer))
        else:
            finish(202, answer.encode(), _budget_lines(_budgets_left(plane, submitter, task.session_id)))

    submitter = submitter_of(request.caller)
    try:
        task = read_task(request.body)
        budgets = _budgets(request.headers)
        plane.submit_soon(task, request.body, submitter, budgets, done, correlation_id=request.correlation_id)
    except TaskRefused as refused:
        refuse(refused.refusal)


def _lines(headers: Mapping[str, str]) -> bytes:
    return "".join([f"{name}: {value}\r\n" for name, value in headers.items()]).encode("latin-1")


def _try_again(error: TransientError) -> Refusal:
    retry_ms = int(1000 * error.retry_after_seconds)
    return Refusal(TaskCode.POOL_UNAVAILABLE, str(error), retry_after_ms=retry_ms)


def _budgets(headers: Mapping[str, str]) -> Budgets:
    """What the session may still spend, where the client says so. Raises TaskRefused for what is not a number."""
    if not any(name in headers for name in _BUDGETS):
        return UNLIMITED
    cost = _budget(headers, "x-budget-cost")
    tokens, time_ms = (_budget(headers, name) for name in ("x-budget-tokens", "x-budget-time-ms"))
    return Budgets(None if tokens is None else int(tokens), None if time_ms is None else int(time_ms), cost)


def _budget(headers: Mapping[str, str], name: str) -> float | None:
    text = headers.get(name, "")
    if not text:
        return None
    if _AMOUNT.fullmatch(text) is None:
        raise TaskRefused(Refusal(TaskCode.INVALID_PARAMS, f"{name} must be a number from 0.", field=name))
    return float(text)


async def cancel(plane: TaskPlane, exchange: Exchange) -> None:
    await plane.cancel(task_id_of(exchange), exchange.submitter)
    await exchange.answer(204, b"")


async def events(plane: TaskPlane, exchange: Exchange) -> None:
    task_id, submitter = task_id_of(exchange), exchange.submitter
    verbose = exchange.query.get("verbose", [""])[-1].lower() in {"1", "true"}
    try:
        run = plane.find(task_id, submitter)
    except TaskRefused:
        stored, _ = await plane.find_ended(task_id, submitter)
        recovered = None if stored.state is TaskState.ENDED else await _recovered(plane, exchange, task_id)
        if recovered is None:
            await _replay(plane, exchange, task_id, submitter)
            return
        run = recovered
    headers = budget_headers(plane, submitter, run.task.session_id)
    await _follow(plane, exchange, run, {**SSE_HEADERS, **headers}, verbose=verbose)


async def _recovered(plane: TaskPlane, exchange: Exchange, task_id: str) -> TaskRun | None:
    """A task from before a restart, which waits until its pool is back. That may take longer than a client waits for
    the first byte, so that it gets a comment meanwhile."""

    async def tell() -> None:
        await anyio.sleep(RECOVERED_SOON_SECONDS)
        await exchange.start(200, SSE_HEADERS)
        while True:
            await exchange.write(KEEPALIVE)
            await anyio.sleep(KEEPALIVE_SECONDS)

    with exchange.while_connected(lambda: None):
        async with anyio.create_task_group() as telling:
            telling.start_soon(tell)
            run = await plane.wait_recovered(task_id)
            telling.cancel_scope.cancel()
    return run


async def _follow(
    plane: TaskPlane, exchange: Exchange, run: TaskRun, headers: Mapping[str, str], *, verbose: bool
) -> None:
    is_complete, is_reader = False, run.ticket.caller == exchange.submitter.key
    run.readers += is_reader

    def leave(reason: str, *, is_fatal: bool) -> None:
        """Who only looks at another's task ends nothing, nor does one of several who read it."""
        nonlocal is_reader
        run.readers -= is_reader
        if is_reader and is_fatal and not is_complete and not run.readers:
            run.cancel(reason)
        is_reader = False

    gone = partial(leave, "disconnect", is_fatal=plane.settings.cancel_on_disconnect)

    try:
        with exchange.while_connected(gone):
            if not exchange.is_started:
                await exchange.start(200, headers)
            async with aclosing(run.stream.frames(verbose=verbose)) as frames:  # type: ignore[type-var]
                async for chunk in frames:
                    with anyio.fail_after(plane.settings.slow_client_seconds):
                        await exchange.write(chunk)
            is_complete = True
            await exchange.finish()
    except TimeoutError:
        leave("slow_client", is_fatal=True)
    finally:
        # Cancelled by the server, or by the end of the caller's rights: also when its reader is gone.
        gone()


async def _replay(plane: TaskPlane, exchange: Exchange, task_id: str, submitter: Submitter) -> None:
    """A task that ended a while ago: its transcript."""
    stored, artifact = await plane.find_ended(task_id, submitter)
    session_id = ""
    if artifact is not None:
        said, session_id = (artifact.document["content"][name] for name in ("events", "session_id"))
        frames = [_frame(each["type"], each["data"]) for each in said]
    else:
        outcome = json.loads(stored.outcome or "{}")
        error = outcome.get("error")
        lost = Refusal(TaskCode.WORKER_RESET, "Homeport is being restarted; try again.", retry_after_ms=1000)
        if not outcome:
            error = lost.to_data()
        end = {"tokens_out": outcome.get("tokens_out", 0), "decode_time_ms": 0, "decode_ms": 0}
        frames = [_frame("error", error) if error else _frame("end", end)]
    if not exchange.is_started:
        await exchange.start(200, {**SSE_HEADERS, **budget_headers(plane, submitter, session_id)})
    await exchange.write(b"".join(frames))
    await exchange.finish()


def budget_headers(plane: TaskPlane, submitter: Submitter, session_id: str) -> dict[str, str]:
    return _headers_of(_budgets_left(plane, submitter, session_id))


def _budgets_left(plane: TaskPlane, submitter: Submitter, session_id: str) -> Budgets:
    session = plane.sessions.find(submitter.key, session_id)
    return UNLIMITED if session is None else session.budgets


def _headers_of(left: Budgets) -> dict[str, str]:
    return {
        "x-budget-tokens-remaining": _shown(left.tokens),
        "x-budget-time-remaining-ms": _shown(left.time_ms),
        "x-budget-cost-remaining": _shown(left.cost),
    }


@lru_cache(maxsize=256)
def _budget_lines(left: Budgets) -> bytes:
    """Mostly of sessions that have none."""
    return _lines(_headers_of(left))


def _shown(left: float | None) -> str:
    return "unlimited" if left is None else str(left)


def _frame(kind: str, data: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps(data)}\n\n".encode()


def task_id_of(exchange: Exchange) -> str:
    task_id = exchange.params["id"]
    if not is_uuid(task_id):
        raise TaskRefused(Refusal(TaskCode.NOT_FOUND, "There is no such task: its id is not a UUID."))
    return task_id.lower()
