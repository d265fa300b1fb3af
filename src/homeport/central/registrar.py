"""Central's register of sites and clients: who joined, who asks to, who was removed."""

import json
import secrets
from collections.abc import Awaitable, Callable
from typing import Final

from homeport.adapters.identity import bundle as bundles
from homeport.adapters.identity.keys import csr_spki
from homeport.central.identity import CentralIdentity
from homeport.central.settings import CentralSettings
from homeport.core.model.identity import IdentityRecord
from homeport.fleet.enrolment import Auditor, Registrar
from homeport.fleet.identity import Policy
from homeport.fleet.realm import Realm
from homeport.fleet.register import Register
from homeport.ports import Clock, Store
from homeport.serving.enrolling import Desk, Reach

REACH: Final = "reach:"
"""Begins the names of the values that say how a site's nodes reach it."""


async def open_registrar(
    settings: CentralSettings, store: Store, clock: Clock, identity: CentralIdentity, note: Auditor
) -> Registrar:
    policy = Policy()
    await policy.load(store)
    realm = Realm(
        domain=settings.trust_domain,
        wfm=settings.wfm_id,
        is_outside=identity.is_outside,
        svid_seconds=settings.svid_seconds,
        intermediate_seconds=settings.intermediate_seconds,
    )
    return Registrar(
        store=store,
        clock=clock,
        register=Register(realm=realm, authority=lambda: identity.authority, spki_of=csr_spki),
        policy=policy,
        random_bytes=secrets.token_bytes,
        note=note,
    )


def enrolment_desk(registrar: Registrar, identity: CentralIdentity, store: Store, end: Callable[[str], None]) -> Desk:
    """`end` closes what a machine has open, by its SPIFFE ID."""

    async def removed(record: IdentityRecord) -> None:
        end(record.spiffe_id)

    return Desk(
        registrar=registrar,
        bundle=lambda: bundles.encode(identity.authority.bundle()),
        spki_of=csr_spki,
        on_removed=removed,
        on_reach=remember_reach(store),
    )


def remember_reach(store: Store) -> Callable[[str, Reach], Awaitable[None]]:
    async def remember(name: str, reach: Reach) -> None:
        await store.write(lambda tx: tx.set_value(REACH + name, reach.model_dump_json()))

    return remember


async def reach_of(store: Store, site: str) -> Reach | None:
    async with store.read() as reader:
        known = await reader.value(REACH + site)
    return None if known is None else Reach(**json.loads(known))
