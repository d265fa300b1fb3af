"""Jobs as JSON: in a site's orders to nodes and their results, between a site and central, and in the databases.

Light: a node imports it. Fields that a reader does not know are passed over; added ones have a default.
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any, Final

from homeport.core.inference.request import InferenceRequest
from homeport.core.jobs.job import Job, JobArtifact, JobFile, JobOutcome, JobOutput, JobSpec, JobType
from homeport.core.jobs.rules import (
    ARTIFACT_BYTES_MAX,
    ARTIFACT_PATH_MAX,
    ARTIFACTS_MAX,
    OUTPUT_BYTES_MAX,
    check_job_id,
    check_spec,
)
from homeport.core.model.instance import Failure
from homeport.core.values.selectors import ANYTHING, parse_selector
from homeport.errors import InvalidInput
from homeport.vocabulary import Generation, JobId, JobState, SiteName
from homeport.wire.values import document, maybe_moment, moment, node_id, number, printed, shortened, storable, whole

Json = dict[str, Any]
NAME_LENGTH_MAX: Final = 256
REASON_LENGTH_MAX: Final = 2_000


def spec_to_json(spec: JobSpec) -> Json:
    return {
        "type": spec.type.value,
        "command": list(spec.command),
        "image": spec.image,
        "entrypoint": spec.entrypoint,
        "environment": dict(spec.environment),
        "secrets": dict(spec.secrets),
        "node": spec.node,
        "selector": str(spec.selector),
        "cpu_cores": spec.cpu_cores,
        "memory_bytes": spec.memory_bytes,
        "gpus": spec.gpus,
        "timeout_seconds": spec.timeout_seconds,
        "retries": spec.retries,
        "artifacts": list(spec.artifacts),
        **({} if spec.inference is None else {"inference": asdict(spec.inference)}),
    }


def spec_from_json(body: Mapping[str, Any]) -> JobSpec:
    """Raises InvalidInput for what is not a spec."""
    try:
        selector = body.get("selector") or ""
        return JobSpec(
            type=JobType(body["type"]),
            command=tuple(storable(word) for word in body.get("command", ())),
            image=storable(body.get("image", "")),
            entrypoint=storable(body.get("entrypoint", "")),
            environment={storable(name): storable(value) for name, value in body.get("environment", {}).items()},
            secrets={storable(name): storable(value) for name, value in body.get("secrets", {}).items()},
            node=None if body.get("node") is None else node_id(body["node"]),
            selector=parse_selector(storable(selector)) if selector else ANYTHING,
            cpu_cores=number(body.get("cpu_cores", 0.0)),
            memory_bytes=whole(body.get("memory_bytes", 0)),
            gpus=whole(body.get("gpus", 0)),
            timeout_seconds=number(body.get("timeout_seconds", 3600.0)),
            retries=whole(body.get("retries", 0)),
            artifacts=tuple(storable(path) for path in body.get("artifacts", ())),
            inference=None if body.get("inference") is None else _inference(body["inference"]),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InvalidInput(f"This is not the description of a job: {error!r}.") from error


def _inference(body: Mapping[str, Any]) -> InferenceRequest:
    return InferenceRequest(
        model=storable(body["model"]),
        prompt=storable(body["prompt"]),
        max_tokens=whole(body["max_tokens"]),
        priority=storable(body["priority"]),
        seed=None if body.get("seed") is None else whole(body["seed"]),
        pool=storable(body.get("pool", "")),
    )


def job_to_json(job: Job) -> Json:
    failure = job.failure
    return {
        "id": job.id,
        "site": job.site,
        "spec": spec_to_json(job.spec),
        "state": job.state.value,
        "version": job.version,
        "created_at": job.created_at.isoformat(),
        "created_by": job.created_by,
        "updated_at": job.updated_at.isoformat(),
        "attempt": job.attempt,
        "generation": job.generation,
        "cancel_generation": job.cancel_generation,
        "node_id": job.node_id,
        "cancelled_by": job.cancelled_by,
        "not_before": _written(job.not_before),
        "assigned_at": _written(job.assigned_at),
        "started_at": _written(job.started_at),
        "finished_at": _written(job.finished_at),
        "reason": job.reason,
        "failure": None if failure is None else [failure.code, failure.message, failure.source],
        "exit_code": job.exit_code,
        "output_bytes": job.output_bytes,
        "files": [[file.path, file.size] for file in job.files],
    }


def job_from_json(body: Mapping[str, Any]) -> Job:
    """Raises InvalidInput for what is not a job."""
    try:
        return Job(
            id=JobId(storable(body["id"])),
            site=SiteName(storable(body["site"], NAME_LENGTH_MAX)),
            spec=spec_from_json(body["spec"]),
            state=JobState(body["state"]),
            version=whole(body["version"]),
            created_at=moment(body["created_at"]),
            created_by=storable(body["created_by"], NAME_LENGTH_MAX),
            updated_at=moment(body["updated_at"]),
            attempt=whole(body["attempt"]),
            generation=Generation(whole(body["generation"])),
            cancel_generation=Generation(whole(body.get("cancel_generation", 0))),
            node_id=None if body.get("node_id") is None else node_id(body["node_id"]),
            cancelled_by=None
            if body.get("cancelled_by") is None
            else storable(body["cancelled_by"], NAME_LENGTH_MAX),
            not_before=maybe_moment(body.get("not_before")),
            assigned_at=maybe_moment(body.get("assigned_at")),
            started_at=maybe_moment(body.get("started_at")),
            finished_at=maybe_moment(body.get("finished_at")),
            reason=shortened(body.get("reason", ""), REASON_LENGTH_MAX),
            failure=None if body.get("failure") is None else _failure(body["failure"]),
            exit_code=None if body.get("exit_code") is None else whole(body["exit_code"]),
            output_bytes=whole(body.get("output_bytes", 0)),
            files=tuple(JobArtifact(storable(path), whole(size)) for path, size in body.get("files", ())),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InvalidInput(f"This is not a job: {error!r}.") from error


def job_of_peer(body: Mapping[str, Any]) -> Job:
    """A job that another role sent: within the limits of what may be submitted. Raises InvalidInput."""
    job = job_from_json(body)
    check_job_id(job.id)
    check_spec(job.spec)
    return job


def outcome_to_bytes(outcome: JobOutcome) -> bytes:
    return json.dumps(
        {
            "exit_code": outcome.exit_code,
            "output": outcome.output.text,
            "output_bytes": outcome.output.bytes_total,
            "files": files_to_json(outcome.files),
            "note": outcome.note,
            "started_at": _written(outcome.started_at),
            "finished_at": _written(outcome.finished_at),
        }
    ).encode()


def outcome_from_bytes(content: bytes) -> JobOutcome:
    """Raises InvalidInput; an empty content is of an attempt that was not begun."""
    if not content:
        return JobOutcome()
    try:
        body = document(content)
        return JobOutcome(
            exit_code=None if body.get("exit_code") is None else whole(body["exit_code"]),
            output=JobOutput(output_from_json(body.get("output", "")), whole(body.get("output_bytes", 0))),
            files=files_from_json(body.get("files", ())),
            note=shortened(body.get("note", ""), REASON_LENGTH_MAX),
            started_at=maybe_moment(body.get("started_at")),
            finished_at=maybe_moment(body.get("finished_at")),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InvalidInput(f"This is not the result of a job: {error!r}.") from error


def files_to_json(files: tuple[JobFile, ...]) -> list[list[str]]:
    return [[file.path, base64.b64encode(file.content).decode()] for file in files]


def files_from_json(body: Any) -> tuple[JobFile, ...]:
    """Raises ValueError or TypeError, also for more than a job may keep: nodes keep to it, but need not."""
    found = tuple(
        JobFile(storable(path, ARTIFACT_PATH_MAX), base64.b64decode(content, validate=True)) for path, content in body
    )
    if len(found) > ARTIFACTS_MAX or sum(len(file.content) for file in found) > ARTIFACT_BYTES_MAX:
        raise ValueError("the files are more than a job may keep")
    if len({file.path for file in found} - {""}) < len(found):
        raise ValueError("a file has no name, or that of another")
    return found


def output_from_json(value: object) -> str:
    """The end of what a job has printed."""
    return printed(value).encode()[-OUTPUT_BYTES_MAX:].decode(errors="ignore")


def _failure(parts: Any) -> Failure:
    code, message, source = parts
    return Failure(storable(code), shortened(message, REASON_LENGTH_MAX), storable(source))


def _written(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()
