"""`homeport completion SHELL`: a script for the shell's start-up file."""

import click
from click.shell_completion import get_completion_class


@click.command(epilog='For this session:  eval "$(homeport completion bash)"')
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a shell's completion script."""
    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(ctx.find_root().command, {}, "homeport", "_HOMEPORT_COMPLETE")
    if shell == "bash":
        # Bash would treat the part before an @ as its own word, and `hello@1.1.0` could not be completed.
        click.echo("COMP_WORDBREAKS=${COMP_WORDBREAKS//@/}")
    click.echo(script.source())
