"""Reads one YAML document into plain data and remembers where everything stands.

The text comes from Git and from people, so nothing in it is trusted: only plain data is built, size, depth and
expanded aliases are bounded, and what YAML would silently swallow (a key written twice, a second document) is
refused. Each refusal names field, file and line.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from homeport.errors import InvalidInput, Problem, TooLarge

SIZE_MAX: Final = 1024 * 1024
DEPTH_MAX: Final = 64
VALUES_MAX: Final = 100_000
"""Counted after aliases are expanded: a few hundred bytes of nested aliases can otherwise fill the memory."""

Location = tuple[str | int, ...]
"""The way to a value from the root of its document: keys and positions."""

_PREFIX: Final = "tag:yaml.org,2002:"
_LOADER: Final[type[Any]] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_CONSTRUCTOR: Final = yaml.constructor.SafeConstructor()
_SCALARS: Final[dict[str, Callable[[yaml.ScalarNode], Any]]] = {
    "str": lambda node: node.value,
    "timestamp": lambda node: node.value,  # nothing of ours is a date, and JSON has none
    "null": lambda node: None,
    "bool": _CONSTRUCTOR.construct_yaml_bool,
    "int": _CONSTRUCTOR.construct_yaml_int,
    "float": _CONSTRUCTOR.construct_yaml_float,
}


@dataclass(frozen=True, slots=True)
class Document:
    """Plain data with its origin. `data` holds only what JSON can hold."""

    path: str
    data: Any
    lines: dict[Location, int] = field(repr=False)
    texts: dict[Location, str] = field(repr=False)
    """How numbers, booleans and nulls were written, for `1.10` is the number 1.1 afterwards."""

    def line(self, location: Location) -> int:
        """The line of a value, or of the nearest value around it."""
        while location and location not in self.lines:
            location = location[:-1]
        return self.lines.get(location, 1)

    def problem(self, location: Location, message: str) -> Problem:
        return Problem(field_path(location), message, self.path, self.line(location))


def load(content: bytes, path: str) -> Document:
    """Raises TooLarge, or InvalidInput with every problem that the text itself has."""
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
        # libyaml counts the bytes it was given, which are UTF-8.
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
    """Text that is written in quotes even where YAML would not need them."""

    __slots__ = ()


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    def ignore_aliases(self, data: Any) -> bool:
        return True


_Dumper.add_representer(Quoted, lambda dumper, value: dumper.represent_scalar(_PREFIX + "str", str(value), style='"'))


class _Reader:
    """Builds the data from parser events, so that no bound depends on the depth of Python's stack."""

    def __init__(self, path: str, text: str) -> None:
        self._path = path
        self._loader = _LOADER(text)
        self._lines: dict[Location, int] = {}
        self._texts: dict[Location, str] = {}
        self._anchors: dict[str, tuple[yaml.Event, ...]] = {}
        self._problems: list[Problem] = []
        self._values_count = 0

    def document(self) -> Document:
        events = self._events()
        assert isinstance(next(events), yaml.StreamStartEvent)
        if isinstance(next(events), yaml.StreamEndEvent):
            raise InvalidInput(problems=[Problem("", "is empty.", self._path, 1)])
        data = self._value(next(events), events, ())
        next(events)
        after = next(events)
        if not isinstance(after, yaml.StreamEndEvent):
            message = "has a second YAML document; one file holds one."
            self._problems.append(Problem("", message, self._path, after.start_mark.line + 1))
        if self._problems:
            raise InvalidInput(problems=self._problems)
        return Document(self._path, data, self._lines, self._texts)

    def _events(self) -> Iterator[Any]:
        while self._loader.check_event():
            yield self._loader.get_event()

    def _value(self, event: Any, events: Iterator[Any], location: Location) -> Any:
        self._values_count += 1
        if self._values_count > VALUES_MAX:
            raise self._refusal(event, location, f"holds more than {VALUES_MAX:,} values once aliases are expanded.")
        if len(location) > DEPTH_MAX:
            raise self._refusal(event, location[:3], f"is nested more than {DEPTH_MAX} levels deep.")
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event, location)
        self._lines.setdefault(location, event.start_mark.line + 1)
        if event.anchor is not None:
            recorded = (event, *_rest_of_value(event, events))
            self._anchors[event.anchor] = recorded
            events = iter(recorded[1:])
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event, location)
        if event.tag not in (None, "!", _PREFIX + "seq", _PREFIX + "map"):
            self._refuse(event, location, f"has the tag {event.tag}; only plain YAML is read.")
        if isinstance(event, yaml.SequenceStartEvent):
            return self._sequence(events, location)
        return self._mapping(events, location)

    def _alias(self, event: Any, location: Location) -> Any:
        recorded = self._anchors.get(event.anchor)
        if recorded is None:
            raise self._refusal(event, location, f"refers to *{event.anchor}, which is not defined above it.")
        self._lines.setdefault(location, event.start_mark.line + 1)
        return self._value(_without_anchor(recorded[0]), iter(recorded[1:]), location)

    def _sequence(self, events: Iterator[Any], location: Location) -> list[Any]:
        items: list[Any] = []
        while not isinstance(event := next(events), yaml.SequenceEndEvent):
            items.append(self._value(event, events, (*location, len(items))))
        return items

    def _mapping(self, events: Iterator[Any], location: Location) -> dict[str, Any]:
        items: dict[str, Any] = {}
        while not isinstance(event := next(events), yaml.MappingEndEvent):
            key = self._key(event, events, location)
            place = (*location, key)
            if key in items:
                self._refuse(event, place, f"is written twice; the first is on line {self._lines[place]}.")
            self._lines.setdefault(place, event.start_mark.line + 1)
            items[key] = self._value(next(events), events, place)
        return items

    def _key(self, event: Any, events: Iterator[Any], location: Location) -> str:
        if not isinstance(event, yaml.ScalarEvent):
            for _ in _rest_of_value(event, events):
                pass
            self._refuse(event, location, "has a key that is not plain text.")
            return ""
        if event.value == "<<" and event.implicit[0]:
            self._refuse(event, location, "uses a merge key (<<); write the fields out.")
        # A key is a name whatever it looks like: a parameter may well be called `on` or `1`.
        return str(event.value)

    def _scalar(self, event: Any, location: Location) -> Any:
        tag = event.tag
        if tag in (None, "!"):
            implicit = event.implicit if tag is None else (False, True)
            tag = self._loader.resolve(yaml.ScalarNode, event.value, implicit)
        kind = tag.removeprefix(_PREFIX)
        construct = _SCALARS.get(kind)
        if construct is None:
            if kind in ("merge", "value"):  # `<<` and `=` as values are just text
                return event.value
            self._refuse(event, location, f"has the tag {tag}; only plain YAML is read.")
            return None
        try:
            value = construct(yaml.ScalarNode(tag, event.value))
        except (ValueError, KeyError, OverflowError):
            self._refuse(event, location, f"{event.value[:40]!r} cannot be read as {kind}.")
            return None
        if isinstance(value, float) and not math.isfinite(value):
            self._refuse(event, location, f"{event.value} is not a number that can be passed on.")
        if not isinstance(value, str):
            self._texts[location] = event.value
        return value

    def _refuse(self, event: Any, location: Location, message: str) -> None:
        self._problems.append(Problem(field_path(location), message, self._path, event.start_mark.line + 1))

    def _refusal(self, event: Any, location: Location, message: str) -> InvalidInput:
        self._refuse(event, location, message)
        return InvalidInput(problems=self._problems)


def _rest_of_value(event: Any, events: Iterator[Any]) -> Iterator[Any]:
    """The events that complete the value which `event` begins."""
    depth = 1 if isinstance(event, yaml.CollectionStartEvent) else 0
    while depth:
        inner = next(events)
        depth += isinstance(inner, yaml.CollectionStartEvent) - isinstance(inner, yaml.CollectionEndEvent)
        yield inner


def _without_anchor(event: Any) -> Any:
    """A copy of a recorded event: replayed for an alias, it must not define its anchor anew."""
    mark = (event.start_mark, event.end_mark)
    if isinstance(event, yaml.ScalarEvent):
        return yaml.ScalarEvent(None, event.tag, event.implicit, event.value, *mark, style=event.style)
    return type(event)(None, event.tag, event.implicit, *mark, flow_style=event.flow_style)


def _syntax_problem(error: yaml.MarkedYAMLError, path: str) -> Problem:
    mark = error.problem_mark or error.context_mark
    said = " ".join(part for part in (error.context, error.problem) if part)
    return Problem("", f"is not valid YAML: {said}.", path, mark.line + 1 if mark else None)
