"""The options that many commands share. They may come before or after the command's name.

`Settings` holds their values; the root command creates it and every other command receives it.
"""

import os
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from homeport.cli.lazy import MayBeEmpty
from homeport.lazy_dataclass import dataclass

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

DEFAULT_URL: Final = "http://127.0.0.1:8080"
FORMATS: Final = ("table", "wide", "json", "yaml")


@dataclass
class Settings:
    given_url: str = ""
    """From --url or HOMEPORT_URL; empty where the context decides."""
    context: str = ""
    """From --context."""
    output: str = "table"
    color: bool | None = None
    """None: detected from the terminal."""
    quiet: bool = False
    limit: int | None = None
    """The maximum number of list items; all when None."""
    debug: bool = False

    @property
    def url(self) -> str:
        """The server's URL: as given, else that of the chosen context, else the local default."""
        if self.given_url:
            return self.given_url
        from homeport.cli.api.contexts import read  # noqa: PLC0415 - it imports this module

        chosen = read().chosen()
        return DEFAULT_URL if chosen is None else chosen.url

    @property
    def is_data(self) -> bool:
        """Whether the output is for a program: exact values, and nothing else on stdout."""
        return self.output in {"json", "yaml"}


pass_settings = click.make_pass_decorator(Settings, ensure=True)


def connected(command: Decorated) -> Decorated:
    """Adds --url and --context."""
    command = _option("--context", metavar="NAME", help="Which context to use [the current one].")(command)
    return _option("--url", "given_url", envvar="HOMEPORT_URL", metavar="URL", help=f"The server [{DEFAULT_URL}].")(
        command
    )


def formatted(command: Decorated) -> Decorated:
    """Adds -o and --no-color."""
    command = _option("--no-color", is_flag=True, default=None, help="Print without colour; NO_COLOR does the same.")(
        command
    )
    return _option("-o", "--output", type=click.Choice(FORMATS), help="Output format [table].")(command)


def quieted(command: Decorated) -> Decorated:
    """Adds -q, for what begins something that has an id."""
    return _option("-q", "--quiet", is_flag=True, default=None, help="With --detach, print the id only.")(command)


FILTER = click.option(
    "--filter",
    type=MayBeEmpty(),
    metavar="TEXT",
    help="Words of the name, site:gdansk-*, node:, app:, state:, label:region=north, code:; - negates.",
)


def listed(command: Decorated) -> Decorated:
    """The options of every list: --url, -o, --no-color, -q, --limit; and --watch, which the command receives."""
    command = click.option("-w", "--watch", is_flag=True, help="Refresh it as it changes, until Ctrl-C.")(command)
    command = _option("-q", "--quiet", is_flag=True, default=None, help="Print ids only.")(command)
    command = _option("--limit", type=click.IntRange(1), metavar="N", help="Only the first N [all].")(command)
    return connected(formatted(command))


def _option(*names: str, **attributes: Any) -> Callable[[Decorated], Decorated]:
    """An option that is stored in Settings instead of being passed to the command."""
    return click.option(*names, expose_value=False, callback=_keep, is_eager=True, **attributes)


def _keep(ctx: click.Context, parameter: click.Parameter, value: Any) -> None:
    if value is None:
        return
    settings = ctx.ensure_object(Settings)
    if parameter.name == "no_color":
        # A root context's choice is inherited by every command below it.
        settings.color = False if value else settings.color
        ctx.color = settings.color
    elif parameter.name == "context":
        # The only place where both the URL and the credentials are looked up.
        os.environ["HOMEPORT_CONTEXT"] = value
        settings.context, settings.given_url = value, ""
    elif parameter.name == "given_url" and _is_from_environment(ctx, parameter.name) and _is_chosen(settings):
        return  # the command line, before or after the command, overrides the environment
    elif parameter.name is not None:
        setattr(settings, parameter.name, value)


def _is_chosen(settings: Settings) -> bool:
    return bool(settings.context or settings.given_url)


def _is_from_environment(ctx: click.Context, name: str) -> bool:
    return ctx.get_parameter_source(name) is click.core.ParameterSource.ENVIRONMENT
