"""Combines several runtimes of one machine: each component goes to the runtime of its type.

Observation and removal use all of them, because a component may have been of another type in an earlier
release.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence

from homeport.core.model.health import HealthSample
from homeport.errors import WorkFailed
from homeport.ports import (
    Container,
    FollowsOutput,
    HasProcesses,
    IsDue,
    JobRunner,
    KeepsData,
    Observation,
    OnProgress,
    OpensContainers,
    OutputLine,
    Owned,
    RunsJobs,
    Runtime,
    SharedEngine,
    Workload,
    WorkloadProcess,
    container_access,
)
from homeport.vocabulary import Code, DeploymentId, ProfileType


class RuntimeByType:
    """`first` gives the name and the engine, and is started first and closed last. Where several support a type, the
    last one is used."""

    def __init__(self, first: Runtime, *others: Runtime) -> None:
        self.name = "+".join(dict.fromkeys(runtime.name for runtime in (first, *others)))
        self.profile_types: tuple[ProfileType, ...] = first.profile_types
        self._first = first
        self._others = others

    async def start(self) -> None:
        """What the others can run is only known now: it depends on the installed programs."""
        every = (self._first, *self._others)
        for runtime in every:
            await runtime.start()
        self.profile_types = tuple(dict.fromkeys(kind for runtime in every for kind in runtime.profile_types))

    async def close(self) -> None:
        for runtime in (*self._others, self._first):
            await runtime.close()

    async def version(self) -> str:
        return await self._first.version()

    async def prepare(self, workload: Workload, on_progress: OnProgress) -> None:
        await self._for(workload).prepare(workload, on_progress)

    async def apply(self, workload: Workload, on_progress: OnProgress) -> None:
        chosen = self._for(workload)
        for other in self._others:
            if other is not chosen:
                names = [seen.component for seen in await other.observe(workload.deployment_id)]
                if workload.spec.name in names:
                    await other.remove(workload.deployment_id, workload.spec.name, remove_images=False)
        await chosen.apply(workload, on_progress)

    async def observe(self, deployment_id: DeploymentId) -> Sequence[Observation]:
        """The first runtime sees every labelled container of the engine; the owning runtime knows more about it."""
        found = {seen.component: seen for seen in await self._first.observe(deployment_id)}
        for other in self._others:
            found |= {seen.component: seen for seen in await other.observe(deployment_id)}
        return [found[name] for name in sorted(found)]

    async def sample_health(self, workload: Workload, is_due: IsDue) -> Sequence[HealthSample]:
        return await self._for(workload).sample_health(workload, is_due)

    async def logs(self, workload: Workload, *, tail: int) -> AsyncIterator[bytes]:
        async for chunk in self._for(workload).logs(workload, tail=tail):
            yield chunk

    async def follow(
        self, workload: Workload, container: Container, resume: str
    ) -> AsyncGenerator[Sequence[OutputLine], None]:
        chosen = self._for(workload)
        if isinstance(chosen, FollowsOutput):
            async for lines in chosen.follow(workload, container, resume):
                yield lines

    async def remove(self, deployment_id: DeploymentId, component: str, *, remove_images: bool) -> None:
        for runtime in (*self._others, self._first):
            await runtime.remove(deployment_id, component, remove_images=remove_images)

    async def remove_data(self, deployment_id: DeploymentId, component: str, *, name: str) -> None:
        for runtime in (*self._others, self._first):
            if isinstance(runtime, KeepsData):
                await runtime.remove_data(deployment_id, component, name=name)

    async def processes(self, known: Mapping[str, WorkloadProcess]) -> Sequence[WorkloadProcess]:
        found: dict[str, WorkloadProcess] = {}
        for runtime in (self._first, *self._others):
            if isinstance(runtime, HasProcesses):
                found |= {each.id: each for each in await runtime.processes(known)}
        return tuple(found.values())

    async def owned(self) -> Sequence[Owned]:
        return await self._first.owned() if isinstance(self._first, SharedEngine) else ()

    async def remove_owned(self, item: Owned) -> None:
        if isinstance(self._first, SharedEngine):
            await self._first.remove_owned(item)

    def container_access(self) -> OpensContainers | None:
        return container_access(self._first)

    def job_runner(self) -> JobRunner:
        """Raises WorkFailed where the first engine runs no jobs."""
        if not isinstance(self._first, RunsJobs):
            raise WorkFailed(Code.UNSUPPORTED_TYPE, f"{self._first.name} cannot run jobs in containers.")
        return self._first.job_runner()

    def _for(self, workload: Workload) -> Runtime:
        spec = workload.spec
        for runtime in (*reversed(self._others), self._first):
            if spec.type in runtime.profile_types:
                return runtime
        offered = ", ".join(kind.value for kind in self.profile_types)
        message = f"{spec.name} is of type {spec.type.value}; {self.name} on this node runs {offered}."
        raise WorkFailed(Code.UNSUPPORTED_TYPE, message, source=spec.name)
