"""The files of one compose component on a node's disk: the fetched archive, and the override that marks its
services.

The archive of a revision is kept under a name made from repository and revision, so that a restart without uplink
and a rollback find what they need. It appears there whole or not at all.
"""

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from homeport.adapters.registry.archive import extract_archive
from homeport.adapters.runtime.interpolation import escape, interpolate, parse_env_file
from homeport.core.model.deployment import ComponentSpec, digest_of, digest_of_bytes
from homeport.core.secrets import plain_environment, secret_files
from homeport.errors import InvalidInput
from homeport.failpoints import Point, passing
from homeport.ports import Workload
from homeport.vocabulary import DeploymentId, NodeId

COMPOSE_FILE = "compose.yaml"
OVERRIDE_FILE = "homeport.override.yaml"
SECRETS_FOLDER = "secrets"
ARTIFACT_TYPE = "application/vnd.org.margo.component.compose+json"

LABEL_DEPLOYMENT = "homeport.deployment"
LABEL_COMPONENT = "homeport.component"
LABEL_DIGEST = "homeport.digest"
LABEL_NODE = "homeport.node"
LABEL_SERVICES = "homeport.services"
"""How many containers each service of the component should have: `web=1,worker=2`. Written on every container, so
that the one that is left tells which are missing."""
LABEL_ENDS = "homeport.ends"
"""On the containers of a service that does one thing and ends, before others start."""
COMPLETED = "service_completed_successfully"


@dataclass(frozen=True, slots=True)
class Service:
    name: str
    image: str | None
    """None where the compose tool gets it by itself: it is built, or must not be pulled."""
    count: int
    ends: bool = False
    """Others wait until it has ended well: it prepares something, and is not meant to run on."""


def project_name(deployment_id: DeploymentId, component: str, node_id: NodeId) -> str:
    """Compose accepts only lower-case letters, digits, dashes and underscores.

    The node is part of it, since two nodes on one machine may use one engine for the same deployment.
    """
    safe = re.sub(r"[^a-z0-9_-]", "-", component.lower())
    node = digest_of_bytes(node_id.encode()).removeprefix("sha256:")[:4]
    return f"hp-{deployment_id.replace('-', '')[:12].lower()}-{safe}-{node}"


def archive_folder(workload: Workload) -> Path:
    """Where this revision's archive stands, or will stand."""
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


def read_services(project: Path, spec: ComponentSpec) -> tuple[Service, ...]:
    """The services that `up` will start, with their images as the compose tool will see them."""
    env_file = project / ".env"
    environment = parse_env_file(env_file.read_text(errors="replace")) if env_file.is_file() else {}
    # A secret is no part of an image's name: the name is shown.
    environment |= plain_environment(spec)
    try:
        content = yaml.load((project / COMPOSE_FILE).read_bytes(), Loader=yaml.CSafeLoader)
    except yaml.YAMLError as error:
        raise InvalidInput(f"{COMPOSE_FILE} is not valid YAML: {' '.join(str(error).split())}") from error
    services = content.get("services") if isinstance(content, dict) else None
    if not isinstance(services, dict) or not services:
        raise InvalidInput(f"{COMPOSE_FILE} has no services.")
    read = (_service(str(name), service or {}, environment) for name, service in services.items())
    ending = {name for service in services.values() for name in _awaited(service or {})}
    return tuple(replace(service, ends=service.name in ending) for service in read if service is not None)


def write_override(
    project: Path, workload: Workload, node_id: NodeId, services: tuple[Service, ...], named: Sequence[str] = ()
) -> Path:
    """Labels and environment for every service, in a second compose file that the tool merges.

    `named` are variables that the tool takes from its own environment. Values of secrets are not written.
    """
    spec = workload.spec
    labels = {
        LABEL_DEPLOYMENT: workload.deployment_id,
        LABEL_COMPONENT: spec.name,
        LABEL_DIGEST: spec.digest,
        LABEL_NODE: node_id,
        LABEL_SERVICES: ",".join(f"{service.name}={service.count}" for service in services),
    }
    added: dict[str, Any] = {"labels": {name: escape(value) for name, value in labels.items()}}
    environment: dict[str, str | None] = {name: escape(value) for name, value in plain_environment(spec).items()}
    environment |= dict.fromkeys(named)
    if environment:
        added["environment"] = environment
    mounts = write_secret_files(workload.folder / SECRETS_FOLDER, secret_files(spec))
    if mounts:
        added["volumes"] = [f"{escape(str(path))}:{escape(target)}:ro" for target, path in mounts.items()]
    ending = {**added, "labels": {**added["labels"], LABEL_ENDS: "true"}}
    override: dict[str, Any] = {"services": {service.name: ending if service.ends else added for service in services}}
    version = _version(project)
    if version is not None:
        # Compose 1 takes files with a version only together with files of the same version.
        override = {"version": version, **override}
    path = project / OVERRIDE_FILE
    path.write_text(yaml.dump(override, Dumper=_PlainDumper, sort_keys=False))
    return path


def write_secret_files(folder: Path, files: Mapping[str, str]) -> dict[str, Path]:
    """Writes each secret that a container reads as a file, and answers where. Others are removed.

    A container's user must be able to read it, whoever that is; on the machine, the folder keeps everybody out.
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
    """Without this, a power cut right after the rename could leave a whole tree of empty files."""
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


class _PlainDumper(yaml.SafeDumper):
    """Writes equal values out in full: an anchor in a generated file only puzzles its reader."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _version(project: Path) -> Any:
    content = yaml.load((project / COMPOSE_FILE).read_bytes(), Loader=yaml.CSafeLoader)
    return content.get("version")


def _awaited(service: Mapping[str, Any]) -> list[str]:
    """The services whose good end this one waits for."""
    needed = service.get("depends_on")
    found = needed.items() if isinstance(needed, dict) else ()
    return [str(name) for name, how in found if isinstance(how, dict) and how.get("condition") == COMPLETED]


def _service(name: str, service: Mapping[str, Any], environment: Mapping[str, str]) -> Service | None:
    if service.get("profiles"):
        return None
    deploy = service.get("deploy") or {}
    count = interpolate(str(service.get("scale", deploy.get("replicas", 1))), environment)
    pulls_by_itself = "build" in service or service.get("pull_policy") in ("never", "build")
    image = interpolate(str(service.get("image", "")), environment)
    return Service(name, image if image and not pulls_by_itself else None, int(count) if count.isdigit() else 1)
