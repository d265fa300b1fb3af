"""Forwards a site's reports to central: in order, each once, and not lost while central is unreachable. A full resync
is sent to a central that has lost its database, and to one that has more records than this site, whose database then
is an older copy."""

import json
import random
from collections.abc import Mapping
from datetime import datetime
from typing import Final, Protocol

import anyio

from homeport.core.model.protocol import skew
from homeport.core.values.stored import strings_of
from homeport.errors import PeerIncompatible, PeerUnavailable, TransientError
from homeport.fleet.shared.backoff import Backoff
from homeport.fleet.site.reports.queue import ReportQueue
from homeport.fleet.site.reports.resync import BATCH_MAX, FORGOTTEN, one_batch
from homeport.log import get_log
from homeport.ports import Ahead, CentralLink, Ids, JoinAnswer, Lineage, Store, Transaction
from homeport.vocabulary import NodeId, SiteName

log = get_log(__name__)


class Announcer(Protocol):
    """The part of the conductor that forwarding needs."""

    queue: ReportQueue

    def seen(self) -> Mapping[NodeId, datetime]: ...
    async def resync(self, why: str) -> None: ...
    async def start_epoch(self, epoch: str, ahead: Ahead) -> None: ...
    async def wait_no_longer(self) -> None: ...


STARTS_KEPT: Final = 20
"""How many of its latest starts a site stores, to report them to central."""


async def begin(store: Store, ids: Ids) -> tuple[str, Lineage]:
    """Gives this start an id and stores it. The epoch is created once, with the database."""
    start = ids.new()

    async def write(tx: Transaction) -> tuple[str, Lineage]:
        epoch = await tx.value("epoch") or ids.new()
        starts = (*(await tx.value_as("starts", strings_of) or ()), start)[-STARTS_KEPT:]
        await tx.set_value("epoch", epoch)
        await tx.set_value("starts", json.dumps(starts))
        return epoch, Lineage(starts, await _given(tx))

    return await store.write(write)


async def _given(tx: Transaction) -> int:
    """The highest sequence that was ever assigned to a report here."""
    given = await tx.outbox_left()
    while rows := await tx.outbox(limit=BATCH_MAX, after=given):
        given = rows[-1].sequence
    return given


LOOK_BEATS: Final = 12
"""At each of so many heartbeats the outbox is read although nothing was queued: a writer may have been cancelled
between its commit and its announcement."""


async def forward(
    store: Store,
    central: CentralLink,
    announcer: Announcer,
    *,
    site: SiteName,
    epoch: str,
    lineage: Lineage,
    ids: Ids,
    software_version: str,
    heartbeat_seconds: float,
    chance: random.Random | None = None,
) -> None:
    """Runs while the role runs. What cannot be sent stays in the outbox, whose size is a metric."""
    backoff = Backoff(chance=chance or random.Random())
    is_joined, known, incompatible, start = False, 0, "", lineage.starts[-1]
    may_wait, beats = True, 0
    while True:
        try:
            if not is_joined:
                joined = await central.join(site, epoch=epoch, software_version=software_version, lineage=lineage)
                _check_version(joined, site)
                if not joined.is_let_in and joined.ahead is not None:
                    epoch = ids.new()
                    await announcer.start_epoch(epoch, joined.ahead)
                    continue
                await _continue_from(joined, epoch, store, announcer)
                await announcer.wait_no_longer()
                is_joined, known, may_wait = True, joined.sequence, True
                log.info("joined central", site=site, reported_up_to=joined.sequence)
            beats += 1
            if may_wait or announcer.queue.grew.is_set() or beats % LOOK_BEATS == 0:
                durable = await _forward_all(store, central, announcer, site=site, epoch=epoch, start=start)
            else:
                durable = await central.report(site, [], epoch=epoch, seen=announcer.seen(), start=start)
            may_wait = False
            if durable < known:
                is_joined = False
                continue
            known = durable
        except PeerIncompatible as error:
            if str(error) != incompatible:
                log.warning("central and this site are too many releases apart, reports queued", why=str(error))
            is_joined, incompatible = False, str(error)
            await announcer.wait_no_longer()
            await anyio.sleep(error.retry_after_seconds)
            continue
        except PeerUnavailable as error:
            if is_joined or backoff.failures == 0:
                log.warning("central unreachable, reports queued", why=str(error))
            is_joined = False
            await announcer.wait_no_longer()
            await anyio.sleep(backoff.next_seconds())
            continue
        except TransientError as error:
            log.warning("could not record acknowledgement, will resend", why=str(error))
            may_wait = True
            await anyio.sleep(backoff.next_seconds())
            continue
        backoff.reset()
        with anyio.move_on_after(heartbeat_seconds):
            await announcer.queue.grew.wait()


def _check_version(joined: JoinAnswer, site: SiteName) -> None:
    refusal = skew("central", joined.protocol, us=f"site {site}")
    if refusal is not None:
        raise PeerIncompatible(refusal)


async def _continue_from(joined: JoinAnswer, epoch: str, store: Store, announcer: Announcer) -> None:
    """Deletes the reports that central has. Where that is less than has left the outbox, central's database was lost
    or is an older copy; where central has records that are missing here, this site's was. Then a full resync follows,
    unless one is pending."""
    async with store.read() as reader:
        left = await reader.outbox_left()
        waiting = await reader.outbox(limit=1)
    will_be_told = bool(waiting) and waiting[0].body.get("kind") == "restating"
    if joined.ahead is not None and not will_be_told:
        await announcer.start_epoch(epoch, joined.ahead)
    elif joined.sequence < left and not will_be_told:
        await announcer.resync(FORGOTTEN)
    else:
        await store.write(lambda tx: tx.dequeue(joined.sequence))


async def _forward_all(
    store: Store, central: CentralLink, announcer: Announcer, *, site: SiteName, epoch: str, start: str
) -> int:
    """Returns the last sequence that central has, once the outbox is empty."""
    while True:
        announcer.queue.grew = anyio.Event()
        async with store.read() as reader:
            batch = one_batch(await reader.outbox(limit=BATCH_MAX))
        durable = await central.report(site, batch, epoch=epoch, seen=announcer.seen(), start=start)
        if not batch:
            return durable
        await store.write(lambda tx, upto=durable: tx.dequeue(upto))  # type: ignore[misc]
