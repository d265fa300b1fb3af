"""The location of an artifact: `oci://host[:port]/name`, and a tag."""

import re
from typing import Final

from homeport.errors import InvalidInput
from homeport.lazy_dataclass import dataclass

_HOST: Final = re.compile(
    r"(?P<name>\[[0-9A-Fa-f:]+\]|[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?)(?::(?P<port>[0-9]{1,5}))?"
)
_PART: Final = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_NAME: Final = re.compile(rf"{_PART}(?:/{_PART})*")
_TAG: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class OciReference:
    host: str
    """With the port, when one is given."""
    name: str
    tag: str

    def __str__(self) -> str:
        return f"{self.host}/{self.name}{'@' if ':' in self.tag else ':'}{self.tag}"


def parse_reference(repository: str, tag: str) -> OciReference:
    """Raises InvalidInput. A digest is accepted in place of a tag."""
    if not repository.startswith("oci://"):
        raise InvalidInput(f"{repository!r} is not an OCI repository.", hint="Write it as oci://host/name.")
    host, _, name = repository.removeprefix("oci://").partition("/")
    found = _HOST.fullmatch(host)
    if found is None or int(found["port"] or 443) > 65535:
        raise InvalidInput(f"{repository!r} names no registry host.", hint="Write it as oci://host[:port]/name.")
    if not _NAME.fullmatch(name) or len(name) > 255:
        raise InvalidInput(
            f"{name!r} is not the name of a repository.",
            hint="Use lower case letters, digits, dots, dashes and slashes.",
        )
    if not _TAG.fullmatch(tag) and not _DIGEST.fullmatch(tag):
        raise InvalidInput(
            f"{tag!r} is not a tag.", hint="Use letters, digits, dots, dashes and underscores, at most 128."
        )
    return OciReference(host, name, tag)


def nested_name(reference: str) -> str:
    """`host:5000/name` as the name of a repository below another host, where a colon is not allowed:
    `host__5000/name`. A host has no underscore."""
    host, slash, name = reference.partition("/")
    return f"{host.lower().replace(':', '__')}{slash}{name}"


def from_nested_name(name: str) -> str:
    host, slash, rest = name.partition("/")
    return f"{host.replace('__', ':')}{slash}{rest}"
