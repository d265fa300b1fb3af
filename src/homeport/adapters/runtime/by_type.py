"""Several runtimes of one machine as one: each component goes to the runtime of its type.

What exists is asked of all of them, and removal goes to all of them, for a component may have been of another type
in an earlier release.
"""

from collections.abc import AsyncIterator, Sequence

from homeport.errors import WorkFailed
from homeport.ports import Health, Observation, OnProgress, Runtime, Workload
from homeport.vocabulary import Code, DeploymentId, ProfileType


class RuntimeByType:
    """`first` gives the name and the engine, and is started first and closed last. Where several run a type, the last
    one does."""

    def __init__(self, first: Runtime, *others: Runtime) -> None:
        self.name = "+".join(dict.fromkeys(runtime.name for runtime in (first, *others)))
        self.profile_types: tuple[ProfileType, ...] = first.profile_types
        self._first = first
        self._others = others

    async def start(self) -> None:
        """What the others can run is known only now: it depends on what is installed."""
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
        """The first one sees every labelled container of the engine; whose it is tells more of it."""
        found = {seen.component: seen for seen in await self._first.observe(deployment_id)}
        for other in self._others:
            found |= {seen.component: seen for seen in await other.observe(deployment_id)}
        return [found[name] for name in sorted(found)]

    async def health(self, workload: Workload) -> Health:
        return await self._for(workload).health(workload)

    async def logs(self, workload: Workload, *, tail: int) -> AsyncIterator[bytes]:
        async for chunk in self._for(workload).logs(workload, tail=tail):
            yield chunk

    async def remove(self, deployment_id: DeploymentId, component: str, *, remove_images: bool) -> None:
        for runtime in (*self._others, self._first):
            await runtime.remove(deployment_id, component, remove_images=remove_images)

    def _for(self, workload: Workload) -> Runtime:
        spec = workload.spec
        for runtime in (*reversed(self._others), self._first):
            if spec.type in runtime.profile_types:
                return runtime
        offered = ", ".join(kind.value for kind in self.profile_types)
        message = f"{spec.name} is of type {spec.type.value}; {self.name} on this node runs {offered}."
        raise WorkFailed(Code.UNSUPPORTED_TYPE, message, source=spec.name)
