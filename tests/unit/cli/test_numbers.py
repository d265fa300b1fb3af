"""No option of any command takes a number without an end."""

from collections.abc import Iterator

import click
import pytest

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
