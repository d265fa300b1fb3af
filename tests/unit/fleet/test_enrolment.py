"""Who may join, with which token and which key, and what a person decides."""

import hashlib
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import pytest

from homeport.adapters.store.open import open_store
from homeport.core.model.access import AuditResult, NewAudit
from homeport.core.model.caller import Caller, Role
from homeport.core.model.identity import (
    CertificateView,
    IdentityKind,
    IdentityRecord,
    IdentityStatus,
    Issued,
    Peer,
    TrustBundle,
)
from homeport.errors import Conflict, InvalidInput, NotFound, Refused
from homeport.identity import register as register_module
from homeport.identity.accepted_clients import AcceptedClients
from homeport.identity.enrolment import Registrar
from homeport.identity.realm import Realm
from homeport.identity.register import Application, Grant, Register
from homeport.ports import Reader, Store
from homeport.vocabulary import SiteName

pytestmark = pytest.mark.anyio

NORTH, SOUTH = SiteName("north"), SiteName("south")
ANNA = Caller("anna", Role.ADMIN, "10.0.0.1")


class Clock:
    def __init__(self) -> None:
        self.time = datetime(2026, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        return self.time

    def monotonic(self) -> float:
        return 0.0

    def pass_seconds(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)


class PaperAuthority:
    """Signs by writing down what it was asked to, so that the decisions can be read without any cryptography."""

    domain = "example.org"

    def issue(
        self, csr: bytes, *, spiffe_id: str, dns_names: Sequence[str] = (), lifetime_seconds: float, now: datetime
    ) -> Issued:
        if csr == b"nonsense":
            raise InvalidInput("This is no request.")
        return Issued(json.dumps([csr.decode(), spiffe_id]).encode(), now + timedelta(seconds=lifetime_seconds))

    def issue_intermediate(self, csr: bytes, *, spiffe_id: str, lifetime_seconds: float, now: datetime) -> Issued:
        return self.issue(csr, spiffe_id=spiffe_id, lifetime_seconds=lifetime_seconds, now=now)

    def bundle(self) -> TrustBundle:
        return TrustBundle(self.domain, 1, 300, ())


def spki_of(csr: bytes) -> str:
    return hashlib.sha256(csr).hexdigest()


@dataclass
class RegistrarUnderTest:
    registrar: Registrar
    clock: Clock
    store: Store
    notes: list[NewAudit] = field(default_factory=list)

    async def invite(self, site: SiteName = NORTH) -> str:
        return (await self.registrar.invite(site, ANNA)).text

    async def enrol(
        self, name: str = "north", *, key: bytes = b"key", token: str | None = None, authority: bytes | None = None
    ) -> Grant | None:
        return await self.registrar.enrol(
            Application(name=name, csr=key, token=token, authority_csr=authority, address="10.0.0.7")
        )

    async def standing(self, spiffe_id: str) -> IdentityStatus | None:
        async with self.store.read() as reader:
            record = await reader.identity(spiffe_id)
        return None if record is None else record.standing


def registrar_of(store: Store, site: SiteName | None = None) -> RegistrarUnderTest:
    clock, notes, chance = Clock(), list[NewAudit](), iter(range(1, 250))

    async def note(entry: NewAudit) -> None:
        notes.append(entry)

    realm = Realm(domain="example.org", wfm="central", site=site, svid_seconds=100, intermediate_seconds=1000)
    registrar = Registrar(
        store=store,
        clock=clock,
        register=Register(realm=realm, authority=PaperAuthority, spki_of=spki_of),
        policy=AcceptedClients(),
        random_bytes=lambda count: bytes([next(chance)]) * count,
        note=note,
    )
    return RegistrarUnderTest(registrar, clock, store, notes)


@pytest.fixture
async def central(tmp_path: Path) -> AsyncIterator[RegistrarUnderTest]:
    async with open_store(str(tmp_path / "central.db")) as store:
        yield registrar_of(store)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[RegistrarUnderTest]:
    async with open_store(str(tmp_path / "site.db")) as store:
        yield registrar_of(store, NORTH)


CLIENT = "spiffe://example.org/margo/wfm/central/client/north"
NODE = "spiffe://example.org/homeport/site/north/node/n1"


async def test_a_token_lets_a_site_in_and_gives_it_its_intermediate(central: RegistrarUnderTest) -> None:
    grant = await central.enrol(token=await central.invite(), authority=b"authority-key")
    assert grant is not None
    assert grant.record.spiffe_id == CLIENT
    assert json.loads(grant.svid.chain) == ["key", CLIENT]
    assert grant.svid.not_after == central.clock.now() + timedelta(seconds=100)
    assert grant.authority is not None
    assert json.loads(grant.authority.chain) == ["authority-key", "spiffe://example.org/homeport/site/north"]
    assert grant.authority.not_after == central.clock.now() + timedelta(seconds=1000)
    assert await central.standing("spiffe://example.org/homeport/site/north") is IdentityStatus.ACCEPTED


async def test_a_site_names_its_nodes_whatever_they_ask_for(site: RegistrarUnderTest) -> None:
    grant = await site.enrol("n1", key=b"I am spiffe://example.org/margo/wfm/central", token=await site.invite())
    assert grant is not None
    assert json.loads(grant.svid.chain)[1] == NODE
    assert (grant.record.kind, grant.record.site) == (IdentityKind.NODE, NORTH)


async def test_a_used_token_admits_nobody_else(site: RegistrarUnderTest) -> None:
    token = await site.invite()
    await site.enrol("n1", token=token)
    with pytest.raises(Refused, match="used"):
        await site.enrol("n2", key=b"other", token=token)
    assert await site.standing(NODE.replace("n1", "n2")) is None


async def test_an_answer_that_was_lost_is_given_again_to_the_same_key(site: RegistrarUnderTest) -> None:
    token = await site.invite()
    await site.enrol("n1", token=token)
    again = await site.enrol("n1", token=token)
    assert again is not None
    assert again.record.decided_by.startswith("join token")


async def test_a_token_ends_with_its_hour(site: RegistrarUnderTest) -> None:
    token = await site.invite()
    site.clock.pass_seconds(3600)
    with pytest.raises(Refused, match="expired"):
        await site.enrol("n1", token=token)


async def test_a_token_for_another_site_is_no_use(central: RegistrarUnderTest) -> None:
    token = await central.invite(SOUTH)
    with pytest.raises(Refused, match="for site south, not for north"):
        await central.enrol("north", token=token)
    assert await central.enrol("south", token=token) is not None, "the failed attempt has not used it up"


async def test_a_token_of_another_kind_is_no_use(central: RegistrarUnderTest, site: RegistrarUnderTest) -> None:
    made = await central.registrar.invite(NORTH, ANNA, kind=IdentityKind.NODE)
    with pytest.raises(Refused, match="not known here"):
        await central.enrol("north", token=made.text)
    with pytest.raises(Refused, match="for a node, not for a site"):
        await central.registrar.expect(made.token)
    await site.registrar.expect(made.token)
    assert await site.enrol("n1", token=made.text) is not None


async def test_a_wrong_secret_says_nothing_about_the_token(site: RegistrarUnderTest) -> None:
    token = await site.invite()
    forged = token[:-64] + "0" * 64
    with pytest.raises(Refused, match="not valid"):
        await site.enrol("n1", token=forged)
    with pytest.raises(InvalidInput, match="form hpj_"):
        await site.enrol("n1", token="hp_1234")


async def test_a_request_that_cannot_be_signed_uses_up_no_token(site: RegistrarUnderTest) -> None:
    token = await site.invite()
    with pytest.raises(InvalidInput):
        await site.enrol("n1", key=b"nonsense", token=token)
    assert await site.enrol("n1", token=token) is not None


async def test_a_name_stays_with_its_key_until_it_is_removed(site: RegistrarUnderTest) -> None:
    await site.enrol("n1", token=await site.invite())
    token = await site.invite()
    with pytest.raises(Conflict, match="another key") as refused:
        await site.enrol("n1", key=b"thief", token=token)
    assert refused.value.hint is not None and "identity remove n1" in refused.value.hint
    await site.registrar.remove("n1", ANNA)
    grant = await site.enrol("n1", key=b"new machine", token=token)
    assert grant is not None


async def test_without_a_token_a_person_decides(site: RegistrarUnderTest) -> None:
    assert await site.enrol("n1") is None
    assert await site.registrar.outcome(spki_of(b"key")) is None
    await site.registrar.approve("n1", ANNA)
    grant = await site.registrar.outcome(spki_of(b"key"))
    assert grant is not None
    assert json.loads(grant.svid.chain) == ["key", NODE]
    assert grant.record.decided_by == "anna"


async def test_an_approved_site_gets_its_intermediate_too(central: RegistrarUnderTest) -> None:
    assert await central.enrol(authority=b"authority-key") is None
    await central.registrar.approve("north", ANNA)
    grant = await central.registrar.outcome(spki_of(b"key"))
    assert grant is not None and grant.authority is not None
    assert json.loads(grant.authority.chain)[0] == "authority-key"


async def test_a_denied_machine_hears_so_and_cannot_just_ask_again(site: RegistrarUnderTest) -> None:
    await site.enrol("n1")
    await site.registrar.remove("n1", ANNA)
    with pytest.raises(Refused, match="denied"):
        await site.registrar.outcome(spki_of(b"key"))
    with pytest.raises(Refused, match="no longer accepted"):
        await site.enrol("n1")
    with pytest.raises(Refused, match="has to ask again"):
        await site.registrar.approve("n1", ANNA)


async def test_a_stranger_cannot_slip_a_key_under_a_waiting_request(site: RegistrarUnderTest) -> None:
    await site.enrol("n1")
    with pytest.raises(Conflict, match="waiting for approval"):
        await site.enrol("n1", key=b"stranger")


async def test_the_line_of_those_who_wait_has_an_end(
    site: RegistrarUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(register_module, "PENDING_MAX", 2)
    await site.enrol("n1")
    await site.enrol("n2", key=b"2")
    with pytest.raises(Refused, match="Too many"):
        await site.enrol("n3", key=b"3")
    assert await site.enrol("n1") is None, "who waits already may ask again"


async def test_one_address_cannot_fill_the_line(site: RegistrarUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(register_module, "PENDING_PER_ADDRESS_MAX", 1)
    await site.enrol("n1")
    with pytest.raises(Refused, match="Too many"):
        await site.enrol("n2", key=b"2")


async def test_a_request_that_nobody_decides_expires_after_a_day(site: RegistrarUnderTest) -> None:
    await site.enrol("n1")
    site.clock.pass_seconds(register_module.PENDING_FOR.total_seconds() + 1)
    await site.enrol("n2", key=b"2")
    assert [record.name for record in await site.registrar.identities()] == ["n2"]
    with pytest.raises(NotFound):
        await site.registrar.approve("n1", ANNA)


async def test_approving_with_a_key_lets_in_the_machine_of_that_key_alone(site: RegistrarUnderTest) -> None:
    await site.enrol("n1", key=b"stranger")
    with pytest.raises(Conflict, match="asks with the key"):
        await site.registrar.approve("n1", ANNA, key=f"sha256:{spki_of(b'key')}")
    approved = await site.registrar.approve("n1", ANNA, key=f"sha256:{spki_of(b'stranger')}")
    assert approved.standing is IdentityStatus.ACCEPTED


async def test_the_known_key_renews_even_long_after_the_end(site: RegistrarUnderTest) -> None:
    await site.enrol("n1", token=await site.invite())
    site.clock.pass_seconds(10_000)
    grant = await site.registrar.renew(NODE, b"key", address="")
    assert grant.svid.not_after == site.clock.now() + timedelta(seconds=100)


async def test_a_sites_intermediate_renews_with_its_own_key(central: RegistrarUnderTest) -> None:
    await central.enrol(token=await central.invite(), authority=b"authority-key")
    authority = "spiffe://example.org/homeport/site/north"
    grant = await central.registrar.renew(authority, b"authority-key", address="")
    assert grant.svid.not_after == central.clock.now() + timedelta(seconds=1000)
    with pytest.raises(Refused, match="another key"):
        await central.registrar.renew(authority, b"key", address="")
    await central.registrar.remove("north", ANNA)
    with pytest.raises(Refused, match="was removed"):
        await central.registrar.renew(authority, b"authority-key", address="")


async def test_no_other_key_no_stranger_and_no_waiting_one_is_renewed(site: RegistrarUnderTest) -> None:
    with pytest.raises(Refused, match="has not joined here"):
        await site.registrar.renew(NODE, b"key", address="")
    await site.enrol("n1")
    with pytest.raises(Refused, match="not been approved"):
        await site.registrar.renew(NODE, b"key", address="")
    await site.registrar.approve("n1", ANNA)
    with pytest.raises(Refused, match="another key"):
        await site.registrar.renew(NODE, b"thief", address="10.0.0.9")
    assert (site.notes[-1].action, site.notes[-1].result) == ("identities.renew", AuditResult.REFUSED)


async def test_the_policy_follows_every_decision_at_once(site: RegistrarUnderTest) -> None:
    policy = site.registrar.policy
    assert policy.refusal(peer(b"key")) is not None
    await site.enrol("n1", token=await site.invite())
    assert policy.refusal(peer(b"key")) is None
    assert "another key" in (policy.refusal(peer(b"older machine")) or "")
    await site.registrar.remove("n1", ANNA)
    assert "not on the list" in (policy.refusal(peer(b"key")) or "")

    await site.enrol("n1", key=b"second", token=await site.invite())
    restarted = AcceptedClients()
    await restarted.load(site.store)
    assert restarted.refusal(peer(b"second")) is None
    assert restarted.refusal(peer(b"key")) is not None


async def test_a_removal_while_the_list_is_read_is_not_undone(site: RegistrarUnderTest) -> None:
    """The list is read again every second; a decision that falls between that read and its use must win."""
    await site.enrol("n1", token=await site.invite())
    policy = site.registrar.policy

    class SlowStore:
        @asynccontextmanager
        async def read(self) -> AsyncIterator[Reader]:
            async with site.store.read() as reader:
                yield cast(Reader, SlowReader(reader))

    class SlowReader:
        def __init__(self, reader: Reader) -> None:
            self._reader = reader

        async def identities(self, standing: IdentityStatus) -> Sequence[IdentityRecord]:
            found = await self._reader.identities(standing)
            await site.registrar.remove("n1", ANNA)
            return found

    await policy.load(cast(Store, SlowStore()))
    assert "not on the list" in (policy.refusal(peer(b"key")) or "")


async def test_an_administrator_gives_a_certificate_to_somebody_elses_client(central: RegistrarUnderTest) -> None:
    grant = await central.registrar.issue("Line_7.b", b"key", ANNA)
    assert json.loads(grant.svid.chain)[1] == "spiffe://example.org/margo/wfm/central/client/Line_7.b"
    assert grant.authority is None
    with pytest.raises(InvalidInput, match="not a valid name"):
        await central.registrar.issue("../evil", b"key", ANNA)


async def test_only_a_name_that_a_site_can_have_gets_an_intermediate(central: RegistrarUnderTest) -> None:
    with pytest.raises(Refused, match="not for"):
        await central.enrol("North", token=await central.invite(), authority=b"authority-key")
    with pytest.raises(InvalidInput, match="small letters"):
        await central.enrol("North", key=b"key", authority=b"authority-key")


async def test_what_nobody_knows_cannot_be_decided(site: RegistrarUnderTest) -> None:
    with pytest.raises(NotFound, match="has not joined"):
        await site.registrar.approve("n9", ANNA)
    with pytest.raises(NotFound, match="no such request"):
        await site.registrar.outcome(spki_of(b"unknown"))


async def test_every_decision_is_noted_and_none_with_a_token_in_it(site: RegistrarUnderTest) -> None:
    token = await site.invite()
    await site.enrol("n1", token=token)
    with pytest.raises(Refused):
        await site.enrol("n2", key=b"2", token=token)
    await site.registrar.remove("n1", ANNA)
    assert [(note.action, note.target, note.result.value, note.actor) for note in site.notes] == [
        ("identities.invite", "north", "done", "anna"),
        ("identities.enrol", "n1", "done", "n1"),
        ("identities.enrol", "n2", "refused", "n2"),
        ("identities.remove", "n1", "done", "anna"),
    ]
    assert token.rpartition("_")[2] not in repr(site.notes)


def peer(key: bytes) -> Peer:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    leaf = CertificateView((NODE,), False, False, now, now, "ec-p256", 256, "f", spki_of(key))
    return Peer(NODE, IdentityKind.NODE, "n1", NORTH, (leaf,))
