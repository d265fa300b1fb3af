"""Parses a `custom` component for a runtime that is about to run it: a problem becomes a failure."""

import os

from homeport.adapters.runtime.extensions import KEY
from homeport.core.custom import judge_custom, read_custom
from homeport.core.model.custom import CustomKind, CustomSpec
from homeport.core.model.deployment import ComponentSpec
from homeport.core.node.demands import custom_demands
from homeport.core.node.permissions import Permissions, refusal
from homeport.core.secrets import plain_environment
from homeport.errors import WorkFailed
from homeport.vocabulary import Code


def read_spec(spec: ComponentSpec, kind: CustomKind) -> CustomSpec:
    """Raises WorkFailed: CREATE_FAILED with the first invalid field, UNSUPPORTED_TYPE for the other kind."""
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


def require_allowed(spec: ComponentSpec, custom: CustomSpec, permissions: Permissions) -> None:
    """Raises WorkFailed with NOT_ALLOWED for what this node's owner has not permitted."""
    demands = custom_demands(custom, real=os.path.realpath)
    refused = refusal(demands, permissions)
    if refused is not None:
        raise WorkFailed(Code.NOT_ALLOWED, f"{spec.name} cannot be started. {refused}", source=spec.name)


def environment_of(spec: ComponentSpec, custom: CustomSpec) -> dict[str, str]:
    """All variables but the secrets. Parameters override the description's environment."""
    return {**custom.environment, **plain_environment(spec)}


def _other(component: str, kind: CustomKind) -> str:
    if kind is CustomKind.IMAGE:
        return f"{component} is an image; this node runs only native programs (--runtime process)."
    return f"{component} is a native program; only a node with --runtime process runs those."
