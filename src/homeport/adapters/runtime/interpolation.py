"""Variables in a compose file's values, by the rules of the compose specification. Pure.

The compose tool interpolates for itself; this is only for what must be known before it runs: which images to pull.
"""

import re
from collections.abc import Mapping

_VARIABLE = re.compile(
    r"""\$(?:
        (?P<escaped>\$)
      | (?P<plain>[A-Za-z_][A-Za-z0-9_]*)
      | \{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?:(?P<operator>:?[-?+])(?P<word>(?:[^{}]|\$\{[^{}]*\})*))?\}
    )""",
    re.VERBOSE,
)


def interpolate(text: str, environment: Mapping[str, str]) -> str:
    """`${NAME}`, `${NAME:-default}`, `${NAME:+other}` and their kin; what is not set is empty."""
    return _VARIABLE.sub(lambda match: _value(match, environment), text)


def escape(text: str) -> str:
    """Text that survives interpolation unchanged."""
    return text.replace("$", "$$")


def parse_env_file(text: str) -> dict[str, str]:
    """The `.env` file beside a compose file: NAME=value, comments, optional quotes."""
    values = {}
    for line in text.splitlines():
        name, equals, value = line.strip().removeprefix("export ").partition("=")
        if equals and not name.startswith("#"):
            values[name.strip()] = value.strip().strip("'\"")
    return values


def _value(match: re.Match[str], environment: Mapping[str, str]) -> str:
    if match["escaped"]:
        return "$"
    value = environment.get(match["plain"] or match["name"])
    operator, word = match["operator"] or "", match["word"] or ""
    is_set = bool(value) if operator.startswith(":") else value is not None
    if operator.endswith("+"):
        return interpolate(word, environment) if is_set else ""
    if operator.endswith("-") and not is_set:
        return interpolate(word, environment)
    return value or ""
