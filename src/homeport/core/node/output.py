"""The last output lines of a failed component, safe to show in a failure: bounded, without control characters and
without the values of its secrets."""

import re
from collections.abc import Iterable
from typing import Final

from homeport.core.secrets import masked

LINES_MAX: Final = 5
CHARACTERS_MAX: Final = 600
_ESCAPES: Final = re.compile(r"\x1b(\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|.)")
_CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def last_lines(output: bytes, secrets: Iterable[str]) -> str:
    """One line; the newest output wins. Empty where nothing readable was written."""
    text = masked(output.decode(errors="replace"), secrets)
    plain = (_CONTROLS.sub(" ", _ESCAPES.sub("", line)).strip() for line in re.split(r"[\r\n]+", text))
    said = " | ".join([line for line in plain if line][-LINES_MAX:])
    return said if len(said) <= CHARACTERS_MAX else "…" + said[1 - CHARACTERS_MAX :]


def ended(text: str) -> str:
    """The text with exactly one full stop at the end."""
    return text if text.endswith((".", "!", "?", "…")) else f"{text}."
