"""Valid names of repositories, tags and digests, as in the Distribution specification; and which tags are versions,
which are immutable once pushed."""

import re
from enum import StrEnum
from typing import Final

from homeport.content.registry.errors import RegistryProblem, SpecCode
from homeport.vocabulary import Digest

NAME_LENGTH_MAX: Final = 255
"""Including the host that clients put before it, as Docker limits it."""
_NAME: Final = re.compile(r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*")
_TAG: Final = re.compile(r"[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}")
_DIGEST: Final = re.compile(r"(sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})")
_VERSION: Final = re.compile(r"v?[0-9]+(\.[0-9]+){1,3}([-+._][0-9A-Za-z.+_-]+)?")
"""`1.2`, `v1.2.3`, `1.2.3-alpine`, `1.2.3_build.5` (as helm writes a plus). A lone `7` is by custom a moving tag."""


class TagPolicy(StrEnum):
    """Which tags are immutable."""

    VERSIONS = "versions"
    ALL = "all"
    NONE = "none"


def check_name(name: str) -> str:
    if len(name) > NAME_LENGTH_MAX or not _NAME.fullmatch(name):
        raise RegistryProblem(
            SpecCode.NAME_INVALID,
            f"{name[:NAME_LENGTH_MAX]!r} cannot be the name of a repository: it is made of lower-case letters, "
            f"digits, and single . _ - / between them, {NAME_LENGTH_MAX} characters at most.",
        )
    return name


def check_digest(text: str) -> Digest:
    if not _DIGEST.fullmatch(text):
        raise RegistryProblem(
            SpecCode.DIGEST_INVALID,
            f"{text[:140]!r} is not a digest that is supported here: sha256: and 64 digits, or sha512: and 128.",
        )
    return Digest(text)


def is_digest(reference: str) -> bool:
    """A tag has no colon."""
    return ":" in reference


def check_tag(tag: str) -> str:
    if not _TAG.fullmatch(tag):
        raise RegistryProblem(
            SpecCode.MANIFEST_INVALID,
            f"{tag[:140]!r} cannot be a tag: it is made of letters, digits, and . _ - behind the first, 128 at most.",
        )
    return tag


def is_immutable(tag: str, policy: TagPolicy) -> bool:
    match policy:
        case TagPolicy.ALL:
            return True
        case TagPolicy.NONE:
            return False
        case TagPolicy.VERSIONS:
            return _VERSION.fullmatch(tag) is not None
