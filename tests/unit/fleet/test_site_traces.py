"""The open spans of a site outlive a restart, a row for each, and only those that have changed are written."""

import pytest

from homeport.core.tracing import parse_context
from homeport.fleet.site.instance_values import TRACES
from homeport.fleet.site.traces import NO_NODE, SiteTraces, load_trace
from homeport.vocabulary import Commit, DeploymentId, NodeId, SiteName
from tests.simulation.life import MachineClock
from tests.simulation.store import Disk, MemoryStore

pytestmark = pytest.mark.anyio

HOME, KEY, OTHER = SiteName("home"), DeploymentId("d"), DeploymentId("e")
CONTEXT = parse_context(f"00-{'a' * 32}-{'b' * 16}-01")


def stored(store: MemoryStore) -> dict[tuple[str, DeploymentId, NodeId], str]:
    return {**store.disk.tables.instance_values}


async def test_an_open_trace_is_stored_when_it_changes_and_not_again() -> None:
    assert CONTEXT is not None
    store, traces = MemoryStore(Disk()), SiteTraces(HOME, None, MachineClock())
    await store.write(traces.save)
    assert not stored(store)
    traces.synced(traces.adopt({KEY: CONTEXT}), Commit("c"), MachineClock().now())
    await store.write(traces.save)
    traces.saved()
    await store.write(lambda tx: tx.put_instance_values(TRACES, {(KEY, NO_NODE): '"untouched"'}))
    traces.adopt({OTHER: CONTEXT})
    await store.write(traces.save)
    traces.saved()
    assert stored(store) == {(TRACES, KEY, ""): '"untouched"', (TRACES, OTHER, ""): f'"{CONTEXT}"'}

    traces.forget([KEY], {})
    await store.write(traces.save)
    async with store.read() as reader:
        after_restart = SiteTraces(HOME, None, MachineClock(), await reader.instance_values(TRACES, load_trace))
    after_restart.forget([OTHER], {})
    await store.write(after_restart.save)
    assert not stored(store)


async def test_a_trace_whose_write_failed_is_written_with_the_next_one() -> None:
    assert CONTEXT is not None
    store, traces = MemoryStore(Disk()), SiteTraces(HOME, None, MachineClock())
    traces.adopt({KEY: CONTEXT})
    for _ in range(2):  # The first was not durable: nobody called `saved`.
        await store.write(lambda tx: tx.drop_instance_values(TRACES, [(KEY, NO_NODE)]))
        await store.write(traces.save)
        assert stored(store)
