"""The contents that a deployment had: kept for comparing and for going back."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from homeport.core.model.deployment import Revision
from homeport.core.model.event import HistoryEntry
from homeport.core.reconcile.plan import short
from homeport.errors import Conflict, NotFound
from homeport.fleet.snapshot import Snapshot
from homeport.vocabulary import Digest, Happening

REVISIONS_KEPT: Final = 20
"""Of each deployment. A file is some two kilobytes."""


def kept_revisions(snapshot: Snapshot, *, author: str, now: datetime) -> list[Revision]:
    """Those that a snapshot brings."""
    return [
        Revision(
            key,
            snapshot.desired[key].revision,
            snapshot.desired[key].app_version,
            content,
            snapshot.commit,
            author,
            now,
        )
        for key, content in snapshot.contents.items()
    ]


def choose_revision(
    kept: Sequence[Revision], history: Sequence[HistoryEntry], to: str | None, *, current: Digest, name: str
) -> Revision:
    """What to go back to: the newest other one that was healthy, or the one that `to` names by digest or version."""
    others = [each for each in kept if each.revision != current]
    if to is not None:
        return _named(others, kept, to, current=current, name=name)
    healthy = {entry.revision for entry in history if entry.happening is Happening.HEALTHY}
    found = next((each for each in others if each.revision in healthy), None)
    if found is None:
        raise Conflict(
            f'There is nothing to go back to: no other release of "{name}" was ever healthy here.',
            hint="See what there was:  homeport deployments history",
        )
    return found


def _named(others: Sequence[Revision], kept: Sequence[Revision], to: str, *, current: Digest, name: str) -> Revision:
    wanted = to.removeprefix("sha256:")
    found = [
        each for each in kept if each.revision.removeprefix("sha256:").startswith(wanted) or each.app_version == to
    ]
    if not found:
        there = ", ".join(f"{short(each.revision)} ({each.app_version})" for each in others[:5]) or "no other"
        raise NotFound(f'"{name}" has no revision {to} here.', hint=f"There are: {there}.")
    if all(each.revision == current for each in found):
        raise Conflict(f'"{name}" is at {to} already.')
    choice = [each for each in found if each.revision != current]
    by_digest = {each.revision for each in choice}
    if len(by_digest) > 1 and all(each.app_version != to for each in choice):
        raise Conflict(f'"{to}" could be several revisions of "{name}".', hint="Give more of its digits.")
    return choice[0]
