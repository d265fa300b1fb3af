"""Joining, renewal and removal of machines. Central's registrar vouches for sites and other Margo clients, a site's
registrar for its own nodes, with central there or not.

A machine proves its key by a signed request (CSR); the key itself never travels. The registrar alone decides the
name in the certificate. Each decision is noted for the audit, refused ones too.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from homeport.core.identity import joining
from homeport.core.model.access import AuditResult, NewAudit
from homeport.core.model.caller import Caller, Role
from homeport.core.model.identity import IdentityKind, IdentityRecord, JoinToken, Peer, Standing
from homeport.errors import HomeportError, NotFound, Refused
from homeport.fleet.identity import Policy
from homeport.fleet.realm import Realm
from homeport.fleet.register import PREFIX, Application, Grant, Register
from homeport.ports import Clock, Store, Transaction
from homeport.vocabulary import SiteName

TOKEN_SECONDS: Final = 3600.0
"""An hour: long enough to walk to the other machine."""

Auditor = Callable[[NewAudit], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Invitation:
    """`text` is the token itself, which is shown once and kept nowhere."""

    text: str
    token: JoinToken


@dataclass(frozen=True, slots=True, kw_only=True)
class Registrar:
    store: Store
    clock: Clock
    register: Register
    policy: Policy
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
        """A token for a site, or for one node of it. With a `kind` other than its own, the registrar only makes the
        token, and the one it is meant for must `expect` it."""
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
        """Remembers a token that somebody will come with."""
        refusal = self.realm.mismatch(token, token.site)
        if refusal is not None:
            raise Refused(refusal)
        await self.store.write(lambda tx: tx.put_join_token(token))

    async def enrol(self, application: Application) -> Grant | None:
        """The certificates, or None while a person has to approve it. Raises Refused, Conflict, InvalidInput."""
        caller = Caller(application.name, Role.VIEWER, application.address)
        async with self._noted("identities.enrol", application.name, caller) as detail:
            grant = await self._admit(application)
            if grant is None:
                detail["pending"] = True
            return grant

    async def issue(self, name: str, csr: bytes, caller: Caller) -> Grant:
        """A certificate for somebody else's client, at an administrator's word."""
        async with self._noted("identities.issue", name, caller):
            application = Application(name=name, csr=csr, address=caller.address)
            grant = await self._admit(application, word_of=caller.name)
            assert grant is not None, "an administrator's word admits"
            return grant

    async def outcome(self, spki: str) -> Grant | None:
        """What became of a request that had to wait, by the key it was made with. None: it still waits."""
        record = next((each for each in await self.identities() if each.spki == spki and each.csr), None)
        if record is None or record.kind is not self.realm.kind:
            raise NotFound("There is no such request to join.", hint="Send it again.")
        if record.standing is Standing.REMOVED:
            raise Refused(f'"{record.name}" was denied.', hint="Ask whoever runs this fleet for a join command.")
        if record.standing is Standing.PENDING:
            return None
        found = record

        async def work(tx: Transaction) -> Grant:
            authority_csr = await self.register.authority_csr_of(tx, found)
            return await self.register.grant(tx, found, authority_csr, self.clock.now())

        return await self.store.write(work)

    async def renew(self, spiffe_id: str, csr: bytes, *, address: str) -> Grant:
        """By proof of the key on record, also long after the last certificate ended. A copied request is worth
        nothing to others: the certificate is for the key that signed it."""
        now = self.clock.now()
        try:
            return await self.store.write(lambda tx: self.register.renew(tx, spiffe_id, csr, now))
        except HomeportError as error:
            caller = Caller(spiffe_id, Role.VIEWER, address)
            await self._record("identities.renew", spiffe_id, caller, AuditResult.REFUSED, {"why": str(error)})
            error.is_recorded = True
            raise

    async def approve(self, name: str, caller: Caller) -> IdentityRecord:
        """Lets a waiting machine in; it fetches its certificate with its next question."""
        async with self._noted("identities.approve", name, caller):
            return await self._settle(name, Standing.ACCEPTED, caller)

    async def remove(self, name: str, caller: Caller) -> IdentityRecord:
        """Denies a waiting machine or sends an accepted one away, at once: its certificate no longer counts."""
        async with self._noted("identities.remove", name, caller):
            return await self._settle(name, Standing.REMOVED, caller)

    async def meet(self, peer: Peer) -> None:
        """A machine that somebody else certified waits for a person like one that asks to join."""
        now = self.clock.now()
        if await self.store.write(lambda tx: self.register.meet(tx, peer, now)) is not None:
            caller = Caller(peer.name, Role.VIEWER, "")
            await self._record("identities.enrol", peer.name, caller, AuditResult.DONE, {"pending": True})

    async def identities(self) -> Sequence[IdentityRecord]:
        async with self.store.read() as reader:
            return await reader.identities()

    def is_older(self, record: IdentityRecord, moment: datetime) -> bool:
        """Whether the newest certificate of a member was made before `moment` and still counts."""
        if record.standing is not Standing.ACCEPTED or record.not_after is None:
            return False
        lifetime = timedelta(seconds=self.realm.seconds_of(record.kind))
        return record.not_after > self.clock.now() and record.not_after - lifetime < moment

    async def _admit(self, application: Application, *, word_of: str = "") -> Grant | None:
        now = self.clock.now()
        grant = await self.store.write(lambda tx: self.register.admit(tx, application, now, word_of=word_of))
        if grant is not None:
            self.policy.learn(grant.record)
        return grant

    async def _settle(self, name: str, standing: Standing, caller: Caller) -> IdentityRecord:
        now = self.clock.now()
        decided = await self.store.write(
            lambda tx: self.register.settle(tx, name, standing, now, decided_by=caller.name)
        )
        self.policy.learn(decided)
        return decided

    @asynccontextmanager
    async def _noted(self, action: str, target: str, caller: Caller) -> AsyncIterator[dict[str, Any]]:
        """Yields what is said about it besides."""
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
