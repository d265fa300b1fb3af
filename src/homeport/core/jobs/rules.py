"""The limits of a job: what may be submitted. Every number and text from outside is bounded here."""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Final

from homeport.core.custom import ENVIRONMENT_NAME, REFERENCE
from homeport.core.inference.engines.handoff import POOL_ID_PATTERN
from homeport.core.jobs.job import JobSpec, JobType
from homeport.core.secrets import is_name
from homeport.errors import InvalidInput, Problem
from homeport.vocabulary import NODE_ID_PATTERN

JOB_ID_PATTERN: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
COMMAND_WORDS_MAX: Final = 1_000
ENTRYPOINT_LENGTH_MAX: Final = 1_000
COMMAND_BYTES_MAX: Final = 64 * 1024
ENVIRONMENT_MAX: Final = 200
ENVIRONMENT_BYTES_MAX: Final = 64 * 1024
ARTIFACTS_MAX: Final = 16
ARTIFACT_PATH_MAX: Final = 500
ARTIFACT_BYTES_MAX: Final = 1024 * 1024
"""Of all artifacts of a job together: results travel on the stream of orders."""
OUTPUT_BYTES_MAX: Final = 64 * 1024
"""Of the end of the output, which is kept with the result; the log has the rest."""
CPU_MIN: Final = 0.01
"""Kernels give no less."""
CPU_MAX: Final = 1024.0
MEMORY_BYTES_MIN: Final = 6 * 1024 * 1024
"""Engines refuse less."""
MEMORY_BYTES_MAX: Final = 2**50
GPUS_MAX: Final = 64
RETRIES_MAX: Final = 10
TIMEOUT_SECONDS_MAX: Final = 7 * 86_400.0
MODEL_LENGTH_MAX: Final = 512
PROMPT_BYTES_MAX: Final = 64 * 1024
TOKENS_MAX: Final = 1_000_000
PRIORITIES: Final = ("batch", "interactive")
FOR_NODES: Final = (
    *("command", "image", "entrypoint", "environment", "secrets", "artifacts"),
    *("node", "selector", "cpu_cores", "memory_bytes", "gpus"),
)
NO_NODE: Final = JobSpec(JobType.INFERENCE)


def check_job_id(job_id: str) -> None:
    """Raises InvalidInput."""
    if not re.fullmatch(JOB_ID_PATTERN, job_id):
        raise InvalidInput(
            problems=[Problem("id", f'"{job_id[:100]}" is not a job id')] if job_id else [Problem("id", "is empty")],
            hint="Use letters, digits, dots, dashes and underscores, up to 100, or leave it out.",
        )


def check_spec(spec: JobSpec) -> None:
    """Raises InvalidInput with every problem."""
    problems = [
        *_program_problems(spec),
        *_environment_problems(spec.environment, spec.secrets),
        *_limit_problems(spec),
        *_artifact_problems(spec),
    ]
    if problems:
        raise InvalidInput(problems=problems)


def _program_problems(spec: JobSpec) -> Iterator[Problem]:
    match spec.type:
        case JobType.INFERENCE:
            yield from _inference_problems(spec)
            return
        case JobType.CONTAINER:
            if not REFERENCE.fullmatch(spec.image) or len(spec.image) > 500:
                what = f"{spec.image[:100]!r} is not an image" if spec.image else "is missing"
                yield Problem("image", f"{what}: write it as in registry.example/team/app:1.0.0.")
        case JobType.COMMAND:
            if spec.image:
                yield Problem("image", "is for containers; a native command has none.")
            if spec.entrypoint:
                yield Problem("entrypoint", "is for containers; give the program as the first word of the command.")
            if not spec.command or not spec.command[0]:
                yield Problem("command", "is empty: give the program to run.")
    if spec.inference is not None:
        yield Problem("inference", "is for jobs of the type inference; leave it out, or the image and the command.")
    if len(spec.command) > COMMAND_WORDS_MAX or sum(len(word.encode()) for word in spec.command) > COMMAND_BYTES_MAX:
        yield Problem("command", f"is longer than {COMMAND_WORDS_MAX} words or {COMMAND_BYTES_MAX // 1024} KiB.")
    if len(spec.entrypoint) > ENTRYPOINT_LENGTH_MAX or "\0" in spec.entrypoint:
        yield Problem("entrypoint", f"is not a program of at most {ENTRYPOINT_LENGTH_MAX} characters.")
    if any("\0" in word for word in spec.command):
        yield Problem("command", "has a character that cannot be passed on.")
    if spec.node is not None and not re.fullmatch(NODE_ID_PATTERN, spec.node):
        yield Problem("node", f"{spec.node[:100]!r} is not the id of a node.")


def _inference_problems(spec: JobSpec) -> Iterator[Problem]:
    asked = spec.inference
    if asked is None:
        yield Problem("inference", "is missing: give the model and the prompt.")
        return
    if not asked.model or len(asked.model) > MODEL_LENGTH_MAX or not asked.model.isprintable():
        yield Problem("inference.model", f"must be the name of a model, at most {MODEL_LENGTH_MAX} characters.")
    if not asked.prompt or len(asked.prompt.encode("utf-8", "replace")) > PROMPT_BYTES_MAX:
        yield Problem("inference.prompt", f"must be a text of at most {PROMPT_BYTES_MAX // 1024} KiB.")
    if not 1 <= asked.max_tokens <= TOKENS_MAX:
        yield Problem("inference.max_tokens", f"must be from 1 to {TOKENS_MAX}.")
    if asked.priority not in PRIORITIES:
        yield Problem("inference.priority", f"{asked.priority[:50]!r} is not one of {' and '.join(PRIORITIES)}.")
    if asked.seed is not None and not -(2**63) <= asked.seed < 2**63:
        yield Problem("inference.seed", "must be a number of 64 bits.")
    if asked.pool and not re.fullmatch(POOL_ID_PATTERN, asked.pool):
        yield Problem("inference.pool", f"{asked.pool[:100]!r} is not the id of a pool.")
    for name in FOR_NODES:
        if getattr(spec, name) != getattr(NO_NODE, name):
            yield Problem(
                name.partition("_")[0], "is for jobs that a node runs; an inference request is answered by an engine."
            )


def _environment_problems(environment: Mapping[str, str], secrets: Mapping[str, str]) -> Iterator[Problem]:
    names = [*environment, *secrets]
    if len(names) > ENVIRONMENT_MAX:
        yield Problem("environment", f"has more than {ENVIRONMENT_MAX} variables.")
        return
    for name in names:
        if len(name) > 200 or not ENVIRONMENT_NAME.fullmatch(name):
            yield Problem("environment", f"{name[:100]!r} is not the name of an environment variable.")
    if sum(len(name) + len(value.encode()) for name, value in environment.items()) > ENVIRONMENT_BYTES_MAX:
        yield Problem("environment", f"is larger than {ENVIRONMENT_BYTES_MAX // 1024} KiB.")
    for name, value in environment.items():
        if "\0" in value:
            yield Problem(f"environment.{name[:100]}", "has a character that cannot be passed on.")
        elif value.startswith("secret://"):
            yield Problem(f"environment.{name[:100]}", "cannot refer to a secret: list it under secrets.")
    for variable, name in secrets.items():
        if not is_name(name):
            yield Problem(f"secrets.{variable[:100]}", f"{name[:100]!r} is not the name of a secret.")
        if variable in environment:
            yield Problem(f"secrets.{variable[:100]}", "is already set by the environment.")


def _limit_problems(spec: JobSpec) -> Iterator[Problem]:
    if spec.cpu_cores and not CPU_MIN <= spec.cpu_cores <= CPU_MAX:
        yield Problem("cpu", f"must be from {CPU_MIN:g} to {CPU_MAX:g} cores, or 0.")
    if spec.memory_bytes and not MEMORY_BYTES_MIN <= spec.memory_bytes <= MEMORY_BYTES_MAX:
        yield Problem("memory", "must be at least 6 MiB and at most 1 PiB.")
    if not 0 <= spec.gpus <= GPUS_MAX:
        yield Problem("gpus", f"must be from 0 to {GPUS_MAX}.")
    if not 0 <= spec.retries <= RETRIES_MAX:
        yield Problem("retries", f"must be from 0 to {RETRIES_MAX}.")
    if not (math.isfinite(spec.timeout_seconds) and 0 < spec.timeout_seconds <= TIMEOUT_SECONDS_MAX):
        yield Problem("timeout_seconds", "must be more than 0 and at most 7 days.")


def _artifact_problems(spec: JobSpec) -> Iterator[Problem]:
    if len(spec.artifacts) > ARTIFACTS_MAX:
        yield Problem("artifacts", f"are more than {ARTIFACTS_MAX}.")
        return
    if len(set(spec.artifacts)) != len(spec.artifacts):
        yield Problem("artifacts", "names a file twice.")
    for number, path in enumerate(spec.artifacts):
        where = f"artifacts[{number}]"
        if not path or len(path) > ARTIFACT_PATH_MAX or not path.isprintable():
            yield Problem(where, "must be a path of printable characters, at most 500.")
        elif ".." in path.split("/") or path.endswith("/"):
            yield Problem(where, f"{path[:100]!r} must be a file, and must not contain `..`.")
        elif spec.type is JobType.CONTAINER and not path.startswith("/"):
            yield Problem(where, f"{path[:100]!r} must be a path in the container, beginning with /.")
        elif spec.type is JobType.COMMAND and path.startswith("/"):
            yield Problem(where, f"{path[:100]!r} must be relative: only files in the job's own folder are kept.")
