"""What the tests of runtimes do with them again and again."""

import anyio

from homeport.core.model.health import ContainerRun
from homeport.ports import Observation, Runtime, Workload
from homeport.vocabulary import DeploymentId
from tests.conformance.runtime.stands import Stand


def ignore(step: str, message: str, done: int, total: int) -> None:
    """Progress that nobody watches."""


async def install(runtime: Runtime, workload: Workload) -> None:
    await runtime.prepare(workload, ignore)
    await runtime.apply(workload, ignore)


async def observe_one(runtime: Runtime, deployment_id: DeploymentId) -> Observation:
    (observation,) = await runtime.observe(deployment_id)
    return observation


async def ids(runtime: Runtime, stand: Stand) -> set[str]:
    return set((await ids_by_name(runtime, stand)).values())


async def ids_by_name(runtime: Runtime, stand: Stand) -> dict[str, str]:
    containers = (await observe_one(runtime, stand.deployment_id)).containers
    return {container.name: container.id for container in containers}


async def runs(runtime: Runtime, workload: Workload) -> set[ContainerRun]:
    return {sample.run for sample in await runtime.sample_health(workload, lambda run, rules: True)}


async def read_logs(runtime: Runtime, workload: Workload, expected: str) -> str:
    """The log once it holds `expected`, or as it is after a while: a name asked for too early costs seconds."""
    text = ""
    with anyio.move_on_after(60.0):
        while expected not in text:
            await anyio.sleep(0.05)
            text = b"".join([chunk async for chunk in runtime.logs(workload, tail=100)]).decode()
    return text
