"""The job calls of `orchion.v1`. Its jobs are inference requests, so they are tasks of the task plane: durable when
the call answers, and submitted once under their id. Other jobs can be looked at under their own ids.

A caller may do what its token may over HTTP. A program without credentials, on the port that an operator opened for
such agents, may submit inference and look at what was submitted there.
"""

from typing import Any, Final

from google.protobuf.message import Message

from homeport.adapters.link.grpc_calls import GrpcCalls, require
from homeport.adapters.link.grpc_orchion import ANYBODY
from homeport.adapters.link.grpc_services import Service
from homeport.core.access.actions import Action, Audit, Level, Scope
from homeport.core.model.caller import Caller
from homeport.core.model.identity import Peer
from homeport.errors import Conflict, NotFound, PeerUnavailable
from homeport.fleet.shared.scope import seen_by
from homeport.jobs.ports import Jobs
from homeport.jobs.routes import READ
from homeport.ports import Clock, InferencePorts, Store, TaskAsker
from homeport.wire.orchion import jobs as convert
from homeport.wire.orchion.v1 import orchestrator_pb2 as pb

SUBMIT_JOB: Final = "/orchion.v1.Orchestrator/SubmitJob"
GET_STATUS: Final = "/orchion.v1.Orchestrator/GetJobStatus"
SUBMIT: Final = Action("tasks.submit", Level.VIEWER, Scope.SEEN, Audit.NONE)
"""The row of `POST /v2/tasks`."""


def orchion_jobs(jobs: Jobs, store: Store, inference: InferencePorts, clock: Clock) -> Service:
    return lambda calls: OrchionJobs(jobs, store, inference, clock, calls).calls()


def open_orchion_jobs(jobs: Jobs, store: Store, inference: InferencePorts, clock: Clock) -> Service:
    """For programs without credentials."""
    return lambda calls: OrchionJobs(jobs, store, inference, clock, calls).open_calls()


class OrchionJobs:
    """The calls of one connection."""

    def __init__(self, jobs: Jobs, store: Store, inference: InferencePorts, clock: Clock, calls: GrpcCalls) -> None:
        self._jobs = jobs
        self._store = store
        self._inference = inference
        self._clock = clock
        self._calls = calls

    def calls(self) -> dict[str, Any]:
        unary = self._calls.person_unary
        return {
            SUBMIT_JOB: unary(SUBMIT, self._submit, pb.SubmitJobRequest, pb.SubmitJobResponse),
            GET_STATUS: unary(READ, self._status, pb.GetJobStatusRequest, pb.GetJobStatusResponse),
        }

    def open_calls(self) -> dict[str, Any]:
        unary = self._calls.unary

        async def submit(request: Any, peer: Peer | None) -> Message:
            return await self._submit(request, ANYBODY)

        async def status(request: Any, peer: Peer | None) -> Message:
            return await self._status(request, ANYBODY)

        return {
            SUBMIT_JOB: unary(SUBMIT.name, submit, pb.SubmitJobRequest, pb.SubmitJobResponse),
            GET_STATUS: unary(READ.name, status, pb.GetJobStatusRequest, pb.GetJobStatusResponse),
        }

    async def _submit(self, request: Any, caller: Caller) -> Message:
        job, tasks = convert.job_from_proto(request), self._tasks()
        for other in convert.TYPES:
            if other != request.job_type and await tasks.look(convert.task_id_of(job.id, other), caller):
                raise Conflict(f'There is already a job "{job.id}" of another type. Choose another id.')
        try:
            await tasks.submit(job.body, caller)
        except Conflict as error:
            raise Conflict(f'There is already a job "{job.id}" with another request. Choose another id.') from error
        return pb.SubmitJobResponse(job_id=job.id, status=pb.JOB_STATUS_PENDING)

    async def _status(self, request: Any, caller: Caller) -> Message:
        require(request.job_id, "job_id")
        if self._inference.tasks is not None:
            for job_type in convert.TYPES:
                seen = await self._inference.tasks.look(convert.task_id_of(request.job_id, job_type), caller)
                if seen is not None:
                    now = int(self._clock.now().timestamp())
                    return convert.status_of_task(request.job_id, job_type, seen, now_unix=now)  # type: ignore[no-any-return]
        if caller is ANYBODY:
            raise NotFound(f"There is no job {request.job_id[:200]}.")
        job = await self._jobs.find(request.job_id, caller)
        async with seen_by(caller, self._store).read() as reader:
            output = await reader.job_file(job, "") or b""
        return convert.status_of_job(job, output)  # type: ignore[no-any-return]

    def _tasks(self) -> TaskAsker:
        if self._inference.tasks is None:
            raise PeerUnavailable("This role serves no inference.")
        return self._inference.tasks
