"""Tokens, identities, join tokens, the audit trail and secrets, alike on both databases."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import anyio
import pytest

from homeport.core.audit.chain import first_fault
from homeport.core.model.access import ApiToken, AuditResult, NewAudit, SecretRecord
from homeport.core.model.caller import Role
from homeport.core.model.identity import IdentityKind, IdentityRecord, IdentityStatus, JoinToken
from homeport.ports import Store, Transaction
from homeport.vocabulary import SiteName

pytestmark = pytest.mark.anyio

AT = datetime(2026, 5, 4, 3, 2, 1, 123456, tzinfo=UTC)
HOME, LINE = SiteName("home"), SiteName("line-7")


def token(token_id: str = "aabbccdd", **other: object) -> ApiToken:
    made = ApiToken(
        id=token_id,
        name="anna",
        role=Role.OPERATOR,
        sites=(HOME, LINE),
        hash="00" * 32,
        created_at=AT,
        created_by="local",
        expires_at=AT + timedelta(days=1),
    )
    return replace(made, **other)  # type: ignore[arg-type]


def identity(name: str, standing: IdentityStatus) -> IdentityRecord:
    return IdentityRecord(
        spiffe_id=f"spiffe://homeport.internal/margo/wfm/central/client/{name}",
        kind=IdentityKind.CLIENT,
        name=name,
        site=SiteName(name),
        spki="ab" * 32,
        standing=standing,
        csr=b"\x00\xff request" if standing is IdentityStatus.PENDING else None,
        not_after=None,
        address="192.0.2.7",
        requested_at=AT,
        decided_at=None,
        decided_by="",
    )


def audit(action: str, at: datetime = AT) -> NewAudit:
    return NewAudit(at, "anna", "admin", "127.0.0.1", action, "hello@home", AuditResult.DONE, {"status": 202})


def secret(name: str, site: SiteName = HOME, version: int = 1) -> SecretRecord:
    return SecretRecord(site, name, b"\x00\x01\xff sealed", version, AT, "anna")


async def test_a_token_comes_back_as_it_was_kept_and_can_change(store: Store) -> None:
    await store.write(lambda tx: tx.put_token(token()))
    async with store.read() as reader:
        assert await reader.token("aabbccdd") == token()
        assert await reader.token("unknown") is None
    revoked = token(revoked_at=AT, last_used_at=AT, expires_at=None, sites=())
    await store.write(lambda tx: tx.put_token(revoked))
    async with store.read() as reader:
        assert await reader.tokens() == [revoked]


async def test_tokens_are_listed_in_the_order_they_were_made(store: Store) -> None:
    async def add(tx: Transaction) -> None:
        await tx.put_token(token("bbbbbbbb", created_at=AT + timedelta(seconds=1)))
        await tx.put_token(token("cccccccc", created_at=AT))

    await store.write(add)
    async with store.read() as reader:
        assert [each.id for each in await reader.tokens()] == ["cccccccc", "bbbbbbbb"]


async def test_identities_are_found_by_id_and_by_standing(store: Store) -> None:
    waiting, accepted = identity("home", IdentityStatus.PENDING), identity("line-7", IdentityStatus.ACCEPTED)

    async def add(tx: Transaction) -> None:
        await tx.put_identity(waiting)
        await tx.put_identity(accepted)

    await store.write(add)
    async with store.read() as reader:
        assert await reader.identities() == [waiting, accepted]
        assert await reader.identities(IdentityStatus.PENDING) == [waiting]
        assert await reader.identity(accepted.spiffe_id) == accepted
        assert await reader.identity("spiffe://elsewhere/x") is None
    removed = replace(accepted, standing=IdentityStatus.REMOVED, decided_at=AT, decided_by="anna", not_after=AT)
    await store.write(lambda tx: tx.put_identity(removed))
    async with store.read() as reader:
        assert await reader.identity(accepted.spiffe_id) == removed
        assert await reader.identities(IdentityStatus.ACCEPTED) == []


async def test_a_join_token_is_used_once_however_many_try(store: Store) -> None:
    made = JoinToken("11223344", IdentityKind.NODE, HOME, "00" * 32, AT, "anna", AT + timedelta(hours=1))
    await store.write(lambda tx: tx.put_join_token(made))
    won: list[str] = []

    async def use(name: str) -> None:
        if await store.write(lambda tx: tx.use_join_token(made.id, by=name, at=AT)):
            won.append(name)

    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(use, f"machine-{number}")
    assert len(won) == 1
    async with store.read() as reader:
        assert await reader.join_token(made.id) == replace(made, used_at=AT, used_by=won[0])
        assert len(await reader.join_tokens()) == 1
        assert await reader.join_token("unknown") is None
    assert not await store.write(lambda tx: tx.use_join_token("unknown", by="x", at=AT))


async def test_the_audit_trail_is_one_chain_however_many_write(store: Store) -> None:
    async with anyio.create_task_group() as tasks:
        for number in range(30):
            tasks.start_soon(
                store.write, lambda tx, number=number: tx.append_audit([audit(f"a.{number}"), audit(f"b.{number}")])
            )
    async with store.read() as reader:
        entries = await reader.audit(after=0, limit=100)
        assert [entry.position for entry in entries] == list(range(1, 61))
        assert first_fault(entries) is None
        assert await reader.last_audit() == entries[-1]
        assert await reader.audit(after=50, limit=5) == entries[50:55]


async def test_a_failed_work_leaves_no_gap_in_the_audit_trail(store: Store) -> None:
    async def fails(tx: Transaction) -> None:
        await tx.append_audit([audit("lost")])
        raise ValueError("lost")

    await store.write(lambda tx: tx.append_audit([audit("first")]))
    with pytest.raises(ValueError, match="lost"):
        await store.write(fails)
    await store.write(lambda tx: tx.append_audit([audit("second")]))
    async with store.read() as reader:
        entries = await reader.audit(after=0, limit=10)
    assert [entry.entry.action for entry in entries] == ["first", "second"]
    assert first_fault(entries) is None


async def test_old_audit_entries_go_and_the_chain_still_holds(store: Store) -> None:
    entries = [audit(f"a.{day}", AT + timedelta(days=day)) for day in range(5)]
    await store.write(lambda tx: tx.append_audit(entries))
    await store.write(lambda tx: tx.trim_audit(AT + timedelta(days=3)))
    async with store.read() as reader:
        assert [entry.entry.action for entry in await reader.audit(after=0, limit=10)] == ["a.3", "a.4"]
    await store.write(lambda tx: tx.trim_audit(AT + timedelta(days=100)))
    await store.write(lambda tx: tx.append_audit([audit("next")]))
    async with store.read() as reader:
        left = await reader.audit(after=0, limit=10)
    assert [entry.entry.action for entry in left] == ["a.4", "next"]
    assert first_fault(left) is None


async def test_secrets_belong_to_their_site(store: Store) -> None:
    async def add(tx: Transaction) -> None:
        for each in (secret("b"), secret("a"), secret("a", LINE)):
            await tx.put_secret(each)

    await store.write(add)
    async with store.read() as reader:
        assert await reader.secrets(HOME) == [secret("a"), secret("b")]
        assert len(await reader.secrets()) == 3
        assert await reader.secret(LINE, "a") == secret("a", LINE)
        assert await reader.secret(LINE, "b") is None
    await store.write(lambda tx: tx.put_secret(secret("a", version=2)))
    await store.write(lambda tx: tx.remove_secret(HOME, "b"))
    await store.write(lambda tx: tx.remove_secret(HOME, "never there"))
    async with store.read() as reader:
        assert await reader.secrets(HOME) == [secret("a", version=2)]
