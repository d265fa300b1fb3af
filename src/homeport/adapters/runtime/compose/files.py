"""The files of one compose component on a node's disk: the pulled archive, and the override file that labels its
services.

The archive of a revision is stored under a name made from repository and revision, so that a restart without uplink
and a rollback find it. It is created atomically.
"""

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from homeport.adapters.registry.archive import extract_archive
from homeport.core.data import volume_prefix
from homeport.core.model.deployment import ComponentSpec, digest_of, digest_of_bytes
from homeport.core.secrets import plain_environment, secret_environment, secret_files
from homeport.errors import InvalidInput
from homeport.failpoints import Point, passing
from homeport.lazy_dataclass import dataclass
from homeport.ports import Workload
from homeport.vocabulary import DeploymentId, NodeId

COMPOSE_FILE = "compose.yaml"
OVERRIDE_FILE = "homeport.override.yaml"
SECRETS_FOLDER = "secrets"
ARTIFACT_TYPE = "application/vnd.org.margo.component.compose+json"
LAYER_TYPE = "application/vnd.org.margo.component.compose.tar+gzip"

LABEL_DEPLOYMENT = "homeport.deployment"
LABEL_COMPONENT = "homeport.component"
LABEL_DIGEST = "homeport.digest"
LABEL_NODE = "homeport.node"
LABEL_NAME = "homeport.name"
LABEL_SITE = "homeport.site"
"""What people call the deployment, name@site; for them and for messages, never to find a container by."""
LABEL_SERVICES = "homeport.services"
"""How many containers each service of the component should have: `web=1,worker=2`. Set on every container, so that a
remaining one shows which are missing."""
LABEL_ENDS = "homeport.ends"
"""On the containers of a one-shot service, which ends before others start."""


@dataclass(frozen=True, slots=True)
class Service:
    name: str
    image: str | None
    """None where the compose tool provides it: it is built, or must not be pulled."""
    count: int
    ends: bool = False
    """Others wait until it has completed: it prepares something, and is not meant to keep running."""
    variables: frozenset[str] = field(default=frozenset(), compare=False)
    """The names in its own environment."""


def container_labels(workload: Workload, node_id: NodeId) -> dict[str, str]:
    """The labels of every container of a component, whatever starts it."""
    found = {
        LABEL_DEPLOYMENT: str(workload.deployment_id),
        LABEL_COMPONENT: workload.spec.name,
        LABEL_DIGEST: str(workload.spec.digest),
        LABEL_NODE: str(node_id),
        LABEL_NAME: workload.name,
        LABEL_SITE: workload.site,
    }
    return {label: value for label, value in found.items() if value}


def project_name(deployment_id: DeploymentId, component: str, node_id: NodeId) -> str:
    """Compose accepts only lower-case letters, digits, dashes and underscores.

    The node is part of it, because two nodes on one machine may use one engine for the same deployment.
    """
    safe = re.sub(r"[^a-z0-9_-]", "-", component.lower())
    node = digest_of_bytes(node_id.encode()).removeprefix("sha256:")[:4]
    return f"hp-{deployment_id.replace('-', '')[:12].lower()}-{safe}-{node}"


def volume_name(workload: Workload, node_id: NodeId, volume: str) -> str:
    """A data volume belongs to the deployment's name and is reused by the next deployment of that name."""
    return volume_prefix(workload.name, workload.spec.name, node_id) + volume


def archive_folder(workload: Workload) -> Path:
    """The path of this revision's archive."""
    source = {"repository": workload.spec.repository, "revision": workload.spec.revision}
    return workload.folder / digest_of(source).removeprefix("sha256:")[:12]


def unpack(content: bytes, folder: Path) -> None:
    """Raises InvalidInput for a bad archive, OSError for a full disk; leaves nothing half-written behind."""
    beginning = folder.with_name(folder.name + ".partial")
    shutil.rmtree(beginning, ignore_errors=True)
    beginning.mkdir(parents=True)
    try:
        extract_archive(content, beginning)
        project_folder(beginning)
        _make_durable(beginning)
        passing(Point.COMPONENT_BEFORE_PLACE)
        beginning.rename(folder)
        passing(Point.COMPONENT_AFTER_PLACE)
    except BaseException:
        shutil.rmtree(beginning, ignore_errors=True)
        raise


def project_folder(folder: Path) -> Path:
    """The folder that holds compose.yaml: the archive's one top-level directory."""
    if (folder / COMPOSE_FILE).is_file():
        return folder
    found = [path.parent for path in folder.glob(f"*/{COMPOSE_FILE}")]
    if len(found) != 1:
        raise InvalidInput(f"The component's archive has no {COMPOSE_FILE} in its one top-level directory.")
    return found[0]


def write_override(
    project: Path,
    workload: Workload,
    node_id: NodeId,
    services: Sequence[Service],
    *,
    variables: Mapping[str, str] | None = None,
    named: Sequence[str] = (),
    version: str | None = None,
    volumes: Mapping[str, str] | None = None,
) -> Path:
    """Labels and environment for every service, in a second compose file that the tool merges.

    `volumes` maps the project's own volumes to their names on the engine. `named` are variables that the tool takes
    from its own environment. Values of secrets are not written. `variables` are the machine's, for services that have
    none of that name.
    """
    spec = workload.spec
    labels = container_labels(workload, node_id)
    labels[LABEL_SERVICES] = ",".join(f"{service.name}={service.count}" for service in services)
    added: dict[str, Any] = {"labels": {name: escape(value) for name, value in labels.items()}}
    given = {} if interpolates_only(spec) else plain_environment(spec)
    environment: dict[str, str | None] = {name: escape(value) for name, value in given.items()}
    environment |= dict.fromkeys(named)
    if environment:
        added["environment"] = environment
    mounts = write_secret_files(workload.folder / SECRETS_FOLDER, secret_files(spec))
    if mounts:
        added["volumes"] = [f"{escape(str(path))}:{escape(target)}:ro" for target, path in mounts.items()]
    override: dict[str, Any] = {
        "services": {service.name: _for_service(added, service, variables or {}) for service in services}
    }
    if volumes:
        override["volumes"] = {volume: {"name": escape(name)} for volume, name in volumes.items()}
    if version is not None:
        override = {"version": version, **override}
    path = project / OVERRIDE_FILE
    path.write_text(_as_yaml(override))
    return path


def _for_service(added: Mapping[str, Any], service: Service, variables: Mapping[str, str]) -> dict[str, Any]:
    found = dict(added)
    if service.ends:
        found["labels"] = {**added["labels"], LABEL_ENDS: "true"}
    environment = {name: escape(value) for name, value in variables.items() if name not in service.variables}
    if environment:
        found["environment"] = {**environment, **added.get("environment", {})}
    return found


def interpolates_only(spec: ComponentSpec) -> bool:
    """Whether parameters are for the compose file alone, as they are for the compose tool: `x-homeport-extensions:
    {compose: {variables: interpolation}}`. Otherwise every container gets them too, as Margo's parameters do; there a
    file's own `PORT` would meet the PORT that its program listens on."""
    ours = spec.extensions.get("x-homeport-extensions")
    section = ours.get("compose") if isinstance(ours, Mapping) else None
    return isinstance(section, Mapping) and section.get("variables") == "interpolation"


def describe_configuration(spec: ComponentSpec) -> str:
    """What is configured for a component, as counts: values are private, and names may be secret."""
    variables = len(plain_environment(spec)) + len(secret_environment(spec))
    return configuring(spec.name, ("variable", variables), ("secret file", len(secret_files(spec))))


def configuring(name: str, *parts: tuple[str, int]) -> str:
    """The counts of what is configured; zeros are left out."""
    counted = ", ".join(f"{count} {what}{'' if count == 1 else 's'}" for what, count in parts if count)
    return f"configuring {name}: {counted}" if counted else f"configuring {name}"


def write_secret_files(folder: Path, files: Mapping[str, str]) -> dict[str, Path]:
    """Writes each secret that a container reads as a file, and returns the paths. Others are removed.

    Any user in a container must be able to read it; on the machine, the folder's mode protects it.
    """
    shutil.rmtree(folder, ignore_errors=True)
    if not files:
        return {}
    folder.mkdir(mode=0o700, parents=True)
    written = {}
    for position, (target, value) in enumerate(sorted(files.items())):
        path = folder / f"{position}"
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400), "w") as file:
            file.write(value)
        path.chmod(0o444)
        written[target] = path
    return written


def _make_durable(folder: Path) -> None:
    """Without this, a power cut right after the rename could leave a tree of empty files."""
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def _as_yaml(document: Mapping[str, Any]) -> str:
    """Without anchors for equal values: in a generated file they only confuse."""
    import yaml  # noqa: PLC0415 - a node that only watches what runs stays smaller

    class PlainDumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

    return str(yaml.dump(document, Dumper=PlainDumper, sort_keys=False))


def escape(text: str) -> str:
    """Escapes text so that the compose tool's interpolation leaves it unchanged."""
    return text.replace("$", "$$")
