"""Turns what the engine tells of containers into what the ports call an observation. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence

from homeport.adapters.runtime.compose_files import LABEL_DIGEST, LABEL_ENDS, LABEL_SERVICES
from homeport.adapters.runtime.engine_api import Json, Listed
from homeport.ports import Container, Health, Observation, Run
from homeport.vocabulary import Digest

LABEL_SERVICE = "com.docker.compose.service"


def missing_services(containers: Sequence[Listed]) -> list[str]:
    """Services that should have more containers than there are, by the word of the containers that are left."""
    present = Counter(container.labels.get(LABEL_SERVICE, "") for container in containers)
    wanted = containers[0].labels.get(LABEL_SERVICES, "") if containers else ""
    missing = []
    for entry in filter(None, wanted.split(",")):
        service, _, count = entry.partition("=")
        missing += [service] * max(0, int(count) - present[service])
    return missing


def observed(component: str, listed: Sequence[Listed], inspected: Mapping[str, Json | None]) -> Observation:
    """One component. Mixed digests are no digest: an update was interrupted, and none of the two runs.

    A container that has done what it was made for is not missed.
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


def is_done(container: Listed, inspected: Json | None) -> bool:
    """Whether it was made to do one thing, and has done it."""
    if not ends(container) or container.running or inspected is None:
        return False
    state = inspected["State"]
    return (state.get("Status"), state.get("ExitCode")) == ("exited", 0)


def ends(container: Listed) -> bool:
    return LABEL_ENDS in container.labels


def has_check(inspected: Json) -> bool:
    test = (inspected["Config"].get("Healthcheck") or {}).get("Test") or []
    return bool(test) and test != ["NONE"]


def combine(verdicts: Sequence[tuple[str, Health]]) -> Health:
    """The worst of them, with the name of whom it concerns."""
    for wanted in (False, None):
        for name, health in sorted(verdicts, key=lambda verdict: verdict[0]):
            if health.healthy is wanted:
                return Health(wanted, f"{name}: {health.message}" if health.message else f"{name} is not healthy yet")
    return Health(True, runs=frozenset().union(*(health.runs for _, health in verdicts)))


def unchecked(container: str, inspected: Json) -> Health:
    """Of one that runs and has no check."""
    return Health(True, runs=frozenset({Run(container, inspected["State"].get("StartedAt", ""))}))


def _container(listed: Listed, inspected: Json | None) -> Container:
    if inspected is None:
        return Container(id=listed.id, name=listed.name, running=False)
    state = inspected["State"]
    return Container(
        id=listed.id,
        name=listed.name,
        running=listed.running,
        exit_code=None if listed.running or state.get("Paused") else state.get("ExitCode"),
        started_at=state.get("StartedAt", ""),
    )
