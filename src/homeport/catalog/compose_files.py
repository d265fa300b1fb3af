"""Which files a compose component may and must bring along (Margo): what `env_file` and `configs` name is in its
archive by a relative path; secrets and the sources of bind mounts are of the machine, and never are."""

from collections.abc import Iterator, Mapping, Sequence
from posixpath import normpath
from typing import Any


def file_problems(compose: Any, names: Sequence[str]) -> list[str]:
    """What is wrong, each as a sentence. `names` are the files of the archive, relative to the compose file."""
    data = compose if isinstance(compose, Mapping) else {}
    present = frozenset(names)
    problems = []
    for where, path in _needed(data):
        if normpath(path) not in present:
            problems.append(f"{where} names {path}, which is not a file of the component.")
    for where, path in _of_the_machine(data):
        inner = normpath(path)
        if inner in present or any(name.startswith(f"{inner}/") for name in present) or inner == ".":
            problems.append(f"{where} names {path}, which would be published with the component.")
    return problems


def _needed(data: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, service in _entries(data, "services"):
        given = service.get("env_file") or []
        for entry in given if isinstance(given, list) else [given]:
            path = entry.get("path") if isinstance(entry, Mapping) else entry
            is_optional = isinstance(entry, Mapping) and entry.get("required") is False
            if _is_written_out(path) and not is_optional:
                yield f"services.{name}.env_file", str(path)
    for name, config in _entries(data, "configs"):
        if _is_written_out(config.get("file")):
            yield f"configs.{name}.file", config["file"]


def _of_the_machine(data: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, secret in _entries(data, "secrets"):
        if _is_written_out(secret.get("file")):
            yield f"secrets.{name}.file", secret["file"]
    for name, service in _entries(data, "services"):
        volumes = service.get("volumes")
        for volume in volumes if isinstance(volumes, list) else ():
            source = _bind_source(volume)
            if source is not None and _is_written_out(source):
                yield f"services.{name}.volumes", source


def _bind_source(volume: Any) -> str | None:
    """None for a named volume."""
    if isinstance(volume, Mapping):
        return str(volume["source"]) if volume.get("type") == "bind" and "source" in volume else None
    source, colon, _ = str(volume).partition(":")
    return source if colon and source.startswith(".") else None


def _is_written_out(path: Any) -> bool:
    """Without variables, which only the machine knows."""
    return isinstance(path, str) and path != "" and "$" not in path


def _entries(data: Mapping[str, Any], key: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    found = data.get(key)
    for name, entry in found.items() if isinstance(found, Mapping) else ():
        if isinstance(entry, Mapping):
            yield str(name), entry
