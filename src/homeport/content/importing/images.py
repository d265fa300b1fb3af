"""One image as an app, with the options of `docker run`. Pure."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from homeport.content.importing.description import OURS, Imported, app_name
from homeport.content.importing.parameters import Offered
from homeport.core.custom import ENVIRONMENT_NAME, REFERENCE, read_custom
from homeport.core.parameters import show
from homeport.errors import InvalidInput, Problem
from homeport.vocabulary import ProfileType

_TAG: Final = re.compile(r"(?P<name>.+?)(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9._-]{0,127}))?(?:@sha256:[0-9a-f]{64})?")


def import_image(
    image: str,
    *,
    name: str | None = None,
    ports: Sequence[str] = (),
    environment: Sequence[str] = (),
    volumes: Sequence[str] = (),
    health: str | None = None,
    ours: Mapping[str, str],
) -> Imported:
    """`ours` is the environment of the caller, for `-e NAME` without a value. Raises InvalidInput by option."""
    if not REFERENCE.fullmatch(image):
        message = f"{show(image)} is not an image: it is written as in registry.example/team/app:1.0.0."
        raise InvalidInput(problems=[Problem("--image", message)])
    section: dict[str, Any] = {"reference": image}
    if ports:
        section["ports"] = [_port(port) for port in ports]
    if volumes:
        section["mounts"] = [_mount(volume) for volume in volumes]
    if health is not None:
        section["health"] = {"http": health}
    extension = {"image": section}
    _check(extension, image)
    bare = image.partition("@")[0].rpartition("/")[2].partition(":")[0]
    return Imported(
        name=app_name(name or bare),
        type=ProfileType.CUSTOM,
        summary=f"The image {image}.",
        offered=tuple(_variable(entry, ours) for entry in environment),
        notes=tuple(_notes(image)),
        place=(f"oci://{_repository(image)}", "0.0.0"),
        extension=extension,
    )


def _check(extension: Mapping[str, Any], image: str) -> None:
    """With the same parser as the node."""
    _, found = read_custom({OURS: extension}, repository=f"oci://{image}", revision="0.0.0")
    options = {"ports": "-p", "mounts": "-v", "health": "--health", "reference": "--image"}
    problems = [Problem(options.get(str(where[2]), "--image"), message) for where, message in found if len(where) > 2]
    if problems:
        raise InvalidInput(problems=problems)


def _port(text: str) -> str:
    if text.isdecimal():
        message = f'"{text}" does not say which port of the node: write {text}:{text}, the node\'s port first.'
        raise InvalidInput(problems=[Problem("-p", message)])
    return text


def _mount(text: str) -> dict[str, Any]:
    source, _, rest = text.partition(":")
    target, _, mode = rest.partition(":")
    if source.startswith((".", "~")):
        message = f"{show(source)} is a folder of this machine: put it into a compose file, which takes it along."
        raise InvalidInput(problems=[Problem("-v", message)])
    if not target:
        raise InvalidInput(problems=[Problem("-v", f'{show(text)}: write "data:/data" or "/srv/data:/data:ro".')])
    mount: dict[str, Any] = {"source": source, "target": target}
    return mount | {"read_only": True} if "ro" in mode.split(",") else mount


def _variable(entry: str, ours: Mapping[str, str]) -> Offered:
    name, equals, value = entry.partition("=")
    if not ENVIRONMENT_NAME.fullmatch(name):
        raise InvalidInput(problems=[Problem("-e", f"{show(entry)}: write NAME=value.")])
    if not equals and name not in ours:
        raise InvalidInput(problems=[Problem("-e", f"{name} has no value here: write {name}=value.")])
    return Offered(name, name, "string", value if equals else ours[name])


def _repository(image: str) -> str:
    """The full repository of the image: Docker Hub where no registry is named."""
    found = _TAG.fullmatch(image)
    bare = found["name"] if found is not None else image
    host, slash, rest = bare.partition("/")
    if slash and (":" in host or "." in host or host == "localhost"):
        return bare
    return f"docker.io/{bare}" if slash and rest else f"docker.io/library/{bare}"


def _notes(image: str) -> list[str]:
    found = _TAG.fullmatch(image)
    tag = found["tag"] if found is not None else None
    if "@" in image or tag not in (None, "latest"):
        return []
    return [f"{image} may change under its name: nodes keep the image they have. Name a version to be sure."]
