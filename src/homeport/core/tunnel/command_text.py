"""A command as the audit trail shows it: without what may be a secret."""

import re
from collections.abc import Sequence
from typing import Final

from homeport.core.redaction import redact

SHOWN_LENGTH_MAX: Final = 300
HIDDEN: Final = "***"
_NAME: Final = re.compile(r"[\w.-]+")
_SECRET_NAME: Final = re.compile(r"pass|secret|token|credential|api[-_]?key|private[-_]?key|auth|pwd", re.IGNORECASE)


def shown_command(command: Sequence[str]) -> str:
    """Values of options and variables whose name speaks of a secret are hidden, credentials in URLs too, and what
    follows the program of a shell (`sh -c …`) is hidden where it has such a name in it."""
    shown: list[str] = []
    hides_next = False
    for argument in command:
        name, equals, _ = argument.partition("=")
        if hides_next and not argument.startswith("-"):
            shown.append(HIDDEN)
        elif equals and _NAME.fullmatch(name) and _SECRET_NAME.search(name):
            shown.append(f"{name}={HIDDEN}")
        elif " " in argument and _SECRET_NAME.search(argument):
            shown.append(HIDDEN)
        else:
            shown.append(redact(argument))
        hides_next = argument.startswith("-") and not equals and _SECRET_NAME.search(argument) is not None
    text = " ".join(shown)
    return text if len(text) <= SHOWN_LENGTH_MAX else f"{text[:SHOWN_LENGTH_MAX]}…"
