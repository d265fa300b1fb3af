"""The open spans of a site outlive a restart, and are written only when they have changed."""

import pytest

from homeport.core.tracing import parse_context
from homeport.fleet.site.traces import VALUE, SiteTraces
from homeport.vocabulary import Commit, DeploymentId, SiteName
from tests.simulation.life import MachineClock
from tests.simulation.store import Disk, MemoryStore

pytestmark = pytest.mark.anyio

HOME, KEY = SiteName("home"), DeploymentId("d")
CONTEXT = parse_context(f"00-{'a' * 32}-{'b' * 16}-01")


async def test_an_open_trace_is_stored_when_it_changes_and_not_again() -> None:
    assert CONTEXT is not None
    store, traces = MemoryStore(Disk()), SiteTraces(HOME, None, MachineClock())
    await store.write(traces.save)
    assert VALUE not in store.disk.tables.values
    traces.synced(traces.adopt({KEY: CONTEXT}), Commit("c"), MachineClock().now())
    await store.write(traces.save)
    traces.saved()
    stored = store.disk.tables.values[VALUE]
    await store.write(lambda tx: tx.set_value(VALUE, "untouched"))
    await store.write(traces.save)
    assert store.disk.tables.values[VALUE] == "untouched"

    after_restart = SiteTraces(HOME, None, MachineClock(), stored)
    after_restart.forget([KEY], {})
    await store.write(after_restart.save)
    assert store.disk.tables.values[VALUE] == ""


async def test_a_trace_whose_write_failed_is_written_with_the_next_one() -> None:
    assert CONTEXT is not None
    store, traces = MemoryStore(Disk()), SiteTraces(HOME, None, MachineClock())
    traces.adopt({KEY: CONTEXT})
    for _ in range(2):  # The first was not durable: nobody called `saved`.
        await store.write(lambda tx: tx.set_value(VALUE, ""))
        await store.write(traces.save)
        assert KEY in store.disk.tables.values[VALUE]
