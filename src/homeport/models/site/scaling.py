"""Loads and unloads the engines of a site's nodes by their use, and unloads those of retired models
(`core.inference.scaling` decides).

Looks when tasks come, wait or end, when replicas change, when central says how much it uses them, and when an idle
time has passed; never otherwise. Central's word about use is counted for as long as it is fresh, so that one that is
gone keeps nothing loaded. What it said about retired models counts until it says otherwise, over restarts too.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup

from homeport.core.inference.engines.handoff import Handoff, Loading
from homeport.core.inference.models.lifecycle import CatalogModel, ModelLifecycle
from homeport.core.inference.replicas import Reached
from homeport.core.inference.scaling import (
    PoolUse,
    ReplicaState,
    ScalePolicy,
    Scaling,
    ScalingAction,
    quiet,
    scale,
)
from homeport.core.tunnel.targets import EngineTarget
from homeport.errors import HomeportError, InvalidInput
from homeport.fleet.site.platform import SitePlatform
from homeport.lazy_dataclass import dataclass
from homeport.log import get_log
from homeport.models.store.index import write_atomically
from homeport.vocabulary import NodeId
from homeport.wire.tunnel import encode_target

log = get_log("homeport.models")

FRESH_SECONDS: Final = 30.0
"""How long central's word about its use of a pool counts; it repeats it every ten."""
LOOK_SECONDS_MIN: Final = 0.05
"""Between two looks: tasks come by the thousand."""
ANNOUNCE_SECONDS_MAX: Final = 10.0
RETRY_SECONDS: Final = 30.0
LOAD_SECONDS_MAX: Final = 960.0
POOLS_MAX: Final = 256
DEADLINE_SECONDS: Final = 2.0
"""Deadlines that differ by less are the same."""
RETIRED: Final = "retired-models.json"
Served = tuple[str, str]
"""A pool and the model that it serves: a pool of the same name with another model is another matter."""
COUNT_MAX: Final = 1_000_000
_SENTENCES: Final = {
    ScalingAction.LOAD: "A replica is loaded: {why}.",
    ScalingAction.UNLOAD: "A replica is unloaded: {why}.",
    ScalingAction.KEEP: "A pool stays as it is: {why}.",
}


@dataclass(frozen=True, slots=True)
class _Demand:
    """How much one central uses a pool."""

    waiting: int
    busy: Mapping[str, int]
    at: float


@dataclass(frozen=True, slots=True)
class _Retirement:
    """What central said last about the model of a pool."""

    is_retired: bool
    ends_at: float | None = None
    """When what it has taken must have ended; None: it may finish."""

    def is_like(self, other: "_Retirement | None") -> bool:
        """Deadlines are said as the time that is left, which takes its time to arrive."""
        if other is None or self.is_retired is not other.is_retired:
            return False
        if self.ends_at is None or other.ends_at is None:
            return self.ends_at is other.ends_at
        return abs(self.ends_at - other.ends_at) < DEADLINE_SECONDS


@dataclass(frozen=True, slots=True)
class _Expected:
    """The requested state of a replica, until its node says so itself."""

    loading: Loading
    until: float


@dataclass(slots=True)
class _Pool:
    since: float
    """When it was first seen, or changed last: idle times begin then at the earliest."""
    quiet_since: float | None = None
    demands: dict[str, _Demand] = field(default_factory=dict)
    failed_until: dict[str, float] = field(default_factory=dict)
    expected: dict[str, _Expected] = field(default_factory=dict)
    said: str = ""


class SiteScaling:
    def __init__(self, site: SitePlatform) -> None:
        self._site = site
        self._all: Sequence[Reached] = ()
        self._replicas: dict[str, list[Reached]] = {}
        """By pool, of those whose loading is decided here."""
        self._kept = None if site.data is None else site.data / RETIRED
        self._retired: dict[Served, _Retirement] = _read_retired(self._kept)
        """As central said last; nothing where it was not heard yet."""
        self._written = _retired_of(self._retired)
        self._states = _states(self._retired)
        self._pools: dict[str, _Pool] = {}
        self._changed = anyio.Event()
        self._tasks: TaskGroup | None = None
        if site.inference.demand is not None:
            site.inference.demand.on_demand(self.look)

    def look(self) -> None:
        self._changed.set()

    def settle(self, replicas: Sequence[Reached]) -> None:
        """All replicas of the site, at each change."""
        self._all = replicas
        found: dict[str, list[Reached]] = {}
        for each in replicas:
            if self._is_scaled(each.handoff):
                found.setdefault(each.handoff.pool_id, []).append(each)
        self._replicas = found
        now = self._site.clock.monotonic()
        self._pools = {pool_id: self._pools.get(pool_id) or _Pool(now) for pool_id in found}
        for pool_id, those in found.items():
            expected = self._pools[pool_id].expected
            for handoff in (each.handoff for each in those):
                awaited = expected.get(handoff.replica_id)
                if awaited is not None and (awaited.loading is handoff.loading or awaited.until < now):
                    del expected[handoff.replica_id]
        self.look()

    def _is_scaled(self, handoff: Handoff) -> bool:
        """Without an idle time an engine is always loaded, but for the time its model is retired: one that is not is
        left alone until central has said whether it is. One that is brought to its node for the first time is that
        node's matter."""
        if handoff.preparation:
            return False
        said = self._retired.get(_served(handoff))
        is_off = said is not None and (said.is_retired or handoff.loading is not Loading.LOADED)
        return bool(handoff.idle_seconds) or (is_off and not handoff.is_external)

    # --- what admission asks --------------------------------------------------------------------------------------

    def find(self, reference: str) -> CatalogModel | None:
        """`ports.ModelCatalog` of a site: all that it knows is what is retired."""
        is_retired = reference in self.states()
        return CatalogModel(reference, ModelLifecycle.RETIRED) if is_retired else None

    def states(self) -> Mapping[str, ModelLifecycle]:
        return self._states

    # --- what central says ----------------------------------------------------------------------------------------

    async def take_demand(self, content: Mapping[str, Any]) -> Mapping[str, Any]:
        """Central's use of this site's pools."""
        by, pools = content.get("by"), content.get("pools")
        if not isinstance(by, str) or not isinstance(pools, Mapping) or len(pools) > POOLS_MAX:
            raise InvalidInput("The use of pools cannot be read.")
        now = self._site.clock.monotonic()
        heard = {
            _served(each.handoff): _retirement(use, now)
            for each in self._all
            if isinstance(use := pools.get(each.handoff.pool_id), Mapping) and "retired" in use
        }
        news = {served: said for served, said in heard.items() if not said.is_like(self._retired.get(served))}
        if news:
            self._remember(news)
            self.settle(self._all)
        await self._write_retired()
        for pool_id, use in pools.items():
            pool = self._pools.get(pool_id)
            if pool is not None and isinstance(use, Mapping):
                busy = use.get("busy")
                counts = (
                    {str(name): _count(value) for name, value in busy.items()} if isinstance(busy, Mapping) else {}
                )
                pool.demands[by[:64]] = _Demand(_count(use.get("waiting")), counts, now)
        self.look()
        return {}

    def _remember(self, news: Mapping[Served, _Retirement]) -> None:
        served = {_served(each.handoff) for each in self._all}
        # Of pools that are gone only what is retired, and not without end: their node may be away.
        kept = {each: said for each, said in self._retired.items() if each in served or said.is_retired}
        gone = [each for each in kept if each not in served][: max(0, len(kept) - POOLS_MAX)]
        self._retired = {each: said for each, said in kept.items() if each not in gone} | dict(news)
        self._states = _states(self._retired)

    async def _write_retired(self) -> None:
        """With a full disk the next message of central tries again; what is retired is unloaded all the same."""
        retired = _retired_of(self._retired)
        if self._kept is None or retired == self._written:
            return
        content = json.dumps({"retired": retired}, indent=2).encode()
        try:
            await self._site.in_thread(write_atomically, self._kept, content)
        except OSError as error:
            log.warning("list of retired models not written", path=str(self._kept), error=str(error))
        else:
            self._written = retired

    async def run(self) -> None:
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            while True:
                looks = [self._step(pool_id) for pool_id in sorted(self._pools)]
                moments = [moment for moment in looks if moment is not None]
                now = self._site.clock.monotonic()
                with anyio.move_on_after(max(min(moments) - now, 0.0) if moments else None):
                    await self._changed.wait()
                await anyio.sleep(LOOK_SECONDS_MIN)
                self._changed = anyio.Event()

    def _step(self, pool_id: str) -> float | None:
        """Decides, and begins what was decided. Returns when to look again."""
        pool, now = self._pools[pool_id], self._site.clock.monotonic()
        ends_at = self._ends_at(pool_id)
        if ends_at is not None and ends_at <= now:
            self._site.inference.end_pool(pool_id)
        decided = self._decide(pool_id, pool, now)
        if decided.why != pool.said:
            pool.said = decided.why
            log.narrate(
                "pool scaled" if decided.action is not ScalingAction.KEEP else "pool kept as it is",
                actor="scaling",
                action=decided.action.value,
                target=f"{pool_id}/{decided.replica}" if decided.replica else pool_id,
                human=_SENTENCES[decided.action].format(why=decided.why),
                pool_id=pool_id,
                replica_id=decided.replica,
            )
        if decided.action is not ScalingAction.KEEP and self._tasks is not None:
            will_be = Loading.LOADING if decided.action is ScalingAction.LOAD else Loading.UNLOADED
            pool.expected[decided.replica] = _Expected(will_be, now + LOAD_SECONDS_MAX)
            self._tasks.start_soon(self._change, pool_id, decided)
            return now
        # What central said last, and no more since, counts for a while: nothing else tells when that is over.
        forgotten_at = [each.at + FRESH_SECONDS for each in pool.demands.values()]
        ahead = [each for each in (ends_at, *forgotten_at) if each is not None and each > now]
        return min([*ahead, *([] if decided.look_at is None else [decided.look_at])], default=None)

    def _ends_at(self, pool_id: str) -> float | None:
        said = [self._retired.get(_served(each.handoff)) for each in self._replicas[pool_id]]
        moments = [each.ends_at for each in said if each is not None and each.is_retired and each.ends_at is not None]
        return min(moments, default=None)

    def _decide(self, pool_id: str, pool: _Pool, now: float) -> Scaling:
        demand = self._site.inference.demand
        own = PoolUse() if demand is None else demand.use_of(pool_id)
        busy: dict[str, int] = {} if demand is None else dict(demand.busy_of(pool_id))
        pool.demands = {by: each for by, each in pool.demands.items() if now - each.at < FRESH_SECONDS}
        for each in pool.demands.values():
            for name, count in each.busy.items():
                busy[name] = busy.get(name, 0) + count
        used = [each.at for each in pool.demands.values() if each.waiting or any(each.busy.values())]
        use = PoolUse(
            waiting=own.waiting + sum(each.waiting for each in pool.demands.values()),
            busy=sum(busy.values()),
            used_at=max([own.used_at, pool.since, *used]),
            task_seconds=own.task_seconds,
        )
        handoffs = [each.handoff for each in self._replicas[pool_id]]
        states = [
            ReplicaState(
                each.replica_id,
                _expected(pool, each),
                each.slots_total,
                busy.get(each.replica_id, 0),
                pool.failed_until.get(each.replica_id, 0.0),
            )
            for each in handoffs
        ]
        pool.quiet_since = quiet(states, use, since=pool.quiet_since, now=now)
        idle_seconds = max(each.idle_seconds for each in handoffs)
        loaded_min = max(each.loaded_min for each in handoffs) if idle_seconds else len(handoffs)
        said = [self._retired.get(_served(each)) for each in handoffs]
        ends_at = self._ends_at(pool_id)
        policy = ScalePolicy(
            loaded_min,
            float(idle_seconds),
            is_retired=any(each is not None and each.is_retired for each in said),
            is_overdue=ends_at is not None and ends_at <= now,
        )
        return scale(policy, states, use, quiet_since=pool.quiet_since, now=now)

    async def _change(self, pool_id: str, decided: Scaling) -> None:
        pool = self._pools.get(pool_id)
        if pool is None:
            return  # its last replica has gone meanwhile
        try:
            owner = next(
                each.owner for each in self._replicas.get(pool_id, ()) if each.handoff.replica_id == decided.replica
            )
            target = EngineTarget(NodeId(owner), pool_id, decided.action is ScalingAction.LOAD)
            with anyio.fail_after(LOAD_SECONDS_MAX):
                async with self._site.node_tunnels.open(NodeId(owner), encode_target(target)) as stream:
                    await stream.end()
                    while await stream.read():
                        pass
            pool.failed_until.pop(decided.replica, None)
            is_now = Loading.LOADED if decided.action is ScalingAction.LOAD else Loading.UNLOADED
            announced = self._site.clock.monotonic() + ANNOUNCE_SECONDS_MAX
            pool.expected[decided.replica] = _Expected(is_now, announced)
        except (HomeportError, TimeoutError, StopIteration) as error:
            pool.failed_until[decided.replica] = self._site.clock.monotonic() + RETRY_SECONDS
            pool.expected.pop(decided.replica, None)
            log.narrate(
                "replica not changed",
                actor="scaling",
                action=decided.action.value,
                target=f"{pool_id}/{decided.replica}",
                human="A replica could not be loaded or unloaded, and is tried again later.",
                level=logging.WARNING,
                pool_id=pool_id,
                why=str(error),
            )
        finally:
            pool.since, pool.quiet_since = self._site.clock.monotonic(), None
            self.look()


def _served(handoff: Handoff) -> Served:
    return handoff.pool_id, handoff.model.id


def _retirement(use: Mapping[str, Any], now: float) -> _Retirement:
    left_ms = use.get("ends_in_ms")
    is_number = isinstance(left_ms, int) and not isinstance(left_ms, bool) and 0 <= left_ms < 2**53
    return _Retirement(
        use.get("retired") is True, now + left_ms / 1000 if is_number and left_ms is not None else None
    )


def _retired_of(known: Mapping[Served, _Retirement]) -> list[Served]:
    return sorted(served for served, said in known.items() if said.is_retired)


def _states(known: Mapping[Served, _Retirement]) -> Mapping[str, ModelLifecycle]:
    return {model: ModelLifecycle.RETIRED for _, model in _retired_of(known)}


def _read_retired(path: Path | None) -> dict[Served, _Retirement]:
    """What was kept before a restart. Deadlines were not: central says them again."""
    if path is None:
        return {}
    try:
        rows = json.loads(path.read_bytes())["retired"]
        return {(str(pool_id), str(model)): _Retirement(is_retired=True) for pool_id, model in rows[:POOLS_MAX]}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        log.warning("list of retired models not readable", path=str(path), error=str(error))
        return {}


def _expected(pool: _Pool, handoff: Handoff) -> Loading:
    awaited = pool.expected.get(handoff.replica_id)
    return handoff.loading if awaited is None else awaited.loading


def _count(value: object) -> int:
    return min(max(value, 0), COUNT_MAX) if isinstance(value, int) and not isinstance(value, bool) else 0
