"""Serves `homeport.v1.Jobs`. Translates messages; makes no decisions.

For people and their programs, with the rows of the table of actions that HTTP has. A machine with a certificate has
no say over jobs: a node that was taken over must not run commands on others.
"""

from datetime import datetime
from typing import Any, Final

from google.protobuf.message import Message

from homeport.adapters.link.grpc_calls import GrpcCalls, require
from homeport.adapters.link.grpc_services import Service
from homeport.core.inference.request import InferenceRequest
from homeport.core.jobs.job import Job, JobSpec, JobType, type_of
from homeport.core.model.caller import Caller
from homeport.core.values.selectors import ANYTHING, parse_selector
from homeport.errors import InvalidInput, Problem
from homeport.fleet.shared.scope import seen_by
from homeport.jobs.ports import JobRequest, Jobs
from homeport.jobs.routes import CANCEL, READ, SUBMIT
from homeport.ports import JOBS, Cut, JobFilter, Store
from homeport.serving.middleware.callers import check_sites
from homeport.vocabulary import JobId, JobState, NodeId, SiteName
from homeport.wire.v1 import jobs_pb2 as pb

SERVICE: Final = "/homeport.v1.Jobs"
TIMEOUT_SECONDS: Final = 3600.0
TOKENS: Final = 512
LIMIT_DEFAULT: Final = 100
LIMIT_MAX: Final = 1_000


def jobs_service(jobs: Jobs, store: Store) -> Service:
    return lambda calls: JobsService(jobs, store, calls).calls()


class JobsService:
    """The calls of one connection."""

    def __init__(self, jobs: Jobs, store: Store, calls: GrpcCalls) -> None:
        self._jobs = jobs
        self._store = store
        self._calls = calls

    def calls(self) -> dict[str, Any]:
        unary = self._calls.person_unary
        return {
            f"{SERVICE}/SubmitJob": unary(
                SUBMIT, self._submit, pb.SubmitJobRequest, pb.SubmitJobResponse, target=_changed
            ),
            f"{SERVICE}/GetJob": unary(READ, self._get, pb.GetJobRequest, pb.GetJobResponse),
            f"{SERVICE}/CancelJob": unary(
                CANCEL, self._cancel, pb.CancelJobRequest, pb.CancelJobResponse, target=_changed
            ),
            f"{SERVICE}/ListJobs": unary(READ, self._list, pb.ListJobsRequest, pb.ListJobsResponse),
        }

    async def _submit(self, request: Any, caller: Caller) -> Message:
        require(request.HasField("spec"), "spec")
        if request.site:
            check_sites(caller, [request.site])
        wanted = JobRequest(
            _spec(request.spec),
            JobId(request.id) if request.id else None,
            SiteName(request.site) if request.site else None,
        )
        return pb.SubmitJobResponse(job=_job(await self._jobs.submit(wanted, caller)))

    async def _get(self, request: Any, caller: Caller) -> Message:
        job = await self._find(request, caller)
        async with seen_by(caller, self._store).read() as reader:
            output = await reader.job_file(job, "") or b""
        return pb.GetJobResponse(job=_job(await self._jobs.shown(job)), output=output.decode(errors="replace"))

    async def _cancel(self, request: Any, caller: Caller) -> Message:
        job = await self._find(request, caller)
        check_sites(caller, [job.site])
        return pb.CancelJobResponse(job=_job(await self._jobs.cancel(job, caller)))

    async def _list(self, request: Any, caller: Caller) -> Message:
        if not 0 <= request.limit <= LIMIT_MAX:
            raise InvalidInput(problems=[Problem("limit", f"must be from 0 to {LIMIT_MAX}.")])
        where = JobFilter(site=SiteName(request.site) if request.site else None, states=_states(request.states))
        async with seen_by(caller, self._store).read() as reader:
            found = await reader.page(JOBS, where, Cut(request.limit or LIMIT_DEFAULT))
        return pb.ListJobsResponse(jobs=[_job(job) for job in found.items])

    async def _find(self, request: Any, caller: Caller) -> Job:
        require(request.id, "id")
        return await self._jobs.find(request.id, caller, SiteName(request.site) if request.site else None)


def _changed(reply: Any) -> str:
    return str(reply.job.id)


def _states(names: Any) -> frozenset[JobState] | None:
    unknown = [name for name in names if name not in list(JobState)]
    if unknown:
        raise InvalidInput(problems=[Problem("states", f"{unknown[0][:50]!r} is not a state of a job.")])
    return frozenset(JobState(name) for name in names) or None


def _spec(message: Any) -> JobSpec:
    if message.type and message.type not in list(JobType):
        raise InvalidInput(problems=[Problem("spec.type", f"{message.type[:50]!r} is not a type of job.")])
    return JobSpec(
        type=JobType(message.type or type_of(image=message.image, is_inference=message.HasField("inference"))),
        command=tuple(message.command),
        image=message.image,
        entrypoint=message.entrypoint,
        environment=dict(message.environment),
        secrets=dict(message.secrets),
        node=NodeId(message.node) if message.node else None,
        selector=parse_selector(message.selector) if message.selector else ANYTHING,
        cpu_cores=message.cpu_cores,
        memory_bytes=message.memory_bytes,
        gpus=message.gpus,
        timeout_seconds=message.timeout_seconds or TIMEOUT_SECONDS,
        retries=message.retries,
        artifacts=tuple(message.artifacts),
        inference=_inference(message.inference) if message.HasField("inference") else None,
    )


def _inference(message: Any) -> InferenceRequest:
    return InferenceRequest(
        model=message.model,
        prompt=message.prompt,
        max_tokens=message.max_tokens or TOKENS,
        priority=message.priority or "batch",
        seed=message.seed if message.HasField("seed") else None,
        pool=message.pool,
    )


def _job(job: Job) -> pb.Job:
    spec, failure = job.spec, job.failure
    return pb.Job(
        id=job.id,
        site=job.site,
        state=job.state.value,
        spec=pb.JobSpec(
            type=spec.type.value,
            command=spec.command,
            image=spec.image,
            entrypoint=spec.entrypoint,
            environment=spec.environment,
            secrets=spec.secrets,
            node=spec.node or "",
            selector=str(spec.selector),
            cpu_cores=spec.cpu_cores,
            memory_bytes=spec.memory_bytes,
            gpus=spec.gpus,
            timeout_seconds=spec.timeout_seconds,
            retries=spec.retries,
            artifacts=spec.artifacts,
            inference=None if spec.inference is None else _inference_message(spec.inference),
        ),
        node=job.node_id or "",
        attempt=job.attempt,
        reason=job.reason,
        failure=None if failure is None else pb.JobFailure(code=failure.code, message=failure.message),
        exit_code=job.exit_code or 0,
        has_exit_code=job.exit_code is not None,
        created_by=job.created_by,
        created_unix_ms=_ms(job.created_at),
        started_unix_ms=_ms(job.started_at),
        finished_unix_ms=_ms(job.finished_at),
        artifacts=[pb.JobArtifact(path=file.path, size=file.size) for file in job.files],
    )


def _inference_message(asked: InferenceRequest) -> pb.JobInference:
    return pb.JobInference(
        model=asked.model,
        prompt=asked.prompt,
        max_tokens=asked.max_tokens,
        priority=asked.priority,
        seed=asked.seed,
        pool=asked.pool,
    )


def _ms(moment: datetime | None) -> int:
    return 0 if moment is None else int(moment.timestamp() * 1000)
