"""The job calls of `orchion.v1`. Its jobs are inference requests, so they are tasks of the task plane: durable when
the call answers, and submitted once under their id. Other jobs can be looked at under their own ids.

A program without credentials, on the port that an operator opened for agents, may do what a viewer's token may:
submit inference, and look at what was submitted there.
"""

from typing import Any, Final

from google.protobuf.message import Message

from homeport.adapters.link.grpc_calls import GrpcCalls, require
from homeport.adapters.link.grpc_site import Service
from homeport.core.model.caller import Caller, CallerKind, Role
from homeport.core.model.identity import Peer
from homeport.errors import Conflict, NotAuthorized, NotFound, PeerUnavailable
from homeport.jobs.ports import Jobs
from homeport.ports import Clock, InferencePorts, Store, TaskAsker
from homeport.wire.orchion import jobs as convert
from homeport.wire.orchion.v1 import orchestrator_pb2 as pb

SERVICE: Final = "/orchion.v1.Orchestrator"
LOCAL: Final = Caller("local", Role.ADMIN)
OPEN: Final = Caller("orchion", Role.VIEWER, kind=CallerKind.ANONYMOUS)


def orchion_jobs(jobs: Jobs, store: Store, inference: InferencePorts, clock: Clock) -> Service:
    return lambda calls: OrchionJobs(jobs, store, inference, clock, calls, caller=LOCAL).calls()


def open_orchion_jobs(jobs: Jobs, store: Store, inference: InferencePorts, clock: Clock) -> Service:
    """For programs without credentials."""
    return lambda calls: OrchionJobs(jobs, store, inference, clock, calls, caller=OPEN).calls()


class OrchionJobs:
    """The calls of one connection."""

    def __init__(
        self, jobs: Jobs, store: Store, inference: InferencePorts, clock: Clock, calls: GrpcCalls, *, caller: Caller
    ) -> None:
        self._jobs = jobs
        self._store = store
        self._inference = inference
        self._clock = clock
        self._caller = caller
        self._calls = calls

    def calls(self) -> dict[str, Any]:
        unary = self._calls.unary
        return {
            f"{SERVICE}/SubmitJob": unary("jobs.submit", self._submit, pb.SubmitJobRequest, pb.SubmitJobResponse),
            f"{SERVICE}/GetJobStatus": unary(
                "jobs.read", self._status, pb.GetJobStatusRequest, pb.GetJobStatusResponse
            ),
        }

    async def _submit(self, request: Any, peer: Peer | None) -> Message:
        _refuse_machines(peer)
        job, tasks = convert.job_from_proto(request), self._tasks()
        for other in convert.TYPES:
            if other != request.job_type and await tasks.look(convert.task_id_of(job.id, other), self._caller):
                raise Conflict(f'There is already a job "{job.id}" of another type. Choose another id.')
        await tasks.submit(job.body, self._caller)
        return pb.SubmitJobResponse(job_id=job.id, status=pb.JOB_STATUS_PENDING)

    async def _status(self, request: Any, peer: Peer | None) -> Message:
        _refuse_machines(peer)
        require(request.job_id, "job_id")
        if self._inference.tasks is not None:
            for job_type in convert.TYPES:
                seen = await self._inference.tasks.look(convert.task_id_of(request.job_id, job_type), self._caller)
                if seen is not None:
                    now = int(self._clock.now().timestamp())
                    return convert.status_of_task(request.job_id, job_type, seen, now_unix=now)  # type: ignore[no-any-return]
        if self._caller is OPEN:
            raise NotFound(f"There is no job {request.job_id[:200]}.")
        job = await self._jobs.find(request.job_id, self._caller)
        async with self._store.read() as reader:
            output = await reader.job_file(job, "") or b""
        return convert.status_of_job(job, output)  # type: ignore[no-any-return]

    def _tasks(self) -> TaskAsker:
        if self._inference.tasks is None:
            raise PeerUnavailable("This role serves no inference.")
        return self._inference.tasks


def _refuse_machines(peer: Peer | None) -> None:
    if peer is not None:
        raise NotAuthorized("Machines do not submit or read jobs; use the HTTP API with a token.", target="jobs")
