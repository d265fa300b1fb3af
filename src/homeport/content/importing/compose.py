"""Analyses a compose project: what Homeport needs of it, what it cannot do, and notes for the user.

Pure: takes the files and the project as the compose tool resolved it. The caller checks which files exist; here is
only determined which ones are needed, and by what.
"""

import posixpath
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from homeport.adapters.files.bounded_yaml import Location
from homeport.content.importing.compose_files import ComposeFile
from homeport.content.importing.parameters import Offered
from homeport.content.importing.variables import Use, looks_secret, offered, uses
from homeport.core.node.demands import referenced_files
from homeport.core.tunnel.targets import PORT_MAX
from homeport.errors import Problem
from homeport.lazy_dataclass import dataclass

FOR_SWARM: Final = ("mode", "placement", "update_config", "rollback_config", "endpoint_mode")


@dataclass(frozen=True, slots=True)
class Needed:
    """A file or folder next to the compose file that is packed with it."""

    path: str
    """Relative to the compose file's folder."""
    file: ComposeFile
    where: Location
    is_mount: bool = False
    is_read_only: bool = True
    is_optional: bool = False


@dataclass(frozen=True, slots=True)
class Judged:
    objections: tuple[Problem, ...]
    """What compose supports and Homeport does not: nothing is written while there is one."""
    notes: tuple[str, ...]
    """Differences from compose, one sentence each."""


def offered_by(files: Sequence[ComposeFile], dotenv: Mapping[str, str], *, fixed: frozenset[str]) -> list[Offered]:
    """`fixed` are variables that no app may set, because they configure the tool; nodes have their own."""
    found: list[Use] = [use for file in files for use in uses(file.content)]
    return offered([use for use in found if use.reference.name not in fixed], dotenv)


def undefined(
    files: Sequence[ComposeFile],
    parameters: Sequence[Offered],
    given: Collection[str],
    *,
    remedy: str = "give it with  --set {name}=… , or in .env beside",
) -> dict[str, Problem]:
    """Variables without any value, each at its first use."""
    missing = {each.name: each for each in parameters if each.is_required and each.default is None}
    problems: dict[str, Problem] = {}
    for file in files:
        for use in uses(file.content):
            if missing.pop(use.reference.name, None) is None or use.reference.name in given:
                continue
            name = use.reference.name
            advice = "write ./ instead of ${PWD}" if name == "PWD" else remedy.format(name=name)
            said = (
                f" ({use.reference.operand})"
                if use.reference.operator in (":?", "?") and use.reference.operand
                else ""
            )
            problems[name] = file.problem(use.where, f"uses ${{{name}}}, which has no value{said}: {advice}.")
    return problems


def judge(
    files: Sequence[ComposeFile],
    project: Mapping[str, Any],
    parameters: Sequence[Offered],
    *,
    may_build: bool,
) -> Judged:
    objections: list[Problem] = []
    notes: list[str] = []
    main = files[0]
    for name, service in _mapping(project.get("services")).items():
        where: Location = ("services", str(name))
        if "build" in service and not may_build:
            message = "is built from source, which nodes do not do. Add --build to build it here, or name an image."
            objections.append(main.problem((*where, "build"), message))
        objections += _undeclared(main, project, service, where)
        objections += _ports(main, service, where)
        for key in FOR_SWARM:
            if key in _mapping(service.get("deploy")):
                notes.append(f"service {name}: deploy.{key} is for swarm and has no effect; see --place.")
        if "develop" in service:
            notes.append(f"service {name}: develop is for work on a laptop and has no effect.")
    for name, service in _mapping(main.content.get("services")).items():
        if profiles := _mapping(service).get("profiles"):
            shown = ", ".join(str(each) for each in _list(profiles))
            notes.append(f"service {name} belongs to the profile {shown} and is not deployed.")
    objections += _external(main)
    notes += [
        f"{each.name} looks like a secret and its value in .env would stand in Git: store it with  "
        f"homeport secrets set SITE NAME , and deploy with  --set {each.name}=secret://NAME ."
        for each in parameters
        if each.default not in (None, "") and looks_secret(each.name)
    ]
    for kind in ("volumes", "networks"):
        for name, entry in _mapping(main.content.get(kind)).items():
            if _mapping(entry).get("external"):
                notes.append(f"{kind[:-1]} {name} is external: it must be there on every node.")
    return Judged(tuple(objections), tuple(notes))


def _external(main: ComposeFile) -> Iterator[Problem]:
    for kind in ("configs", "secrets"):
        for name, entry in _mapping(main.content.get(kind)).items():
            if _mapping(entry).get("external"):
                message = "is external, and nodes have no such store. Use a file, or a variable with  secret://NAME ."
                yield main.problem((kind, str(name), "external"), message)
            elif kind == "configs" and "environment" in _mapping(entry):
                yield main.problem(
                    (kind, str(name), "environment"), "cannot come from a variable; use file or content."
                )


def _ports(main: ComposeFile, service: Mapping[str, Any], where: Location) -> Iterator[Problem]:
    """Numbers that are not ports: podman-compose hands them on, and the engine refuses them after the pull."""
    for position, entry in enumerate(_list(service.get("ports") or [])):
        if isinstance(entry, Mapping):
            given = [str(entry.get(key) or "1") for key in ("published", "target")]
        else:
            given = str(entry).partition("/")[0].rpartition("]:")[2].split(":")[-2:]
        numbers = [number for part in given for number in part.split("-") if number.isdecimal()]
        if any(int(number) > PORT_MAX for number in numbers):
            shown = ":".join(given)
            message = f'"{shown}" is not a port: the highest one is {PORT_MAX}.'
            yield main.problem((*where, "ports", position), message)


def _undeclared(
    main: ComposeFile, project: Mapping[str, Any], service: Mapping[str, Any], where: Location
) -> Iterator[Problem]:
    """Undeclared volume names: Docker refuses them, and Podman misinterprets them."""
    declared = _mapping(project.get("volumes"))
    for position, volume in enumerate(_list(service.get("volumes") or [])):
        source = _source(volume)
        if source and not is_path(source) and source not in declared:
            message = f'uses the volume "{source}", which is not among the top-level volumes.'
            yield main.problem((*where, "volumes", position), message)


def needed(files: Sequence[ComposeFile], project: Mapping[str, Any], folder: str) -> list[Needed]:
    """What has to be packed: other compose files, environment files, configs, secrets and mounted files."""
    main = files[0]
    found = [
        Needed(posixpath.normpath(posixpath.join(posixpath.dirname(file.path), path)), file, _where_of(said))
        for file in files
        for said, path in referenced_files(file.content)
        if "$" not in path and "env_file" not in said
    ]
    for name, service in _mapping(project.get("services")).items():
        where: Location = ("services", str(name))
        for entry in _list(service.get("env_file") or []):
            path = str(_mapping(entry).get("path", entry))
            is_optional = _mapping(entry).get("required") in (False, "false")
            found.append(Needed(relative(path, folder), main, (*where, "env_file"), is_optional=is_optional))
        for position, volume in enumerate(_list(service.get("volumes") or [])):
            source = _source(volume)
            if source and is_path(source) and not source.startswith("~") and not _is_elsewhere(source, folder):
                place = (*where, "volumes", position)
                found.append(
                    Needed(relative(source, folder), main, place, is_mount=True, is_read_only=_is_read_only(volume))
                )
    for kind in ("configs", "secrets"):
        for name, entry in _mapping(main.content.get(kind)).items():
            if file := _mapping(entry).get("file"):
                found.append(Needed(relative(str(file), folder), main, (kind, str(name), "file")))
    return found


def host_paths(project: Mapping[str, Any], folder: str) -> list[str]:
    """Mounts of host paths: they must exist on the node, and the node must permit them."""
    return sorted(
        {
            source
            for service in _mapping(project.get("services")).values()
            for volume in _list(_mapping(service).get("volumes") or [])
            if (source := _source(volume)) and (source.startswith("~") or _is_elsewhere(source, folder))
        }
    )


def relative(path: str, folder: str) -> str:
    """`path` relative to the folder; one outside of it begins with `..`."""
    joined = posixpath.normpath(posixpath.join(folder, path))
    return posixpath.relpath(joined, folder)


def leads_out(path: str) -> bool:
    return path == ".." or path.startswith("../")


def is_path(source: str) -> bool:
    return source.startswith(("/", ".", "~"))


def _is_elsewhere(source: str, folder: str) -> bool:
    """An absolute path that is not below the folder: the tool makes those of extended files absolute."""
    normal = posixpath.normpath(source)
    return source.startswith("/") and normal != folder and not normal.startswith(f"{folder}/")


def _source(volume: Any) -> str:
    """The source of a mount; empty for an anonymous volume or a tmpfs."""
    if isinstance(volume, Mapping):
        return str(volume.get("source") or "") if volume.get("type") in (None, "bind", "volume") else ""
    source, colon, _ = str(volume).partition(":")
    return source if colon else ""


def _is_read_only(volume: Any) -> bool:
    if isinstance(volume, Mapping):
        return volume.get("read_only") in (True, "true")
    return "ro" in str(volume).split(":")[-1].split(",")


def _where_of(said: str) -> Location:
    """`service web: extends: file` as a location in the file."""
    first, _, rest = said.partition(": ")
    kind, _, name = first.partition(" ")
    return ("services", name, *rest.split(": ")) if kind == "service" else (kind,)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]
