"""Command groups: loaded on use, and with aliases for the names that users try first.

Each entry of the top group carries its one-line help, so that `homeport --help` imports nothing; a test compares the
lines with the commands' own.
"""

import importlib
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import click

VERBS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "ls": ("list",),
        "get": ("show", "list"),
        "describe": ("show",),
        "inspect": ("show",),
        "rm": ("remove", "delete", "revoke"),
        "remove": ("delete", "revoke"),
        "delete": ("remove", "revoke"),
        "create": ("add", "set"),
        "add": ("create", "set"),
        "undo": ("rollback",),
        "uncordon": ("undrain",),
        "status": ("show",),
    }
)
"""Verbs of other tools -> their names here, the first that the group has."""

SHORTCUTS: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "ps": ("deployments", "list"),
        "ls": ("deployments", "list"),
        "list": ("deployments", "list"),
        "show": ("deployments", "show"),
        "watch": ("deployments", "watch"),
        "history": ("deployments", "history"),
        "diff": ("deployments", "diff"),
        "rollback": ("deployments", "rollback"),
        "retry": ("deployments", "retry"),
        "restart": ("deployments", "restart"),
        "delete": ("deployments", "delete"),
        "rm": ("deployments", "delete"),
        "remove": ("deployments", "delete"),
        "install": ("service", "install"),
        "describe": ("deployments", "show"),
        "inspect": ("deployments", "show"),
    }
)
"""A verb without a noun is about deployments, as in other tools."""

ELSEWHERE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "get": "homeport deployments list",
        "apply": "homeport deploy PATH",
        "run": "homeport deploy --image IMAGE, or  homeport jobs run",
        "create": "homeport deploy PATH",
        "upgrade": "homeport deploy APP@VERSION",
        "update": "homeport deploy APP@VERSION",
        "uninstall": "homeport delete DEPLOYMENT",
        "down": "homeport delete DEPLOYMENT",
        "stop": "homeport delete DEPLOYMENT",
        "start": "homeport restart DEPLOYMENT",
        "pull": "homeport models pull",
        "push": "homeport apps push",
        "images": "homeport apps list",
        "init": "homeport apps init",
        "validate": "homeport apps validate",
        "scale": "homeport deploy APP --place N",
        "cordon": "homeport nodes drain NODE",
        "drain": "homeport nodes drain NODE",
        "config": "homeport contexts list",
    }
)
"""Words of other tools that mean something else here, or more than one thing, and what to type."""


class _Finite(click.types.FloatParamType):
    """No time and no amount is infinite, and NaN is within every range: nothing is below or above it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


class _FiniteRange(_Finite, click.FloatRange):
    """The same within bounds."""


class MayBeEmpty(click.types.StringParamType):
    """A text whose empty value says something: no prefix, any node again."""


class _Given(click.types.StringParamType):
    """A text that says something where it is given. An empty one is a variable that is not set, and was ignored: then
    `--site "$SITE"` meant all sites, and `--pin "$PIN"` any server."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        _refuse_empty(self, value, param, ctx)
        return super().convert(value, param, ctx)


class _GivenPath(click.Path):
    """The same for paths, where an empty one is the current folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        _refuse_empty(self, value, param, ctx)
        return super().convert(value, param, ctx)


def _refuse_empty(
    kind: click.ParamType[Any], value: Any, param: click.Parameter | None, ctx: click.Context | None
) -> None:
    if value or param is None or ctx is None or param.name is None:
        return
    if ctx.get_parameter_source(param.name) is click.core.ParameterSource.COMMANDLINE:
        kind.fail("it is empty; a variable that it comes from may not be set.", param, ctx)


def with_checked_values(command: click.Command) -> click.Command:
    """For every option and argument of every command at once, so that none can miss it. The words of a command to run
    are UNPROCESSED: one of them may be empty."""
    for each in command.params:
        each.type = _checked(each.type)
    return command


def _checked(kind: click.ParamType[Any]) -> click.ParamType[Any]:
    checked = kind
    if isinstance(kind, click.types.FloatParamType) and not isinstance(kind, _Finite):
        checked = _Finite()
        if isinstance(kind, click.FloatRange):
            checked = _FiniteRange(kind.min, kind.max, kind.min_open, kind.max_open, kind.clamp)
    elif type(kind) is click.types.StringParamType:
        checked = _Given()
    elif type(kind) is click.Path:
        checked = _GivenPath()
        vars(checked).update(vars(kind))
    return checked


class Group(click.Group):
    """Knows the aliases of its commands, and suggests one for an unknown name."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = self._own(ctx, cmd_name)
        if found is not None:
            return found
        return next((each for name in VERBS.get(cmd_name, ()) if (each := self._own(ctx, name)) is not None), None)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            ctx.fail(f'There is no command "{args[0]}".{self._suggestion(ctx, args[0])}')
        return super().resolve_command(ctx, args)

    def _own(self, ctx: click.Context, name: str) -> click.Command | None:
        found = super().get_command(ctx, name)
        return None if found is None else with_checked_values(found)

    def _suggestion(self, ctx: click.Context, name: str) -> str:
        import difflib  # noqa: PLC0415 - start-up time, and a role stays small

        if name in self._elsewhere():
            return f"  Type  {self._elsewhere()[name]} ."
        close = difflib.get_close_matches(name, [*self.list_commands(ctx), *self._also()], n=1, cutoff=0.7)
        return f' Did you mean "{close[0]}"?' if close else ""

    def _also(self) -> tuple[str, ...]:
        return ()

    def _elsewhere(self) -> Mapping[str, str]:
        return {}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Whole sentences: click would cut them."""
        commands = [(name, command) for name in self.list_commands(ctx) if (command := self.get_command(ctx, name))]
        rows = [(name, command.get_short_help_str(limit=500)) for name, command in commands if not command.hidden]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)


class LazyGroup(Group):
    def __init__(
        self,
        *args: Any,
        sections: Mapping[str, Mapping[str, tuple[str, str]]],
        unlisted: Mapping[str, str],
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.sections = sections
        self.lazy = {name: entry for section in sections.values() for name, entry in section.items()}
        """Command name to (`module:attribute`, one line of help)."""
        self.unlisted = unlisted
        """Commands that other programs call: name to `module:attribute`."""
        with_checked_values(self)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = self._own(ctx, cmd_name) or self._own(ctx, f"{cmd_name}s")
        if found is not None or cmd_name not in SHORTCUTS:
            return found
        noun, verb = SHORTCUTS[cmd_name]
        group = self._own(ctx, noun)
        return group.get_command(ctx, verb) if isinstance(group, click.Group) else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        # `site` and `node` run a role, which takes only options: a verb after them means the noun.
        if len(args) > 1 and f"{args[0]}s" in self.lazy and args[0] in self.lazy and not args[1].startswith("-"):
            args = [f"{args[0]}s", *args[1:]]
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, self.lazy))
        for title, section in self.sections.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), text) for name, (_, text) in section.items()])

    def _own(self, ctx: click.Context, name: str) -> click.Command | None:
        entry = self.lazy.get(name)
        target = self.unlisted.get(name) if entry is None else entry[0]
        return None if target is None else load(target)

    def _also(self) -> tuple[str, ...]:
        return tuple(SHORTCUTS)

    def _elsewhere(self) -> Mapping[str, str]:
        return ELSEWHERE


def load(target: str) -> click.Command:
    module, attribute = target.split(":")
    command = getattr(importlib.import_module(module), attribute)
    assert isinstance(command, click.Command)
    return with_checked_values(command)
