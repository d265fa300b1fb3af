"""What a site does when the time for a change is up: by a node that fails too often, or that never answers."""

import re
from collections.abc import Sequence

import pytest

from homeport.core.model.event import HistoryEntry
from homeport.core.model.instance import Failure
from homeport.core.model.order import Result
from homeport.site.app import SiteApp
from homeport.vocabulary import Actor, Code, NodeId, State
from tests.integration.site.conftest import OpenSite
from tests.integration.site.test_going_back import KEY, at, instance, push
from tests.integration.site.test_site import link, reaches
from tests.support.builders import NOW
from tests.support.git import Person
from tests.support.scripted_node import scripted_node
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio

IMPATIENT = {"overdue_seconds": 0.2, "sweep_seconds": 0.05}


async def history(site: SiteApp) -> Sequence[HistoryEntry]:
    async with site.parts.store.read() as reader:
        return await reader.history(KEY)


async def test_a_node_that_is_there_and_never_answers_is_given_up_on(person: Person, start: OpenSite) -> None:
    push(person, "1.0.0", policy="{retries: 3, backoff: 1s, deadline: 1s}")
    async with start(**IMPATIENT) as site, scripted_node(link(site)) as node:
        node.is_wedged = True
        await reaches(site, State.FAILED)
        failure = instance(site).failure
        assert failure is not None and failure.code == Code.TIMEOUT
        assert re.fullmatch(
            r"node one is there but has not answered for \d+s; 1s were allowed; "
            r"gave up after 1 attempt: the deadline of 1s has passed",
            failure.message,
        ), "how long it was may be more than what was allowed, on a busy machine"
        await node.finish(node.orders[0])  # The answer comes all the same, too late to count.
        await eventually(lambda: node.acknowledged == 1)
        assert (instance(site).state, (await history(site))[-1].verdict) == (State.FAILED, "stale")
        node.is_wedged = False
        push(person, "1.1.0")
        await eventually(lambda: at(site, "1.1.0"))


async def test_of_several_results_of_one_order_that_come_at_once_the_last_counts(
    person: Person, start: OpenSite, caplog: pytest.LogCaptureFixture
) -> None:
    """As of a node that lost its folder, while neither its disk nor that of its site takes anything."""
    push(person, "1.0.0", policy="{retries: 0}")
    async with start() as site, scripted_node(link(site)) as node:
        await reaches(site, State.INSTALLED)
        node.is_wedged = True
        order = node.orders[0]
        failure = Failure(Code.DISK_FULL, "The journal cannot be written.")
        refused = [
            Result(KEY, order.generation, order.kind, succeeded=False, at=NOW, failure=failure) for _ in range(2)
        ]
        await site.parts.conductor.take([(NodeId("one"), each) for each in refused])
        assert instance(site).state is State.FAILED
    assert "transition rejected" not in caplog.text


async def test_an_update_that_is_never_answered_is_gone_back_from(person: Person, start: OpenSite) -> None:
    push(person, "1.0.0")
    async with start(**IMPATIENT) as site, scripted_node(link(site)) as node:
        await reaches(site, State.INSTALLED)
        node.is_wedged = True
        push(person, "1.1.0", policy="{deadline: 1s}")
        await eventually(lambda: len(node.orders) == 3)
        assert instance(site).state is State.ROLLINGBACK
        _, late, back = node.orders
        assert late.generation < back.generation and back.release is not None
        assert back.release.app_version == "1.0.0"
        await node.finish(late)  # Of an older order: it means nothing.
        await node.finish(back)
        await eventually(lambda: at(site, "1.0.0"))
        assert instance(site).rejected_revision is not None
        gave_up = next(entry for entry in await history(site) if entry.failure is not None)
        assert (gave_up.actor, gave_up.failure and gave_up.failure.code) == (Actor.SITE, Code.TIMEOUT)


async def test_retries_stop_at_the_deadline_and_a_restart_does_not_begin_it_anew(
    person: Person, start: OpenSite
) -> None:
    push(person, "1.0.0", policy="{retries: 9, backoff: 1s, deadline: 30s}")
    fails = lambda order: Failure(Code.EXITED, "it ended", "web")  # noqa: E731
    async with start(**IMPATIENT) as site, scripted_node(link(site), answer=fails) as node:
        await eventually(lambda: len(node.orders) == 2)
        await eventually(lambda: instance(site).state is State.FAILED)
        assert node.orders[1].limit_seconds < node.orders[0].limit_seconds == 30.0
        spent = site.parts.conductor.memory.order_timers.spent[KEY, node.info.id]
        assert 0.5 <= spent < 30.0
    async with start(**IMPATIENT) as site:
        order_timers = site.parts.conductor.memory.order_timers
        assert order_timers.spent[KEY, node.info.id] == pytest.approx(spent, abs=0.01)
        order_timers.spent[KEY, node.info.id] = 27.9  # as if it had taken so long by now
        async with scripted_node(link(site), answer=fails) as again:
            await eventually(lambda: len(again.orders) == 1)
            await eventually(lambda: instance(site).next_at is None and instance(site).state is State.FAILED)
            assert "it ended; gave up after 3 attempts: the deadline of 30s has passed" in instance(site).step
