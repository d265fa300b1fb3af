"""Writes the audit trail: durable when `note` returns, many entries in one commit, repeated refusals counted.

An entry of a change is never dropped: when the queue is full, callers wait. Refused attempts are different, because
unauthenticated clients decide how many there are: the first is written at once, its repeats are counted and written
as one entry when their window ends.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Final

import anyio

from homeport.core.audit.throttle import TEXT_MAX, AuditThrottle, cleaned
from homeport.core.model.access import AuditResult, NewAudit
from homeport.core.model.caller import Caller, CallerKind
from homeport.errors import HomeportError, StorageFull, StorageReadOnly, TransientError
from homeport.lazy_dataclass import dataclass
from homeport.log import get_log
from homeport.ports import Clock, Store

WAITING_MAX: Final = 1000
"""How many entries may be queued for the disk before callers have to wait."""
BATCH_MAX: Final = 200
LATER_MAX: Final = 1000

SETTLE_SECONDS: Final = 2.0
RETRY_SECONDS: Final = 1.0

log = get_log("homeport.audit")


@asynccontextmanager
async def open_auditor(store: Store, clock: Clock) -> AsyncIterator["Auditor"]:
    """Counted refusals that are not yet written are written on exit."""
    auditor = Auditor(store, clock)
    try:
        yield auditor
    finally:
        with anyio.move_on_after(SETTLE_SECONDS, shield=True):
            try:
                await auditor.write_counted(all_of_it=True)
            except HomeportError as error:
                log.warning("audit throttle counts write failed", why=str(error))


@dataclass(slots=True, eq=False)
class _Waiting:
    entry: NewAudit
    is_written: bool = False
    error: HomeportError | None = None


class Auditor:
    """One per role. The first caller that finds no write in progress writes for all that wait, so no task is
    needed."""

    def __init__(self, store: Store, clock: Clock, folds: AuditThrottle | None = None) -> None:
        self._store = store
        self._clock = clock
        self._folds = folds if folds is not None else AuditThrottle()
        self._slots = anyio.Semaphore(WAITING_MAX)
        self._write_lock = anyio.Lock()
        self._waiting: list[_Waiting] = []
        self._later: list[NewAudit] = []
        self._has_later = anyio.Event()

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
        """Records an action with the current time. `detail` never holds a secret, a token or a key; `detail["code"]`
        is the reason of a refusal, and repeats of the same refusal are counted by it."""
        await self.record(
            self.entry(
                action=action,
                target=target,
                result=result,
                actor=actor,
                role=role,
                address=address,
                detail=detail or {},
            )
        )

    def entry(
        self,
        *,
        action: str,
        target: str,
        result: AuditResult,
        actor: str,
        role: str,
        address: str,
        detail: Mapping[str, Any],
    ) -> NewAudit:
        """With the current time."""
        at: datetime = self._clock.now().astimezone(UTC)
        return NewAudit(at, actor, role, address, action, target, result, dict(detail))

    async def note_by(
        self,
        caller: Caller,
        action: str,
        target: str = "",
        result: AuditResult = AuditResult.DONE,
        detail: Mapping[str, Any] | None = None,
    ) -> None:
        """Like `note`, for an authenticated caller."""
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
        """Returns when the entry is durable. A repeat of a recent refusal is counted instead."""
        entry = cleaned(entry)
        if not self._folds.admit(entry):
            return
        await self._write(entry)

    async def record_soon(self, entry: NewAudit) -> None:
        """Returns at once; `write_behind` makes the entry durable within moments. Callers wait only when the queue is
        full, because an entry is never dropped."""
        entry = cleaned(entry)
        if not self._folds.admit(entry):
            return
        if len(self._later) >= LATER_MAX:
            await self._write(entry)
            return
        self._later.append(entry)
        self._has_later.set()

    async def write_behind(self) -> None:
        """Writes the queue of `record_soon`. One of the role's loops; `settle` also does it, on exit."""
        while True:
            await self._has_later.wait()
            self._has_later = anyio.Event()
            try:
                await self._write_later()
            except HomeportError as error:
                log.warning("audit write failed, will retry", why=str(error))
                await anyio.sleep(RETRY_SECONDS)
                self._has_later.set()

    def connection_refused(self, address: str, code: str, why: str) -> None:
        """A TLS handshake cannot wait for the disk, so this is queued."""
        at = self._clock.now().astimezone(UTC)
        detail = {"code": code, "why": why[:TEXT_MAX]}
        entry = cleaned(NewAudit(at, "anonymous", "", address, "connect", "", AuditResult.REFUSED, detail))
        if self._folds.admit(entry) and len(self._later) < LATER_MAX:
            self._later.append(entry)
            self._has_later.set()

    async def write_counted(self, *, all_of_it: bool = False) -> None:
        """Writes the counted refusals of windows that have ended. A loop calls it."""
        await self._write_later()
        for entry in self._folds.due(self._clock.now(), all_of_them=all_of_it):
            await self._write(entry)

    async def trim(self, before: datetime) -> None:
        """Deletes older entries; the rest still verifies."""
        await self._store.write(lambda tx: tx.trim_audit(before))

    async def _write(self, entry: NewAudit) -> None:
        waiting = _Waiting(entry)
        async with self._slots:
            # From here on the entry is written even when its request is cancelled: the change has been made.
            with anyio.CancelScope(shield=True):
                self._waiting.append(waiting)
                async with self._write_lock:
                    while not waiting.is_written and waiting.error is None:
                        await self._write_batch()
        if waiting.error is not None:
            kind = type(waiting.error) if isinstance(waiting.error, StorageFull | StorageReadOnly) else TransientError
            raise kind(str(waiting.error), hint=waiting.error.hint) from waiting.error

    async def _write_later(self) -> None:
        while self._later:
            async with self._write_lock:
                batch = self._later[:BATCH_MAX]
                with anyio.CancelScope(shield=True):
                    await self._append(batch)
                    del self._later[: len(batch)]

    async def _append(self, entries: Sequence[NewAudit]) -> None:
        await self._store.write(lambda tx: tx.append_audit(entries))

    async def _write_batch(self) -> None:
        batch, self._waiting = self._waiting[:BATCH_MAX], self._waiting[BATCH_MAX:]
        try:
            await self._append([waiting.entry for waiting in batch])
        except HomeportError as error:
            log.warning("audit write failed", count=len(batch), why=str(error))
            for waiting in batch:
                waiting.error = error
        else:
            for waiting in batch:
                waiting.is_written = True


def role_of(caller: Caller) -> str:
    """The role as recorded in the trail. A machine has none, whatever the caller's record says."""
    if caller.kind is CallerKind.ANONYMOUS:
        return ""
    return "machine" if caller.kind is CallerKind.MACHINE else caller.role.value
