"""Options that the roles share, and the checks that come before one is started."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from homeport.cli.addresses import Address, require_free, require_loopback
from homeport.errors import HomeportError

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

RUNTIMES: Final = ("auto", "podman", "docker", "process", "null")


def data_option(default: Path) -> Callable[[Decorated], Decorated]:
    shown = str(default).replace(str(Path.home()), "~", 1)
    return click.option(
        "--data",
        type=click.Path(file_okay=False, path_type=Path),
        default=default,
        help=f"Where it keeps its state [{shown}].",
    )


def home(name: str) -> Path:
    return Path.home() / ".homeport" / name


runtime_option = click.option(
    "--runtime",
    type=click.Choice(RUNTIMES),
    default="auto",
    show_default=True,
    help="What runs the apps; auto takes Podman, else Docker.",
)
poll_option = click.option(
    "--poll",
    type=click.FloatRange(min=0.1, max=86_400),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="How often a remote repository is asked when nobody says that it moved.",
)


def require_addresses(**addresses: Address) -> None:
    """Each by its option's name: on loopback, and free."""
    for option, address in addresses.items():
        require_loopback(address, f"--{option}")
    for option, address in addresses.items():
        require_free(address, f"--{option}")


def prepare_folder(data: Path) -> Path:
    try:
        data.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise HomeportError(
            f"Cannot use {data} for data: {error.strerror}.",
            hint="Give a folder that you may write to with --data DIR.",
        ) from error
    return data.resolve()
