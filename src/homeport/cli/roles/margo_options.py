"""The options of the Margo management interface, as one value."""

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from homeport.cli.roles.addresses import ADDRESS_OR_OFF, OFF, ListenAddress
from homeport.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from homeport.central.parts import MargoPort


@dataclass(frozen=True, slots=True)
class MargoOptions:
    given: ListenAddress | None
    """None where no option was given."""
    usual: ListenAddress
    base: str
    unknown_types: str = "refuse"

    @property
    def addresses(self) -> Mapping[str, ListenAddress]:
        """The addresses that must be free, by option."""
        return {} if self.given in {None, OFF} else {"margo": self.given}

    @property
    def settings(self) -> dict[str, Any]:
        """For CentralSettings."""
        chosen = self.usual if self.given is None else self.given
        return {
            "margo_address": None if chosen == OFF else (chosen.host, chosen.port),
            "margo_is_required": self.given is not None,
            "margo_base": self.base,
            "margo_unknown_types": self.unknown_types,
        }


def margo_notes(margo: "MargoPort", options: MargoOptions) -> Sequence[str]:
    """Notes for the user who started it."""
    if margo.address is not None:
        return (f"Margo: https://{ListenAddress(*margo.address)}{options.base.rstrip('/')}/api/v1",)
    return () if options.given == OFF else (f"No Margo interface: {margo.why_off}",)


def margo_options(usual: ListenAddress) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Adds --margo and what belongs to it, which the command receives as `margo`."""
    options = (
        click.option(
            "--margo",
            type=ADDRESS_OR_OFF,
            help=f"The Margo management interface, with mutual TLS; off for none [{usual}].",
        ),
        click.option("--margo-base", metavar="PATH", default="", help="A path in front of its /api/v1."),
        click.option(
            "--margo-unknown-types",
            type=click.Choice(["refuse", "custom"]),
            default="refuse",
            show_default=True,
            help="What a runtime or deployment type that Margo does not name is in a device's report.",
        ),
    )

    def add(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def gathered(
            *, margo: ListenAddress | None, margo_base: str, margo_unknown_types: str, **others: Any
        ) -> None:
            command(margo=MargoOptions(margo, usual, margo_base, margo_unknown_types), **others)

        decorated: Callable[..., None] = gathered
        for option in reversed(options):
            decorated = option(decorated)
        return decorated

    return add
