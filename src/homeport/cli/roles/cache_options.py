"""The options of a site's cache."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from homeport.cli.roles.sizes import SIZE


def cache_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds --cache and --cache-size, which the command receives as `cache`: bytes, or None for off."""

    @click.option(
        "--cache",
        "is_cached",
        type=click.Choice(["on", "off"]),
        default="on",
        show_default=True,
        help="Keep components, charts and images for its nodes, so that each is fetched once.",
    )
    @click.option("--cache-size", type=SIZE, default="20G", show_default=True, help="Its maximum size on disk.")
    @wraps(command)
    def gathered(*, is_cached: str, cache_size: int, **others: Any) -> None:
        command(cache=cache_size if is_cached == "on" else None, **others)

    return gathered
