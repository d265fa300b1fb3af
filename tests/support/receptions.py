"""The reception of a site on a real store, without Git and without the rest of the role."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from homeport.adapters.store.open import open_store
from homeport.adapters.system import SystemClock
from homeport.fleet.site.conductor import Conductor
from homeport.fleet.site.nodes.streams import NodeSessions
from homeport.fleet.site.state import load_state
from homeport.identity.node_authorization import NodeAuthorization
from homeport.ports import Store
from homeport.site.node_reception import Reception
from homeport.vocabulary import SiteName
from homeport.wire.reports import encode
from tests.support.identities import Accepted


@dataclass
class FrontDesk:
    reception: Reception
    sessions: NodeSessions
    conductor: Conductor
    store: Store
    policy: Accepted = field(default_factory=Accepted)


@asynccontextmanager
async def front_desk(folder: Path, site: str = "home") -> AsyncIterator[FrontDesk]:
    clock, policy = SystemClock(), Accepted()
    async with open_store(f"sqlite:///{folder}/desk-{site}.db") as store:
        async with store.read() as reader:
            memory = await load_state(reader, SiteName(site), clock.now(), clock.monotonic())
        sessions = NodeSessions(SiteName(site), heartbeat_seconds=5.0)
        conductor = Conductor(
            memory,
            store,
            clock,
            encode=encode,
            send=sessions.send_order,
            stale_seconds=15.0,
            lost_seconds=30.0,
        )
        door = NodeAuthorization(SiteName(site), clock, refusal=policy.refusal)
        reception = Reception(conductor, sessions, heartbeat_seconds=5.0, authorization=door)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(sessions.record_news, conductor.take)
            tasks.start_soon(conductor.planner.run)
            yield FrontDesk(reception, sessions, conductor, store, policy)
            tasks.cancel_scope.cancel()
