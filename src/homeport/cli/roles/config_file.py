"""`--config FILE`: the options of a role, and settings that have no option, from a TOML file.

    [central]
    http = "0.0.0.0:8443"        # as --http
    host = ["homeport.example"]  # as --host, which may be repeated
    audit_days = 90              # a setting without an option of its own

The command line and the environment override it. An unknown key or a value of the wrong type is refused with file and
key, before anything starts.
"""

import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from homeport.cli.wording import plain_words
from homeport.core.values.numbers import DAYS_MAX, SECONDS_MAX
from homeport.errors import InvalidInput, Problem

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

SIZE_MAX: Final = 1024 * 1024
NUMBER_MAX: Final = 10**12
SECONDS_MIN: Final = 0.01
SECTIONS: Final = ("up", "central", "site", "node")
_TUNED: Final = "homeport.tuned"


def configured(**others: type[float] | type[int]) -> Callable[[Decorated], Decorated]:
    """Adds --config. `others` are settings without an option that the file may contain too, each with its type; the
    command gets them from `tuned()`."""

    def read(ctx: click.Context, _parameter: click.Parameter, value: Path | None) -> None:
        if value is not None:
            _apply(ctx, value, others)

    return click.option(
        "--config",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        callback=read,
        expose_value=False,
        is_eager=True,
        envvar="HOMEPORT_CONFIG",
        metavar="FILE",
        help="Read options from this TOML file; those given here win.",
    )


def tuned() -> Mapping[str, Any]:
    """The settings without an option in this command's file, and those that `tune` added."""
    found: Mapping[str, Any] = click.get_current_context().meta.get(_TUNED, {})
    return found


def tune(**settings: Any) -> None:
    """Adds settings that other options make up."""
    meta = click.get_current_context().meta
    meta[_TUNED] = {**meta.get(_TUNED, {}), **settings}


def keep_tuned(ctx: click.Context, parameter: click.Parameter, value: Any) -> None:
    """The callback of an option that only its role's settings need: `tuned()` has its value."""
    ctx.meta[_TUNED] = {**ctx.meta.get(_TUNED, {}), str(parameter.name): value}


def _apply(ctx: click.Context, path: Path, fields: Mapping[str, type[Any]]) -> None:
    section = str(ctx.command.name)
    text = _read(path)
    given = _section(path, text, section)
    options = _options(ctx.command)

    def problem(key: str, wrong: str) -> Problem:
        return Problem(f"[{section}] {key}", plain_words(wrong), str(path), _line_of(text, section, key))

    problems, defaults, others = [], {}, {}
    for key, value in given.items():
        name = key.replace("_", "-")
        try:
            if name in options:
                defaults[str(options[name].name)] = _checked(options[name], value, ctx)
            elif key in fields:
                others[key] = _scalar(key, value, fields[key])
            else:
                problems.append(problem(key, _unknown(key, [*options, *fields])))
        except (click.UsageError, ValueError) as error:
            wrong = error.message if isinstance(error, click.UsageError) else str(error)
            problems.append(problem(key, wrong))
    if problems:
        raise InvalidInput(f"{path} cannot be used.", problems=problems)
    ctx.default_map = {**(ctx.default_map or {}), **defaults}
    ctx.meta[_TUNED] = {**ctx.meta.get(_TUNED, {}), **others}


def _read(path: Path) -> str:
    if path.stat().st_size > SIZE_MAX:
        raise InvalidInput(f"{path} is larger than 1 MiB.", hint="A configuration file holds a few lines.")
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path} is not UTF-8 text.", hint="See docs/reference/settings.md") from error


def _section(path: Path, text: str, section: str) -> Mapping[str, Any]:
    import tomllib  # noqa: PLC0415 - few roles have a file, and a node stays small

    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # Also a number of thousands of digits.
        raise InvalidInput(f"{path} is not TOML: {error}", hint="See docs/reference/settings.md") from error
    strange = next((name for name in document if name not in SECTIONS), None)
    if strange is not None and not isinstance(document[strange], dict):
        raise InvalidInput(
            f'{path} has "{strange}" outside of a section.', hint=f"Write  [{section}]  above its keys."
        )
    if strange is not None:
        raise InvalidInput(
            f'{path} has an unknown section "{strange}".',
            hint=f"Known sections: {', '.join(SECTIONS)}. See docs/reference/settings.md",
        )
    found = document.get(section, {})
    if not isinstance(found, dict):
        raise InvalidInput(f"{path}: {section} must be a section.", hint=f"Write  [{section}]  above its keys.")
    return found


def _options(command: click.Command) -> dict[str, click.Option]:
    """By the long name without its dashes, as in the file."""
    return {
        name.removeprefix("--"): parameter
        for parameter in command.params
        if isinstance(parameter, click.Option) and parameter.name != "config"
        for name in parameter.opts
        if name.startswith("--")
    }


def _checked(option: click.Option, value: Any, ctx: click.Context) -> Any:
    """The validated value. Click gets it as text, as from a shell."""
    many = option.multiple or option.nargs != 1
    if isinstance(value, dict) or (isinstance(value, list) and not many):
        raise ValueError("must be a single value")
    if option.is_flag != isinstance(value, bool):
        raise ValueError("must be true or false" if option.is_flag else "must be text or a number")
    if option.is_flag:
        return value
    taken = [str(each) for each in (value if isinstance(value, list) else [value])] if many else str(value)
    option.type_cast_value(ctx, taken)
    return taken


def _scalar(key: str, value: Any, kind: type[Any]) -> Any:
    if (
        not isinstance(value, int | kind)
        or isinstance(value, bool)
        or (isinstance(value, float) and math.isnan(value))
    ):
        raise ValueError("must be a whole number" if kind is int else "must be a number")
    least = 1 if kind is int else SECONDS_MIN
    most = {"seconds": SECONDS_MAX, "days": DAYS_MAX}.get(key.rpartition("_")[2], NUMBER_MAX)
    if value < least:
        raise ValueError(f"must be at least {least}")
    if value > most:
        raise ValueError(f"must be at most {most}")
    return kind(value)


def _unknown(key: str, known: list[str]) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - for mistakes alone, and a node stays small

    close = get_close_matches(key, known, 1)
    return f'There is no setting "{key}".' + (f' Did you mean "{close[0]}"?' if close else "")


def _line_of(text: str, section: str, key: str) -> int | None:
    """Where the key stands; None where it is written in a way that only a parser understands."""
    current = ""
    for number, line in enumerate(text.splitlines(), 1):
        if heading := re.match(r"\s*\[\s*([\w-]+)\s*\]", line):
            current = heading[1]
        elif current == section and re.match(rf"""\s*["']?{re.escape(key)}["']?\s*=""", line):
            return number
    return None
