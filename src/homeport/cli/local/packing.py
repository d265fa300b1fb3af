"""`apps validate`, `push` and `pull`, without a server: read folders, validate descriptions, pack and unpack."""

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio

from homeport.adapters.files.bounded_yaml import load_located
from homeport.adapters.registry.archive import write_entries
from homeport.catalog.description import parse_description
from homeport.catalog.documents import SIZE_MAX, dump
from homeport.catalog.packages import package_files, pull_component, push_app, split_reference, version_of
from homeport.catalog.registry_tree import DESCRIPTION_FILE, app_place, find_apps, read_app
from homeport.cli.api.client import Client
from homeport.cli.api.finding import as_argument
from homeport.cli.local.places import own_registry, registry_client
from homeport.content.importing.charts import CHART_FILE
from homeport.content.importing.compose_files import COMPOSE_NAMES
from homeport.content.importing.description import Imported, render_description
from homeport.content.importing.folders import ImportSourceOptions, check_chart, check_component, import_path
from homeport.core.archive import ArchiveEntry
from homeport.core.model.app import App
from homeport.core.values.versions import newest_first
from homeport.errors import Conflict, InvalidInput, NotFound, Problem, TooLarge
from homeport.vocabulary import ProfileType

if TYPE_CHECKING:
    from homeport.adapters.registry.oci import OciRegistry

FILES_MAX: Final = 100_000
"""A folder with more files is not a registry, but a mistyped path such as /."""


def validate_path(path: Path) -> list[str]:
    """What is valid at `path`: a description, a version's folder, or a whole registry. Raises with every problem."""
    if path.is_file():
        return [_validate_file(path, path.name)] if not _is_compose(path) else [_validate_source(path)]
    if not path.is_dir():
        raise NotFound(f"There is no file or folder {path}.", hint="Check the path, and the folder you are in.")
    if (path / DESCRIPTION_FILE).is_file():
        return [_validate_folder(path)]
    if any((path / name).is_file() for name in (*COMPOSE_NAMES, CHART_FILE)):
        return [_validate_source(path)]
    return _validate_registry(path)


def initialise(
    path: Path, *, to: Path, category: str, name: str | None, version: str, registry: str
) -> tuple[Path, Imported]:
    """Writes the app of a compose file or a chart as a folder of a registry of apps. Raises with nothing written."""
    imported = import_path(path, ImportSourceOptions(name))
    version = imported.own_version or version
    folder = to / app_place(category, imported.name, version).folder
    if folder.exists():
        raise Conflict(f"{folder} already exists.", hint="Choose another version with  --app-version , or remove it.")
    description = render_description(
        imported,
        repository=f"oci://{registry.removeprefix('oci://').strip('/')}/{imported.name}",
        revision=version.replace("+", "_"),
        version=version,
    )
    component = folder / "components" / imported.name
    component.mkdir(parents=True)
    (folder / DESCRIPTION_FILE).write_bytes(dump(description))
    for file, content in imported.files.items():
        target = component / file
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        if file in imported.executable:
            target.chmod(0o755)
    return folder, imported


def push_folder(folder: Path, repository: str, client: Client) -> list[dict[str, Any]]:
    if not repository.startswith("oci://"):
        raise InvalidInput(
            f'"{repository}" is not an OCI repository.', hint="Write it as  oci://HOST[:PORT]/NAME , without a tag."
        )
    registry = registry_client(own_registry(client, repository.removeprefix("oci://").partition("/")[0]))
    pushed = anyio.run(push_app, folder, repository, registry)
    return [
        {"what": each.what, "reference": f"{each.repository}:{each.tag}", "digest": each.digest} for each in pushed
    ]


def pull_folder(reference: str, to: Path, client: Client) -> Path:
    """Writes an app package and its components as a version's folder below `to`. Raises with nothing written."""
    repository, tag = split_reference(reference)
    registry = registry_client(own_registry(client, repository.removeprefix("oci://").partition("/")[0]))
    return anyio.run(_pull, repository, tag, to, registry)


def list_versions(reference: str, client: Client) -> list[dict[str, Any]]:
    """The versions that a repository has by its tags, the newest first."""
    repository, _ = split_reference(reference)
    registry = registry_client(own_registry(client, repository.removeprefix("oci://").partition("/")[0]))
    tags = [tag for tag in anyio.run(registry.tags, repository) if not tag.endswith(".sig")]
    return [{"tag": tag, "version": version_of(tag)} for tag in newest_first(tags, version_of)]


async def _pull(repository: str, tag: str | None, to: Path, registry: "OciRegistry") -> Path:
    if tag is None:
        tags = newest_first([each for each in await registry.tags(repository) if each[0].isdigit()], version_of)
        if not tags:
            raise NotFound(f"{repository} has no versions.", hint="Name one:  oci://HOST/NAME:TAG")
        tag = tags[0]
    shown = f"{repository}{'@' if ':' in tag else ':'}{tag}"
    _, artifact = await registry.pull_pinned(repository, tag)
    files: dict[str, ArchiveEntry] = {
        name: ArchiveEntry(name, content) for name, content in package_files(artifact, shown).items()
    }
    app = parse_description(files[DESCRIPTION_FILE].content, shown).app
    for profile in app.profiles:
        for component in profile.components:
            if profile.type is ProfileType.CUSTOM or not str(component.properties["repository"]).startswith("oci://"):
                continue
            for entry in await pull_component(component, profile.type, registry):
                path = f"components/{component.name}/{entry.path}"
                files[path] = replace(entry, path=path)
    *above, name = repository.removeprefix("oci://").partition("/")[2].split("/")
    folder = to / app_place(above[-1] if above else "packages", name, app.version).folder
    if folder.exists():
        raise Conflict(f"{folder} already exists.", hint="Remove it, or choose another folder with  --to .")
    write_entries(folder, files.values())
    return folder


def _is_compose(path: Path) -> bool:
    """By its content: a description may have any name too."""
    try:
        content, _ = load_located(_read(path), path.name)
    except InvalidInput:
        return path.name in COMPOSE_NAMES
    return isinstance(content, dict) and "services" in content and "deploymentProfiles" not in content


def _validate_source(path: Path) -> str:
    """A source to import, as `deploy` would read it."""
    imported = import_path(path, ImportSourceOptions())
    kind = "a chart" if imported.type is ProfileType.HELM else "a compose file"
    values = "".join(f" --set {name}=…" for name in imported.undefined)
    return f"{path} is {kind}, not an app, and is valid. Deploy it with  homeport deploy {as_argument(path)}{values}"


def _validate_folder(folder: Path) -> str:
    """The description and its components, as a node would read them."""
    app = parse_description(_read(folder / DESCRIPTION_FILE), DESCRIPTION_FILE).app
    problems = component_problems(app, folder)
    if problems:
        raise InvalidInput(problems=problems)
    return f"{app.name} {app.version} is valid"


def component_problems(app: App, folder: Path) -> list[Problem]:
    found: list[Problem] = []
    for profile in app.profiles:
        for component in profile.components:
            inside = folder / "components" / component.name
            if not inside.is_dir() or profile.type is ProfileType.CUSTOM:
                continue
            pointers = {
                target.pointer
                for parameter in app.parameters
                for target in parameter.targets
                if component.name in target.components
            }
            if profile.type is ProfileType.COMPOSE:
                problems = check_component(inside, pointers)
            else:
                problems = check_chart(inside)
            found += [replace(each, path=f"components/{component.name}/{each.path}") for each in problems]
    return list(dict.fromkeys(found))


def _validate_file(path: Path, shown: str) -> str:
    app = parse_description(_read(path), shown).app
    return f"{app.name} {app.version} is valid"


def _validate_registry(root: Path) -> list[str]:
    places, misplaced = find_apps(_paths(root))
    problems: list[Problem] = list(misplaced)
    valid = []
    for place in places:
        try:
            app = read_app(_read(root / place.path), place).app
            found = component_problems(app, root / place.folder)
            problems += [replace(each, path=f"{place.folder}/{each.path}") for each in found]
            if found:
                continue
            valid.append(f"{place.folder} is valid")
        except InvalidInput as error:
            problems += error.problems or (Problem("", str(error), place.path),)
        except TooLarge as error:
            problems.append(Problem("", str(error), place.path))
    if problems:
        raise InvalidInput(problems=problems)
    if not valid:
        raise NotFound(
            f"{root} has no apps.",
            hint=f"Apps are found at  CATEGORY/APP/VERSION/{DESCRIPTION_FILE} ; name such a folder.",
        )
    return valid


def _paths(root: Path) -> list[str]:
    paths: list[str] = []
    for folder, folders, files in os.walk(root):
        # Hidden folders (.git) belong to other programs.
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        paths += [Path(folder, name).relative_to(root).as_posix() for name in files]
        if len(paths) > FILES_MAX:
            raise TooLarge(f"{root} holds more than {FILES_MAX} files.", hint="Name the registry's own folder.")
    return paths


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(SIZE_MAX + 1)
    except OSError as error:
        raise NotFound(f"Cannot read {path}: {error.strerror}.") from error
