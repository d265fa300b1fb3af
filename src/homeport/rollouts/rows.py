"""Conversion of rollouts between the store and the core, and the one place where their state is stepped."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from homeport.catalog.rollout import intent_data, intent_of
from homeport.core.lifecycle.machine import Stepped
from homeport.core.lifecycle.rollout import ROLLOUT
from homeport.core.model.event import NewEvent
from homeport.core.model.rollout import Intent, Rollout, RolloutRow
from homeport.errors import PermanentError
from homeport.log import get_log
from homeport.vocabulary import Actor, Commit, EventKind, RolloutTrigger, SiteName

log = get_log(__name__)


def rollout_of(row: RolloutRow) -> Rollout:
    """Raises PermanentError for a row that something else has changed."""
    try:
        return _rollout_of(row)
    except Exception as error:
        raise PermanentError(
            f"The stored rollout {row.id[:8]} of {row.name} cannot be read: {type(error).__name__}.",
            hint="Change its file in Git, for example by pausing it there, and it is stored again.",
        ) from error


def readable(rows: Sequence[RolloutRow]) -> list[Rollout]:
    """Those that can be read: one bad row must not stop the others."""
    found = []
    for row in rows:
        try:
            found.append(rollout_of(row))
        except PermanentError as error:
            log.warning("rollout left out", rollout=row.id, why=str(error))
    return found


def _rollout_of(row: RolloutRow) -> Rollout:
    progress = row.progress
    return Rollout(
        intent=intent_of(row.intent),
        state=row.state,
        first_commit=Commit(progress["first_commit"]),
        version=row.version,
        updated_at=row.updated_at,
        reason=progress.get("reason", ""),
        watched_seconds=progress.get("watched_seconds"),
        refused={SiteName(site): why for site, why in (progress.get("refused") or {}).items()},
        problem=progress.get("problem"),
    )


def row_of(rollout: Rollout) -> RolloutRow:
    intent = rollout.intent
    progress: Mapping[str, Any] = {
        "first_commit": rollout.first_commit,
        "reason": rollout.reason,
        "watched_seconds": rollout.watched_seconds,
        "refused": dict(rollout.refused),
        "problem": rollout.problem,
    }
    return RolloutRow(
        id=intent.id,
        name=intent.name,
        state=rollout.state,
        intent=intent_data(intent),
        progress=progress,
        version=rollout.version,
        created_at=intent.created_at,
        updated_at=rollout.updated_at,
        created_by=intent.author,
    )


def new_rollout(intent: Intent, commit: Commit, now: datetime) -> Rollout:
    return Rollout(intent=intent, state=ROLLOUT.start, first_commit=commit, version=1, updated_at=now)


def changed(rollout: Rollout, now: datetime, **values: Any) -> Rollout:
    return replace(rollout, version=rollout.version + 1, updated_at=now, **values)


def stepped(
    rollout: Rollout, trigger: RolloutTrigger, actor: Actor, reason: str, now: datetime
) -> tuple[Rollout, NewEvent]:
    """Raises IllegalTransition where the table has no row. The caller raises the version."""
    verdict = ROLLOUT.step(rollout.state, trigger, actor)
    assert isinstance(verdict, Stepped), "nothing about a rollout is ever stale"
    after = replace(rollout, state=verdict.state, reason=reason, watched_seconds=None, updated_at=now)
    return after, rollout_event(after, now, before=rollout)


def rollout_event(rollout: Rollout, now: datetime, *, before: Rollout | None = None) -> NewEvent:
    intent = rollout.intent
    why = f": {rollout.reason}" if rollout.reason else ""
    return NewEvent(
        EventKind.ROLLOUT_STATE,
        now,
        f"rollout of {intent.name} {intent.version} is {rollout.state}{why}",
        data={
            "rollout_id": intent.id,
            "name": intent.name,
            "app_name": intent.app_name,
            "app_version": intent.version,
            "before": None if before is None else before.state.value,
            "state": rollout.state.value,
            "reason": rollout.reason,
            "waves": len(intent.waves),
            "waves_begun": intent.waves_begun,
        },
    )
