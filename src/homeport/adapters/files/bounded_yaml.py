"""Reads untrusted YAML safely: libyaml builds nested values by recursion in C, so depth is a crash, and a few hundred
bytes of nested aliases become gigabytes when they are expanded.

Events are counted first, which needs neither a deep stack nor memory; only what is within bounds is built.

The library is loaded with the first file: a node that only watches what runs has none to read.
"""

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from homeport.errors import InvalidInput, Problem

if TYPE_CHECKING:
    import yaml

SIZE_MAX: Final = 1024 * 1024
DEPTH_MAX: Final = 64
VALUES_MAX: Final = 100_000
"""With aliases expanded."""

Location = tuple[str | int, ...]
"""The path to a value from the root of its document: keys and indexes."""


@cache
def _loader() -> Any:
    """In C where it is available."""
    import yaml  # noqa: PLC0415 - see above

    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@cache
def _plain_loader() -> Any:
    """Ignores unknown tags (`!reset`, `!override`) and takes the value below them."""

    class PlainLoader(_loader()):  # type: ignore[misc]
        pass

    PlainLoader.add_multi_constructor("!", _plain)
    return PlainLoader


def _plain(loader: Any, _suffix: str, node: "yaml.Node") -> Any:
    import yaml  # noqa: PLC0415 - see above

    if isinstance(node, yaml.MappingNode):
        return loader.construct_mapping(node, deep=True)
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node, deep=True)
    return loader.construct_scalar(node)


def load_documents(text: str | bytes, name: str, *, size_max: int = SIZE_MAX) -> list[Any]:
    """Raises InvalidInput with a sentence that begins with `name`. CPU-bound: call it in a thread."""
    import yaml  # noqa: PLC0415 - see above

    if len(text) > size_max:
        raise InvalidInput(f"{name} is larger than {size_max // 1024} KiB.")
    try:
        _count(text, name)
        return list(yaml.load_all(text, Loader=_plain_loader()))
    except (yaml.reader.ReaderError, UnicodeDecodeError) as error:
        raise InvalidInput(
            f"{name} is not valid YAML: it is not text in UTF-8, or has control characters."
        ) from error
    except yaml.YAMLError as error:
        raise InvalidInput(f"{name} is not valid YAML: {' '.join(str(error).split())}") from error
    except (ValueError, OverflowError, TypeError, RecursionError) as error:
        # An invalid date, a number of thousands of digits, a list as key, an alias to its own parent.
        raise InvalidInput(f"{name} has a value that cannot be read: {str(error)[:200]}") from error


def load_located(text: str | bytes, name: str) -> tuple[Any, dict[Location, int]]:
    """The one document of a file, and the line of every value (what a merge key brings in has no line of its own).
    Raises InvalidInput with file and line."""
    import yaml  # noqa: PLC0415 - see above

    try:
        documents = load_documents(text, name)
    except InvalidInput as error:
        mark = getattr(error.__cause__, "problem_mark", None)
        if mark is None:
            raise
        said = f"is not valid YAML: {getattr(error.__cause__, 'problem', None) or 'it cannot be read'}."
        raise InvalidInput(problems=[Problem("", said, name, mark.line + 1)]) from error
    lines: dict[Location, int] = {}
    if documents:
        _locate(yaml.compose(text, Loader=_loader()) if len(documents) == 1 else None, (), lines)
    return (documents or [None])[0], lines


def _locate(node: Any, location: Location, lines: dict[Location, int]) -> None:
    """Depth and number were bounded before. The line of an alias is where it is used, not that of its anchor."""
    import yaml  # noqa: PLC0415 - see above

    if node is None:
        return
    lines.setdefault(location, node.start_mark.line + 1)
    if isinstance(node, yaml.SequenceNode):
        for position, item in enumerate(node.value):
            _locate(item, (*location, position), lines)
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            lines.setdefault((*location, str(key.value)), key.start_mark.line + 1)
            _locate(value, (*location, str(key.value)), lines)


def _count(text: str | bytes, name: str) -> None:
    import yaml  # noqa: PLC0415 - see above

    values, open_at = 0, []
    sizes: dict[str, int] = {}
    for event in yaml.parse(text, Loader=_loader()):
        if isinstance(event, yaml.AliasEvent):
            values += sizes.get(event.anchor or "", 1)
        elif isinstance(event, yaml.ScalarEvent):
            values += 1
            sizes[event.anchor or ""] = 1
        elif isinstance(event, yaml.CollectionStartEvent):
            open_at.append((event.anchor, values))
            values += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = open_at.pop()
            sizes[anchor or ""] = values - before
        if len(open_at) > DEPTH_MAX:
            raise InvalidInput(f"{name} is nested more than {DEPTH_MAX} levels deep.")
        if values > VALUES_MAX:
            raise InvalidInput(f"{name} holds more than {VALUES_MAX:,} values once aliases are written out.")
