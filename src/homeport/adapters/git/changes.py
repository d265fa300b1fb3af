"""The changes of one commit as a tree of names, validated: no path leaves the repository or enters `.git`."""

import re
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from homeport.errors import InvalidInput
from homeport.lazy_dataclass import dataclass
from homeport.ports import Change

SEGMENTS_MAX = 32

_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f\\\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Leaf:
    content: bytes | None


Nested: TypeAlias = "dict[str, Leaf | Nested]"


def leaves(changes: Nested, prefix: str = "") -> Iterator[tuple[str, Leaf]]:
    """Every changed file with its full path."""
    for name, change in changes.items():
        if isinstance(change, Leaf):
            yield f"{prefix}{name}", change
        else:
            yield from leaves(change, f"{prefix}{name}/")


def nest(changes: Sequence[Change]) -> Nested:
    """Raises InvalidInput for a path that is not allowed; the last of two changes to one path counts."""
    root: Nested = {}
    for change in changes:
        *folders, name = checked_segments(change.path)
        level = root
        for folder in folders:
            below = level.setdefault(folder, {})
            if isinstance(below, Leaf):
                raise InvalidInput(f'"{change.path}" lies below a path that is itself a file.')
            level = below
        if isinstance(level.get(name), dict):
            raise InvalidInput(f'"{change.path}" is both a file and a folder.')
        level[name] = Leaf(change.content)
    return root


def checked_segments(path: str) -> list[str]:
    segments = path.split("/")
    if len(segments) > SEGMENTS_MAX:
        raise InvalidInput(f'The path "{path[:80]}…" nests more than {SEGMENTS_MAX} folders.')
    for segment in segments:
        if segment in {"", ".", ".."} or segment.lower().rstrip(". ") in {".git", "git~1"}:
            raise InvalidInput(f'"{path}" is not a path inside the repository.')
        if _FORBIDDEN.search(segment):
            raise InvalidInput(f"{path!r} holds characters that a path may not have.")
    return segments
