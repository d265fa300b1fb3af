"""The options of central about pipelines, as one value."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from homeport.cli.roles.config_file import tune
from homeport.core.pipelines.reach import is_rule
from homeport.core.pipelines.settings import PipelineSettings

Command = Callable[..., None]


def pipeline_options(command: Command) -> Command:
    """The command gets PipelineSettings as `pipelines` of `tuned()`."""

    @wraps(command)
    def gathered(*, pipelines_allow_http: tuple[str, ...], step_plugin: tuple[str, ...], **others: Any) -> None:
        for each in pipelines_allow_http:
            if not is_rule(each):
                raise click.UsageError(f"--pipelines-allow-http {each}: give a host, an address or a network.")
        plugins = {}
        for each in step_plugin:
            name, equals, place = each.partition("=")
            if not equals or name in plugins:
                raise click.UsageError(f"--step-plugin {each}: write it as NAME=MODULE:CLASS, each name once.")
            plugins[name] = place
        tune(pipelines=PipelineSettings(http_allow=tuple(pipelines_allow_http), step_plugins=plugins))
        command(**others)

    decorated = click.option(
        "--step-plugin",
        multiple=True,
        metavar="NAME=MODULE:CLASS",
        help="A kind of pipeline step of your own; repeatable.",
    )(gathered)
    return click.option(
        "--pipelines-allow-http",
        multiple=True,
        metavar="HOST|NETWORK",
        help="HTTP steps of pipelines may call this private address too; repeatable.",
    )(decorated)
