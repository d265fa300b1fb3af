"""Joining, renewal and removal of machines. Central's registrar signs for sites and other Margo clients, a site's
registrar for its own nodes, whether or not central is reachable.

A machine proves possession of its key by a signed request (CSR); the key itself is never sent. Only the registrar
decides the name in the certificate. Each decision is recorded in the audit trail, refusals too.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, Final

from homeport.core.identity import joining
from homeport.core.model.access import AuditResult, NewAudit
from homeport.core.model.caller import Caller, Role
from homeport.core.model.identity import IdentityKind, IdentityRecord, IdentityStatus, JoinToken, Peer
from homeport.errors import HomeportError, NotFound, Refused
from homeport.identity.accepted_clients import AcceptedClients
from homeport.identity.realm import Realm
from homeport.identity.register import PREFIX, Application, Grant, Register
from homeport.lazy_dataclass import dataclass
from homeport.ports import Clock, Store, Transaction
from homeport.vocabulary import SiteName

TOKEN_SECONDS: Final = 3600.0
"""An hour: long enough to walk to the other machine."""

Auditor = Callable[[NewAudit], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Invitation:
    """`text` is the token itself; it is shown once and not stored."""

    text: str
    token: JoinToken


@dataclass(frozen=True, slots=True, kw_only=True)
class Registrar:
    store: Store
    clock: Clock
    register: Register
    policy: AcceptedClients
    random_bytes: Callable[[int], bytes]
    note: Auditor | None = None

    @property
    def realm(self) -> Realm:
        return self.register.realm

    async def invite(
        self,
        site: SiteName,
        caller: Caller,
        *,
        lifetime_seconds: float = TOKEN_SECONDS,
        kind: IdentityKind | None = None,
    ) -> Invitation:
        """Creates a token for a site, or for one node of it. For a `kind` other than its own, the registrar only
        creates the token, and the registrar that will redeem it must `expect` it."""
        now = self.clock.now()
        fresh = joining.new_token(PREFIX, self.random_bytes(8), self.random_bytes(32))
        token = JoinToken(
            id=fresh.id,
            kind=kind or self.realm.kind,
            site=site,
            hash=fresh.hash,
            created_at=now,
            created_by=caller.name,
            expires_at=now + timedelta(seconds=lifetime_seconds),
        )
        async with self._noted("identities.invite", site, caller):
            if token.kind is self.realm.kind:
                await self.expect(token)
        return Invitation(fresh.text, token)

    async def expect(self, token: JoinToken) -> None:
        """Stores a token that another registrar created and a machine will present here."""
        refusal = self.realm.mismatch(token, token.site)
        if refusal is not None:
            raise Refused(refusal)
        await self.store.write(lambda tx: tx.put_join_token(token))

    async def enrol(self, application: Application) -> Grant | None:
        """The certificates, or None while approval is pending. Raises Refused, Conflict, InvalidInput."""
        caller = Caller(application.name, Role.VIEWER, application.address)
        async with self._noted("identities.enrol", application.name, caller) as detail:
            grant = await self._admit(application)
            if grant is None:
                detail["pending"] = True
            return grant

    async def issue(self, name: str, csr: bytes, caller: Caller) -> Grant:
        """A certificate for a third-party client, requested by an administrator."""
        async with self._noted("identities.issue", name, caller):
            application = Application(name=name, csr=csr, address=caller.address)
            grant = await self._admit(application, invited_by=caller.name)
            assert grant is not None, "accepted by an administrator"
            return grant

    async def outcome(self, spki: str) -> Grant | None:
        """The outcome of a pending request, by its key. None: still pending."""
        record = next((each for each in await self.identities() if each.spki == spki and each.csr), None)
        if record is None or record.kind is not self.realm.kind:
            raise NotFound("There is no such request to join.", hint="Send it again.")
        if record.standing is IdentityStatus.REMOVED:
            raise Refused(
                f'"{record.name}" was denied.', hint="Ask the administrator of this fleet for a join command."
            )
        if record.standing is IdentityStatus.PENDING:
            return None
        found = record

        async def work(tx: Transaction) -> Grant:
            authority_csr = await self.register.authority_csr_of(tx, found)
            return await self.register.grant(tx, found, authority_csr, self.clock.now())

        return await self.store.write(work)

    async def renew(self, spiffe_id: str, csr: bytes, *, address: str) -> Grant:
        """Requires proof of the recorded key; the last certificate may have expired long ago. A copied request is
        useless to others: the certificate is for the key that signed it."""
        now = self.clock.now()
        try:
            return await self.store.write(lambda tx: self.register.renew(tx, spiffe_id, csr, now))
        except HomeportError as error:
            caller = Caller(spiffe_id, Role.VIEWER, address)
            await self._record("identities.renew", spiffe_id, caller, AuditResult.REFUSED, {"why": str(error)})
            error.is_recorded = True
            raise

    async def approve(self, name: str, caller: Caller, *, key: str | None = None) -> IdentityRecord:
        """Approves a pending machine; it fetches its certificate with its next poll. With `key`, only the machine
        with that key: raises Conflict for another."""
        async with self._noted("identities.approve", name, caller):
            return await self._decide(name, IdentityStatus.ACCEPTED, caller, key=key)

    async def remove(self, name: str, caller: Caller) -> IdentityRecord:
        """Denies a pending machine or removes an accepted one, at once: its certificate is no longer accepted."""
        async with self._noted("identities.remove", name, caller):
            return await self._decide(name, IdentityStatus.REMOVED, caller)

    async def revoke(self, name: str, caller: Caller) -> IdentityRecord | None:
        """Like `remove`, for a machine that may never have had an identity; None where there was nothing to
        remove."""
        async with self.store.read() as reader:
            known = await reader.identity(self.realm.id_of(name))
        if known is None or known.standing is IdentityStatus.REMOVED:
            return None
        return await self.remove(name, caller)

    async def record_peer(self, peer: Peer) -> None:
        """A machine with a certificate of an external authority needs approval like one that asks to join."""
        now = self.clock.now()
        if await self.store.write(lambda tx: self.register.record_peer(tx, peer, now)) is not None:
            caller = Caller(peer.name, Role.VIEWER, "")
            await self._record("identities.enrol", peer.name, caller, AuditResult.DONE, {"pending": True})

    async def identities(self) -> Sequence[IdentityRecord]:
        async with self.store.read() as reader:
            return await reader.identities()

    def is_older(self, record: IdentityRecord, moment: datetime) -> bool:
        """Whether the newest certificate of a member was issued before `moment` and is still valid."""
        if record.standing is not IdentityStatus.ACCEPTED or record.not_after is None:
            return False
        lifetime = timedelta(seconds=self.realm.seconds_of(record.kind))
        return record.not_after > self.clock.now() and record.not_after - lifetime < moment

    async def _admit(self, application: Application, *, invited_by: str = "") -> Grant | None:
        now = self.clock.now()
        grant = await self.store.write(lambda tx: self.register.admit(tx, application, now, invited_by=invited_by))
        if grant is not None:
            self.policy.learn(grant.record)
        return grant

    async def _decide(
        self, name: str, standing: IdentityStatus, caller: Caller, *, key: str | None = None
    ) -> IdentityRecord:
        now = self.clock.now()
        decided = await self.store.write(
            lambda tx: self.register.decide(tx, name, standing, now, decided_by=caller.name, key=key)
        )
        self.policy.learn(decided)
        return decided

    @asynccontextmanager
    async def _noted(self, action: str, target: str, caller: Caller) -> AsyncIterator[dict[str, Any]]:
        """Yields the details of the audit entry, for the caller to fill in."""
        detail: dict[str, Any] = {}
        try:
            yield detail
        except HomeportError as error:
            await self._record(action, target, caller, AuditResult.REFUSED, {"why": str(error)})
            error.is_recorded = True
            raise
        await self._record(action, target, caller, AuditResult.DONE, detail)

    async def _record(
        self, action: str, target: str, caller: Caller, result: AuditResult, detail: Mapping[str, Any]
    ) -> None:
        if self.note is not None:
            entry = NewAudit(
                self.clock.now(), caller.name, caller.role.value, caller.address, action, target, result, detail
            )
            await self.note(entry)
