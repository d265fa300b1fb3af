"""`homeport completion SHELL`: a script for the shell's start-up file."""

from typing import Final

import click
from click.shell_completion import get_completion_class

BASH_ASK: Final = 'COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD'
BASH_BEGIN: Final = "    local response\n"
JOIN: Final = """    # Bash makes three words of --set=name; it is read as --set name.
    local words=() current=$COMP_CWORD index
    for index in "${!COMP_WORDS[@]}"; do
        if ((index > 0 && index < COMP_CWORD)) &&
            [[ ${COMP_WORDS[index]} == = && ${COMP_WORDS[index - 1]} == --* ]]; then
            ((current -= 1))
        else
            words+=("${COMP_WORDS[index]}")
        fi
    done
"""
BASH_END: Final = "    return 0\n"
NO_SPACE: Final = """    # A value follows: no space comes before it.
    if [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *[=/] ]]; then compopt -o nospace; fi

"""


@click.command(epilog='For this session:  eval "$(homeport completion bash)"')
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a shell's completion script."""
    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(ctx.find_root().command, {}, "homeport", "_HOMEPORT_COMPLETE")
    source = script.source()
    if shell == "bash":
        # Bash would treat the part before an @ as its own word, and `hello@1.1.0` could not be completed.
        click.echo("COMP_WORDBREAKS=${COMP_WORDBREAKS//@/}")
        source = _changed(source, BASH_BEGIN, BASH_BEGIN + JOIN)
        source = _changed(source, BASH_ASK, 'COMP_WORDS="${words[*]}" COMP_CWORD=$current')
        source = _changed(source, BASH_END, NO_SPACE + BASH_END)
    click.echo(source)


def _changed(source: str, before: str, after: str) -> str:
    assert before in source, "the script of another release of click"
    return source.replace(before, after)
