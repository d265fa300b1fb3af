"""Tells sites how much central uses those of their pools that are loaded by their use, and which of their pools serve
a retired model: the site decides.

At each change, and again while there is any use, so that a site forgets a central that is gone.
"""

import secrets
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import anyio

from homeport.core.inference.engines.handoff import Handoff, Loading
from homeport.core.inference.models.lifecycle import ModelLifecycle
from homeport.core.inference.replicas import Reached
from homeport.errors import HomeportError
from homeport.fleet.central.platform import CentralPlatform
from homeport.log import get_log
from homeport.models.demand import DEMAND, REPEAT_SECONDS
from homeport.vocabulary import SiteName

log = get_log("homeport.models")

TELL_SECONDS_MIN = 0.05
"""Between two messages: tasks come by the thousand."""

Bound = Mapping[SiteName, Mapping[tuple[str, str], Reached]]
Use = dict[str, dict[str, Any]]


class _Retirement(NamedTuple):
    is_retired: bool
    ends_at_ms: int
    """0: what was taken may finish."""


class FleetDemand:
    def __init__(self, central: CentralPlatform, bound: Bound) -> None:
        self._central = central
        self._bound = bound
        self._by = secrets.token_hex(8)
        self._changed = anyio.Event()
        self._told: dict[SiteName, Use] = {}
        if central.inference.demand is not None:
            central.inference.demand.on_demand(self.look)

    def look(self) -> None:
        self._changed.set()

    async def run(self) -> None:
        while True:
            wanted, known = self._uses()
            seconds = self._end_overdue()
            async with anyio.create_task_group() as tasks:
                for site in sorted(wanted.keys() | self._told.keys()):
                    if wanted.get(site) or self._told.get(site):
                        tasks.start_soon(self._tell, site, wanted.get(site, {}), known.get(site, {}))
            with anyio.move_on_after(min(REPEAT_SECONDS, seconds) if wanted else None):
                await self._changed.wait()
            await anyio.sleep(TELL_SECONDS_MIN)
            self._changed = anyio.Event()

    def _end_overdue(self) -> float:
        """Ends what runs here of retired models whose deadline has passed. Returns the seconds to the next."""
        now_ms, ahead = self._now_ms(), []
        for pool_id, sites in self._by_pool().items():
            retirement = self._retirement(each for replicas in sites.values() for each in replicas.values())
            if retirement is None or not retirement.ends_at_ms:
                continue
            if retirement.ends_at_ms <= now_ms:
                self._central.inference.end_pool(pool_id)
            else:
                ahead.append((retirement.ends_at_ms - now_ms) / 1000)
        return min(ahead, default=REPEAT_SECONDS)

    def _uses(self) -> tuple[dict[SiteName, Use], dict[SiteName, Use]]:
        """By site: of the pools of which it must know something now, and of those that are not in use."""
        demand = self._central.inference.demand
        found: dict[SiteName, Use] = {}
        unused: dict[SiteName, Use] = {}
        if demand is None:
            return {}, {}
        for pool_id, sites in self._by_pool().items():
            busy, waiting = demand.busy_of(pool_id), demand.use_of(pool_id).waiting
            may_load = [site for site in sites if any(map(_is_unloaded, sites[site].values()))]
            asked = (may_load or sorted(sites))[0]
            for site, replicas in sites.items():
                mine = {name: busy.get(f"{site}/{name}"[:128], 0) for name in replicas}
                retirement = self._retirement(replicas.values())
                is_off = any(_is_unloaded(each) and not each.idle_seconds for each in replicas.values())
                use: dict[str, Any] = {"waiting": waiting if site == asked else 0, "busy": mine}
                if retirement is not None:
                    use["retired"] = retirement.is_retired
                    if retirement.ends_at_ms:
                        use["ends_in_ms"] = max(0, retirement.ends_at_ms - self._now_ms())
                is_scaled = any(each.idle_seconds for each in replicas.values())
                is_used = is_scaled and (use["waiting"] or any(mine.values()))
                must_know = is_used or is_off or (retirement is not None and retirement.is_retired)
                (found if must_know else unused).setdefault(site, {})[pool_id] = use
        return found, unused

    def _by_pool(self) -> dict[str, dict[SiteName, dict[str, Handoff]]]:
        """The replicas of each site under the names they have there."""
        found: dict[str, dict[SiteName, dict[str, Handoff]]] = {}
        for site in sorted(self._bound):
            for each in self._bound[site].values():
                name = each.handoff.replica_id.removeprefix(f"{site}/")
                found.setdefault(each.handoff.pool_id, {}).setdefault(site, {})[name] = each.handoff
        return found

    def _retirement(self, handoffs: Iterable[Handoff]) -> "_Retirement | None":
        """Whether one of their models is retired; None where the catalog was not read yet."""
        models = self._central.inference.models
        found = [] if models is None else [models.find(each.model.id) for each in handoffs]
        known = [each for each in found if each is not None]
        if any(not each.is_read for each in known):
            return None
        retired = [each for each in known if each.lifecycle is ModelLifecycle.RETIRED]
        return _Retirement(bool(retired), min((each.ends_at_ms for each in retired if each.ends_at_ms), default=0))

    def _now_ms(self) -> int:
        return int(self._central.clock.now().timestamp() * 1000)

    async def _tell(self, site: SiteName, use: Use, unused: Use) -> None:
        # Nothing is said about the model of a pool that is not seen just now: the site knows better.
        nothing: dict[str, Any] = {"waiting": 0, "busy": {}}
        ended = {pool_id: unused.get(pool_id, nothing) for pool_id in self._told.get(site, {})}
        said = {**ended, **use}
        # Noted before, since a site whose answer is late or lost has been told too.
        self._told.pop(site, None)
        if use:
            self._told[site] = use
        try:
            await self._central.questions.ask(site, DEMAND, {"by": self._by, "pools": said})
        except HomeportError as error:
            log.debug("pool usage not sent to the site", site=site, why=str(error))


def _is_unloaded(handoff: Handoff) -> bool:
    return handoff.loading is not Loading.LOADED and not handoff.preparation
