"""Forwards a site's reports to central: in order, each once, and not lost while central is gone. A central that has
lost its own memory is told anew how everything stands."""

import random
from collections.abc import Mapping
from datetime import datetime
from typing import Protocol

import anyio
import structlog

from homeport.errors import PeerUnavailable, TransientError
from homeport.fleet.backoff import Backoff
from homeport.fleet.queueing import ReportQueue
from homeport.fleet.restating import BATCH_MAX, FORGOTTEN, one_batch
from homeport.ports import CentralLink, Ids, Store
from homeport.vocabulary import NodeId, SiteName

log = structlog.get_logger(__name__)


class Announcer(Protocol):
    """What the forwarding needs of the conductor."""

    queue: ReportQueue

    def seen(self) -> Mapping[NodeId, datetime]: ...
    async def restate(self, why: str) -> None: ...


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
    joined, known = False, 0
    while True:
        try:
            if not joined:
                durable = await central.join(site, epoch=epoch, software_version=software_version)
                await _continue_from(durable, store, announcer)
                joined, known = True, durable
                log.info("joined central", site=site, reported_up_to=durable)
            durable = await _forward_all(store, central, announcer, site=site, epoch=epoch)
            if durable < known:
                joined = False
                continue
            known = durable
        except PeerUnavailable as error:
            if joined or backoff.failures == 0:
                log.warning("central cannot be reached, reports wait here", why=str(error))
            joined = False
            await anyio.sleep(backoff.next_seconds())
            continue
        except TransientError as error:
            log.warning("what central has is not written down, it is told again", why=str(error))
            await anyio.sleep(backoff.next_seconds())
            continue
        backoff.reset()
        with anyio.move_on_after(heartbeat_seconds):
            await announcer.queue.grew.wait()


async def _continue_from(durable: int, store: Store, announcer: Announcer) -> None:
    """Forgets what central has. Where that is less than has left the outbox, its database was lost or is an older
    copy; unless the rest was dropped here, and it is about to be told so."""
    async with store.read() as reader:
        left = await reader.outbox_left()
        waiting = await reader.outbox(limit=1)
    will_be_told = bool(waiting) and waiting[0].body["kind"] == "restating"
    if durable < left and not will_be_told:
        await announcer.restate(FORGOTTEN)
    else:
        await store.write(lambda tx: tx.dequeue(durable))


async def _forward_all(
    store: Store, central: CentralLink, announcer: Announcer, *, site: SiteName, epoch: str
) -> int:
    """Returns the last sequence that central has, once nothing waits any more."""
    while True:
        announcer.queue.grew = anyio.Event()
        async with store.read() as reader:
            batch = one_batch(await reader.outbox(limit=BATCH_MAX))
        durable = await central.report(site, batch, epoch=epoch, seen=announcer.seen())
        if not batch:
            return durable
        await store.write(lambda tx, upto=durable: tx.dequeue(upto))  # type: ignore[misc]
