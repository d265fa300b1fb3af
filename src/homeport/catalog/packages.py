"""Packs an app's folder into OCI artifacts and pushes them: the app package, its compose components and its charts.

Where what goes: the app package to the repository that is given, tagged with the app's version. A component goes
where its description says nodes will look for it, tagged with its revision; it is packed from the folder
`components/<name>/` beside the description. That place must be in the same registry as the app package, for a
description that points elsewhere would have nodes pull something else than what was pushed. A component without
a folder is published by somebody else and left alone.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio.to_thread

from homeport.catalog.description import Description, parse_description
from homeport.catalog.documents import SIZE_MAX, load
from homeport.catalog.registry_tree import DESCRIPTION_FILE
from homeport.core.archive import COMPOSE_FILE, PACKED_SIZE_MAX, check_archive, pack_archive
from homeport.core.model.app import App, Component
from homeport.errors import InvalidInput, NotFound, Problem, TooLarge
from homeport.ports import Artifact, Layer, Registry
from homeport.vocabulary import Digest, ProfileType

APP_TYPE: Final = "application/vnd.margo.app.v1+json"
DESCRIPTION_TYPE: Final = "application/vnd.margo.app.description.v1+yaml"
RESOURCE_TYPE: Final = "application/vnd.margo.app.{kind}.v1+{format}"
COMPONENT_TYPE: Final = "application/vnd.org.margo.component.compose+json"
ARCHIVE_TYPE: Final = "application/vnd.org.margo.component.compose.tar+gzip"
CHART_FILE: Final = "Chart.yaml"
CHART_TYPE: Final = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
CHART_CONFIG_TYPE: Final = "application/vnd.cncf.helm.config.v1+json"
TITLE: Final = "org.opencontainers.image.title"
RESOURCES: Final = ("icon", "descriptionFile", "licenseFile", "releaseNotes")
RESOURCE_SIZE_MAX: Final = 8 * 2**20

_FORMATS: Final = {".md": "markdown", ".txt": "plain", ".jpg": "jpeg", ".svg": "svg", ".htm": "html"}


@dataclass(frozen=True, slots=True)
class Pushed:
    what: str
    """`app`, or the component's name."""
    repository: str
    tag: str
    digest: Digest


@dataclass(frozen=True, slots=True)
class Package:
    """One artifact and where it goes."""

    what: str
    repository: str
    tag: str
    artifact: Artifact


async def push_app(directory: Path, repository: str, registry: Registry) -> tuple[Pushed, ...]:
    """Components first: an app package never points at what is not there yet. Nothing is pushed before all is packed.

    Raises InvalidInput, NotFound or TooLarge for the folder, and what the registry raises.
    """
    packages = await anyio.to_thread.run_sync(pack_app, directory, repository)
    return tuple(
        [
            Pushed(
                each.what, each.repository, each.tag, await registry.push(each.repository, each.tag, each.artifact)
            )
            for each in packages
        ]
    )


def pack_app(directory: Path, repository: str) -> tuple[Package, ...]:
    """Everything that `push_app` pushes, in its order."""
    if not re.fullmatch(r"oci://[^/]+/[a-z0-9][a-z0-9._/-]*", repository):
        raise InvalidInput(f"{repository!r} is not an OCI repository.", hint="Write it as oci://host[:port]/name.")
    content = _read(directory, DESCRIPTION_FILE, SIZE_MAX)
    description = parse_description(content, DESCRIPTION_FILE)
    components = _components(description.app, directory, repository)
    layers = (Layer(DESCRIPTION_TYPE, content, {TITLE: DESCRIPTION_FILE}), *_resources(description, directory))
    tag = description.app.version.replace("+", "_")
    return (*components, Package("app", repository, tag, Artifact(APP_TYPE, layers)))


def _components(app: App, directory: Path, repository: str) -> tuple[Package, ...]:
    packages: dict[tuple[str, str], Package] = {}
    for number, profile in enumerate(app.profiles):
        for position, component in enumerate(profile.components):
            folder = directory / "components" / component.name
            if profile.type is ProfileType.CUSTOM or not folder.is_dir():
                continue
            field = f"deploymentProfiles[{number}].components[{position}].properties.repository"
            pack = _component if profile.type is ProfileType.COMPOSE else _chart
            package = pack(component, folder, repository, field)
            packages[package.repository, package.tag] = package
    return tuple(packages.values())


def _component(component: Component, folder: Path, repository: str, field: str) -> Package:
    place, revision = _place(component, repository, field), str(component.properties["revision"])
    archive = pack_archive(component.name, _files(folder, COMPOSE_FILE))
    check_archive(archive)
    annotations = {
        "org.margo.component.type": "compose",
        "org.margo.component.version": revision,
        TITLE: f"{component.name}-{revision}.tar.gz",
        "org.opencontainers.image.version": revision,
    }
    layer = Layer(ARCHIVE_TYPE, archive, annotations)
    return Package(component.name, place, revision, Artifact(COMPONENT_TYPE, (layer,)))


def _chart(component: Component, folder: Path, repository: str, field: str) -> Package:
    """As `helm push` would write it, so that helm and every Margo device can pull it."""
    place, revision = _place(component, repository, field), str(component.properties["revision"])
    files = _files(folder, CHART_FILE)
    described = load(files[CHART_FILE], f"components/{component.name}/{CHART_FILE}").data
    if not isinstance(described, dict) or not {"apiVersion", "name", "version"} <= described.keys():
        raise InvalidInput(f"components/{component.name}/{CHART_FILE} lacks apiVersion, name or version.")
    if described["version"] != revision.replace("_", "+"):
        message = f"is {revision}, but components/{component.name}/{CHART_FILE} says {described['version']}."
        raise InvalidInput(problems=[Problem(field.replace("repository", "revision"), message, DESCRIPTION_FILE)])
    config = Layer(CHART_CONFIG_TYPE, json.dumps(described, default=str).encode())
    layer = Layer(CHART_TYPE, pack_archive(str(described["name"]), files))
    tag = revision.replace("+", "_")
    return Package(component.name, place, tag, Artifact(CHART_CONFIG_TYPE, (layer,), config=config))


def _place(component: Component, repository: str, field: str) -> str:
    place = str(component.properties["repository"])
    if _host(place) != _host(repository):
        message = (
            f"is {place}, so nodes would not find what is pushed to {_host(repository)}: change one of the two, "
            f"or take components/{component.name} away if somebody else publishes it."
        )
        raise InvalidInput(problems=[Problem(field, message, DESCRIPTION_FILE)])
    return place


def _files(folder: Path, needed: str) -> Mapping[str, bytes]:
    """What nodes get to see. Links are refused: what they point to may not be there, or not be meant."""
    if not (folder / needed).is_file():
        raise InvalidInput(f"{folder.name} has no {needed}.", hint="Exactly this name is read by every device.")
    files: dict[str, bytes] = {}
    size = 0
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            raise InvalidInput(f"components/{folder.name}/{name} is a link; put the file itself there.")
        if path.is_file():
            size += path.stat().st_size
            if size > PACKED_SIZE_MAX:
                raise TooLarge(f"components/{folder.name} holds more than {PACKED_SIZE_MAX // 2**20} MiB.")
            files[name] = path.read_bytes()
    return files


def _resources(description: Description, directory: Path) -> list[Layer]:
    application = description.descriptor["metadata"]["catalog"].get("application") or {}
    layers = []
    for kind in RESOURCES:
        name = application.get(kind)
        if name is None:
            continue
        content = _read(directory, name, RESOURCE_SIZE_MAX, field=f"metadata.catalog.application.{kind}")
        suffix = Path(name).suffix.lower()
        media_type = RESOURCE_TYPE.format(kind=kind, format=_FORMATS.get(suffix, suffix.lstrip(".") or "plain"))
        title = Path(name).as_posix().removeprefix("./")
        layers.append(Layer(media_type, content, {TITLE: title, "org.margo.app.resource": kind}))
    return layers


def _read(directory: Path, name: str, size_max: int, *, field: str = "") -> bytes:
    path = (directory / name).resolve()
    if not path.is_relative_to(directory.resolve()):
        raise InvalidInput(problems=[Problem(field, f"{name!r} leads out of the app's folder.", DESCRIPTION_FILE)])
    if not path.is_file():
        if not field:
            raise NotFound(f"{directory} has no {name}.", hint="Name the folder of one app version.")
        raise InvalidInput(problems=[Problem(field, f"there is no file {name!r}.", DESCRIPTION_FILE)])
    if path.stat().st_size > size_max:
        raise TooLarge(f"{name} is larger than {size_max // 2**20} MiB.")
    return path.read_bytes()


def _host(repository: str) -> str:
    return repository.removeprefix("oci://").partition("/")[0]
