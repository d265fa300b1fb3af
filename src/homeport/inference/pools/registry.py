"""All pools and their replicas: who is bound, healthy, draining, and how many leases each has.

In memory only: a role that announces replicas (`bind`) announces them again after a restart, and `drains` keeps which
pools are drained. A replica becomes ready when its engine has answered the first health check, not before.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, replace
from typing import Any, Final

from homeport.core.inference.engines.handoff import Handoff, Loading
from homeport.core.inference.placement import Others
from homeport.core.inference.sessions import Session
from homeport.inference.pools.replica import Replica, unloaded
from homeport.lazy_dataclass import dataclass
from homeport.log import get_log
from homeport.ports import OpenStream
from homeport.ports.engine import EngineFailed, Health, InferenceEngine, Props

log = get_log("homeport.inference")

Connect = Callable[[Handoff, OpenStream | None], InferenceEngine]
POOLS_MAX: Final = 256
REPLICAS_MAX: Final = 1_024
PROPS_SECONDS: Final = 10.0
"""How often an engine that is ready is asked again how full it is."""
MOVING: Final[dict[str, Any]] = {"slots_free": None, "kv_usage_ratio": None, "loaded": None}
"""Properties that change with every task, and do not decide what a replica serves."""


@dataclass(frozen=True, slots=True)
class ServingReplicas:
    replicas: tuple[Replica, ...] = ()
    """Those that serve one model, and those that do not say which they serve."""
    others: Others = field(default_factory=dict)
    ctx_max: int | None = None
    """The largest context of those that say it."""


NONE_SERVING: Final = ServingReplicas()


class PoolRegistry:
    def __init__(
        self,
        connect: Connect,
        site_of: Callable[[Handoff], str] = lambda handoff: "",
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`site_of` says whose replica it is: callers limited to some sites get only those."""
        self._connect = connect
        self._site_of = site_of
        self._replicas: dict[tuple[str, str], Replica] = {}
        self._by_pool: dict[str, list[Replica]] = {}
        self._pool_ids: Sequence[str] = ()
        self._by_model: dict[str, ServingReplicas] = {}
        self._of_any_model = NONE_SERVING
        self._draining: set[str] = set()
        self._ending: set[str] = set()
        """Pools whose engines are being removed. One of the same name that comes later takes tasks."""
        self._monotonic = monotonic
        self._on_changed: list[Callable[[], None]] = []
        self._on_load_failed: list[Callable[[Replica], None]] = []
        self._on_doubt: list[Callable[[Replica], None]] = []
        self.scaled: frozenset[str] = frozenset()
        """Pools with replicas that are loaded by their use."""
        self.leaving: list[Replica] = []
        """Unbound; closed when their last lease has ended."""

    # --- announcements ----------------------------------------------------------------------------------------

    def bind(self, handoff: Handoff, opens: OpenStream | None = None) -> None:
        bound = self._replicas.get(handoff.key)
        if bound is not None and bound.handoff.is_same_engine(handoff) and bound.opens == opens:
            return
        if bound is not None and bound.handoff.is_same_process(handoff) and bound.opens == opens:
            self._change(bound, handoff)
            return
        if bound is None and len(self._replicas) >= REPLICAS_MAX:
            log.warning("replica not bound, too many are", pool_id=handoff.pool_id, replica_id=handoff.replica_id)
            return
        was_prepared = bound is not None and bool(bound.handoff.preparation) and not handoff.preparation
        if bound is not None:
            self._leave(bound)
        _narrate_bound(handoff, is_moved=bound is not None and not was_prepared)
        replica = Replica(handoff, self._connect(handoff, opens), self._site_of(handoff), opens)
        replica.was_prepared = was_prepared
        if handoff.loading is not Loading.LOADED:
            replica.last_error = unloaded(handoff)
        replica.draining = self.is_draining(handoff.pool_id)
        self._replicas[handoff.key] = replica
        self._regroup()

    def _change(self, replica: Replica, handoff: Handoff) -> None:
        if handoff.loading is not replica.handoff.loading:
            human = f"The model of a replica is {handoff.loading.value}."
            _narrate(f"replica {handoff.loading.value}", replica.key, "load", human)
        if replica.change(handoff, self._monotonic()):
            human = "The model of a replica could not be loaded."
            _narrate("replica not loaded", replica.key, "load", human, logging.WARNING, why=handoff.problem)
            for listener in self._on_load_failed:
                listener(replica)
        self._regroup()

    def unbind(self, pool_id: str, replica_id: str) -> None:
        replica = self._replicas.pop((pool_id, replica_id), None)
        if replica is not None:
            _narrate("replica unbound", replica.key, "unbind", "A replica leaves its pool.")
            self._leave(replica)
            if not any(key[0] == pool_id for key in self._replicas):
                self._ending.discard(pool_id)
            self._regroup()
            if replica.handoff.preparation:
                self._say_failed(pool_id)

    def _say_failed(self, pool_id: str) -> None:
        """What waited for the replica that was expected hears why the others do not come."""
        failed = [each for each in self.replicas(pool_id) if each.handoff.problem][:1]
        for replica in failed:
            for listener in self._on_load_failed:
                listener(replica)

    def on_load_failed(self, listener: Callable[[Replica], None]) -> None:
        self._on_load_failed.append(listener)

    def on_doubt(self, listener: Callable[[Replica], None]) -> None:
        """Called when a replica should be checked at once."""
        self._on_doubt.append(listener)

    def on_changed(self, listener: Callable[[], None]) -> None:
        self._on_changed.append(listener)

    # --- what there is ----------------------------------------------------------------------------------------

    def handoffs(self) -> Iterator[Handoff]:
        """In the order of pool and replica id."""
        for key in sorted(self._replicas):
            yield self._replicas[key].handoff

    def pool_ids(self) -> Sequence[str]:
        return self._pool_ids

    def serving(self, model_ref: str) -> "ServingReplicas":
        """What admission looks at: its cost must not grow with the replicas of other models."""
        return self._by_model.get(model_ref, self._of_any_model)

    def sites_serving(self, model_ref: str) -> frozenset[str]:
        return frozenset(replica.site for replica in self.serving(model_ref).replicas)

    def replicas(self, pool_id: str | None = None) -> Sequence[Replica]:
        return list(self._replicas.values()) if pool_id is None else self._by_pool.get(pool_id, ())

    def replica(self, key: tuple[str, str]) -> Replica | None:
        return self._replicas.get(key)

    def models(self) -> dict[str, list[Replica]]:
        found: dict[str, list[Replica]] = {}
        for replica in self._replicas.values():
            for name in sorted(replica.models):
                found.setdefault(name, []).append(replica)
        return found

    def kv_bytes(self, caller: str, session: Session) -> int | None:
        """What the engine of its last turn keeps for it; None where that does not say."""
        replica = None if session.replica is None else self._replicas.get(session.replica)
        return 0 if replica is None else replica.caches.get((caller, session.id), 0)

    def is_draining(self, pool_id: str) -> bool:
        return pool_id in self._draining or pool_id in self._ending

    def health(self, pool_id: str, *, queue_depth: int, now: float) -> dict[str, Any]:
        replicas = self._by_pool.get(pool_id, ())
        errors = [each.last_error for each in replicas if each.last_error]
        steps = next((each.handoff.preparation for each in replicas if each.handoff.preparation), ())
        return {
            "live": any(each.live for each in replicas),
            "ready": any(each.takes_tasks(now) for each in replicas),
            "draining": self.is_draining(pool_id),
            "metrics": {
                "queue_depth": queue_depth,
                "slots_total": sum(each.slots_total for each in replicas),
                "slots_free": sum(each.slots_free for each in replicas if each.takes_tasks(now)),
                "active_leases": sum(each.leases for each in replicas),
                "replicas": len(replicas),
                **({"preparation": [each.to_data() for each in steps]} if steps else {}),
            },
            "last_error": errors[0] if errors else None,
        }

    # --- state ------------------------------------------------------------------------------------------------

    def drain(self, pool_id: str, *, is_on: bool) -> None:
        (self._draining.add if is_on else self._draining.discard)(pool_id)
        self._redrain(pool_id)

    def end(self, pool_id: str, *, is_on: bool) -> None:
        """Takes no tasks until all of its replicas are gone, however long it was to be drained."""
        if is_on and pool_id in self._by_pool:
            self._ending.add(pool_id)
        else:
            self._ending.discard(pool_id)
        self._redrain(pool_id)

    def _redrain(self, pool_id: str) -> None:
        for replica in self._by_pool.get(pool_id, ()):
            replica.draining = self.is_draining(pool_id)
        self._changed()

    def failed(self, replica: Replica, error: EngineFailed) -> None:
        """A task failed there. What waits is not sent after it into an engine that is gone. Who sends a request that
        an engine fails at must not have its breaker take it from everybody else."""
        if not error.is_fault or error.may_be_the_request:
            replica.breaker = replica.breaker.abandoned()
            return
        self.blame(replica, error)
        if error.is_lost and replica.is_bound and not replica.is_doubted:
            replica.is_doubted = True
            for listener in self._on_doubt:
                listener(replica)

    def blame(self, replica: Replica, error: EngineFailed) -> None:
        """It was the engine, and not what it was asked for."""
        replica.breaker = replica.breaker.failed(self._monotonic())
        replica.last_error = str(error)

    async def check(self, replica: Replica, now: float) -> None:
        """Asks the engine how it is. Called for each replica side by side, so that a dead one delays no other."""
        handoff = replica.handoff
        health = await replica.engine.health()
        props = replica.props
        is_new = not replica.ready or not props.models
        if health.ready and (is_new or now - replica.props_at >= PROPS_SECONDS):
            try:
                props = await replica.engine.props()
            except EngineFailed as error:
                if is_new:
                    health = Health(live=True, ready=False, error=str(error))
        if replica.handoff.loading is handoff.loading:
            if health.ready:
                replica.loaded(self._monotonic())
            self._heard(replica, health, props, now)

    def _heard(self, replica: Replica, health: Health, props: Props, now: float) -> None:
        before, was_doubted = (replica.live, replica.ready), replica.is_doubted
        replica.is_doubted = False
        if props is not replica.props:
            is_other = replace(props, **MOVING) != replace(replica.props, **MOVING)
            replica.learn(props)
            replica.props_at = now
            if is_other:
                self._index()
        if not health.ready:
            replica.caches.clear()
        replica.live, replica.ready, replica.last_error = health.live, health.ready, health.error
        if health.live:
            replica.heartbeat_at = now
        if before != (replica.live, replica.ready):
            level = logging.INFO if health.ready else logging.WARNING
            human = "A replica is ready." if health.ready else "A replica is not ready, and gets no tasks."
            fields = {"ready": health.ready, "why": health.error}
            _narrate("replica health changed", replica.key, "health", human, level, **fields)
        if was_doubted or before != (replica.live, replica.ready):
            self._changed()

    def _leave(self, replica: Replica) -> None:
        replica.is_bound = replica.ready = False
        self.leaving.append(replica)

    def _regroup(self) -> None:
        self._by_pool = {}
        for key in sorted(self._replicas):
            self._by_pool.setdefault(key[0], []).append(self._replicas[key])
        self._pool_ids = sorted(self._by_pool)
        self._index()
        scaled = (each.handoff.pool_id for each in self._replicas.values() if each.handoff.idle_seconds)
        self.scaled = frozenset(scaled)
        self._changed()

    def _index(self) -> None:
        everything = Counter((each.site, each.handoff.engine.value) for each in self._replicas.values())
        unnamed = [each for each in self._replicas.values() if not each.models]
        self._of_any_model = _serving(unnamed, everything)
        self._by_model = {
            name: _serving([*replicas, *unnamed], everything) for name, replicas in self.models().items()
        }

    def _changed(self) -> None:
        for listener in self._on_changed:
            listener()


def _narrate(
    message: str, key: tuple[str, str], action: str, human: str, level: int = logging.INFO, **fields: Any
) -> None:
    pool_id, replica_id = key
    log.narrate(
        message,
        actor="registry",
        action=action,
        target=f"{pool_id}/{replica_id}",
        human=human,
        level=level,
        pool_id=pool_id,
        replica_id=replica_id,
        **fields,
    )


def _narrate_bound(handoff: Handoff, *, is_moved: bool) -> None:
    engine = handoff.engine.value
    if is_moved:
        _narrate("replica rebound", handoff.key, "rebind", "A replica has moved.", logging.WARNING, engine=engine)
    elif handoff.preparation:
        _narrate("replica expected", handoff.key, "bind", "A replica is prepared for its pool.", engine=engine)
    else:
        _narrate("replica bound", handoff.key, "bind", "A replica joins its pool.", engine=engine)


def _serving(replicas: Sequence[Replica], everything: Counter[tuple[str, str]]) -> "ServingReplicas":
    others = everything - Counter((each.site, each.handoff.engine.value) for each in replicas)
    sizes = (each.handoff.ctx_max or each.props.ctx_max or 0 for each in replicas)
    return ServingReplicas(tuple(replicas), others, max(sizes, default=0) or None)


async def close_idle(replicas: list[Replica]) -> None:
    """Closes the engines of replicas that left and have no lease any more."""
    for replica in [each for each in replicas if each.leases == 0]:
        replicas.remove(replica)
        await replica.engine.close()
