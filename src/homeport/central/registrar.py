"""Central's register of sites and clients: accepted, pending and removed ones."""

import secrets
from collections.abc import Awaitable, Callable
from typing import Final

from homeport.adapters.identity import bundle as bundles
from homeport.adapters.identity.keys import csr_name, csr_spki
from homeport.central.identity import CentralIdentity
from homeport.central.settings import CentralSettings
from homeport.core.model.identity import IdentityRecord
from homeport.identity.accepted_clients import AcceptedClients
from homeport.identity.enrolment import Auditor, Registrar
from homeport.identity.realm import Realm
from homeport.identity.register import Register
from homeport.ports import Clock, Store
from homeport.serving.routes.enrolment import EnrolmentService, Reach

REACH: Final = "reach:"
"""The key prefix of the values that store how nodes reach a site."""


async def open_registrar(
    settings: CentralSettings,
    store: Store,
    clock: Clock,
    identity: CentralIdentity,
    *,
    note: Auditor,
    on_changed: Callable[[], None],
) -> Registrar:
    policy = AcceptedClients(on_changed)
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


def open_enrolment(
    registrar: Registrar, identity: CentralIdentity, store: Store, end: Callable[[str], None]
) -> EnrolmentService:
    """`end` closes a machine's open connections, by its SPIFFE ID."""

    async def removed(record: IdentityRecord) -> None:
        end(record.spiffe_id)

    return EnrolmentService(
        registrar=registrar,
        bundle=lambda: bundles.encode(identity.authority.bundle()),
        spki_of=csr_spki,
        name_of=csr_name,
        on_removed=removed,
        on_reach=remember_reach(store),
    )


def remember_reach(store: Store) -> Callable[[str, Reach], Awaitable[None]]:
    async def remember(name: str, reach: Reach) -> None:
        await store.write(lambda tx: tx.set_value(REACH + name, reach.model_dump_json()))

    return remember


async def reach_of(store: Store, site: str) -> Reach | None:
    async with store.read() as reader:
        return await reader.value_as(REACH + site, Reach.model_validate_json)
