"""What reaches a terminal: text, line breaks, and the colours that this program sets.

Names, messages and errors come from authors of apps, from registries, engines and other machines. An escape
sequence among them could move the cursor over what was shown, rename the window or write to the clipboard. It is
replaced here, on the last step, so that no command can forget it; what is piped into a file or another program stays
as it is.
"""

import io
import re
import sys
from typing import Any, Final, TextIO

_COLOUR: Final = r"\x1b\[(?!8m)(?:\d{1,3}(?:;\d{1,3}){0,10})?m"
"""All but the one that makes text invisible."""
_CONTROLS: Final = re.compile(rf"{_COLOUR}|[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def safe(text: str) -> str:
    """Without anything that a terminal obeys but line breaks, tabs and colours."""
    return text if text.isprintable() else _CONTROLS.sub(_replaced, text)


class SafeText(io.TextIOWrapper):
    """A terminal's stream that writes `safe` text only."""

    def write(self, text: str, /) -> int:
        super().write(safe(text))
        return len(text)


class _Moving:
    """The same stream, for what moves the cursor: displays that are drawn again in place, of text that is safe."""

    def __init__(self, stream: SafeText) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return io.TextIOWrapper.write(self._stream, text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def moving(stream: TextIO) -> Any:
    return _Moving(stream) if isinstance(stream, SafeText) else stream


def protect_terminal() -> None:
    """For standard output and error. A terminal whose encoding lacks ✓ gets a question mark, never a crash."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if not isinstance(stream, io.TextIOWrapper):
            continue
        stream.reconfigure(errors="replace")
        if stream.isatty():
            stream.flush()
            encoding = stream.encoding
            made = SafeText(stream.detach(), encoding=encoding, errors="replace", line_buffering=True)
            setattr(sys, name, made)
            setattr(sys, f"__{name}__", made)


def _replaced(match: re.Match[str]) -> str:
    return match[0] if len(match[0]) > 1 else "\N{REPLACEMENT CHARACTER}"
