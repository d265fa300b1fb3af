"""The options of the built-in registry, as one value."""

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from homeport.cli.roles.addresses import ADDRESS_OR_OFF, OFF, ListenAddress
from homeport.cli.roles.sizes import SIZE
from homeport.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from homeport.ports import BuiltInRegistry


@dataclass(frozen=True, slots=True)
class RegistryOptions:
    given: ListenAddress | None
    """None where no option was given."""
    usual: ListenAddress | None
    quota_bytes: int
    tags: str
    app_keys: tuple[Path, ...] = ()
    model_keys: tuple[Path, ...] = ()

    @property
    def addresses(self) -> Mapping[str, ListenAddress]:
        """The addresses that must be free, by option."""
        return {} if self.given in {None, OFF} else {"registry": self.given}

    @property
    def settings(self) -> dict[str, Any]:
        """For CentralSettings. Without an explicit port, the next free one is used when the default is in use."""
        chosen = self.usual if self.given is None else None if self.given == OFF else self.given
        return {
            "registry_address": None if chosen is None else (chosen.host, chosen.port),
            "registry_may_move": self.given is None,
            "registry_quota_bytes": self.quota_bytes,
            "registry_tags": self.tags,
            "app_keys": self.app_keys,
            "model_keys": self.model_keys,
        }


def registry_notes(registry: "BuiltInRegistry") -> Sequence[str]:
    """Notes for the user who started it."""
    if registry.address is not None:
        return (f"Registry: {registry.address.host}",)
    return (f"No registry: {registry.why_off}",) if registry.is_wanted else ()


def registry_options(
    usual: ListenAddress | None = None,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Adds --registry, what belongs to it, --app-key and --model-key, which the command receives as `registry`.
    `usual` is the default address."""
    default = "off" if usual is None else f"{usual}, or the next free port"
    options = (
        click.option(
            "--registry",
            type=ADDRESS_OR_OFF,
            help=f"The built-in registry for images, charts and components; off for none [{default}].",
        ),
        click.option(
            "--registry-quota", type=SIZE, default="20G", show_default=True, help="Its maximum size on disk."
        ),
        click.option(
            "--registry-tags",
            type=click.Choice(["versions", "all", "none"]),
            default="versions",
            show_default=True,
            help="Which tags keep their content permanently; others, such as latest, may move.",
        ),
        click.option(
            "--app-key",
            "app_keys",
            multiple=True,
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="A public key (PEM); app packages of registries need a cosign signature of one; may be repeated.",
        ),
        click.option(
            "--model-key",
            "model_keys",
            multiple=True,
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="A public key (PEM); models of the catalog need a cosign signature of one; may be repeated.",
        ),
    )

    def add(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def gathered(
            *,
            registry: ListenAddress | None,
            registry_quota: int,
            registry_tags: str,
            app_keys: tuple[Path, ...],
            model_keys: tuple[Path, ...],
            **others: Any,
        ) -> None:
            options = RegistryOptions(registry, usual, registry_quota, registry_tags, app_keys, model_keys)
            command(registry=options, **others)

        decorated: Callable[..., None] = gathered
        for option in reversed(options):
            decorated = option(decorated)
        return decorated

    return add
