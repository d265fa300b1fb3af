"""What a schedule does when one of its times has come."""

from datetime import datetime, timedelta
from typing import Final

from homeport.core.pipelines.cron import next_time, parse_cron, parse_zone
from homeport.core.pipelines.model import Missed, Overlap, Pipeline, Schedule
from homeport.lazy_dataclass import dataclass

GRACE: Final = timedelta(seconds=90)
"""A time that passed longer ago was missed: no central ran."""


@dataclass(frozen=True, slots=True)
class Due:
    runs: bool
    why: str
    """Why it does not run."""


def next_due(pipeline: Pipeline, now: datetime) -> datetime | None:
    schedule = pipeline.schedule
    return None if schedule is None else next_time(parse_cron(schedule.cron), parse_zone(schedule.timezone), now)


def decide(schedule: Schedule, due_at: datetime, now: datetime, *, is_running: bool) -> Due:
    if now - due_at > GRACE and schedule.missed is Missed.SKIP:
        return Due(False, f"its time {due_at.isoformat()} passed while central was not running")
    if is_running and schedule.overlap is Overlap.SKIP:
        return Due(False, "its previous run has not ended")
    return Due(True, "")
