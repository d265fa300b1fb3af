"""Forwards a site's reports to central: in order, each once, and never lost while central is gone."""

import random
from collections.abc import Mapping
from datetime import datetime
from typing import Final, Protocol

import anyio
import structlog

from homeport.errors import PeerUnavailable
from homeport.fleet.backoff import Backoff
from homeport.ports import CentralLink, Ids, Store
from homeport.vocabulary import NodeId, SiteName

log = structlog.get_logger(__name__)

BATCH_MAX: Final = 1000


class Announcer(Protocol):
    """What the forwarding needs of the conductor."""

    outbox_grew: anyio.Event

    def seen(self) -> Mapping[NodeId, datetime]: ...


async def epoch_of(store: Store, ids: Ids) -> str:
    """Which life of the database this is; made up once."""
    async with store.read() as reader:
        known = await reader.value("epoch")
    if known is not None:
        return known
    epoch = ids.new()
    await store.write(lambda tx: tx.set_value("epoch", epoch))
    return epoch


async def forward(
    store: Store,
    central: CentralLink,
    announcer: Announcer,
    *,
    site: SiteName,
    epoch: str,
    software_version: str,
    heartbeat_seconds: float,
    chance: random.Random | None = None,
) -> None:
    """Runs for as long as the role lives. What cannot be sent waits in the outbox, whose size is a metric."""
    backoff = Backoff(chance=chance or random.Random())
    joined = False
    while True:
        try:
            if not joined:
                durable = await central.join(site, epoch=epoch, software_version=software_version)
                await store.write(lambda tx, upto=durable: tx.dequeue(upto))  # type: ignore[misc]
                joined = True
                log.info("joined central", site=site, reported_up_to=durable)
            await _forward_all(store, central, announcer, site=site, epoch=epoch)
        except PeerUnavailable as error:
            if joined or backoff.failures == 0:
                log.warning("central cannot be reached, reports wait here", why=str(error))
            joined = False
            await anyio.sleep(backoff.next_seconds())
            continue
        backoff.reset()
        with anyio.move_on_after(heartbeat_seconds):
            await announcer.outbox_grew.wait()


async def _forward_all(
    store: Store, central: CentralLink, announcer: Announcer, *, site: SiteName, epoch: str
) -> None:
    while True:
        announcer.outbox_grew = anyio.Event()
        async with store.read() as reader:
            batch = await reader.outbox(limit=BATCH_MAX)
        durable = await central.report(site, batch, epoch=epoch, seen=announcer.seen())
        if not batch:
            return
        await store.write(lambda tx, upto=durable: tx.dequeue(upto))  # type: ignore[misc]
