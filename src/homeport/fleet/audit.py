"""Writes the audit trail: durable when `note` returns, many entries in one commit, floods folded into counts.

An entry of a change is never dropped: when too many wait, the one who asks waits too. Refused attempts are
different, for a stranger decides how many there are: the first is written at once, its repeats are counted and
written as one entry when their time is over.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import anyio
import structlog

from homeport.core.folding import TEXT_MAX, Folds, cleaned
from homeport.core.model.access import AuditResult, NewAudit
from homeport.core.model.caller import Caller, CallerKind
from homeport.errors import HomeportError, TransientError
from homeport.ports import Clock, Store

WAITING_MAX: Final = 1000
"""How many entries may wait for the disk before those who ask have to wait as well."""
BATCH_MAX: Final = 200
LATER_MAX: Final = 1000

SETTLE_SECONDS: Final = 2.0

log = structlog.get_logger("homeport.audit")


@asynccontextmanager
async def open_auditor(store: Store, clock: Clock) -> AsyncIterator["Auditor"]:
    """What was counted and not yet written is written on leaving."""
    auditor = Auditor(store, clock)
    try:
        yield auditor
    finally:
        with anyio.move_on_after(SETTLE_SECONDS, shield=True):
            try:
                await auditor.settle(all_of_it=True)
            except HomeportError as error:
                log.warning("counted refusals could not be written", why=str(error))


@dataclass(slots=True, eq=False)
class _Waiting:
    entry: NewAudit
    is_written: bool = False
    error: HomeportError | None = None


class Auditor:
    """One per role. Whoever finds the pen free writes for everybody who waits, so it needs no task of its own."""

    def __init__(self, store: Store, clock: Clock, folds: Folds | None = None) -> None:
        self._store = store
        self._clock = clock
        self._folds = folds if folds is not None else Folds()
        self._room = anyio.Semaphore(WAITING_MAX)
        self._pen = anyio.Lock()
        self._waiting: list[_Waiting] = []
        self._later: list[NewAudit] = []

    async def note(
        self,
        *,
        action: str,
        target: str = "",
        result: AuditResult = AuditResult.DONE,
        actor: str,
        role: str = "",
        address: str = "",
        detail: Mapping[str, Any] | None = None,
    ) -> None:
        """Records it, with the time of now. `detail` never holds a secret, a token or a key; `detail["code"]`
        says why something was refused, and repeats of the same refusal are folded by it."""
        at: datetime = self._clock.now().astimezone(UTC)
        await self.record(NewAudit(at, actor, role, address, action, target, result, dict(detail or {})))

    async def note_by(
        self,
        caller: Caller,
        action: str,
        target: str = "",
        result: AuditResult = AuditResult.DONE,
        detail: Mapping[str, Any] | None = None,
    ) -> None:
        """The same, of somebody who is known."""
        await self.note(
            action=action,
            target=target,
            result=result,
            actor=caller.name,
            role=role_of(caller),
            address=caller.address,
            detail={**(detail or {}), **({"key": caller.key} if caller.key else {})},
        )

    async def record(self, entry: NewAudit) -> None:
        """Returns when it is durable. An attempt like one just refused is counted instead."""
        entry = cleaned(entry)
        if not self._folds.admit(entry):
            return
        await self._write(entry)

    def connection_refused(self, address: str, code: str, why: str) -> None:
        """Nobody can wait in the middle of a handshake, so this is written by the next `settle`."""
        at = self._clock.now().astimezone(UTC)
        detail = {"code": code, "why": why[:TEXT_MAX]}
        entry = cleaned(NewAudit(at, "anonymous", "", address, "connect", "", AuditResult.REFUSED, detail))
        if self._folds.admit(entry) and len(self._later) < LATER_MAX:
            self._later.append(entry)

    async def settle(self, *, all_of_it: bool = False) -> None:
        """Writes what could not wait, and what was counted in windows that are over. A loop calls it."""
        later, self._later = self._later, []
        for entry in (*later, *self._folds.due(self._clock.now(), all_of_them=all_of_it)):
            await self._write(entry)

    async def trim(self, days: int) -> None:
        """Forgets what is older; the rest still verifies."""
        before = self._clock.now() - timedelta(days=days)
        await self._store.write(lambda tx: tx.trim_audit(before))

    async def _write(self, entry: NewAudit) -> None:
        waiting = _Waiting(entry)
        async with self._room:
            # From here on the entry gets written even when its request is cancelled: the change is made by now.
            with anyio.CancelScope(shield=True):
                self._waiting.append(waiting)
                async with self._pen:
                    while not waiting.is_written and waiting.error is None:
                        await self._write_batch()
        if waiting.error is not None:
            raise TransientError(str(waiting.error), hint=waiting.error.hint) from waiting.error

    async def _write_batch(self) -> None:
        batch, self._waiting = self._waiting[:BATCH_MAX], self._waiting[BATCH_MAX:]
        entries = [waiting.entry for waiting in batch]
        try:
            await self._store.write(lambda tx: tx.append_audit(entries))
        except HomeportError as error:
            log.warning("audit entries could not be written", count=len(batch), why=str(error))
            for waiting in batch:
                waiting.error = error
        else:
            for waiting in batch:
                waiting.is_written = True


def role_of(caller: Caller) -> str:
    """As the trail names it. A machine has no role, whatever the record of a caller has to say."""
    if caller.kind is CallerKind.ANONYMOUS:
        return ""
    return "machine" if caller.kind is CallerKind.MACHINE else caller.role.value
