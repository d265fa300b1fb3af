"""What a site records reaches central in the order in which the site itself has applied it."""

from dataclasses import replace

import pytest

from homeport.core.model.instance import Failure, Transition
from homeport.core.model.order import Progress
from homeport.core.model.report import Progressed
from homeport.fleet.site.recorder import TransitionRecorder
from homeport.fleet.site.reports.queue import ReportQueue
from homeport.fleet.site.state import SiteState
from homeport.fleet.site.traces import SiteTraces
from homeport.ports import Transaction
from homeport.vocabulary import Actor, Code, Generation, Incarnation, State, Step, Trigger
from homeport.wire.reports import encode
from tests.simulation.life import MachineClock
from tests.simulation.store import Disk, MemoryStore
from tests.support.builders import HOME, NOW, a_deployment, an_instance

pytestmark = pytest.mark.anyio


async def test_health_that_is_observed_after_a_failed_order_is_reported_after_it() -> None:
    """Both may come in one batch of a node's news. The failure forgets the health that was known before it."""
    store, clock, updating = MemoryStore(Disk()), MachineClock(), an_instance(state=State.UPDATING)

    async def work(tx: Transaction) -> None:
        await tx.put_deployments([a_deployment(state=State.UPDATING)])
        await tx.put_instances([replace(updating, version=1)])

    await store.write(work)
    memory = SiteState(HOME, Generation(7), Incarnation(3))
    memory.instances[updating.key] = updating
    queue = ReportQueue(memory, store, clock, encode)
    failure = Failure(Code.IMAGE_PULL_FAILED, "it is gone", "web")
    about = updating.deployment_id, updating.node_id, updating.incarnation
    gave_up = Transition(
        *about, Trigger.GAVE_UP, Actor.NODE, "it is gone", NOW, updating.generation, updating.revision, failure
    )
    pulling = Progress(updating.deployment_id, updating.generation, Step.PULLING, "web", "pulling", NOW)
    unwell = replace(pulling, message="web is missing", healthy=False)
    news = [Progressed(updating.node_id, each) for each in (pulling, unwell)]
    await TransitionRecorder(memory, clock, queue, SiteTraces(HOME, None, clock)).record([gave_up], news)

    assert memory.instances[updating.key].unhealthy is not None
    queued = [each.body for each in store.disk.tables.outbox]
    assert [body["kind"] for body in queued] == ["progressed", "transition", "progressed"]
    assert "web is missing" in str(queued[-1])
