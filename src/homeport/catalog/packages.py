"""Packs an app's folder into OCI artifacts and pushes them: the app package, its compose components and its charts.

The app package goes to the given repository, tagged with the app's version. A component goes to the repository that
its description names for nodes, tagged with its revision; it is packed from the folder `components/<name>/` next to
the description. That repository must be in the same registry as the app package: otherwise nodes would pull something
else than what was pushed. A component without a folder is published elsewhere and skipped.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio.to_thread

from homeport.catalog.compose_files import file_problems
from homeport.catalog.description import Description, parse_description
from homeport.catalog.documents import SIZE_MAX, load
from homeport.catalog.registry_tree import DESCRIPTION_FILE
from homeport.core.archive import COMPOSE_FILE, PACKED_SIZE_MAX, ArchiveEntry, check_archive, pack_archive
from homeport.core.model.app import App, Component
from homeport.core.model.artifact import Artifact, Layer
from homeport.errors import InvalidInput, NotFound, Problem, TooLarge
from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import Digest, ProfileType

if TYPE_CHECKING:
    from homeport.ports import Registry

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

_REFERENCE: Final = re.compile(
    r"(?P<repository>oci://[^/]+/[^:@]+)(?::(?P<tag>[^@]+)|@(?P<digest>sha256:[0-9a-f]{64}))?"
)
_FORMATS: Final = {".md": "markdown", ".txt": "plain", ".jpg": "jpeg", ".svg": "svg", ".htm": "html"}


@dataclass(frozen=True, slots=True)
class PushedPackage:
    what: str
    """`app`, or the component's name."""
    repository: str
    tag: str
    digest: Digest


@dataclass(frozen=True, slots=True)
class Package:
    """One artifact and its destination."""

    what: str
    repository: str
    tag: str
    artifact: Artifact


async def push_app(directory: Path, repository: str, registry: "Registry") -> tuple[PushedPackage, ...]:
    """Components first: an app package never refers to what does not exist yet. Nothing is pushed before all is
    packed.

    Raises InvalidInput, NotFound or TooLarge for the folder, and the registry's errors.
    """
    packages = await anyio.to_thread.run_sync(pack_app, directory, repository)
    return tuple(
        [
            PushedPackage(
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
    for each in components:
        if (each.repository, each.tag) == (repository, tag):
            raise InvalidInput(
                f"The app package and its component {each.what} would both be {repository}:{tag}.",
                hint="Push the app to another name than its components have.",
            )
    return (*components, Package("app", repository, tag, Artifact(APP_TYPE, layers)))


def split_reference(reference: str) -> tuple[str, str | None]:
    """`oci://host/name[:tag|@digest]` as the repository, and the tag or digest. Raises InvalidInput."""
    found = _REFERENCE.fullmatch(reference)
    if found is None:
        hint = "Write it as  oci://host[:port]/name , with  :tag  or  @sha256:…  for one version."
        raise InvalidInput(f'"{reference[:200]}" is not an OCI repository.', hint=hint)
    return found["repository"], found["tag"] or found["digest"]


def read_package(artifact: Artifact, shown: str) -> bytes:
    """The description of an app package. Raises InvalidInput for an artifact that is none."""
    if artifact.artifact_type != APP_TYPE:
        raise InvalidInput(f"{shown} is not an app package: its type is {artifact.artifact_type[:100] or 'missing'}.")
    found = [layer.content for layer in artifact.layers if layer.media_type == DESCRIPTION_TYPE]
    if len(found) != 1:
        raise InvalidInput(f"{shown} has {len(found)} descriptions; an app package has exactly one.")
    if len(found[0]) > SIZE_MAX:
        raise TooLarge(f"The description in {shown} is larger than {SIZE_MAX // 1024} KiB.")
    return found[0]


def package_files(artifact: Artifact, shown: str) -> Mapping[str, bytes]:
    """The files of an app package by their names, the description as margo.yaml. Raises InvalidInput for a name that
    leads out of its folder."""
    files: dict[str, bytes] = {DESCRIPTION_FILE: read_package(artifact, shown)}
    for layer in artifact.layers:
        if layer.media_type == DESCRIPTION_TYPE:
            continue
        name = layer.annotations.get(TITLE, "").removeprefix("./")
        parts = name.split("/")
        if not name or name.startswith("/") or {"", ".", ".."} & set(parts) or not name.isprintable() or "\\" in name:
            raise InvalidInput(f"{shown} is refused: {name[:100]!r} is not the name of a file in an app's folder.")
        if name in files or parts[0] == "components":
            raise InvalidInput(f"{shown} is refused: {name[:100]!r} would replace another file of the app.")
        if len(layer.content) > RESOURCE_SIZE_MAX:
            raise TooLarge(f"{name} of {shown} is larger than {RESOURCE_SIZE_MAX // 2**20} MiB.")
        files[name] = layer.content
    return files


async def pull_component(component: Component, kind: ProfileType, registry: "Registry") -> tuple[ArchiveEntry, ...]:
    """The files of a component, each entry of its archive checked. Raises the registry's errors, InvalidInput and
    TooLarge."""
    repository, revision = str(component.properties["repository"]), str(component.properties["revision"])
    artifact = await registry.pull(repository, revision.replace("+", "_"))
    wanted = ARCHIVE_TYPE if kind is ProfileType.COMPOSE else CHART_TYPE
    layers = [layer for layer in artifact.layers if layer.media_type == wanted]
    shown = f"{repository}:{revision}"
    if kind is ProfileType.COMPOSE and artifact.artifact_type != COMPONENT_TYPE:
        raise InvalidInput(
            f"{shown} is not a compose component: its type is {artifact.artifact_type[:100] or 'missing'}.",
            hint="Publish it with  homeport apps push , not with  docker compose publish .",
        )
    if len(layers) != 1:
        raise InvalidInput(f"{shown} is not a component: it has {len(layers)} layers of the type {wanted}.")
    needed = COMPOSE_FILE if kind is ProfileType.COMPOSE else CHART_FILE
    return await anyio.to_thread.run_sync(lambda: check_archive(layers[0].content, needed=needed))


def tag_of(version: str) -> str:
    return version.replace("+", "_")


def version_of(tag: str) -> str:
    """A tag cannot have the plus of a version."""
    return tag.replace("_", "+")


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
    files = _files(folder, COMPOSE_FILE)
    path = f"components/{component.name}/{COMPOSE_FILE}"
    problems = file_problems(load(files[COMPOSE_FILE], path).data, list(files))
    if problems:
        raise InvalidInput(f"{path}: {' '.join(problems)}", hint="Files that it needs belong to it; others do not.")
    archive = pack_archive(component.name, files)
    return Package(component.name, place, revision, compose_artifact(component.name, revision, archive))


def compose_artifact(name: str, revision: str, archive: bytes) -> Artifact:
    """In the form that every Margo device can pull. Raises InvalidInput or TooLarge for an archive that none
    accepts."""
    check_archive(archive)
    annotations = {
        "org.margo.component.type": "compose",
        "org.margo.component.version": revision,
        TITLE: f"{name}-{revision}.tar.gz",
        "org.opencontainers.image.version": revision,
    }
    return Artifact(COMPONENT_TYPE, (Layer(ARCHIVE_TYPE, archive, annotations),))


def _chart(component: Component, folder: Path, repository: str, field: str) -> Package:
    """In the form of `helm push`, so that helm and every Margo device can pull it."""
    place, revision = _place(component, repository, field), str(component.properties["revision"])
    files = _files(folder, CHART_FILE)
    described = load(files[CHART_FILE], f"components/{component.name}/{CHART_FILE}").data
    if not isinstance(described, dict) or not {"apiVersion", "name", "version"} <= described.keys():
        raise InvalidInput(f"components/{component.name}/{CHART_FILE} lacks apiVersion, name or version.")
    if described["apiVersion"] != "v2":
        raise InvalidInput(
            f"components/{component.name}/{CHART_FILE} has apiVersion {str(described['apiVersion'])[:20]}, and Margo "
            "devices take charts of v2.",
            hint="Write  apiVersion: v2 ; what stands in requirements.yaml belongs under  dependencies:  of it.",
        )
    if described["version"] != revision.replace("_", "+"):
        message = f"is {revision}, but components/{component.name}/{CHART_FILE} says {described['version']}."
        raise InvalidInput(problems=[Problem(field.replace("repository", "revision"), message, DESCRIPTION_FILE)])
    tag = revision.replace("+", "_")
    return Package(component.name, place, tag, chart_artifact(described, files))


def chart_artifact(described: Mapping[str, Any], files: Mapping[str, bytes]) -> Artifact:
    config = Layer(CHART_CONFIG_TYPE, json.dumps(described, default=str).encode())
    layer = Layer(CHART_TYPE, pack_archive(str(described["name"]), files))
    return Artifact(CHART_CONFIG_TYPE, (layer,), config=config)


def _place(component: Component, repository: str, field: str) -> str:
    place = str(component.properties["repository"])
    if _host(place) != _host(repository):
        message = (
            f"is {place}, so nodes would not find what is pushed to {_host(repository)}: change one of the two, "
            f"or take components/{component.name} away if it is published elsewhere."
        )
        raise InvalidInput(problems=[Problem(field, message, DESCRIPTION_FILE)])
    return place


def _files(folder: Path, needed: str) -> Mapping[str, bytes]:
    """The files that nodes get. Links are refused: their target may be missing, or private."""
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
