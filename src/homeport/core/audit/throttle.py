"""Limits what unauthenticated clients can add to the audit trail: long names are cut, floods of refusals are
counted."""

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from homeport.core.model.access import AuditResult, NewAudit
from homeport.lazy_dataclass import dataclass

TEXT_MAX: Final = 300
FOLD_SECONDS: Final = 60.0
FOLDS_MAX: Final = 100
"""How many different refusals are kept apart within one window; all others become one entry per action."""
SEVERAL: Final = "several"
_TOKEN: Final = re.compile(r"hp[jlm]?_[A-Za-z0-9_-]{8,}")
"""A token sent where a name belongs must not appear in the trail."""


def cleaned(entry: NewAudit) -> NewAudit:
    """Cuts names that unauthenticated clients choose, and removes characters that text or databases cannot hold."""
    return replace(
        entry,
        actor=_text(entry.actor),
        address=_text(entry.address),
        action=_text(entry.action),
        target=_text(entry.target),
        detail={name: _text(value) if isinstance(value, str) else value for name, value in entry.detail.items()},
    )


def _text(given: str) -> str:
    if len(given) <= TEXT_MAX and given.isprintable() and "hp" not in given:
        return given
    given = _TOKEN.sub("[a token]", given)
    kept = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in given[:TEXT_MAX])
    return kept if len(given) <= TEXT_MAX else kept[: TEXT_MAX - 1] + "…"


FoldKey = tuple[str, str, str, str, str]


@dataclass(slots=True)
class _Fold:
    first: NewAudit
    count: int = 0
    """Repeats after the first."""
    last_at: datetime | None = None
    target: str = ""


class AuditThrottle:
    """Keeps a flood of refusals from filling the disk. Pure: time comes with the entries.

    The first refusal of its kind is admitted. Repeats within the window are counted, and `due` returns them as one
    entry with `count` and `since`. Entries about changes are always admitted.
    """

    def __init__(self, *, window_seconds: float = FOLD_SECONDS, kinds_max: int = FOLDS_MAX) -> None:
        self._window = timedelta(seconds=window_seconds)
        self._kinds_max = kinds_max
        self._folds: dict[FoldKey, _Fold] = {}

    def admit(self, entry: NewAudit) -> bool:
        """Whether the entry is written individually."""
        if not _is_foldable(entry):
            return True
        key = _key(entry)
        fold = self._folds.get(key)
        if fold is None and len(self._folds) >= self._kinds_max:
            entry = replace(entry, actor=SEVERAL, role="", address=SEVERAL)
            key = _key(entry)
            fold = self._folds.get(key)
        if fold is None:
            self._folds[key] = _Fold(entry, target=entry.target)
            return True
        fold.count += 1
        fold.last_at = entry.at
        if entry.target != fold.target:
            fold.target = SEVERAL
        return False

    def due(self, now: datetime, *, all_of_them: bool = False) -> Sequence[NewAudit]:
        """The counted refusals of windows that have ended, each as one entry; they are removed from memory."""
        over = [key for key, fold in self._folds.items() if all_of_them or now - fold.first.at >= self._window]
        return tuple(_folded(fold) for fold in [self._folds.pop(key) for key in over] if fold.count)


def _is_foldable(entry: NewAudit) -> bool:
    """Entries about changes never are. One of our failures may have changed something first; a join request that is
    kept pending has not."""
    if entry.result is AuditResult.BEGUN:
        return False
    if entry.result is AuditResult.DONE:
        return bool(entry.detail.get("pending"))
    status = entry.detail.get("status", 0)
    return not (isinstance(status, int) and status >= 500)


def _key(entry: NewAudit) -> FoldKey:
    return (entry.actor, entry.address, entry.action, entry.result.value, str(entry.detail.get("code", "")))


def _folded(fold: _Fold) -> NewAudit:
    code = fold.first.detail.get("code")
    detail = {"count": fold.count, "since": fold.first.at.isoformat(), **({"code": code} if code else {})}
    return replace(fold.first, at=fold.last_at or fold.first.at, target=fold.target, detail=detail)
