"""The port for agents and clients of Orchion, as one value."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from homeport.cli.roles.addresses import ADDRESS, ListenAddress
from homeport.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class OrchionOptions:
    address: ListenAddress | None
    is_anonymous: bool

    @property
    def addresses(self) -> dict[str, ListenAddress]:
        return {} if self.address is None else {"orchion": self.address}

    @property
    def settings(self) -> dict[str, Any]:
        """For SiteSettings."""
        return {
            "orchion_address": None if self.address is None else str(self.address),
            "orchion_anonymous": self.is_anonymous,
        }


def orchion_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds --orchion and --orchion-anonymous, which the command receives as `orchion`."""
    options = (
        click.option(
            "--orchion",
            type=ADDRESS,
            help="Serve agents of Orchion here, on loopback, with the local key; closed when left out.",
        ),
        click.option(
            "--orchion-anonymous",
            is_flag=True,
            help="Serve them without credentials: any program of this machine may register and ask models.",
        ),
    )

    @wraps(command)
    def gathered(*, orchion: ListenAddress | None, orchion_anonymous: bool, **others: Any) -> None:
        command(orchion=OrchionOptions(orchion, orchion_anonymous), **others)

    decorated: Callable[..., None] = gathered
    for option in reversed(options):
        decorated = option(decorated)
    return decorated
