"""The register of identities: the transaction when a machine joins or is renewed.

Signing happens inside the transaction (it is quick and needs no network), so that a request that cannot be signed
uses up no token and leaves no record.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from homeport.core.identity import joining
from homeport.core.identity.admission import AdmissionVerdict, decide, fits, renewal_refusal
from homeport.core.model.identity import (
    ANY_KEY,
    IdentityKind,
    IdentityRecord,
    IdentityStatus,
    Issued,
    JoinToken,
    Peer,
)
from homeport.errors import Conflict, NotFound, Refused
from homeport.identity.realm import Realm
from homeport.lazy_dataclass import dataclass
from homeport.ports import Authority, Transaction

PREFIX: Final = joining.JOIN_PREFIX
PENDING_MAX: Final = 200
"""Maximum number of pending requests. Unauthenticated machines can make them, so there is a limit."""
PENDING_PER_ADDRESS_MAX: Final = 10
PENDING_FOR: Final = timedelta(days=1)
"""How long a request stays pending; a machine that still wants to join retries by itself."""
NEW_TOKEN: Final = "Make a new one:  homeport sites join-command NAME  or  homeport nodes join-command SITE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """A machine's join request."""

    name: str
    csr: bytes
    authority_csr: bytes | None = None
    """Of a site: the request for the intermediate that will sign for its nodes."""
    token: str | None = None
    address: str = ""


@dataclass(frozen=True, slots=True)
class Grant:
    """The certificates for the machine. `authority` is a site's intermediate."""

    record: IdentityRecord
    svid: Issued
    authority: Issued | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Register:
    realm: Realm
    authority: Callable[[], Authority]
    """Called each time: a site's intermediate is renewed while the site runs."""
    spki_of: Callable[[bytes], str]

    async def admit(
        self, tx: Transaction, application: Application, now: datetime, *, invited_by: str = ""
    ) -> Grant | None:
        """None: pending. `invited_by` is the administrator who requested it without a token."""
        spki = self.spki_of(application.csr)
        await self._forget_expired(tx, now)
        known = await tx.identity(self.realm.id_of(application.name))
        token = None
        if application.token is not None and not _is_member(known, spki):
            token = await self._redeem(tx, application, now)
        verdict = decide(known, spki, name=application.name, invited=token is not None or bool(invited_by))
        record = self._fresh(application, spki, now)
        if verdict is AdmissionVerdict.WAIT:
            await self._keep_waiting(tx, record, application.authority_csr)
            return None
        decided_by = f"join token {token.id}" if token else invited_by or (known.decided_by if known else "")
        record = replace(record, standing=IdentityStatus.ACCEPTED, decided_at=now, decided_by=decided_by)
        return await self.grant(tx, record, application.authority_csr, now)

    async def grant(
        self, tx: Transaction, record: IdentityRecord, authority_csr: bytes | None, now: datetime
    ) -> Grant:
        """Signs for an accepted record and, for a site that requests it, its intermediate."""
        svid = await self._sign(tx, record, now)
        authority = None
        if authority_csr is not None:
            authority = await self._sign(tx, self._beside(record, authority_csr), now)
        return Grant(record, svid, authority)

    async def renew(self, tx: Transaction, spiffe_id: str, csr: bytes, now: datetime) -> Grant:
        known = await tx.identity(spiffe_id)
        refusal = renewal_refusal(known, self.spki_of(csr), name=known.name if known else spiffe_id)
        if refusal is not None or known is None:
            raise Refused(refusal, hint=NEW_TOKEN)
        record = replace(known, csr=csr)
        return Grant(record, await self._sign(tx, record, now))

    async def decide(
        self,
        tx: Transaction,
        name: str,
        standing: IdentityStatus,
        now: datetime,
        *,
        decided_by: str,
        key: str | None = None,
    ) -> IdentityRecord:
        """An administrator's decision about a machine and, of a site, its intermediate. With `key` it applies only to
        the machine with this key: any machine can claim a name."""
        await self._forget_expired(tx, now)
        known = await tx.identity(self.realm.id_of(name))
        if key is not None and known is not None and not fits(known.spki, key.removeprefix("sha256:")):
            raise Conflict(
                f"{name} asks with the key sha256:{known.spki}, not with the one you gave.",
                hint=f"If it is not your machine, deny it:  homeport identity remove {name}",
            )
        if self.realm.is_outside and standing is IdentityStatus.ACCEPTED:
            return await self._accept_by_name(tx, known, name, now, decided_by=decided_by)
        if known is None:
            raise NotFound(f'"{name}" has not joined and has not asked to join.', hint="See  homeport identity list")
        if standing is IdentityStatus.ACCEPTED and known.standing is IdentityStatus.REMOVED:
            raise Refused(f'"{name}" was removed; it has to ask again.', hint=NEW_TOKEN)
        decided = replace(known, standing=standing, decided_at=now, decided_by=decided_by)
        await tx.put_identity(decided)
        beside = await self._beside_of(tx, known)
        if beside is not None:
            await tx.put_identity(replace(beside, standing=standing, decided_at=now, decided_by=decided_by))
        return decided

    async def record_peer(self, tx: Transaction, peer: Peer, now: datetime) -> IdentityRecord | None:
        """Records an authenticated machine that is not on the list yet; its new record, or None where it has one."""
        if await tx.identity(peer.spiffe_id) is not None:
            return None
        record = replace(self._named(peer.name, now), spki=peer.chain[0].spki)
        await self._keep_waiting(tx, record, None)
        return record

    async def _accept_by_name(
        self, tx: Transaction, known: IdentityRecord | None, name: str, now: datetime, *, decided_by: str
    ) -> IdentityRecord:
        """May be called before the machine first connects. It admits any key that the authority certifies for this
        name."""
        record = known or self._named(name, now)
        accepted = replace(
            record, spki=ANY_KEY, standing=IdentityStatus.ACCEPTED, decided_at=now, decided_by=decided_by, csr=None
        )
        await tx.put_identity(accepted)
        return accepted

    async def authority_csr_of(self, tx: Transaction, record: IdentityRecord) -> bytes | None:
        beside = await self._beside_of(tx, record)
        return None if beside is None else beside.csr

    async def _redeem(self, tx: Transaction, application: Application, now: datetime) -> JoinToken:
        """Uses the token up, in the same transaction as the join."""
        token_id, secret_hash = joining.split(application.token or "", PREFIX)
        token = await tx.join_token(token_id)
        if token is None:
            raise Refused("This join token is not known here.", hint=NEW_TOKEN)
        refusal = joining.refusal(token, secret_hash, now) or self.realm.mismatch(token, application.name)
        if refusal is not None:
            raise Refused(refusal, hint=NEW_TOKEN)
        if not await tx.use_join_token(token.id, by=self.realm.id_of(application.name), at=now):
            raise Refused("This join token has been used already.", hint=NEW_TOKEN)
        return token

    async def _keep_waiting(self, tx: Transaction, record: IdentityRecord, authority_csr: bytes | None) -> None:
        waiting = {pending.spiffe_id: pending for pending in await tx.identities(IdentityStatus.PENDING)}
        if record.spiffe_id not in waiting:
            ours = [each for each in waiting.values() if each.kind is not IdentityKind.SITE_AUTHORITY]
            same = [each for each in ours if record.address and each.address == record.address]
            if len(ours) >= PENDING_MAX or len(same) >= PENDING_PER_ADDRESS_MAX:
                raise Refused("Too many machines wait for approval already.", hint="Join with a token instead.")
        await tx.put_identity(record)
        if authority_csr is not None:
            await tx.put_identity(self._beside(record, authority_csr))

    async def _forget_expired(self, tx: Transaction, now: datetime) -> None:
        waiting = await tx.identities(IdentityStatus.PENDING)
        await tx.drop_identities([each.spiffe_id for each in waiting if now - each.requested_at > PENDING_FOR])

    def _fresh(self, application: Application, spki: str, now: datetime) -> IdentityRecord:
        named = self._named(application.name, now)
        return replace(named, spki=spki, csr=application.csr, address=application.address)

    def _named(self, name: str, now: datetime) -> IdentityRecord:
        return IdentityRecord(
            spiffe_id=self.realm.id_of(name),
            kind=self.realm.kind,
            name=name,
            site=self.realm.site_of(name),
            spki=ANY_KEY,
            standing=IdentityStatus.PENDING,
            csr=None,
            not_after=None,
            address="",
            requested_at=now,
            decided_at=None,
            decided_by="",
        )

    def _beside(self, record: IdentityRecord, csr: bytes) -> IdentityRecord:
        """The record of a site's intermediate, which is always decided together with the site."""
        spiffe_id = self.realm.authority_id_of(record.name)
        kind = IdentityKind.SITE_AUTHORITY
        return replace(record, spiffe_id=spiffe_id, kind=kind, spki=self.spki_of(csr), csr=csr)

    async def _beside_of(self, tx: Transaction, record: IdentityRecord) -> IdentityRecord | None:
        if record.kind is not IdentityKind.CLIENT or record.site is None:
            return None
        return await tx.identity(self.realm.authority_id_of(record.name))

    async def _sign(self, tx: Transaction, record: IdentityRecord, now: datetime) -> Issued:
        assert record.csr is not None, "only a request can be signed"
        authority, seconds = self.authority(), self.realm.seconds_of(record.kind)
        sign = authority.issue_intermediate if record.kind is IdentityKind.SITE_AUTHORITY else authority.issue
        issued = sign(record.csr, spiffe_id=record.spiffe_id, lifetime_seconds=seconds, now=now)
        await tx.put_identity(replace(record, not_after=issued.not_after))
        return issued


def _is_member(known: IdentityRecord | None, spki: str) -> bool:
    return known is not None and known.standing is IdentityStatus.ACCEPTED and known.spki == spki
