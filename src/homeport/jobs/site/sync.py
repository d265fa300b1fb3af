"""The exchange of jobs between a site and central. Each call brings central what has happened, in order, and the site
what was submitted or cancelled at central. It is repeated until both are empty, so a lost answer does no harm."""

import json
import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

import anyio

from homeport.core.jobs.job import Job
from homeport.errors import BadAnswer, InvalidInput, NotFound, PeerIncompatible, PermanentError, TransientError
from homeport.fleet.shared.backoff import Backoff
from homeport.fleet.site.platform import SitePlatform
from homeport.jobs.ports import SYNC
from homeport.jobs.site.board import JobBoard
from homeport.log import get_log
from homeport.ports import CentralLink, JobReport, Transaction
from homeport.vocabulary import JobId
from homeport.wire.jobs import job_of_peer
from homeport.wire.values import document

log = get_log(__name__)

EPOCH: Final = "jobs.epoch"
REPORTS_MAX: Final = 200
BYTES_MAX: Final = 4 * 1024 * 1024
"""Of one call, unless a single report is longer."""
LOOK_SECONDS: Final = 30.0
"""How often central is asked when nothing has happened; it wakes the site, which also asks whenever it has reached
central again."""
OLD_CENTRAL_SECONDS: Final = 60.0


class JobSync:
    def __init__(self, platform: SitePlatform, central: CentralLink, board: JobBoard) -> None:
        self._platform = platform
        self._central = central
        self._board = board
        self._epoch = ""
        self._is_restored = False
        """The next call tells central which jobs are known here."""

    async def woken(self, _content: Mapping[str, Any]) -> Mapping[str, Any]:
        """Central has something for this site."""
        self._board.reported.set()
        return {}

    def reconnected(self) -> None:
        """Central may have tried to wake this site while it could not be reached."""
        self._board.reported.set()

    async def run(self) -> None:
        backoff = Backoff(chance=random.Random(self._platform.site))
        while True:
            self._board.reported = anyio.Event()
            try:
                is_done = await self.exchange()
            except PeerIncompatible as error:
                log.info("central does not know jobs", why=str(error))
                await anyio.sleep(OLD_CENTRAL_SECONDS)
                continue
            except (TransientError, PermanentError) as error:
                if backoff.failures == 0:
                    log.warning("jobs not synchronised with central, will retry", why=str(error))
                await anyio.sleep(backoff.next_seconds())
                continue
            backoff.reset()
            if is_done:
                with anyio.move_on_after(LOOK_SECONDS):
                    await self._board.reported.wait()

    async def exchange(self) -> bool:
        """One call. Returns whether nothing is left to say or to hear."""
        reports = await self._waiting()
        body: dict[str, Any] = {
            "epoch": await self._own_epoch(),
            "reports": [{"position": each.position, "body": json.loads(each.body)} for each in reports],
        }
        if self._is_restored:
            body["open"] = await self._board.known_open()
        answer = _read(await self._central.call(self._platform.site, SYNC, json.dumps(body).encode()))
        acknowledged = int(answer.get("acknowledged", 0))
        self._is_restored = bool(answer.get("restored")) or acknowledged > await self._board.position()
        if self._is_restored:
            log.warning("older copy of the database, open jobs are reported again", acknowledged=acknowledged)
            await self._board.report_again(acknowledged)
        elif reports and acknowledged >= reports[0].position:
            await self._platform.store.write(lambda tx: _drop(tx, acknowledged))
        jobs = _jobs(answer.get("jobs", ()))
        if jobs:
            await self._board.take_submitted(jobs)
        for item in answer.get("cancel", ()):
            try:
                await self._board.cancel(JobId(str(item["id"])), str(item["by"]))
            except NotFound:
                log.info("unknown job not cancelled", job=str(item["id"]))
        return len(reports) == 0 and not jobs and not self._is_restored

    async def _waiting(self) -> Sequence[JobReport]:
        async with self._platform.store.read() as reader:
            found = await reader.job_reports(after=0, limit=REPORTS_MAX)
        size, taken = 0, 0
        for each in found:
            size += len(each.body)
            if taken and size > BYTES_MAX:
                break
            taken += 1
        return found[:taken]

    async def _own_epoch(self) -> str:
        """Identifies this database: positions start again in another one."""
        if not self._epoch:
            async with self._platform.store.read() as reader:
                known = await reader.value(EPOCH)
            self._epoch = known or self._platform.ids.new()
            if known is None:
                await self._platform.store.write(lambda tx: tx.set_value(EPOCH, self._epoch))
        return self._epoch


async def _drop(tx: Transaction, position: int) -> None:
    await tx.drop_job_reports(position)


def _read(content: bytes) -> Mapping[str, Any]:
    try:
        answer = document(content)
    except ValueError as error:
        raise BadAnswer(f"Central's answer about jobs cannot be read: {error}.") from error
    if not isinstance(answer, dict):
        raise BadAnswer("Central's answer about jobs cannot be read.")
    return answer


def _jobs(bodies: Sequence[Any]) -> list[Job]:
    """One that cannot be read harms itself alone: it stays at central, and is logged there as not delivered."""
    jobs = []
    for body in bodies:
        try:
            jobs.append(job_of_peer(body))
        except InvalidInput as error:
            log.warning("job of central cannot be read", why=str(error))
    return jobs
