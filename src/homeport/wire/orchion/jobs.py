"""Converts the job messages of `orchion.v1`. Its jobs are inference requests: a chat, or texts to embed.

The task that carries out a job is found by the job's id and type alone, also after a restart: its own id is made of
them.
"""

import json
import uuid
from collections.abc import Mapping
from typing import Any, Final

from google.protobuf.message import DecodeError

from homeport.core.inference.records import TaskState
from homeport.core.jobs.job import Job
from homeport.errors import InvalidInput, Problem
from homeport.lazy_dataclass import dataclass
from homeport.ports import TaskAnswer, TaskSeen
from homeport.vocabulary import JobState
from homeport.wire.orchion.v1 import orchestrator_pb2 as pb

CHAT: Final = pb.JOB_TYPE_CHAT_COMPLETION
EMBEDDINGS: Final = pb.JOB_TYPE_EMBEDDINGS
TYPES: Final = (CHAT, EMBEDDINGS)
MAX_TOKENS: Final = 512
"""Where the request does not say."""
TOKENS_MAX: Final = 50_000
DEADLINE_MS: Final = 3_600_000
JOB_ID_LENGTH_MAX: Final = 200
_NAMESPACE: Final = uuid.UUID("1d9a4cf5-6b8e-5f0b-9f0f-6f5c1c6b2d11")
_STATUS: Final[Mapping[JobState, Any]] = {
    JobState.PENDING: pb.JOB_STATUS_PENDING,
    JobState.ASSIGNED: pb.JOB_STATUS_ASSIGNED,
    JobState.RUNNING: pb.JOB_STATUS_RUNNING,
    JobState.COMPLETED: pb.JOB_STATUS_COMPLETED,
    JobState.FAILED: pb.JOB_STATUS_FAILED,
    JobState.CANCELLED: pb.JOB_STATUS_FAILED,  # Orchion has no other word for it; the message says so.
}
_TASK_STATUS: Final[Mapping[TaskState, Any]] = {
    TaskState.QUEUED: pb.JOB_STATUS_PENDING,
    TaskState.STARTED: pb.JOB_STATUS_RUNNING,
}


@dataclass(frozen=True, slots=True)
class OrchionJob:
    id: str
    task_id: str
    body: bytes
    """As `/v2/tasks` takes it."""


def task_id_of(job_id: str, job_type: int) -> str:
    return str(uuid.uuid5(_NAMESPACE, f"{job_type}/{job_id}"))


def job_from_proto(request: Any) -> OrchionJob:
    """Raises InvalidInput that names each wrong field."""
    if not request.job_id:
        raise _problem("job_id", "is missing")
    if len(request.job_id) > JOB_ID_LENGTH_MAX or not request.job_id.isprintable():
        raise _problem("job_id", f"must be at most {JOB_ID_LENGTH_MAX} printable characters")
    if request.job_type not in TYPES:
        raise _problem("job_type", "is missing" if not request.job_type else f"{request.job_type} is not known")
    task_id = task_id_of(request.job_id, request.job_type)
    wanted = _chat(request.payload) if request.job_type == CHAT else _embeddings(request.payload)
    body = {
        "task_id": task_id,
        "session_id": str(uuid.uuid5(_NAMESPACE, task_id)),
        "engine": "any",
        "ctx": 0,
        "priority": "batch",
        "deadline_ms": DEADLINE_MS,
        **wanted,
    }
    return OrchionJob(request.job_id, task_id, json.dumps(body).encode())


def status_of_task(job_id: str, job_type: int, seen: TaskSeen, *, now_unix: int) -> Any:
    status = pb.GetJobStatusResponse(job_id=job_id, assigned_node=seen.replica)
    answer = seen.answer
    if answer is None:
        status.status = _TASK_STATUS[seen.state]
    elif answer.error_code:
        status.status, status.error_message = pb.JOB_STATUS_FAILED, f"{answer.error_code}: {answer.error}"
    else:
        result = _chat_result(job_id, answer, now_unix) if job_type == CHAT else _embeddings_result(answer)
        status.status, status.result = pb.JOB_STATUS_COMPLETED, result.SerializeToString()
    return status


def status_of_job(job: Job, output: bytes) -> Any:
    """Of a job that was not submitted here: its output is its result."""
    is_bad = _STATUS[job.state] == pb.JOB_STATUS_FAILED
    return pb.GetJobStatusResponse(
        job_id=job.id,
        status=_STATUS[job.state],
        assigned_node=job.node_id or "",
        error_message=job.reason if is_bad else "",
        result=output,
    )


def _chat(payload: bytes) -> dict[str, Any]:
    """The messages become one text, as for engines without a chat interface. A job's answer is not random: the
    temperature has no effect."""
    request = _parsed(pb.ChatCompletionRequest, payload)
    if not request.messages:
        raise _problem("payload.messages", "are missing")
    if not 0 <= request.max_tokens <= TOKENS_MAX:
        raise _problem("payload.max_tokens", f"must be from 0 to {TOKENS_MAX}")
    lines = [f"{each.role or 'user'}: {each.content}" for each in request.messages]
    return {
        "workload": "completion",
        "model_ref": request.model,
        "max_tokens": request.max_tokens or MAX_TOKENS,
        "prompt": "\n".join([*lines, "assistant:"]),
    }


def _embeddings(payload: bytes) -> dict[str, Any]:
    request = _parsed(pb.EmbeddingRequest, payload)
    if not request.input:
        raise _problem("payload.input", "is missing")
    return {"workload": "embedding", "model_ref": request.model, "max_tokens": 1, "inputs": list(request.input)}


def _parsed(kind: Any, payload: bytes) -> Any:
    request = kind()
    try:
        request.ParseFromString(payload)
    except DecodeError as error:
        raise _problem("payload", f"is not a serialized {kind.DESCRIPTOR.name}") from error
    if not request.model:
        raise _problem("payload.model", "is missing")
    return request


def _chat_result(job_id: str, answer: TaskAnswer, now_unix: int) -> Any:
    message = pb.ChatMessage(role="assistant", content=answer.text)
    return pb.ChatCompletionResponse(
        id=job_id,
        model=answer.model,
        choices=[pb.ChatChoice(index=0, message=message, finish_reason="stop")],
        created=now_unix,
        object="chat.completion",
    )


def _embeddings_result(answer: TaskAnswer) -> Any:
    vectors = json.loads(f"[{answer.text.replace('][', '],[')}]")
    return pb.EmbeddingResponse(
        model=answer.model,
        data=[pb.Embedding(embedding=vector, index=index) for index, vector in enumerate(vectors)],
        object="list",
        usage_prompt_tokens=answer.tokens_in,
    )


def _problem(field: str, message: str) -> InvalidInput:
    return InvalidInput(problems=[Problem(field, message)])
