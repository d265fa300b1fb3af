"""Reads one YAML document into plain data and records the line of every value.

The text comes from Git and from users, so it is not trusted: only plain data is built, size, depth and expanded
aliases are bounded, and what YAML would silently ignore (a duplicate key, a second document) is
refused. Each refusal names field, file and line.
"""

import math
import re
from collections.abc import Callable
from dataclasses import field
from typing import Any, Final

import yaml

from homeport.core.values.numbers import fits_64_bits
from homeport.errors import InvalidInput, Problem, TooLarge
from homeport.lazy_dataclass import dataclass

SIZE_MAX: Final = 1024 * 1024
DEPTH_MAX: Final = 64
VALUES_MAX: Final = 100_000
"""Counted after aliases are expanded: a few hundred bytes of nested aliases could otherwise fill the memory."""
EVENTS_MAX: Final = 3 * VALUES_MAX
"""Parser events, before aliases are expanded: a value has a key before it, and a collection an end."""
KEY_LENGTH_MAX: Final = 1024
NUMBER_LENGTH_MAX: Final = 100
"""Maximum characters of a number: parsing `1:59:59` (base 60) takes quadratic time."""

Location = tuple[str | int, ...]
"""The path to a value from the root of its document: keys and indexes."""

_PREFIX: Final = "tag:yaml.org,2002:"
_UNUSABLE: Final = re.compile("[\0\ud800-\udfff]")
_LOADER: Final[type[Any]] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_CONSTRUCTOR: Final = yaml.constructor.SafeConstructor()
_TEXTS: Final = frozenset({"str", "timestamp", "merge", "value"})
"""No field of ours is a date, and JSON has none; `<<` and `=` as values are just text."""
_SCALARS: Final[dict[str, Callable[[yaml.ScalarNode], Any]]] = {
    "null": lambda node: None,
    "bool": _CONSTRUCTOR.construct_yaml_bool,
    "int": _CONSTRUCTOR.construct_yaml_int,
    "float": _CONSTRUCTOR.construct_yaml_float,
}


@dataclass(frozen=True, slots=True)
class Document:
    """Plain data with its origin. `data` holds only JSON types."""

    path: str
    data: Any
    lines: dict[Location, int] = field(repr=False)
    texts: dict[Location, str] = field(repr=False)
    """The original text of numbers, booleans and nulls, because `1.10` is parsed as 1.1."""

    def line(self, location: Location) -> int:
        """The line of a value, or of the nearest value around it."""
        while location and location not in self.lines:
            location = location[:-1]
        return self.lines.get(location, 1)

    def problem(self, location: Location, message: str) -> Problem:
        return Problem(field_path(location), message, self.path, self.line(location))


def load(content: bytes, path: str) -> Document:
    """Raises TooLarge, or InvalidInput with every syntax problem."""
    if len(content) > SIZE_MAX:
        raise TooLarge(
            f"{path} is larger than 1 MiB.", hint="Keep only the description here and files beside it, in resources/."
        )
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InvalidInput(problems=[Problem("", "is not UTF-8 text.", path, line)]) from error
    reader = _Reader(path, text)
    try:
        return reader.document()
    except yaml.MarkedYAMLError as error:
        raise InvalidInput(problems=[_syntax_problem(error, path)]) from error
    except yaml.reader.ReaderError as error:
        # libyaml counts bytes of UTF-8.
        line = text.encode().count(b"\n", 0, error.position) + 1
        what = f" (U+{error.character:04X})" if isinstance(error.character, int) else ""
        message = f"has a character that YAML does not allow{what}."
        raise InvalidInput(problems=[Problem("", message, path, line)]) from error


def field_path(location: Location) -> str:
    """`deploymentProfiles[0].components[0].name`."""
    parts = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in location)
    return parts.removeprefix(".")


def dump(data: Any) -> bytes:
    """Block style, keys in the order given, the same bytes for the same data."""
    text = yaml.dump(
        data, Dumper=_Dumper, default_flow_style=False, allow_unicode=True, sort_keys=False, width=1000, indent=2
    )
    return str(text).encode()


class Quoted(str):
    """Text that is written in quotes even where YAML does not need them."""

    __slots__ = ()


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    def ignore_aliases(self, data: Any) -> bool:
        return True


_Dumper.add_representer(Quoted, lambda dumper, value: dumper.represent_scalar(_PREFIX + "str", str(value), style='"'))


class _Reader:
    """Builds the data from parser events without recursion, so that no limit depends on Python's stack.

    The events are listed first and read by position: an alias is a jump back to its anchor, so that nested anchors
    cost nothing.
    """

    def __init__(self, path: str, text: str) -> None:
        self._path = path
        self._loader = _LOADER(text)
        self._lines: dict[Location, int] = {}
        self._texts: dict[Location, str] = {}
        self._aliased: dict[int, int] = {}
        """The position of the value that the alias at a position refers to."""
        self._problems: list[Problem] = []
        self._values_count = 0
        self._events: list[Any] = []
        self._position = 0

    def document(self) -> Document:
        self._list_events()
        assert isinstance(self._next(), yaml.StreamStartEvent)
        if isinstance(self._next(), yaml.StreamEndEvent):
            raise InvalidInput(problems=[Problem("", "is empty.", self._path, 1)])
        data = self._value(())
        self._next()
        after = self._next()
        if not isinstance(after, yaml.StreamEndEvent):
            message = "has a second YAML document; one file holds one."
            self._problems.append(Problem("", message, self._path, after.start_mark.line + 1))
        if self._problems:
            raise InvalidInput(problems=self._problems)
        return Document(self._path, data, self._lines, self._texts)

    def _list_events(self) -> None:
        anchors: dict[str, int] = {}
        depth = 0
        while self._loader.check_event():
            event = self._loader.get_event()
            position = len(self._events)
            self._events.append(event)
            if isinstance(event, yaml.NodeEvent) and event.anchor is not None:
                if not isinstance(event, yaml.AliasEvent):
                    anchors[event.anchor] = position
                elif event.anchor in anchors:
                    self._aliased[position] = anchors[event.anchor]
            if position >= EVENTS_MAX:
                raise self._too_many(event, ())
            if isinstance(event, yaml.ScalarEvent):
                continue
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > DEPTH_MAX:
                raise self._too_deep(event, ())

    def _next(self) -> Any:
        event = self._events[self._position]
        self._position += 1
        return event

    def _value(self, location: Location) -> Any:
        """The value that begins at the current position; advances past it."""
        position, event = self._position, self._next()
        self._values_count += 1
        if self._values_count > VALUES_MAX:
            raise self._too_many(event, location)
        if len(location) > DEPTH_MAX:
            raise self._too_deep(event, location[:3])
        self._lines.setdefault(location, event.start_mark.line + 1)
        if isinstance(event, yaml.AliasEvent):
            return self._alias(position, location)
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event, location)
        if event.tag not in (None, "!", _PREFIX + "seq", _PREFIX + "map"):
            self._refuse(event, location, f"has the tag {event.tag}; only plain YAML is read.")
        is_sequence = isinstance(event, yaml.SequenceStartEvent)
        return self._sequence(location) if is_sequence else self._mapping(location)

    def _alias(self, position: int, location: Location) -> Any:
        if position not in self._aliased:
            event = self._events[position]
            raise self._refusal(event, location, f"refers to *{event.anchor}, which is not defined above it.")
        behind, self._position = self._position, self._aliased[position]
        value = self._value(location)
        self._position = behind
        return value

    def _sequence(self, location: Location) -> list[Any]:
        items: list[Any] = []
        while not isinstance(self._events[self._position], yaml.SequenceEndEvent):
            items.append(self._value((*location, len(items))))
        self._next()
        return items

    def _mapping(self, location: Location) -> dict[str, Any]:
        items: dict[str, Any] = {}
        while not isinstance(event := self._next(), yaml.MappingEndEvent):
            key = self._key(event, location)
            place = (*location, key)
            if key in items:
                self._refuse(event, place, f"is written twice; the first is on line {self._lines[place]}.")
            self._lines.setdefault(place, event.start_mark.line + 1)
            items[key] = self._value(place)
        return items

    def _key(self, event: Any, location: Location) -> str:
        if not isinstance(event, yaml.ScalarEvent):
            self._skip_rest(event)
            self._refuse(event, location, "has a key that is not plain text.")
            return ""
        if event.value == "<<" and event.implicit[0]:
            self._refuse(event, location, "uses a merge key (<<); write the fields out.")
        if len(event.value) > KEY_LENGTH_MAX:
            raise self._refusal(event, location, f"has a key of more than {KEY_LENGTH_MAX} characters.")
        self._check_text(event, location)
        # A key is always text: a parameter may well be called `on` or `1`.
        return str(event.value)

    def _skip_rest(self, event: Any) -> None:
        """Skips the events that complete the value which `event` begins."""
        depth = 1 if isinstance(event, yaml.CollectionStartEvent) else 0
        while depth:
            inner = self._next()
            depth += isinstance(inner, yaml.CollectionStartEvent) - isinstance(inner, yaml.CollectionEndEvent)

    def _scalar(self, event: Any, location: Location) -> Any:
        tag = event.tag
        if tag in (None, "!"):
            implicit = event.implicit if tag is None else (False, True)
            tag = self._loader.resolve(yaml.ScalarNode, event.value, implicit)
        kind = tag.removeprefix(_PREFIX)
        if kind in _TEXTS:
            self._check_text(event, location)
            return event.value
        construct = _SCALARS.get(kind)
        if construct is None:
            self._refuse(event, location, f"has the tag {tag}; only plain YAML is read.")
            return None
        self._check_text(event, location)
        if kind in ("int", "float") and len(event.value) > NUMBER_LENGTH_MAX:
            self._refuse(event, location, f"{event.value[:40]}… has too many digits for a number.")
            return None
        try:
            value = construct(yaml.ScalarNode(tag, event.value))
        except (ValueError, KeyError, OverflowError):
            self._refuse(event, location, f"{event.value[:40]!r} cannot be read as {kind}.")
            return None
        if isinstance(value, float) and not math.isfinite(value):
            self._refuse(event, location, f"{event.value} is not a number that can be passed on.")
        if isinstance(value, int) and not fits_64_bits(value):
            self._refuse(event, location, f"{event.value[:40]} is too large: a whole number has at most 64 bits.")
            return None
        self._texts[location] = event.value
        return value

    def _check_text(self, event: Any, location: Location) -> None:
        if _UNUSABLE.search(event.value):
            self._refuse(event, location, "has a character that cannot be passed on.")

    def _too_deep(self, event: Any, location: Location) -> InvalidInput:
        return self._refusal(event, location, f"is nested more than {DEPTH_MAX} levels deep.")

    def _too_many(self, event: Any, location: Location) -> InvalidInput:
        return self._refusal(event, location, f"holds more than {VALUES_MAX:,} values once aliases are expanded.")

    def _refuse(self, event: Any, location: Location, message: str) -> None:
        self._problems.append(Problem(field_path(location), message, self._path, event.start_mark.line + 1))

    def _refusal(self, event: Any, location: Location, message: str) -> InvalidInput:
        self._refuse(event, location, message)
        return InvalidInput(problems=self._problems)


def _syntax_problem(error: yaml.MarkedYAMLError, path: str) -> Problem:
    mark = error.problem_mark or error.context_mark
    said = " ".join(part for part in (error.context, error.problem) if part)
    return Problem("", f"is not valid YAML: {said}.", path, mark.line + 1 if mark else None)
