"""The registry of pools: binding is idempotent, rebinding and unbinding are announced."""

from dataclasses import replace

from homeport.adapters.engine.fake import FakeEngine
from homeport.core.inference.engines.handoff import EngineName, Handoff, HandoffModel, Loading
from homeport.core.inference.engines.preparing import steps_of
from homeport.inference.pools.registry import PoolRegistry

TINY = Handoff(engine=EngineName.LLAMACPP, url="http://127.0.0.1:8090", model=HandoffModel("tiny"))


def registry_with_changes() -> tuple[PoolRegistry, list[int]]:
    changes: list[int] = []
    registry = PoolRegistry(lambda handoff, opens: FakeEngine())
    registry.on_changed(lambda: changes.append(1))
    return registry, changes


def test_binding_the_same_replica_again_changes_nothing() -> None:
    registry, changes = registry_with_changes()
    registry.bind(TINY)
    registry.bind(replace(TINY, slots_free=0))
    assert list(registry.handoffs()) == [TINY]
    assert len(changes) == 1


def test_a_new_address_replaces_the_replica() -> None:
    registry, changes = registry_with_changes()
    registry.bind(TINY)
    registry.bind(replace(TINY, url="http://127.0.0.1:8091"))
    assert [each.url for each in registry.handoffs()] == ["http://127.0.0.1:8091"]
    assert len(changes) == 2


def test_an_unknown_replica_is_unbound_in_silence() -> None:
    registry, changes = registry_with_changes()
    registry.unbind("default", "r0")
    assert changes == []


STEPS = steps_of(engine="llamacpp", model="tiny", pool_id="default", provisions=True, fetches=True)
EXPECTED = replace(TINY, url="http://preparing.invalid", loading=Loading.LOADING, preparation=STEPS)


def test_tasks_wait_for_what_is_prepared_and_not_for_what_has_failed() -> None:
    registry, _ = registry_with_changes()
    failures: list[str] = []
    registry.on_load_failed(lambda replica: failures.append(replica.handoff.problem))
    registry.bind(EXPECTED)
    (replica,) = registry.replicas("default")
    assert (replica.is_coming(0.0), replica.takes_tasks(0.0)) == (True, False)
    health = registry.health("default", queue_depth=0, now=0.0)
    assert (health["ready"], health["last_error"]) == (False, "it is being prepared")
    assert [step["status"] for step in health["metrics"]["preparation"]] == ["pending"] * 3

    registry.bind(replace(EXPECTED, problem="no GPU", problem_at_ms=1))
    assert failures == ["no GPU"]
    assert registry.replicas("default") == [replica], "progress is no other replica"
    assert not replica.is_coming(1e9), "its node says when it is tried again"
    registry.bind(EXPECTED)
    assert replica.is_coming(0.0)

    registry.bind(TINY)
    (ready,) = registry.replicas("default")
    assert ready is not replica
    assert ready.is_coming(0.0), "tasks wait for its first health check"
    ready.loaded(0.0)
    assert not ready.is_coming(0.0)


def test_when_an_expected_replica_goes_what_waits_hears_why_the_others_do_not_come() -> None:
    registry, _ = registry_with_changes()
    failures: list[str] = []
    registry.on_load_failed(lambda replica: failures.append(replica.key[1]))
    registry.bind(replace(EXPECTED, replica_id="home/on-request"))
    registry.bind(replace(EXPECTED, replica_id="home/node-a", problem="no GPU", problem_at_ms=1))
    assert failures == []
    registry.unbind("default", "home/on-request")
    assert failures == ["home/node-a"]
