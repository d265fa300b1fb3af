"""Kinds of work and their handlers."""

from collections.abc import Iterable, Mapping
from typing import TypeVar

T = TypeVar("T")


def by_kind(brought: Iterable[Mapping[str, T]]) -> dict[str, T]:
    """All handlers by kind. Raises ValueError for a kind with two handlers."""
    found: dict[str, T] = {}
    for each in brought:
        if twice := sorted(found.keys() & each.keys()):
            raise ValueError(f"two capabilities deal with work of the kind {', '.join(twice)}")
        found.update(each)
    return found
