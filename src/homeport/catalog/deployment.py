"""A deployment file (Margo ApplicationDeployment): parsed by sites, written by central.

Margo's data is in Margo's fields, so that any Margo device can read the file. What only Homeport knows
(the app of the catalog, nodes, rollout) is in `spec.x-homeport-extensions`; a file without it, pushed by hand or by
another fleet manager, is valid too.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from homeport.catalog.containment import contained
from homeport.catalog.deployment_checks import check_deployment
from homeport.catalog.description import extensions_of
from homeport.catalog.documents import Quoted, dump, load
from homeport.catalog.extension import OURS, read_placement, read_policy, render_placement, render_policy
from homeport.catalog.references import takes_variables
from homeport.core.custom import ENVIRONMENT_NAME
from homeport.core.model.app import App, Component, Parameter, Profile, Value
from homeport.core.model.deployment import (
    DEFAULT_POLICY,
    ON_EACH_NODE,
    ComponentSpec,
    Desired,
    Placement,
    Policy,
    Release,
    digest_of_bytes,
)
from homeport.core.parameters import as_value
from homeport.core.secrets import referenced
from homeport.errors import InvalidInput
from homeport.vocabulary import DeploymentId, Digest, ProfileType, RolloutId, SiteName

NAMESPACE: Final = "homeport"
TIMEOUT_SECONDS: Final = 300.0
"""How long a component may take to become healthy when its description sets no timeout."""
MARKER_NAME: Final = "site.yaml"


@contained
def parse_deployment(content: bytes, path: str, site: SiteName) -> Desired:
    """Raises TooLarge, or InvalidInput with all problems, each with field, file and line."""
    document = load(content, path)
    problems = check_deployment(document, site)
    if problems:
        raise InvalidInput(problems=problems)
    return _desired(document.data, path, site, digest_of_bytes(content))


def render_deployment(
    *,
    deployment_id: DeploymentId,
    site: SiteName,
    name: str,
    app: App,
    app_name: str,
    profile: Profile,
    values: Mapping[str, Value],
    placement: Placement = ON_EACH_NODE,
    policy: Policy = DEFAULT_POLICY,
    rollout_id: RolloutId | None = None,
    remove_images: bool = False,
    restart: str = "",
    namespace: str = NAMESPACE,
    device: str | None = None,
) -> bytes:
    """`values` are those that `check_values` returned: complete, and validated by the app's rules."""
    template = Template(
        app,
        app_name,
        profile,
        values,
        rollout_id,
        policy=policy,
        remove_images=remove_images,
        restart=restart,
        namespace=namespace,
        client=None if device is None else site,
    )
    return template.render(deployment_id=deployment_id, site=site, name=name, placement=placement, device=device)


class Template:
    """The common part of a rollout's files, rendered once: ten thousand sites differ in a few lines."""

    def __init__(
        self,
        app: App,
        app_name: str,
        profile: Profile,
        values: Mapping[str, Value],
        rollout_id: RolloutId | None = None,
        *,
        policy: Policy = DEFAULT_POLICY,
        remove_images: bool = False,
        restart: str = "",
        namespace: str = NAMESPACE,
        client: SiteName | None = None,
    ) -> None:
        """`client` is given where the files are for a device of a Margo client, which is not called like its site."""
        ours: dict[str, Any] = {
            "app": {"category": app.category, "name": app_name, "version": Quoted(app.version)},
            "profile": profile.id,
        }
        if client is not None:
            ours["client"] = str(client)
        if rollout_id:
            ours["rollout"] = rollout_id
        if rules := render_policy(policy):
            ours["policy"] = rules
        if remove_images:
            ours["removal"] = {"images": True}
        if restart:
            ours["restart"] = Quoted(restart)
        spec = {
            "applicationId": app.margo_id,
            "deploymentProfile": _profile(profile),
            "parameters": _parameters(app, profile, values),
            OURS: ours,
        }
        self._namespace = namespace
        self._spec = dump({"spec": spec})

    def render(
        self,
        *,
        deployment_id: DeploymentId,
        site: SiteName,
        name: str,
        placement: Placement = ON_EACH_NODE,
        device: str | None = None,
    ) -> bytes:
        metadata = {"name": name, "namespace": self._namespace, "deviceId": device or str(site)}
        content = dump({"id": str(deployment_id), "metadata": metadata}) + self._spec
        if where := render_placement(placement):
            # Our extension is last in the file, so that the nodes can be appended to it as text.
            lines = dump({"placement": where}).splitlines(keepends=True)
            content += b"".join(b"    " + line for line in lines)
        return content


def asks_the_same(one: Desired, other: Desired) -> bool:
    """Whether two files request the same, regardless of the rollout that wrote them, their layout, and the number of
    retries and restarts."""
    return _comparable(one) == _comparable(other)


def moved(like: Desired, site: SiteName, deployment_id: DeploymentId, revision: Digest) -> Desired:
    """The parsed content of a file that differs from that of `like` only in id and site."""
    return replace(
        like,
        id=deployment_id,
        site=site,
        path=deployment_path(site, deployment_id),
        revision=revision,
        release=replace(like.release, deployment_id=deployment_id, revision=revision),
    )


def deployment_path(site: SiteName, deployment_id: DeploymentId) -> str:
    """Path of the file in the deployments repository."""
    return f"deployments/{site}/{deployment_id}.yaml"


def marker_path(site: SiteName) -> str:
    return f"deployments/{site}/{MARKER_NAME}"


def timeout_seconds(text: str) -> float:
    """`8m30s` is 510 seconds."""
    minutes, seconds = re.findall(r"[0-9]+", text)
    return int(minutes) * 60.0 + int(seconds)


def as_environment(value: Value) -> str:
    """A value formatted for an environment variable."""
    if isinstance(value, tuple):
        return ",".join(as_environment(item) for item in value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def as_chart_value(value: Value) -> str:
    """A value formatted for a chart: JSON, where 5 is not "5". A secret reference stays as it is."""
    if referenced(value) is not None:
        return str(value)
    return json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)


def _desired(data: Mapping[str, Any], path: str, site: SiteName, revision: Digest) -> Desired:
    metadata, spec = data["metadata"], data["spec"]
    profile, ours = spec["deploymentProfile"], spec.get(OURS) or {}
    app = ours.get("app") or {}
    parameters: Mapping[str, Any] = spec.get("parameters") or {}
    version = app.get("version") or profile["components"][0]["properties"]["revision"]
    kind = ProfileType(profile["type"])
    restart = ours.get("restart") or ""
    components = tuple(_specification(each, kind, parameters, restart) for each in profile["components"])
    return Desired(
        id=DeploymentId(data["id"].lower()),
        site=site,
        name=metadata["name"],
        namespace=metadata["namespace"],
        margo_app_id=spec["applicationId"],
        app_name=app.get("name") or metadata["name"],
        app_category=app.get("category") or "",
        app_version=version,
        profile_id=ours.get("profile") or "",
        profile_type=kind,
        release=Release(DeploymentId(data["id"].lower()), metadata["name"], revision, version, components),
        parameters={name: as_value(each["value"]) for name, each in parameters.items()},
        device_constraints=profile.get("deviceConstraints"),
        placement=read_placement(ours),
        policy=read_policy(ours),
        rollout_id=RolloutId(ours["rollout"]) if ours.get("rollout") else None,
        revision=revision,
        path=path,
        remove_images=(ours.get("removal") or {}).get("images") is True,
        retry=ours.get("retry") or "",
        restart=restart,
        device=None if metadata["deviceId"] == site else metadata["deviceId"],
    )


def _specification(
    data: Mapping[str, Any], kind: ProfileType, parameters: Mapping[str, Any], restart: str
) -> ComponentSpec:
    name, properties = data["name"], data["properties"]
    timeout = properties.get("timeout")
    written = as_chart_value if kind is ProfileType.HELM else as_environment
    return ComponentSpec(
        name=name,
        type=kind,
        repository=properties["repository"],
        revision=properties["revision"],
        environment={
            target["pointer"]: written(as_value(each["value"]))
            for each in parameters.values()
            for target in each["targets"]
            if name in target["components"]
        },
        wait=properties.get("wait", True),
        timeout_seconds=timeout_seconds(timeout) if timeout else TIMEOUT_SECONDS,
        # No runtime reads this marker: it changes the digest, so that the component is replaced by itself.
        extensions=extensions_of(data) | ({"x-homeport-restart": restart} if restart else {}),
    )


def _comparable(desired: Desired) -> Desired:
    nothing = Digest("")
    release = replace(desired.release, revision=nothing)
    return replace(desired, release=release, revision=nothing, rollout_id=None, path="", retry="")


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
    }
    if given.get("timeout"):  # a device has a default of its own
        properties["timeout"] = Quoted(given["timeout"])
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
    """The targets in this profile. A pointer that cannot be an environment variable is meant for the helm profile of
    the same app, when both have a component of that name."""
    known = {component.name for component in profile.components}
    variables = {each.name for each in profile.components if takes_variables(profile.type, each)}
    return [
        {"pointer": target.pointer, "components": [name for name in target.components if name in known]}
        for target in parameter.targets
        if known & set(target.components)
        and (not known & set(target.components) <= variables or ENVIRONMENT_NAME.fullmatch(target.pointer))
    ]
