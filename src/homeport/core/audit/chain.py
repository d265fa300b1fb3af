"""The hash chain of the audit trail: each entry covers the one before, so a changed or missing entry is detected."""

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

from homeport.core.model.access import AuditEntry, AuditResult, NewAudit
from homeport.errors import InvalidInput
from homeport.lazy_dataclass import dataclass

BEGINNING: Final = "0" * 64
"""The previous hash of the very first entry."""


def link(previous: str, position: int, entry: NewAudit) -> str:
    """The hash of an entry at its position in the chain."""
    covered = [
        previous,
        position,
        entry.at.astimezone(UTC).isoformat(),
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
    """The entries chained to `last`."""
    position, previous = (0, BEGINNING) if last is None else (last.position, last.hash)
    chained = []
    for entry in entries:
        position += 1
        linked = AuditEntry(position, entry, previous, link(previous, position, entry))
        chained.append(linked)
        previous = linked.hash
    return tuple(chained)


def first_fault(entries: Iterable[AuditEntry], ends: "Ends | None" = None) -> str | None:
    """The first fault in a trail, as a sentence; None when the chain is intact.

    Without `ends` the trail may begin and stop anywhere, because old entries expire: missing entries before the first
    or after the last are then not detected.
    """
    check = Check() if ends is None else Check(ends.base, ends.head)
    for entry in entries:
        fault = check.follow(entry)
        if fault is not None:
            return fault
    return check.finish()


@dataclass(frozen=True, slots=True)
class Mark:
    """A position in the chain. Stored elsewhere, it proves later that the chain up to it is unchanged."""

    position: int = 0
    hash: str = BEGINNING

    @classmethod
    def of(cls, entry: AuditEntry) -> "Mark":
        return cls(entry.position, entry.hash)

    @classmethod
    def parse(cls, text: str) -> "Mark":
        match = _MARK.fullmatch(text.strip())
        if match is None:
            raise InvalidInput(
                f'"{text[:100]}" is not a checkpoint of an audit trail.',
                hint="A mark is what verify prints: a position, a colon and 64 hex digits.",
            )
        return cls(int(match[1]), match[2])

    def __str__(self) -> str:
        return f"{self.position}:{self.hash}"


UNREADABLE: Final = Mark(-1, "")
"""A checkpoint that was spoilt: no entry has it."""

_MARK: Final = re.compile(r"([0-9]{1,18}):([0-9a-f]{64})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Ends:
    base: Mark
    """The last expired entry, or the beginning."""
    head: Mark
    """The newest entry."""
    fault: str | None = None
    """What was once found missing at the end. It stays recorded: appending entries does not bring the lost ones
    back."""


def cut_off(last: AuditEntry | None, head: Mark) -> str | None:
    """What is missing at the end of a trail, as a sentence; None where its last entry is the recorded head."""
    reached = Mark() if last is None else Mark.of(last)
    if reached == head or head.position == 0:
        return None
    if head == UNREADABLE:
        return f"the record of the last entry cannot be read; entry {reached.position} is the last one found"
    if reached.position < head.position:
        return f"{_entries(reached.position + 1, head.position)} missing at the end"
    return f"entry {reached.position} is not the one that was written last, which is {head.position}"


def broken(fault: str, at: datetime) -> NewAudit:
    """The audit entry that reports the fault in the trail itself."""
    return NewAudit(at, "homeport", "", "", "audit.broken", "", AuditResult.FAILED, {"fault": fault})


class Check:
    """Verifies a chain entry by entry, so that a long one need not fit into memory.

    `base` is what the first entry has to follow, `head` an entry that has to exist.
    """

    def __init__(self, base: Mark | None = None, head: Mark | None = None) -> None:
        self._head = head
        self._has_passed_head = head is None or head.position == 0
        self.reached = base
        self.first: int | None = None
        self.count = 0

    def follow(self, entry: AuditEntry) -> str | None:
        """What is wrong with this entry at this position."""
        fault = _misplaced(self.reached, entry)
        if fault is None and entry.hash != link(entry.previous, entry.position, entry.entry):
            fault = f"entry {entry.position} was changed after it was written"
        if fault is None and self._head is not None and entry.position == self._head.position:
            self._has_passed_head = True
            if entry.hash != self._head.hash:
                fault = f"entry {entry.position} is not the one that was written there"
        self.reached = Mark.of(entry)
        self.first = entry.position if self.first is None else self.first
        self.count += 1
        return fault

    def finish(self) -> str | None:
        """What is missing after the last entry."""
        if self._head is None or self._has_passed_head:
            return None
        reached = 0 if self.reached is None else self.reached.position
        if reached < self._head.position:
            return f"{_entries(reached + 1, self._head.position)} missing at the end"
        return f"entry {self._head.position} is no longer in the trail, so nothing can be said about its mark"


def _misplaced(before: Mark | None, entry: AuditEntry) -> str | None:
    if before is None:
        return None
    if entry.position > before.position + 1:
        return f"{_entries(before.position + 1, entry.position - 1)} missing"
    if entry.position <= before.position:
        return f"entry {entry.position} stands where entry {before.position + 1} belongs"
    if entry.previous != before.hash:
        return f"entry {entry.position} does not follow the entry before it"
    return None


def _entries(first: int, last: int) -> str:
    return f"entry {first} is" if first == last else f"entries {first} to {last} are"
