"""Times as command arguments: a date, a time, or a duration relative to now."""

from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import click

from homeport.core.values.durations import seconds_of


class MomentParameter(click.ParamType[datetime]):
    """A time without a zone is in UTC."""

    name = "TIME"

    def __init__(self, span: Literal["ago", "ahead"]) -> None:
        """The direction of a duration such as 2h."""
        self._sign = -1 if span == "ago" else 1

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        seconds = seconds_of(value)
        try:
            if seconds is not None:
                return datetime.now(UTC) + self._sign * timedelta(seconds=seconds)
            given = datetime.fromisoformat(value)
        except (ValueError, OverflowError):
            self.fail(f'"{value}" is neither a span of time such as 90d nor a date such as 2030-01-31', param, ctx)
        return given if given.tzinfo is not None else given.replace(tzinfo=UTC)


SINCE = click.option(
    "--since", type=MomentParameter("ago"), help="Only from this time on (2026-03-01T12:00:00Z), or so long ago (2h)."
)
UNTIL = click.option("--until", type=MomentParameter("ago"), help="Only before this time, or so long ago.")
