"""Converts an engine's container data into observations of the port. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from homeport.adapters.runtime.compose.files import LABEL_COMPONENT, LABEL_DIGEST, LABEL_ENDS, LABEL_SERVICES
from homeport.adapters.runtime.docker_api.client import Json, ListedContainer
from homeport.core.model.health import CheckRules, ContainerRun, ContainerState, HealthSample
from homeport.ports import Container, Observation
from homeport.vocabulary import Digest

LABEL_SERVICE = "com.docker.compose.service"


def shown_name(container: ListedContainer) -> str:
    """What its author called it: the component, and the service of its compose file where that has another name."""
    component, service = (container.labels.get(each, "") for each in (LABEL_COMPONENT, LABEL_SERVICE))
    if component and service and service != component:
        return f"{component}/{service}"
    return component or container.name


def missing_services(containers: Sequence[ListedContainer]) -> list[str]:
    """Services with fewer containers than they should have, according to the labels of the remaining ones."""
    present = Counter(container.labels.get(LABEL_SERVICE, "") for container in containers)
    wanted = containers[0].labels.get(LABEL_SERVICES, "") if containers else ""
    missing = []
    for entry in filter(None, wanted.split(",")):
        service, _, count = entry.partition("=")
        missing += [service] * max(0, int(count) - present[service])
    return missing


def observed(component: str, listed: Sequence[ListedContainer], inspected: Mapping[str, Json | None]) -> Observation:
    """One component. Mixed digests count as none: an update was interrupted, and neither version is complete.

    A one-shot container that has completed does not count as missing.
    """
    digests = {container.labels.get(LABEL_DIGEST) for container in listed}
    digest = digests.pop() if len(digests) == 1 else None
    containers = [
        _container(container, inspected.get(container.id))
        for container in listed
        if not is_done(container, inspected.get(container.id))
    ]
    containers += [Container(id="", name=service, running=False) for service in missing_services(listed)]
    return Observation(
        component=component,
        digest=Digest(digest) if digest else None,
        containers=tuple(sorted(containers, key=lambda container: container.name)),
    )


def is_done(container: ListedContainer, inspected: Json | None) -> bool:
    """Whether it is a one-shot container that has completed."""
    if not ends(container) or container.running or inspected is None:
        return False
    state = inspected["State"]
    return (state.get("Status"), state.get("ExitCode")) == ("exited", 0)


def ends(container: ListedContainer) -> bool:
    return LABEL_ENDS in container.labels


def failed_or_all(found: Mapping[str, Json | None]) -> list[Json]:
    """The containers, by name, whose output says why a component failed: those that ended badly or are unhealthy.
    All of them where none did."""
    there = [inspected for _, inspected in sorted(found.items()) if inspected is not None]
    return [inspected for inspected in there if _has_failed(inspected["State"])] or there


def _has_failed(state: Json) -> bool:
    return bool(state.get("ExitCode")) or (state.get("Health") or {}).get("Status") == "unhealthy"


def has_check(inspected: Json) -> bool:
    test = (inspected["Config"].get("Healthcheck") or {}).get("Test") or []
    return bool(test) and test != ["NONE"]


def sample(container: ListedContainer, inspected: Json | None) -> HealthSample:
    """A container's sample without its health check. `inspected` is None for one that has just been removed."""
    if inspected is None:
        return HealthSample(
            shown_name(container), ContainerRun(container.id), ContainerState.STOPPED, message="it is gone"
        )
    state = inspected["State"]
    seen = HealthSample(shown_name(container), ContainerRun(container.id, state.get("StartedAt", "")))
    if state.get("Paused"):
        return replace(seen, state=ContainerState.STOPPED, message="it is paused")
    if is_done(container, inspected):
        return replace(seen, state=ContainerState.READY)
    if not container.running:
        return replace(seen, state=ContainerState.STOPPED, exit_code=state.get("ExitCode"))
    if ends(container):
        return replace(seen, state=ContainerState.PENDING, message="it has not completed yet")
    return seen


def missing(name: str) -> HealthSample:
    return HealthSample(name, ContainerRun(name), ContainerState.STOPPED, message=f"{name} has no container")


def check_rules(check: Json) -> CheckRules:
    """Of a container's own check. Durations are in nanoseconds; 0 means not set."""
    given = CheckRules()
    return CheckRules(
        interval_seconds=(check.get("Interval") or 0) / 1e9 or given.interval_seconds,
        timeout_seconds=(check.get("Timeout") or 0) / 1e9 or given.timeout_seconds,
        retries=check.get("Retries") or given.retries,
        start_period_seconds=(check.get("StartPeriod") or 0) / 1e9,
    )


def _container(listed: ListedContainer, inspected: Json | None) -> Container:
    service = listed.labels.get(LABEL_SERVICE, "")
    if inspected is None:
        return Container(id=listed.id, name=listed.name, running=False, service=service)
    state = inspected["State"]
    return Container(
        id=listed.id,
        name=listed.name,
        running=listed.running,
        exit_code=None if listed.running or state.get("Paused") else state.get("ExitCode"),
        started_at=state.get("StartedAt", ""),
        service=service,
    )
