"""Earlier contents of a deployment, stored for comparison and rollback."""

import difflib
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from homeport.catalog.documents import load
from homeport.core.model.deployment import Revision
from homeport.core.model.event import HistoryEntry
from homeport.core.reconcile.plan import short
from homeport.core.values.differences import Difference, differences
from homeport.errors import Conflict, NotFound
from homeport.fleet.shared.snapshot import Snapshot
from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import DeploymentId, Digest, Trigger

_ROLLOUT: Final = "x-homeport-extensions.rollout"
"""The rollout that wrote a file changes with each deploy, but not the content."""
REVISIONS_KEPT: Final = 20
"""Per deployment. A file is some two kilobytes."""


def kept_revisions(
    snapshot: Snapshot, contents: Mapping[DeploymentId, bytes], *, author: str, now: datetime
) -> list[Revision]:
    """The new revisions in a snapshot, with the bytes of their files."""
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
        for key, content in contents.items()
        if key in snapshot.desired
    ]


@dataclass(frozen=True, slots=True)
class Compared:
    before: Revision
    after: Revision
    changes: tuple[Difference, ...]
    text: str


def compare(before: Revision, after: Revision) -> Compared:
    """Two revisions of a deployment: the differences of their content, and the lines of their files."""
    old, new = load(before.content, "before"), load(after.content, "after")
    lines = difflib.unified_diff(
        before.content.decode(errors="replace").splitlines(),
        after.content.decode(errors="replace").splitlines(),
        f"{short(before.revision)} ({before.app_version})",
        f"{short(after.revision)} ({after.app_version})",
        lineterm="",
    )
    found = tuple(each for each in differences(old.data, new.data) if not each.path.endswith(_ROLLOUT))
    return Compared(before, after, found, "\n".join(lines))


def choose_pair(
    kept: Sequence[Revision], before: str | None, after: str | None, *, current: Digest, name: str
) -> tuple[Revision, Revision]:
    """The revisions to compare: by default Git's current one and the one before it."""
    newer = (
        _by_name(kept, after, name)
        if after
        else next((each for each in kept if each.revision == current), kept[0] if kept else None)
    )
    if newer is None:
        raise NotFound(f'No revision of "{name}" is kept here.')
    if before:
        return _by_name(kept, before, name), newer
    older = [each for each in kept if each.at < newer.at]
    if not older:
        raise Conflict(f'"{name}" has had only this revision; there is nothing to compare it with.')
    return older[0], newer


def choose_revision(
    kept: Sequence[Revision], history: Sequence[HistoryEntry], to: str | None, *, current: Digest, name: str
) -> Revision:
    """The rollback target: the newest other one that was healthy, or the one that `to` names by digest or version."""
    others = [each for each in kept if each.revision != current]
    if to is not None:
        named = _by_name(others, to, name) if _fits(others, to) else _by_name(kept, to, name)
        if named.revision == current:
            raise Conflict(f'"{name}" is at {to} already.')
        return named
    healthy = {entry.revision for entry in history if entry.trigger is Trigger.HEALTHY}
    found = next((each for each in others if each.revision in healthy), None)
    if found is None:
        raise Conflict(
            f'There is nothing to go back to: no other release of "{name}" was ever healthy here.',
            hint=f"See what there was:  homeport deployments history {name}",
        )
    return found


def _fits(revisions: Sequence[Revision], text: str) -> bool:
    wanted = text.removeprefix("sha256:")
    return any(
        each.app_version == text or each.revision.removeprefix("sha256:").startswith(wanted) for each in revisions
    )


def _by_name(kept: Sequence[Revision], text: str, name: str) -> Revision:
    """By a prefix of its digest, or the newest of a version."""
    wanted = text.removeprefix("sha256:")
    by_digits = [each for each in kept if each.revision.removeprefix("sha256:").startswith(wanted)]
    found = [each for each in kept if each.app_version == text] or by_digits
    if not found:
        there = ", ".join(f"{short(each.revision)} ({each.app_version})" for each in kept[:5]) or "none"
        raise NotFound(f'"{name}" has no revision {text} here.', hint=f"There are: {there}.")
    if found == by_digits and len(found) > 1:
        raise Conflict(f'"{text}" could be several revisions of "{name}".', hint="Give more of its digits.")
    return found[0]
