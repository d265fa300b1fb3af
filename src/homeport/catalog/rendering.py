"""Writes deployment files. The same wish gives the same bytes, so that nothing changes when nothing has changed."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from homeport.catalog.deployment import OURS, TIMEOUT_SECONDS
from homeport.catalog.documents import Quoted, dump
from homeport.catalog.references import ENVIRONMENT_NAME
from homeport.core.model.app import App, Component, Parameter, Profile, Value
from homeport.core.model.deployment import Desired
from homeport.vocabulary import DeploymentId, Digest, NodeId, ProfileType, RolloutId, SiteName

NAMESPACE: Final = "homeport"


def render_deployment(
    *,
    deployment_id: DeploymentId,
    site: SiteName,
    name: str,
    app: App,
    app_name: str,
    profile: Profile,
    values: Mapping[str, Value],
    nodes: Sequence[NodeId] = (),
    rollout_id: RolloutId | None = None,
    namespace: str = NAMESPACE,
) -> bytes:
    """`values` are those that `check_values` returned: complete, and judged by the app's rules."""
    ours: dict[str, Any] = {
        "app": {"category": app.category, "name": app_name, "version": Quoted(app.version)},
        "profile": profile.id,
    }
    if rollout_id:
        ours["rollout"] = rollout_id
    if nodes:
        ours["placement"] = {"nodes": [str(node) for node in nodes]}
    spec = {
        "applicationId": app.margo_id,
        "deploymentProfile": _profile(profile),
        "parameters": _parameters(app, profile, values),
        OURS: ours,
    }
    metadata = {"name": name, "namespace": namespace, "deviceId": str(site)}
    return dump({"id": str(deployment_id), "metadata": metadata, "spec": spec})


def asks_the_same(one: Desired, other: Desired) -> bool:
    """Whether two files ask for the same, whichever rollout wrote them and however they are laid out."""
    return _essence(one) == _essence(other)


def _essence(desired: Desired) -> Desired:
    nothing = Digest("")
    release = replace(desired.release, revision=nothing)
    return replace(desired, release=release, revision=nothing, rollout_id=None, path="")


def _profile(profile: Profile) -> dict[str, Any]:
    rendered: dict[str, Any] = {
        "type": profile.type.value,
        "components": [_component(component) for component in profile.components],
    }
    if profile.device_constraints is not None:
        rendered["deviceConstraints"] = profile.device_constraints
    return rendered | dict(profile.extensions)


def _component(component: Component) -> dict[str, Any]:
    given = component.properties
    properties = {
        "repository": given["repository"],
        "revision": Quoted(given["revision"]),
        "wait": given.get("wait", True),
        "timeout": Quoted(given.get("timeout") or f"{int(TIMEOUT_SECONDS) // 60}m{int(TIMEOUT_SECONDS) % 60}s"),
    }
    rest = {key: value for key, value in given.items() if key not in properties}
    return {"name": component.name, "properties": properties | rest} | dict(component.extensions)


def _parameters(app: App, profile: Profile, values: Mapping[str, Value]) -> dict[str, Any]:
    rendered = {}
    for parameter in app.parameters:
        targets = _targets(parameter, profile)
        if targets and parameter.name in values:
            value = values[parameter.name]
            plain = list(value) if isinstance(value, tuple) else value
            rendered[parameter.name] = {"value": plain, "targets": targets}
    return rendered


def _targets(parameter: Parameter, profile: Profile) -> list[dict[str, Any]]:
    """Those that reach this profile. A pointer that cannot be an environment variable is meant for the helm
    profile of the same app, when both have a component of that name."""
    known = {component.name for component in profile.components}
    return [
        {"pointer": target.pointer, "components": [name for name in target.components if name in known]}
        for target in parameter.targets
        if known & set(target.components)
        and (profile.type is not ProfileType.COMPOSE or ENVIRONMENT_NAME.fullmatch(target.pointer))
    ]
