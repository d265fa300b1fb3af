"""The hash chain of the audit trail: each entry covers the one before, so that a changed or missing line shows."""

import hashlib
import json
from collections.abc import Sequence

from homeport.core.model.access import AuditEntry, NewAudit

BEGINNING = "0" * 64
"""What the very first entry follows."""


def link(previous: str, position: int, entry: NewAudit) -> str:
    """The hash of an entry at its place in the chain."""
    covered = [
        previous,
        position,
        entry.at.isoformat(),
        entry.actor,
        entry.role,
        entry.address,
        entry.action,
        entry.target,
        entry.result.value,
        entry.detail,
    ]
    text = json.dumps(covered, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def append(last: AuditEntry | None, entries: Sequence[NewAudit]) -> tuple[AuditEntry, ...]:
    """The entries at their places behind `last`."""
    position, previous = (0, BEGINNING) if last is None else (last.position, last.hash)
    chained = []
    for entry in entries:
        position += 1
        linked = AuditEntry(position, entry, previous, link(previous, position, entry))
        chained.append(linked)
        previous = linked.hash
    return tuple(chained)


def first_fault(entries: Sequence[AuditEntry], before: AuditEntry | None = None) -> str | None:
    """What is wrong with a stretch of the chain, as a sentence; None when it holds.

    `before` is the last entry that was checked. Without it the stretch may begin anywhere, for old entries are
    forgotten in time, but then nothing says that its beginning is the true one.
    """
    for entry in entries:
        if before is not None and entry.position != before.position + 1:
            return f"entries {before.position + 1} to {entry.position - 1} are missing"
        if before is not None and entry.previous != before.hash:
            return f"entry {entry.position} does not follow entry {before.position}"
        if entry.hash != link(entry.previous, entry.position, entry.entry):
            return f"entry {entry.position} was changed after it was written"
        before = entry
    return None
