"""Rewrites the parts of a compose file that nodes need differently: images that were built here replace `build`, and
`configs` become read-only mounts, because podman-compose silently ignores them. Pure.

A file that needs neither is packed unchanged, comments included.
"""

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any, Final

import yaml

from homeport.content.importing.compose_files import ComposeFile
from homeport.content.importing.variables import references
from homeport.errors import Problem
from homeport.lazy_dataclass import dataclass

CONFIGS_FOLDER: Final = "homeport-configs"


@dataclass(frozen=True, slots=True)
class Edited:
    text: bytes
    files: Mapping[str, bytes] = field(default_factory=dict)
    objections: tuple[Problem, ...] = ()


def edited(file: ComposeFile, images: Mapping[str, str]) -> Edited:
    """`images` are those of the services that were built."""
    services = {name: service for name, service in file.content["services"].items() if isinstance(service, Mapping)}
    changed: dict[str, Any] = {}
    objections: list[Problem] = []
    for name, service in services.items():
        kept = dict(service)
        if name in images:
            kept.pop("build", None)
            kept["image"] = images[name]
        if service.get("configs"):
            mounts = list(_mounts(file, str(name), service["configs"], objections))
            kept.pop("configs")
            kept["volumes"] = [*(service.get("volumes") or ()), *mounts]
        if kept != service:
            changed[name] = kept
    if not changed:
        return Edited(file.text, objections=tuple(objections))
    content = {**file.content, "services": {**file.content["services"], **changed}}
    content.pop("configs", None)
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
    return Edited(text.encode(), dict(_files(file)), tuple(objections))


def _mounts(file: ComposeFile, service: str, entries: Any, objections: list[Problem]) -> Iterator[str]:
    declared = file.content.get("configs") or {}
    for position, entry in enumerate(entries if isinstance(entries, list) else ()):
        given = entry if isinstance(entry, Mapping) else {"source": entry}
        name = str(given.get("source"))
        where = ("services", service, "configs", position)
        config = declared.get(name)
        if not isinstance(config, Mapping):
            objections.append(file.problem(where, f'there is no config "{name}" at the top level.'))
            continue
        target = str(given.get("target") or f"/{name}")
        if "content" in config and any(references(str(config["content"]))):
            place = ("configs", name, "content")
            objections.append(
                file.problem(place, "has variables, which stay as they are in a file: use environment.")
            )
        source = str(config["file"]) if "file" in config else f"{CONFIGS_FOLDER}/{name}"
        yield f"{source if source.startswith(('.', '/')) else f'./{source}'}:{target}:ro"


def _files(file: ComposeFile) -> Iterator[tuple[str, bytes]]:
    for name, config in (file.content.get("configs") or {}).items():
        if isinstance(config, Mapping) and "content" in config:
            yield f"{CONFIGS_FOLDER}/{name}", str(config["content"]).replace("$$", "$").encode()
