"""Steps that are inference requests, through the task plane of this process. The id of a task follows from its run,
step, item and attempt, so that it is submitted once."""

import json
import uuid
from typing import Any, Final

from homeport.core.model.instance import Failure
from homeport.core.pipelines.advance import Outcome
from homeport.core.pipelines.functions import as_text
from homeport.core.pipelines.model import ItemResult
from homeport.errors import PeerUnavailable
from homeport.failpoints import Point, passing
from homeport.pipelines.steps.work import Work
from homeport.ports import InferencePorts, TaskAnswer

RESTARTS_MAX: Final = 5
"""How often a task that a restart of central has interrupted is submitted again within one attempt."""
LOST: Final = "WORKER_RESET"


class InferenceSteps:
    def __init__(self, ports: InferencePorts) -> None:
        self._ports = ports

    def reference(self, work: Work) -> str:
        return _task_id(work, 0)

    async def carry_out(self, work: Work) -> Outcome:
        tasks, caller = self._ports.tasks, work.run.owner.caller
        if tasks is None:
            raise PeerUnavailable("This central serves no inference.")
        said = ""
        for restart in range(RESTARTS_MAX):
            task_id = _task_id(work, restart)
            answer = await tasks.ask(_body(work, task_id), caller, on_submitted=_begun)
            if answer.error_code != LOST:
                return _outcome(task_id, answer, said)
            said += f"task {task_id} was interrupted by a restart of central; it is asked again\n"
        return Outcome(ItemResult(None, said), Failure("INTERRUPTED", "Central was restarted too often"))

    async def stop(self, work: Work) -> None:
        if self._ports.tasks is not None:
            for restart in range(RESTARTS_MAX):
                await self._ports.tasks.cancel(_task_id(work, restart), work.run.owner.caller)


def _begun() -> None:
    passing(Point.PIPELINE_STEP_BEGUN)


def _task_id(work: Work, restart: int) -> str:
    return work.uuid if restart == 0 else str(uuid.uuid5(uuid.UUID(work.uuid), str(restart)))


def _body(work: Work, task_id: str) -> bytes:
    action = work.action
    body: dict[str, Any] = {
        "task_id": task_id,
        "session_id": str(uuid.uuid5(uuid.UUID(work.uuid), "session")),
        "workload": "completion",
        "model_ref": as_text(action["model"]),
        "engine": action.get("engine", "llamacpp"),
        "ctx": action.get("context", 0),
        "priority": action.get("priority", "batch"),
        "max_tokens": action.get("max_tokens", 512),
        "deadline_ms": int(work.step.timeout_seconds * 1000),
        "prompt": as_text(action["prompt"]),
    }
    if "seed" in action:
        body["seed"] = action["seed"]
    if "pool" in action:
        body["placement"] = {"mode": "pin", "pin_pool_id": action["pool"], "allow_fallback": False}
    return json.dumps(body).encode()


def _outcome(task_id: str, answer: TaskAnswer, said: str) -> Outcome:
    # An engine may end in the middle of a character.
    text = answer.text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    log = f"{said}task {task_id} on {answer.replica or 'no replica'}: {answer.tokens_in} tokens in, "
    log += f"{answer.tokens_out} out\n{text}\n"
    output = {
        "text": text,
        "tokens_in": answer.tokens_in,
        "tokens_out": answer.tokens_out,
        "task": task_id,
        "replica": answer.replica,
    }
    result = ItemResult(output, log)
    if answer.error_code:
        failure = Failure(answer.error_code, answer.error)
        return Outcome(result, failure, is_final=not answer.is_retriable)
    return Outcome(result)
