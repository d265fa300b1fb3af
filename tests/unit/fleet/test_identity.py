"""The list of accepted machines: what was decided last holds, whatever a read of the store still shows."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import anyio
import pytest

from homeport.core.model.identity import IdentityKind, IdentityRecord, IdentityStatus
from homeport.identity.accepted_clients import AcceptedClients
from homeport.vocabulary import SiteName

pytestmark = pytest.mark.anyio

AT = datetime(2026, 1, 1, tzinfo=UTC)


def record(name: str, standing: IdentityStatus = IdentityStatus.ACCEPTED) -> IdentityRecord:
    return IdentityRecord(
        spiffe_id=f"spiffe://homeport.internal/{name}",
        kind=IdentityKind.CLIENT,
        name=name,
        site=SiteName(name),
        spki="ab" * 32,
        standing=standing,
        csr=None,
        not_after=None,
        address="",
        requested_at=AT,
        decided_at=AT,
        decided_by="anna",
    )


class SlowStore:
    """A store whose reads end when they are let, each with what was there when it began."""

    def __init__(self, *records: IdentityRecord) -> None:
        self.records = {each.spiffe_id: each for each in records}
        self.began = 0
        self.may_end: list[anyio.Event] = []

    @asynccontextmanager
    async def read(self) -> AsyncIterator[Any]:
        yield self

    async def identities(self, standing: IdentityStatus) -> Sequence[IdentityRecord]:
        seen = [each for each in self.records.values() if each.standing is standing]
        gate = anyio.Event()
        self.may_end.append(gate)
        self.began += 1
        await gate.wait()
        return seen


async def load(policy: AcceptedClients, store: Any) -> None:
    await policy.load(store)


@pytest.mark.parametrize(
    ("before", "after", "is_accepted"),
    [
        (IdentityStatus.ACCEPTED, IdentityStatus.REMOVED, False),
        (IdentityStatus.PENDING, IdentityStatus.ACCEPTED, True),
    ],
)
async def test_a_decision_in_the_middle_of_a_load_is_not_undone_by_it(
    before: IdentityStatus, after: IdentityStatus, is_accepted: bool
) -> None:
    one = record("one", before)
    store, policy = SlowStore(one), AcceptedClients()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(load, policy, store)
        await anyio.wait_all_tasks_blocked()
        policy.learn(replace(one, standing=after))
        store.may_end[0].set()
    assert policy.accepts(one.spiffe_id) is is_accepted


async def test_an_older_read_never_ends_after_a_newer_one() -> None:
    one = record("one")
    store, policy = SlowStore(one), AcceptedClients()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(load, policy, store)
        tasks.start_soon(load, policy, store)
        await anyio.wait_all_tasks_blocked()
        assert store.began == 1
        store.records[one.spiffe_id] = replace(one, standing=IdentityStatus.REMOVED)  # by another replica
        store.may_end[0].set()
        await anyio.wait_all_tasks_blocked()
        store.may_end[1].set()
    assert not policy.accepts(one.spiffe_id)


async def test_what_was_learned_before_is_forgotten_once_the_store_says_otherwise() -> None:
    one = record("one")
    store, policy = SlowStore(replace(one, standing=IdentityStatus.REMOVED)), AcceptedClients()
    policy.learn(one)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(load, policy, store)
        await anyio.wait_all_tasks_blocked()
        store.may_end[0].set()
    assert not policy.accepts(one.spiffe_id)
