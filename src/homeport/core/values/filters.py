"""The filter language of lists, the map and logs: `camera site:gdansk-* -state:INSTALLED label:region=north`.

Parts are separated by spaces, and all of them must hold. A part without a word is searched in the name; `word:value`
in that property, where `*` matches any characters. Several values of one word mean any of them, `-` negates a
part, and quotes keep spaces together or a minus literal. Letters match in any case.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from homeport.core.values.selectors import KEY_PATTERN
from homeport.errors import InvalidInput, Problem
from homeport.lazy_dataclass import dataclass

LENGTH_MAX: Final = 300
PARTS_MAX: Final = 20
TEXT: Final = ""
"""The word of a part that has none."""
WORDS: Final = ("site", "node", "app", "state", "label", "code")
"""What can stand before a colon everywhere."""
DEPLOYMENT_WORDS: Final = (*WORDS, "name")
LOG_WORDS: Final = (*WORDS, "deployment", "component", "job")
DRAINED: Final = "drained"
"""Of a node, beside its liveness: also found by `state:`."""
_PART: Final = re.compile(r'(?P<minus>-)?(?:(?P<word>[A-Za-z]+):)?(?P<value>"[^"]*"|\S+)')


@dataclass(frozen=True, slots=True)
class Part:
    word: str
    values: tuple[str, ...]
    """Any of them."""
    is_negated: bool = False

    def holds(self, fits: Callable[[str], bool]) -> bool:
        """`fits` says whether one value does."""
        return any(fits(value) for value in self.values) is not self.is_negated


Parts = tuple[Part, ...]


def parse_filter(text: str, words: Sequence[str], *, field: str = "filter", is_strict: bool = True) -> Parts:
    """Raises InvalidInput for an unknown word; where that is not strict, as in logs, it is searched as text."""
    if len(text) > LENGTH_MAX:
        raise _wrong(field, f"has {len(text)} characters; at most {LENGTH_MAX} are read.")
    found: dict[tuple[str, bool, int], list[str]] = {}
    for place, match in enumerate(_PART.finditer(text)):
        if place >= PARTS_MAX:
            raise _wrong(field, f"has more than {PARTS_MAX} parts. Leave some out.")
        word, value = _read(match, words, field, is_strict)
        is_negated = match["minus"] is not None
        # Several of one word are alternatives; texts and what is excluded all count.
        own = place if word == TEXT or is_negated else -1
        found.setdefault((word, is_negated, own), []).append(value)
    return tuple(Part(word, tuple(values), is_negated) for (word, is_negated, _), values in found.items())


def _read(match: re.Match[str], words: Sequence[str], field: str, is_strict: bool) -> tuple[str, str]:
    word, value = (match["word"] or TEXT).lower(), match["value"]
    whole = match[0].removeprefix("-")
    if word == TEXT and is_strict and whole.endswith(":") and whole[:-1].lower() in words:
        raise _wrong(field, f'"{whole}" has no value. Write {whole}VALUE, with * for any characters.')
    if word != TEXT and word not in words:
        if is_strict:
            raise _wrong(
                field, f'"{word}:" is not a word of this filter. Use {", ".join(words)}, or put it in quotes.'
            )
        return TEXT, whole
    if len(value) > 1 and value[0] == value[-1] == '"':
        value = value[1:-1]
    if word == "label" and not KEY_PATTERN.fullmatch(value.partition("=")[0]):
        raise _wrong(field, f'"{whole}" is not a label. Write label:region or label:region=north.')
    return word, value


def _wrong(field: str, message: str) -> InvalidInput:
    return InvalidInput(problems=[Problem(field, message)])


def matches(pattern: str, text: str) -> bool:
    """Whether the whole text is as the pattern, `*` being any characters. Linear in both."""
    first, *rest = pattern.lower().split("*")
    text = text.lower()
    if not rest:
        return text == first
    if not text.startswith(first):
        return False
    *middle, last = rest
    at = len(first)
    for piece in middle:
        at = text.find(piece, at)
        if at < 0:
            return False
        at += len(piece)
    return len(text) - at >= len(last) and text.endswith(last)


def contains(pattern: str, text: str) -> bool:
    return matches(f"*{pattern}*", text)


def has_label(value: str, labels: Mapping[str, str]) -> bool:
    """`region` for any value of it, `region=north` for one."""
    key, equals, wanted = value.partition("=")
    return key in labels and (not equals or matches(wanted, labels[key]))
