"""Puts together what decides at a site, out of any store, clock and link: `app.py` gives it the real ones."""

import random
from dataclasses import dataclass
from functools import partial

from homeport.fleet.conductor import Conductor
from homeport.fleet.doorkeeper import Doorkeeper, Policy, nobody
from homeport.fleet.memory import recall
from homeport.fleet.outbox import epoch_of
from homeport.fleet.sessions import Sessions
from homeport.fleet.site_secrets import SiteSecrets
from homeport.fleet.site_traces import VALUE as TRACES
from homeport.fleet.site_traces import SiteTraces
from homeport.ports import CentralLink, Clock, Ids, Store, Tracer, Vault
from homeport.site.reception import Reception
from homeport.site.settings import SiteSettings
from homeport.wire.reports import encode


@dataclass(frozen=True, slots=True)
class Wired:
    conductor: Conductor
    sessions: Sessions
    reception: Reception
    secrets: SiteSecrets
    epoch: str


async def wire(
    settings: SiteSettings,
    *,
    store: Store,
    clock: Clock,
    ids: Ids,
    vault: Vault,
    central: CentralLink | None,
    refusal: Policy = nobody,
    chance: random.Random | None = None,
    tracer: Tracer | None = None,
) -> Wired:
    """Takes up where the store says that the site stopped."""
    async with store.read() as reader:
        memory = await recall(reader, settings.name, clock.now(), clock.monotonic())
        traces = SiteTraces(settings.name, tracer, clock, await reader.value(TRACES))
    sessions = Sessions(settings.name, heartbeat_seconds=settings.heartbeat_seconds)
    secrets = SiteSecrets(settings.name, store, vault, clock, chance=chance)
    # One that this key does not open is missing, and said to be.
    memory.secrets = {name: each.version for name, each in (await secrets.reveal(memory.secrets)).items()}
    conductor = Conductor(
        memory,
        store,
        clock,
        encode=encode,
        send=sessions.send_order,
        stale_seconds=settings.stale_seconds,
        lost_seconds=settings.lost_seconds,
        overdue_seconds=settings.overdue_seconds,
        reveal=secrets.reveal,
        traces=traces,
    )
    if central is not None:
        conductor.seek = partial(secrets.seek, central, conductor)
    reception = Reception(
        conductor,
        sessions,
        heartbeat_seconds=settings.heartbeat_seconds,
        door=Doorkeeper(settings.name, clock, refusal=refusal),
    )
    return Wired(conductor, sessions, reception, secrets, await epoch_of(store, ids))
