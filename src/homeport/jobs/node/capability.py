"""The jobs capability of a node."""

from typing import Final

from homeport.adapters.jobs.null import NullJobs
from homeport.adapters.jobs.processes import ProcessJobs
from homeport.capability.node import NodeCapability, NodePart, NodePlatform
from homeport.core.jobs.job import JOB, JobType
from homeport.core.model.engines import main_engine
from homeport.core.node.permissions import Permission
from homeport.errors import WorkFailed
from homeport.jobs.node.handler import JobHandler, RunnerOf
from homeport.ports import JobRunner, RunsJobs
from homeport.vocabulary import Code

NOT_ALLOWED: Final = (
    f"This node does not allow native commands. Start the node with  --allow {Permission.NATIVE_COMMANDS}  to permit"
    " them, or run the job in an image."
)


def _runners(platform: NodePlatform) -> RunnerOf:
    runtime, engine = platform.runtime, main_engine(platform.runtime.name)
    null = NullJobs(platform.data / "runtime", platform.clock)
    commands = ProcessJobs(platform.data / "jobs", platform.environment)
    may_run_commands = engine == "process" or Permission.NATIVE_COMMANDS in platform.permissions.allowed

    def runner_of(type_: JobType) -> JobRunner:
        if engine == "null":
            return null
        if type_ is JobType.COMMAND:
            if not may_run_commands:
                raise WorkFailed(Code.NOT_ALLOWED, NOT_ALLOWED)
            return commands
        if type_ is not JobType.CONTAINER or not isinstance(runtime, RunsJobs):
            raise WorkFailed(Code.UNSUPPORTED_TYPE, f"This node cannot run {type_} jobs with {runtime.name}.")
        return runtime.job_runner()

    return runner_of


def _part(platform: NodePlatform) -> NodePart:
    handler = JobHandler(platform, _runners(platform))
    return NodePart(handlers={JOB: handler}, one_off=frozenset({JOB}), loops=(handler.sweep_often,))


JOBS: Final = NodeCapability("jobs", _part)
