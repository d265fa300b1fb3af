"""Steps that are inference requests, through the task plane of this process. The id of a task follows from its run,
step, item and attempt, so that it is submitted once."""

from functools import partial

from homeport.core.inference.request import InferenceRequest
from homeport.core.model.instance import Failure
from homeport.core.pipelines.advance import Outcome
from homeport.core.pipelines.functions import as_text
from homeport.core.pipelines.model import ItemResult
from homeport.errors import PeerUnavailable
from homeport.failpoints import Point, passing
from homeport.pipelines.steps.work import Work
from homeport.ports import InferencePorts, TaskAnswer


class InferenceSteps:
    def __init__(self, ports: InferencePorts) -> None:
        self._ports = ports

    def reference(self, work: Work) -> str:
        return work.uuid

    async def carry_out(self, work: Work) -> Outcome:
        if self._ports.tasks is None:
            raise PeerUnavailable("This central serves no inference.")
        answer = await self._ports.tasks.ask(
            _request(work),
            work.run.owner.caller,
            task_id=work.uuid,
            timeout_seconds=work.step.timeout_seconds,
            on_submitted=partial(passing, Point.PIPELINE_STEP_BEGUN),
        )
        return _outcome(answer)

    async def stop(self, work: Work) -> None:
        if self._ports.tasks is not None:
            await self._ports.tasks.cancel(work.uuid, work.run.owner.caller)


def _request(work: Work) -> InferenceRequest:
    action = work.action
    return InferenceRequest(
        model=as_text(action["model"]),
        prompt=as_text(action["prompt"]),
        max_tokens=action.get("max_tokens", 512),
        priority=action.get("priority", "batch"),
        seed=action.get("seed"),
        pool=action.get("pool", ""),
        engine=action.get("engine", "any"),
        context=action.get("context", 0),
    )


def _outcome(answer: TaskAnswer) -> Outcome:
    log = f"retried after {answer.restarts} interruptions by a restart of central\n" if answer.restarts else ""
    log += f"task {answer.task_id} on {answer.replica or 'no replica'}: {answer.tokens_in} tokens in, "
    log += f"{answer.tokens_out} out\n{answer.text}\n"
    output = {
        "text": answer.text,
        "tokens_in": answer.tokens_in,
        "tokens_out": answer.tokens_out,
        "task": answer.task_id,
        "replica": answer.replica,
    }
    result = ItemResult(output, log)
    if answer.error_code:
        failure = Failure(answer.error_code, answer.error)
        return Outcome(result, failure, is_final=not answer.is_retriable)
    return Outcome(result)
