"""Spoils good messages, value by value: what a peer that is broken, old or evil may send in place of each."""

import copy
import json
from collections.abc import Iterator, Sequence
from typing import Any

BAD: tuple[Any, ...] = (
    None, True, -1, 10**40, 1e308, "", "x" * 70_000, "\x00", "\ud800", "0001-01-01T00:00:00+14:00", [],
    {"\x00": [{}]},
)  # fmt: skip
DEEP = b"[" * 100_000


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inside:
        yield from places(each, (*path, key))


def replaced(value: Any, path: tuple[Any, ...], bad: Any) -> Any:
    if not path:
        return bad
    made = copy.deepcopy(value)
    place = made
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = bad
    return made


def spoiled_values(good: Any, bad_values: Sequence[Any] = BAD) -> Iterator[Any]:
    """With each value inside replaced by each bad one; the whole of it too."""
    for path in places(good):
        for bad in bad_values:
            yield replaced(good, path, bad)


def spoiled(good: Any, bad_values: Sequence[Any] = BAD) -> Iterator[bytes]:
    """The same as bytes, and what is not JSON at all. Bytes are cut and changed at every place."""
    if isinstance(good, bytes):
        for at in range(len(good)):
            yield good[:at]
            yield good[:at] + bytes([good[at] ^ 0xFF]) + good[at + 1 :]
        yield b"\xff" * 100
        return
    for value in spoiled_values(good, bad_values):
        yield json.dumps(value).encode()
    yield from (b"", b"{", b"\xff", DEEP, b'{"a":' * 50_000, b"NaN", json.dumps(good).encode()[:-5])
