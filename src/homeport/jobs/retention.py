"""How long ended jobs are kept: by age and by count."""

from datetime import timedelta
from typing import Final

from homeport.fleet.shared.retention import retention_now
from homeport.lazy_dataclass import dataclass
from homeport.log import get_log
from homeport.ports import Clock, Store

log = get_log(__name__)


@dataclass(frozen=True, slots=True)
class Retention:
    days: int
    count: int


AT_SITE: Final = Retention(days=30, count=10_000)
AT_CENTRAL: Final = Retention(days=30, count=100_000)


async def trim(store: Store, clock: Clock, retention: Retention) -> None:
    before = await retention_now(store, clock) - timedelta(days=retention.days)
    count = await store.write(lambda tx: tx.trim_jobs(keep=retention.count, before=before))
    if count:
        log.info("old jobs deleted", count=count)
