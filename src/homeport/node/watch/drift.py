"""Detects drift on a node. Pure: compares what should run with what does.

Drift is an observation; repair is an order.
"""

from collections.abc import Sequence

from homeport.core.model.deployment import ComponentSpec, Release
from homeport.lazy_dataclass import dataclass
from homeport.ports import Observation


@dataclass(frozen=True, slots=True)
class Repair:
    spec: ComponentSpec
    why: str
    """For a person, as in "web was missing"."""


def drift(release: Release, observed: Sequence[Observation]) -> tuple[Repair, ...]:
    """The components of a release that do not run as specified, in the order of the release."""
    seen = {observation.component: observation for observation in observed}
    repairs = []
    for spec in release.components:
        why = _difference(spec, seen.get(spec.name))
        if why:
            repairs.append(Repair(spec, why))
    return tuple(repairs)


def runs(release: Release | None, observed: Sequence[Observation]) -> bool:
    """Whether all of a release runs as specified."""
    return release is not None and not drift(release, observed)


def outdated(specs: Sequence[ComponentSpec], observed: Sequence[Observation]) -> list[str]:
    """Existing components that were made from another specification than the given one."""
    seen = {observation.component: observation for observation in observed}
    return [spec.name for spec in specs if spec.name in seen and seen[spec.name].digest != spec.digest]


def _difference(spec: ComponentSpec, seen: Observation | None) -> str:
    if seen is None or not seen.containers:
        return f"{spec.name} was missing"
    if seen.digest != spec.digest:
        return f"{spec.name} ran from another specification"
    stopped = [container for container in seen.containers if not container.running]
    if not stopped:
        return ""
    first = stopped[0]
    code = "" if first.exit_code is None else f" with code {first.exit_code}"
    return f"{spec.name} was not running ({first.name} had stopped{code})"
