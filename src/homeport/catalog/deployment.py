"""A deployment file (Margo ApplicationDeployment): read by sites, written by central.

What is Margo's stands in Margo's fields, so that any Margo device can read the file. What only Homeport knows
(which app of the catalog, which nodes, which rollout) is in `spec.x-homeport-extensions`, and a file without it,
pushed by hand or by another fleet manager, is as good.
"""

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, Final

from homeport.catalog.description import extensions_of
from homeport.catalog.documents import Document, load
from homeport.catalog.references import ENVIRONMENT_NAME
from homeport.catalog.structure import check_structure
from homeport.core.model.app import Value
from homeport.core.model.deployment import ComponentSpec, Desired, Placement, Release, digest_of_bytes
from homeport.core.parameters import as_value, listing, matches, show, suggest
from homeport.errors import InvalidInput, Problem
from homeport.vocabulary import (
    NODE_ID_PATTERN,
    DeploymentId,
    Digest,
    NodeId,
    ProfileType,
    RolloutId,
    SiteName,
)

SCHEMA: Final = "application-deployment"
OURS: Final = "x-homeport-extensions"
TIMEOUT_SECONDS: Final = 300.0
"""How long a component may take to become healthy when its description does not say."""
MARKER_NAME: Final = "site.yaml"


def parse_deployment(content: bytes, path: str, site: SiteName) -> Desired:
    """Raises TooLarge, or InvalidInput with all problems, each with field, file and line."""
    document = load(content, path)
    problems = _check_envelope(document)
    if not problems:
        problems = check_structure(document, SCHEMA)
    if not problems:
        problems = [*_check_identity(document, site), *_check_targets(document), *_check_ours(document)]
    if problems:
        raise InvalidInput(problems=problems)
    return _desired(document.data, path, site, digest_of_bytes(content))


def deployment_path(site: SiteName, deployment_id: DeploymentId) -> str:
    """Where the file stands in the deployments repository."""
    return f"deployments/{site}/{deployment_id}.yaml"


def marker_path(site: SiteName) -> str:
    return f"deployments/{site}/{MARKER_NAME}"


def render_marker(site: SiteName) -> bytes:
    """The file that says: this folder is real, so that what is not in it is not wanted."""
    return f"site: {site}\n".encode()


def is_marker(content: bytes, site: SiteName) -> bool:
    """Whether the content of `site.yaml` names this site. A broken or foreign marker is no marker."""
    try:
        data = load(content, MARKER_NAME).data
    except InvalidInput:
        return False
    return isinstance(data, dict) and data.get("site") == site


def timeout_seconds(text: str) -> float:
    """`8m30s` is 510 seconds."""
    minutes, seconds = re.findall(r"[0-9]+", text)
    return int(minutes) * 60.0 + int(seconds)


def as_environment(value: Value) -> str:
    """A value as an environment variable holds it."""
    if isinstance(value, tuple):
        return ",".join(as_environment(item) for item in value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _check_envelope(document: Document) -> list[Problem]:
    data = document.data
    if not isinstance(data, dict):
        return [document.problem((), "is not a deployment: it must be a mapping (name: value).")]
    if "deploymentProfiles" in data and "spec" not in data:
        message = "makes this an application description; a deployment is expected in this folder."
        return [document.problem(("deploymentProfiles",), message)]
    problems = []
    if "kind" in data and data["kind"] != "ApplicationDeployment":
        message = f'says that this is a "{data["kind"]}", but a Margo deployment is expected, without kind.'
        problems.append(document.problem(("kind",), message))
    elif "apiVersion" in data or "kind" in data:
        key = "apiVersion" if "apiVersion" in data else "kind"
        message = "belongs to an older Margo version; a deployment has neither apiVersion nor kind: remove them."
        problems.append(document.problem((key,), message))
    return problems


def _check_identity(document: Document, site: SiteName) -> list[Problem]:
    data, name = document.data, PurePosixPath(document.path).stem
    problems = []
    if data["id"] != name:
        message = f'is "{data["id"]}", but the file is called {name}.yaml; the two must be the same.'
        problems.append(document.problem(("id",), message))
    device = data["metadata"]["deviceId"]
    if device != site:
        message = f'is "{device}", but the file is in the folder of site "{site}"; the two must be the same.'
        problems.append(document.problem(("metadata", "deviceId"), message))
    return problems


def _check_targets(document: Document) -> list[Problem]:
    profile = document.data["spec"]["deploymentProfile"]
    known = [component["name"] for component in profile["components"]]
    problems = [
        document.problem(
            ("spec", "deploymentProfile", "components", position, "name"),
            f'another component is called "{name}" too.',
        )
        for position, name in enumerate(known)
        if name in known[:position]
    ]
    for parameter, each in (document.data["spec"].get("parameters") or {}).items():
        for number, target in enumerate(each["targets"]):
            place = ("spec", "parameters", parameter, "targets", number)
            for position, name in enumerate(target["components"]):
                if name not in known:
                    message = f'names "{name}", but this profile has only {listing(known)}.{suggest(name, known)}'
                    problems.append(document.problem((*place, "components", position), message))
            if profile["type"] == ProfileType.COMPOSE and not ENVIRONMENT_NAME.fullmatch(target["pointer"]):
                message = f"{show(target['pointer'])} is not the name of an environment variable."
                problems.append(document.problem((*place, "pointer"), message))
        if _is_nested(each["value"]):
            message = "must be text, a number, true or false, or a list of these."
            problems.append(document.problem(("spec", "parameters", parameter, "value"), message))
    return problems


def _is_nested(value: Any) -> bool:
    return isinstance(value, list) and any(isinstance(item, list | dict) or item is None for item in value)


def _check_ours(document: Document) -> list[Problem]:
    """The extension is ours, so a mistake in it is one, whereas foreign ones are none of our business."""
    ours = document.data["spec"].get(OURS) or {}
    app, placement = ours.get("app", {}), ours.get("placement", {})
    found: list[tuple[tuple[str, ...], str]] = []
    for key, value in (("app", app), ("placement", placement)):
        if not isinstance(value, dict):
            found.append(((key,), "must be a mapping (name: value)."))
    texts: dict[tuple[str, ...], Any] = {("profile",): ours.get("profile"), ("rollout",): ours.get("rollout")}
    if isinstance(app, dict):
        texts |= {("app", key): app.get(key) for key in ("category", "name", "version")}
    found += [
        (keys, f"must be text, not {value}: put it in quotes.")
        for keys, value in texts.items()
        if value is not None and not isinstance(value, str)
    ]
    nodes = placement.get("nodes", []) if isinstance(placement, dict) else []
    if not isinstance(nodes, list) or not all(isinstance(n, str) and matches(NODE_ID_PATTERN, n) for n in nodes):
        found.append((("placement", "nodes"), "must be a list of node names."))
    return [document.problem(("spec", OURS, *keys), message) for keys, message in found]


def _desired(data: Mapping[str, Any], path: str, site: SiteName, revision: Digest) -> Desired:
    metadata, spec = data["metadata"], data["spec"]
    profile, ours = spec["deploymentProfile"], spec.get(OURS) or {}
    app = ours.get("app") or {}
    parameters: Mapping[str, Any] = spec.get("parameters") or {}
    version = app.get("version") or profile["components"][0]["properties"]["revision"]
    kind = ProfileType(profile["type"])
    components = tuple(_component(each, kind, parameters) for each in profile["components"])
    return Desired(
        id=DeploymentId(data["id"]),
        site=site,
        name=metadata["name"],
        namespace=metadata["namespace"],
        margo_app_id=spec["applicationId"],
        app_name=app.get("name") or metadata["name"],
        app_category=app.get("category") or "",
        app_version=version,
        profile_id=ours.get("profile") or "",
        profile_type=kind,
        release=Release(DeploymentId(data["id"]), metadata["name"], revision, version, components),
        parameters={name: as_value(each["value"]) for name, each in parameters.items()},
        device_constraints=profile.get("deviceConstraints"),
        placement=Placement(tuple(NodeId(each) for each in (ours.get("placement") or {}).get("nodes", ()))),
        rollout_id=RolloutId(ours["rollout"]) if ours.get("rollout") else None,
        revision=revision,
        path=path,
    )


def _component(data: Mapping[str, Any], kind: ProfileType, parameters: Mapping[str, Any]) -> ComponentSpec:
    name, properties = data["name"], data["properties"]
    timeout = properties.get("timeout")
    return ComponentSpec(
        name=name,
        type=kind,
        repository=properties["repository"],
        revision=properties["revision"],
        environment={
            target["pointer"]: as_environment(as_value(each["value"]))
            for each in parameters.values()
            for target in each["targets"]
            if name in target["components"]
        },
        wait=properties.get("wait", True),
        timeout_seconds=timeout_seconds(timeout) if timeout else TIMEOUT_SECONDS,
        extensions=extensions_of(data),
    )
