"""Which images a component runs, and what of them a node that runs other images still has to pull. Pure.

For plans only: a node asks the compose tool, which knows all of the compose specification. What is not certain here
is unknown, never a guess.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import Digest

Blobs = Mapping[Digest, int]
"""The layers and the configuration of an image, with their sizes as they are pulled."""

_VARIABLE: Final = re.compile(
    r"\$(?:(?P<escaped>\$)|(?P<plain>[A-Za-z_][A-Za-z0-9_]*)|\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"(?:(?P<operator>:?-)(?P<default>[^${}]*))?\}|(?P<other>))"
)
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
REFERENCE_LENGTH_MAX: Final = 1_000
BLOBS_MAX: Final = 1_000
SERVICES_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class ImageChange:
    """The image of one service, before and after; None where it has none. Equal where it stays."""

    service: str
    before: str | None
    after: str | None


def compose_images(project: Any, values: Mapping[str, str], *, has_defaults: bool = True) -> Mapping[str, str] | None:
    """By service, of a compose file as it is written; None where another file may add to it, or a name is unclear.
    Services that are only started on request, or whose image is built, have none. Without `has_defaults`, another
    file has defaults that come before those in the text."""
    services = project.get("services") if isinstance(project, Mapping) else None
    if not isinstance(services, Mapping) or "include" in project or len(services) > SERVICES_MAX:
        return None
    found: dict[str, str] = {}
    for name, service in services.items():
        if not isinstance(service, Mapping) or "extends" in service:
            return None
        if service.get("profiles") or "build" in service or "image" not in service:
            continue
        image = _named(service["image"], values, has_defaults=has_defaults)
        if not image or len(image) > REFERENCE_LENGTH_MAX:
            return None
        found[str(name)] = image
    return found


def _named(image: Any, values: Mapping[str, str], *, has_defaults: bool) -> str | None:
    return interpolated(image, values, has_defaults=has_defaults) if isinstance(image, str) else None


def interpolated(text: str, values: Mapping[str, str], *, has_defaults: bool = True) -> str | None:
    """With plain variables and plain defaults replaced; None where there is more to it."""
    parts: list[str] = []
    position = 0
    for found in _VARIABLE.finditer(text):
        parts.append(text[position : found.start()])
        position = found.end()
        if found["escaped"]:
            parts.append("$")
            continue
        value = values.get(found["plain"] or found["name"] or "")
        if not value and found["operator"] and (value is None or found["operator"] == ":-"):
            value = found["default"] if has_defaults else None
        if value is None:
            return None
        parts.append(value)
    return "".join([*parts, text[position:]])


def image_changes(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[ImageChange, ...]:
    names = dict.fromkeys([*after, *before])
    return tuple(ImageChange(name, before.get(name), after.get(name)) for name in names)


def manifest_for(index: Any, architecture: str) -> Digest | None:
    """The digest of an image for a machine, in an index of images for several; None where it is not one."""
    manifests = index.get("manifests") if isinstance(index, Mapping) else None
    for each in manifests if isinstance(manifests, list) else ():
        platform = each.get("platform") if isinstance(each, Mapping) else None
        if isinstance(platform, Mapping) and (platform.get("os"), platform.get("architecture")) == (
            "linux",
            architecture,
        ):
            return _digest(each.get("digest"))
    return None


def blobs_of(manifest: Any) -> Blobs | None:
    """None for what is not the manifest of one image."""
    layers = manifest.get("layers") if isinstance(manifest, Mapping) else None
    if not isinstance(layers, list) or len(layers) >= BLOBS_MAX:
        return None
    found: dict[Digest, int] = {}
    for each in (manifest.get("config"), *layers):
        digest = _digest(each.get("digest")) if isinstance(each, Mapping) else None
        size = each.get("size") if isinstance(each, Mapping) else None
        if digest is None or not isinstance(size, int) or isinstance(size, bool) or not 0 <= size < 2**50:
            return None
        found[digest] = size
    return found


def bytes_to_pull(there: Iterable[Blobs], wanted: Iterable[Blobs]) -> int:
    """What the wanted images have and those that are there have not. A layer of several images is pulled once."""
    missing = {digest: size for blobs in wanted for digest, size in blobs.items()}
    for blobs in there:
        for digest in blobs:
            missing.pop(digest, None)
    return sum(missing.values())


def _digest(value: Any) -> Digest | None:
    return Digest(value) if isinstance(value, str) and _DIGEST.fullmatch(value) else None
