"""Suggests the probable name for a mistyped one."""

import difflib
from collections.abc import Iterable


def did_you_mean(text: str, known: Iterable[str], list_command: str) -> str:
    close = difflib.get_close_matches(text, sorted(set(known)), n=1, cutoff=0.6)
    question = f'Did you mean "{close[0]}"? ' if close else ""
    return f"{question}List them:  {list_command}"
