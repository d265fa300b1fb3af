"""Holds on the command line: their duration, and how they are shown."""

from datetime import UTC, datetime
from typing import Any, Final

import click

from homeport.cli.api.client import Json
from homeport.core.values.durations import seconds_of

HOLD_SECONDS: Final = 8 * 3600.0
"""A shift."""


def hold_end(lasts: str | None, until: str | None) -> dict[str, Any]:
    """The field of the request with its end."""
    if lasts and until:
        raise click.UsageError("--for and --until exclude each other: give one of them.")
    if until:
        try:
            moment = datetime.fromisoformat(until)
        except ValueError as error:
            raise click.UsageError(f"--until {until}: write a moment such as 2030-01-31T18:00.") from error
        return {"expires_at": (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).isoformat()}
    seconds = seconds_of(lasts) if lasts else HOLD_SECONDS
    if not seconds:
        raise click.UsageError(f"--for {lasts}: write a length of time such as 90m, 8h or 2d.")
    return {"lasts_seconds": seconds}


def hold_text(hold: Json) -> str:
    ends = datetime.fromisoformat(hold["expires_at"]).astimezone(UTC)
    what = f" (deployment {hold['deployment_id'][:8]})" if hold["deployment_id"] else ""
    return f"held until {ends:%Y-%m-%d %H:%M} UTC by {hold['author']}: {hold['reason']}{what}"
