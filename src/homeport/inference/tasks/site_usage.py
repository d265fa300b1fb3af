"""What a site's task plane has used, told to central: its jobs and its own clients are counted where they are
answered, and `homeport usage` at central shows all of it (ADR 0218).

A site says how much it is by now, never how much more, so that a report that is repeated or lost counts nothing twice
and leaves nothing out. After a restart it says everything again.
"""

import json
import re
from collections.abc import Sequence
from datetime import UTC, timedelta
from typing import Any, Final

import anyio

from homeport.adapters.network.http_client import parse_json
from homeport.core.inference.records import Usage
from homeport.errors import Conflict, HomeportError, InvalidInput, PeerIncompatible
from homeport.inference.tasks.journal import TaskJournal
from homeport.lazy_dataclass import dataclass
from homeport.log import get_log
from homeport.ports import CentralLink, Clock, Store, Transaction
from homeport.vocabulary import SiteName

log = get_log("homeport.inference")

TOPIC: Final = "inference.usage"
TELL_SECONDS: Final = 5.0
"""Between two reports: tasks end by the thousand."""
RETRY_SECONDS: Final = 5.0
OLD_CENTRAL_SECONDS: Final = 300.0
DAYS: Final = 366
ROWS_MAX: Final = 500
"""In one report."""
SITE_ROWS_MAX: Final = 100_000
"""Of one site at central."""
NUMBER_MAX: Final = 1 << 53
TEXT_MAX: Final = 512
_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
Key = tuple[str, str, str]


class UsageReports:
    """At a site."""

    def __init__(
        self, site: SiteName, central: CentralLink, store: Store, clock: Clock, journal: TaskJournal
    ) -> None:
        self._site = site
        self._central = central
        self._store = store
        self._clock = clock
        self._journal = journal
        self._told: dict[Key, int] = {}
        """How many requests of each key, day and model central knows of."""
        self._since = ""
        """The first day of which central may not know everything; all that are kept, before the first report."""
        self._used = anyio.Event()
        journal.on_used = self._notice

    async def run(self) -> None:
        while True:
            self._used = anyio.Event()
            seconds = await self._tell()
            if seconds is None:
                await self._used.wait()
            await anyio.sleep(TELL_SECONDS if seconds is None else seconds)

    def _notice(self) -> None:
        self._used.set()

    async def _tell(self) -> float | None:
        """Returns when to try again; None where central knows everything."""
        yesterday = self._day(1)
        try:
            for page in _pages(await self._untold()):
                body = {"usage": [_row(each) for each in page]}
                await self._central.call(self._site, TOPIC, json.dumps(body).encode())
                self._told.update((_key(each), each.requests) for each in page)
        except PeerIncompatible:
            return OLD_CENTRAL_SECONDS
        except HomeportError as error:
            log.debug("usage not sent to central", error=str(error))
            return RETRY_SECONDS
        # A task that began yesterday may end now; of the days before nothing is counted any more.
        self._since = max(self._since, yesterday)
        self._told = {key: count for key, count in self._told.items() if key[1] >= self._since}
        return None

    async def _untold(self) -> list[Usage]:
        await self._journal.settle()
        async with self._store.read() as reader:
            found = await reader.usage(self._since or self._day(DAYS))
        return [each for each in found if self._told.get(_key(each)) != each.requests]

    def _day(self, ago: int) -> str:
        return (self._clock.now().astimezone(UTC) - timedelta(days=ago)).date().isoformat()


@dataclass(frozen=True, slots=True)
class SiteUsage:
    """At central."""

    store: Store

    async def take(self, site: SiteName, body: bytes) -> bytes:
        """Raises InvalidInput for a report that cannot be read, and Conflict where a site has said too much."""
        rows = _read(body)

        async def work(transaction: Transaction) -> None:
            if await transaction.count_site_usage(site) + len(rows) > SITE_ROWS_MAX:
                raise Conflict(f"Site {site} has reported the usage of too many keys, days and models.")
            await transaction.put_site_usage(site, rows)

        await self.store.write(work)
        return b"{}"


def _pages(rows: Sequence[Usage]) -> list[Sequence[Usage]]:
    return [rows[start : start + ROWS_MAX] for start in range(0, len(rows), ROWS_MAX)]


def _key(usage: Usage) -> Key:
    return usage.caller, usage.day, usage.model


def _row(usage: Usage) -> list[Any]:
    return [usage.caller, usage.day, usage.model, usage.requests, usage.tokens_in, usage.tokens_out]


def _read(body: bytes) -> list[Usage]:
    """Raises InvalidInput. Two rows of one key are one."""
    try:
        rows = parse_json(body)["usage"]
        found = [_usage(*each) for each in rows[:ROWS_MAX]]
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise InvalidInput("The report of usage cannot be read.") from error
    if len(rows) > ROWS_MAX:
        raise InvalidInput(f"A report of usage has at most {ROWS_MAX} rows.")
    return list({_key(each): each for each in found}.values())


def _usage(caller: Any, day: Any, model: Any, *numbers: Any) -> Usage:
    """Raises ValueError or TypeError."""
    texts = (caller, model)
    if not all(isinstance(each, str) and len(each) <= TEXT_MAX and "\0" not in each for each in texts):
        raise ValueError("a text is wrong")
    if not isinstance(day, str) or _DAY.fullmatch(day) is None:
        raise ValueError("a day is wrong")
    are_numbers = all(type(each) is int and 0 <= each <= NUMBER_MAX for each in numbers)
    if len(numbers) != 3 or not are_numbers:
        raise ValueError("a number is wrong")
    text = caller.encode("utf-8"), model.encode("utf-8")  # half a character would be refused by the database
    return Usage(text[0].decode(), day, text[1].decode(), *numbers)
