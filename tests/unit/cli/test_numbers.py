"""No option of any command takes a number without an end, or an empty text without a meaning."""

from collections.abc import Iterator

import click
import pytest

from homeport.cli.lazy import MayBeEmpty
from homeport.cli.main import cli


def every_option(command: click.Command, ctx: click.Context) -> Iterator[tuple[str, click.Parameter]]:
    if not isinstance(command, click.Group):
        yield from ((f"{ctx.command_path} {each.opts[-1]}", each) for each in command.params)
        return
    for name in command.list_commands(ctx):
        found = command.get_command(ctx, name)
        assert found is not None
        yield from every_option(found, click.Context(found, info_name=name, parent=ctx))


def test_no_number_of_any_command_is_infinite_or_none() -> None:
    options = list(every_option(cli, click.Context(cli, info_name="homeport")))
    numbers = [(path, each) for path, each in options if isinstance(each.type, click.types.FloatParamType)]
    assert len(numbers) > 20
    for path, each in numbers:
        for text in ("nan", "inf", "-inf", "1e400"):
            with pytest.raises(click.BadParameter):
                each.type_cast_value(click.Context(cli), text)
                pytest.fail(f"{path} takes {text}")


def test_an_empty_text_is_refused_unless_it_means_something() -> None:
    """A variable that is not set would else mean every site, any server or no check. The words of a command to run
    are UNPROCESSED: one of them may be empty."""
    options = [*every_option(cli, click.Context(cli, info_name="homeport"))]
    options += [(f"homeport {each.opts[-1]}", each) for each in cli.params]
    texts = [
        (path, each) for path, each in options if isinstance(each.type, click.types.StringParamType | click.Path)
    ]
    assert len(texts) > 200
    for path, each in texts:
        assert each.name is not None
        ctx = click.Context(cli)
        ctx.set_parameter_source(each.name, click.core.ParameterSource.COMMANDLINE)
        if isinstance(each.type, MayBeEmpty):
            each.type.convert("", each, ctx)
            continue
        with pytest.raises(click.BadParameter, match="it is empty"):
            each.type.convert("", each, ctx)
            pytest.fail(f"{path} takes an empty text")
