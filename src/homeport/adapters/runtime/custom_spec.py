"""Reads what a `custom` component runs, for a runtime that is about to run it: a problem becomes a failure."""

from homeport.adapters.runtime.extensions import KEY
from homeport.core.custom import judge_custom, read_custom
from homeport.core.model.custom import CustomSpec, Kind
from homeport.core.model.deployment import ComponentSpec
from homeport.core.secrets import plain_environment
from homeport.errors import WorkFailed
from homeport.vocabulary import Code


def read_spec(spec: ComponentSpec, kind: Kind) -> CustomSpec:
    """Raises WorkFailed: CREATE_FAILED with the first wrong field, UNSUPPORTED_TYPE for the other kind."""
    found = judge_custom(spec.extensions, repository=spec.repository, revision=spec.revision)
    if found:
        (_, *where), problem = found[0]
        field = ".".join(str(step) for step in where)
        raise WorkFailed(Code.CREATE_FAILED, f"{spec.name} cannot be started: {field} {problem}", source=spec.name)
    custom, _ = read_custom(spec.extensions, repository=spec.repository, revision=spec.revision)
    if custom is None:
        message = f"{spec.name} cannot be started: its {KEY} say neither image nor process."
        raise WorkFailed(Code.CREATE_FAILED, message, source=spec.name)
    if custom.kind is not kind:
        raise WorkFailed(Code.UNSUPPORTED_TYPE, _other(spec.name, custom.kind), source=spec.name)
    return custom


def environment_of(spec: ComponentSpec, custom: CustomSpec) -> dict[str, str]:
    """All variables but the secrets. Parameters win over what the description sets."""
    return {**custom.environment, **plain_environment(spec)}


def _other(component: str, kind: Kind) -> str:
    if kind is Kind.IMAGE:
        return f"{component} is an image; this node runs only native programs (--runtime process)."
    return f"{component} is a native program; only a node with --runtime process runs those."
