"""Orders versions as SemVer does; what is not SemVer comes after everything that is."""

import re
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

T = TypeVar("T")

_SEMVER: Final = re.compile(r"^(\d+)(?:\.(\d+))?(?:\.(\d+))?(?:-([0-9A-Za-z.-]+))?(?:[+_][0-9A-Za-z.+_-]*)?$")


def newest_first(items: Iterable[T], version_of: Callable[[T], str]) -> list[T]:
    return sorted(items, key=lambda item: version_key(version_of(item)), reverse=True)


def version_key(version: str) -> tuple[Any, ...]:
    found = _SEMVER.match(version)
    if found is None:
        return (0, (), version)
    numbers = tuple(int(part or 0) for part in found.group(1, 2, 3))
    # A pre-release stands before its release; numbers in it before words, and shorter before longer.
    before = found[4]
    parts = (
        tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in before.split(".")) if before else ()
    )
    return (1, numbers, not before, parts)
