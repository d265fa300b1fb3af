"""Tasks of other capabilities in this process: submitted, followed to the end, and found again after a restart."""

import codecs
import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final

import anyio

from homeport.core.inference.records import TaskState
from homeport.core.inference.request import InferenceRequest
from homeport.core.inference.task import Refusal, TaskCode, TaskRefused
from homeport.core.model.caller import Caller
from homeport.errors import Conflict, HomeportError, InvalidInput, NotFound, PeerUnavailable, TransientError
from homeport.inference.plane import Submitter, TaskPlane
from homeport.inference.tasks.bodies import read_task
from homeport.inference.tasks.running import TaskRun
from homeport.inference.tasks.stream import TaskStream
from homeport.ports import TaskAnswer, TaskSeen

RESTARTS_MAX: Final = 5
"""How often a task that a restart has interrupted is asked again."""
CANCEL_SECONDS: Final = 8.0
"""How long a cancel is tried again; its callers wait for ten seconds."""
CANCEL_RETRY_SECONDS: Final = 0.2

OnText = Callable[[str], None]


class InsideTasks:
    """`ports.TaskAsker`."""

    def __init__(self, plane: TaskPlane) -> None:
        self._plane = plane

    async def ask(
        self,
        request: InferenceRequest,
        caller: Caller,
        *,
        task_id: str,
        timeout_seconds: float,
        on_submitted: Callable[[], None],
        on_text: OnText | None = None,
        restarts_max: int = RESTARTS_MAX,
    ) -> TaskAnswer:
        submitter = Submitter(caller.key or caller.name, caller.sites)
        restart = 0
        while True:
            each = _id_after(task_id, restart)
            body = _body(request, each, timeout_seconds=timeout_seconds)
            answer = await self._asked(body, submitter, on_submitted, on_text)
            if answer.error_code != TaskCode.WORKER_RESET or restart == restarts_max:
                return replace(answer, text=whole_text(answer.text), task_id=each, restarts=restart)
            restart += 1

    async def _asked(
        self, body: bytes, submitter: Submitter, on_submitted: Callable[[], None], on_text: OnText | None
    ) -> TaskAnswer:
        try:
            task = read_task(body)
            await self._plane.submit(task, body, submitter)
        except TaskRefused as refused:
            if refused.refusal.is_retriable:
                raise PeerUnavailable(refused.refusal.message) from refused
            return _refused(refused.refusal)
        on_submitted()
        run: TaskRun | None
        try:
            run = self._plane.find(task.task_id, submitter)
        except TaskRefused:
            stored, _ = await self._plane.find_ended(task.task_id, submitter)
            run = None if stored.state is TaskState.ENDED else await self._plane.wait_recovered(task.task_id)
        return await (self._kept(task.task_id, submitter) if run is None else _followed(run, on_text))

    async def submit(self, body: bytes, caller: Caller) -> None:
        submitter = Submitter(caller.key or caller.name, caller.sites)
        try:
            task = read_task(body)
            await self._plane.submit(task, body, submitter)
        except TaskRefused as refused:
            raise _error(refused.refusal) from refused
        with suppress(TaskRefused):
            # A task without a reader is stopped after a while; its answer is kept.
            self._plane.start(partial(read_on, self._plane.find(task.task_id, submitter).stream))

    async def look(self, task_id: str, caller: Caller) -> TaskSeen | None:
        submitter = Submitter(caller.key or caller.name, caller.sites)
        with suppress(TaskRefused):
            run = self._plane.find(task_id, submitter)
            state = TaskState.QUEUED if run.replica_key is None else TaskState.STARTED
            if not run.stream.is_over:
                return TaskSeen(state, "/".join(run.replica_key or ()))
            return TaskSeen(TaskState.ENDED, "/".join(run.replica_key or ()), _answer(run))
        try:
            stored, _ = await self._plane.find_ended(task_id, submitter)
        except TaskRefused as refused:
            if refused.refusal.is_retriable:
                raise PeerUnavailable(refused.refusal.message) from refused
            return None
        if stored.state is not TaskState.ENDED:
            return TaskSeen(stored.state)
        answer = await self._kept(task_id, submitter)
        return TaskSeen(TaskState.ENDED, answer.replica, answer)

    async def cancel(self, task_id: str, caller: Caller) -> None:
        submitter = Submitter(caller.key or caller.name, caller.sites)
        left, why = [_id_after(task_id, restart) for restart in range(RESTARTS_MAX + 1)], ""
        with anyio.move_on_after(CANCEL_SECONDS):
            while True:
                left, why = await self._cancel_each(left, submitter)
                if not left:
                    return
                await anyio.sleep(CANCEL_RETRY_SECONDS)
        raise TransientError(f"The inference task could not be cancelled yet{f': {why}' if why else '.'}")

    async def _cancel_each(self, task_ids: Sequence[str], submitter: Submitter) -> tuple[list[str], str]:
        """Those that could not be cancelled now, and why. Unknown ones are none of them."""
        left, why = [], ""
        for task_id in task_ids:
            try:
                with suppress(TaskRefused):
                    await self._plane.cancel(task_id, submitter)
            except TransientError as error:
                left.append(task_id)
                why = str(error)
        return left, why

    async def _kept(self, task_id: str, submitter: Submitter) -> TaskAnswer:
        """A task that only the database remembers."""
        stored, artifact = await self._plane.find_ended(task_id, submitter)
        outcome = json.loads(stored.outcome or "{}")
        error = outcome.get("error") or {}
        events = [] if artifact is None else artifact.document["content"]["events"]
        place = {} if artifact is None else artifact.document.get("metadata") or {}
        return TaskAnswer(
            text="".join(each["data"]["t"] for each in events if each["type"] == "token"),
            tokens_in=int(outcome.get("tokens_in", 0)),
            tokens_out=int(outcome.get("tokens_out", 0)),
            error_code=str(error.get("code", _code_of(outcome))),
            error=str(error.get("message", "")),
            is_retriable=bool(error.get("retriable", True)),
            replica="/".join(str(place[name]) for name in ("pool_id", "replica_id") if name in place),
            model=str(outcome.get("model", "")),
        )


def _body(request: InferenceRequest, task_id: str, *, timeout_seconds: float) -> bytes:
    """As `/v2/tasks` takes it. The same request has the same bytes, so that submitting it again finds the task."""
    body: dict[str, Any] = {
        "task_id": task_id,
        "session_id": str(uuid.uuid5(uuid.UUID(task_id), "session")),
        "workload": "completion",
        "model_ref": request.model,
        "engine": request.engine,
        "ctx": request.context,
        "priority": request.priority,
        "max_tokens": request.max_tokens,
        "deadline_ms": int(timeout_seconds * 1000),
        "prompt": request.prompt,
    }
    if request.seed is not None:
        body["seed"] = request.seed
    if request.pool:
        body["placement"] = {"mode": "pin", "pin_pool_id": request.pool, "allow_fallback": False}
    return json.dumps(body).encode()


def _id_after(task_id: str, restart: int) -> str:
    """Of the task that takes the place of one that a restart has interrupted."""
    return task_id if restart == 0 else str(uuid.uuid5(uuid.UUID(task_id), str(restart)))


def whole_text(text: str) -> str:
    """An engine may end in the middle of a character."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


async def _followed(run: TaskRun, on_text: OnText | None) -> TaskAnswer:
    await read_on(run.stream, on_text)
    return _answer(run)


async def read_on(stream: TaskStream, on_text: OnText | None = None) -> None:
    """To its end. The pieces that `on_text` gets are the text that is kept, in whole characters."""
    seen, pairs = 0, codecs.getincrementaldecoder("utf-16-le")(errors="replace")
    async with aclosing(stream.frames()) as frames:  # type: ignore[type-var]
        async for _ in frames:
            if on_text is None:
                continue
            new, seen = stream.transcript[seen:], len(stream.transcript)
            text = "".join(text for kind, data in new if kind == "token" for text in data[1])
            # An engine may cut between the halves of a character.
            if whole := pairs.decode(text.encode("utf-16-le", "surrogatepass")):
                on_text(whole)
    if on_text is not None and (rest := pairs.decode(b"", final=True)):
        on_text(rest)


def _answer(run: TaskRun) -> TaskAnswer:
    texts = [text for kind, data in run.stream.transcript if kind == "token" for text in data[1]]
    if run.error is not None:
        return _refused(run.error)
    if run.cancel_reason:
        return TaskAnswer(error_code="CANCELLED", error="The task was cancelled.")
    replica = "" if run.replica_key is None else "/".join(run.replica_key)
    return TaskAnswer("".join(texts), run.tokens_in, run.tokens_out, replica, model=run.task.model_ref)


def _code_of(outcome: Mapping[str, Any]) -> str:
    """Of a task that ended without an error."""
    return "WORKER_RESET" if not outcome else "CANCELLED" if outcome.get("canceled") else ""


def _error(refusal: Refusal) -> HomeportError:
    match refusal.code:
        case TaskCode.POOL_UNAVAILABLE:
            return NotFound(refusal.message)
        case TaskCode.CONFLICT:
            return Conflict(refusal.message)
        case _ if refusal.is_retriable:
            return PeerUnavailable(refusal.message)
        case _:
            return InvalidInput(refusal.message)


def _refused(refusal: Refusal) -> TaskAnswer:
    return TaskAnswer(error_code=refusal.code.value, error=refusal.message, is_retriable=refusal.is_retriable)
