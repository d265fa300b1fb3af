"""What uses a port that a component needs: a deployment, another container of the engine, or a program."""

from anyio.to_thread import run_sync

from homeport.adapters.network.listening import holder_of
from homeport.adapters.runtime.compose.files import LABEL_COMPONENT, LABEL_DEPLOYMENT, LABEL_NAME, LABEL_SITE
from homeport.adapters.runtime.docker_api.client import EngineApi, ListedContainer
from homeport.adapters.runtime.failures import port_in_use, with_port_holder
from homeport.errors import EngineUnavailable, WorkFailed
from homeport.vocabulary import Code


async def naming_port_holder(failure: WorkFailed, api: EngineApi) -> WorkFailed:
    """The failure, with what uses the port where it is about one."""
    port = port_in_use(str(failure))
    if port is None:
        return failure
    try:
        publishing = next((each for each in await api.containers([]) if each.running and port in each.ports), None)
    except EngineUnavailable:
        publishing = None
    holder = await run_sync(holder_of, port) if publishing is None else described(publishing)
    return WorkFailed(Code(failure.code), with_port_holder(str(failure), holder), source=failure.source)


def described(container: ListedContainer) -> str:
    """The deployment as people call it, `name@site`; by its id where an older release made the container. One of
    another user has only its own name."""
    labels = container.labels
    if LABEL_DEPLOYMENT not in labels:
        return f"the container {container.name}"
    if LABEL_NAME not in labels:
        return f"{labels.get(LABEL_COMPONENT)} of the deployment {labels[LABEL_DEPLOYMENT][:8]}"
    return "@".join(part for part in (labels[LABEL_NAME], labels.get(LABEL_SITE, "")) if part)
