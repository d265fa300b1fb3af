"""The options of a site that follows a Margo fleet manager, as one value."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from homeport.core.margo.manifest import VERSION_MAX
from homeport.errors import InvalidInput
from homeport.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class WfmOptions:
    source: str
    url: str | None
    poll: float
    hours: tuple[str, ...]
    downtime: tuple[str, ...]
    share: tuple[str, ...]
    forgotten: int

    @property
    def settings(self) -> dict[str, Any]:
        """For SiteSettings."""
        if (self.source == "margo") != (self.url is not None):
            raise InvalidInput(
                "--source margo and --wfm URL belong together.",
                hint="Give both to follow a Margo fleet manager, or neither.",
            )
        return {
            "wfm_url": self.url,
            "wfm_poll_seconds": self.poll,
            "wfm_hours": self.hours,
            "wfm_downtime": self.downtime,
            "wfm_share": self.share,
            "wfm_forgotten_version": self.forgotten,
        }


def wfm_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds --source, --wfm and what belongs to it, which the command receives as `wfm`."""
    options = (
        click.option(
            "--source",
            type=click.Choice(["git", "margo"]),
            default="git",
            show_default=True,
            help="Where desired state comes from.",
        ),
        click.option(
            "--wfm", metavar="URL", help="The Margo fleet manager, with its base path: https://HOST[/PATH]."
        ),
        click.option(
            "--wfm-poll",
            type=float,
            default=15.0,
            show_default=True,
            metavar="SECONDS",
            help="Polling interval.",
        ),
        click.option(
            "--wfm-hours",
            multiple=True,
            metavar="HH:MM-HH:MM",
            help="Hours in which it is polled; may be repeated [always].",
        ),
        click.option(
            "--wfm-downtime",
            multiple=True,
            metavar="HH:MM-HH:MM",
            help="Hours in which it is never polled; may be repeated.",
        ),
        click.option(
            "--wfm-share",
            multiple=True,
            metavar="WHAT=AMOUNT",
            help="What it may count on of the nodes: cores=2, memory=4Gi, storage=100Gi; may be repeated [all].",
        ),
        click.option(
            "--wfm-forget",
            type=click.IntRange(min=0, max=VERSION_MAX),
            default=0,
            metavar="VERSION",
            help="Accept an older manifest than this adopted one, once: its fleet manager has lost its state. Without"
            " effect once a manifest was adopted with it; remove it then.",
        ),
    )

    @wraps(command)
    def gathered(
        *,
        source: str,
        wfm: str | None,
        wfm_poll: float,
        wfm_hours: tuple[str, ...],
        wfm_downtime: tuple[str, ...],
        wfm_share: tuple[str, ...],
        wfm_forget: int,
        **others: Any,
    ) -> None:
        given = WfmOptions(source, wfm, wfm_poll, wfm_hours, wfm_downtime, wfm_share, wfm_forget)
        command(wfm=given, **others)

    decorated: Callable[..., None] = gathered
    for option in reversed(options):
        decorated = option(decorated)
    return decorated
