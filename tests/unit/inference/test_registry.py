"""The registry of pools: binding is idempotent, rebinding and unbinding are announced."""

from dataclasses import replace

from homeport.adapters.engine.fake import FakeEngine
from homeport.core.inference.engines.handoff import Engine, Handoff, HandoffModel
from homeport.inference.pools.registry import PoolRegistry

TINY = Handoff(engine=Engine.LLAMACPP, url="http://127.0.0.1:8090", model=HandoffModel("tiny"))


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
