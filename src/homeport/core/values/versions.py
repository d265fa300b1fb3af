"""Orders versions as SemVer does; versions that are not SemVer come last."""

import re
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

T = TypeVar("T")

_SEMVER: Final = re.compile(
    r"^([0-9]+)(?:\.([0-9]+))?(?:\.([0-9]+))?(?:-([0-9A-Za-z.-]+))?(?:[+_][0-9A-Za-z.+_-]*)?$"
)


def newest_first(items: Iterable[T], version_of: Callable[[T], str]) -> list[T]:
    return sorted(items, key=lambda item: version_order(version_of(item)), reverse=True)


def version_order(version: str) -> str:
    """A text that sorts by code point as the versions do, older first, so that a database can sort by it too."""
    found = _SEMVER.fullmatch(version)
    if found is None:
        return f"0{version}"
    release = "".join(_digits(part or "0") for part in found.group(1, 2, 3))
    if not found[4]:
        return f"1{release}1"
    # A pre-release comes before its release; numbers in it before words. A space sorts before everything that may be
    # in a part, so that shorter comes before longer.
    parts = [f"0{_digits(part)}" if part.isdigit() else f"1{part}" for part in found[4].split(".")]
    return f"1{release}0 {' '.join(parts)}"


def _digits(number: str) -> str:
    """Longer numbers after shorter ones."""
    digits = number.lstrip("0")
    return f"{len(digits):04}{digits}"
