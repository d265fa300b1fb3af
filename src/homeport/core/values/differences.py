"""What differs between two plain values (mappings, lists, scalars), path by path."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from homeport.lazy_dataclass import dataclass

ABSENT: Final = None
"""A missing value; a file that says null means the same."""


@dataclass(frozen=True, slots=True)
class Difference:
    path: str
    before: Any
    after: Any


def differences(before: Any, after: Any, path: str = "") -> Iterator[Difference]:
    """In the order of the older value, then what is new. Lists of named things are compared by name."""
    old, new = _parts(before), _parts(after)
    if old is None or new is None:
        if type(before) is not type(after) or before != after:
            yield Difference(path, before, after)
        return
    for key in [*old, *(key for key in new if key not in old)]:
        inner = f"{path}.{key}" if path else key
        yield from differences(old.get(key, ABSENT), new.get(key, ABSENT), inner)


def _parts(value: Any) -> Mapping[str, Any] | None:
    if isinstance(value, Mapping):
        return {str(key): each for key, each in value.items()}
    if isinstance(value, list) and value:
        names = [each.get("name") if isinstance(each, Mapping) else None for each in value]
        if None not in names and len(set(names)) == len(names):
            return dict(zip([str(name) for name in names], value, strict=True))
        return {str(position): each for position, each in enumerate(value)}
    return None
