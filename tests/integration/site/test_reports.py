"""What happens at a site reaches central in order, once, also after central was gone."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import anyio
import pytest

from homeport.adapters.link.inprocess import InProcessLink
from homeport.core.model.instance import Transition
from homeport.core.model.order import Progress
from homeport.core.model.report import Progressed, Synced
from homeport.core.secrets import SecretsThere
from homeport.errors import PeerUnavailable
from homeport.ports import JoinAnswer, Lineage, Moved, News, Outgoing
from homeport.vocabulary import NodeId, SiteName, Step
from homeport.wire.reports import decode
from tests.integration.site.conftest import OpenSite
from tests.support.builders import NOW
from tests.support.deployment_files import deployment_file
from tests.support.git import Person
from tests.support.scripted_node import scripted_node
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio


class Notebook:
    """Central as far as a site can tell: it can be away, and it writes down what it is told."""

    def __init__(self) -> None:
        self.is_away = False
        self.epochs: list[str] = []
        self.sequences: list[int] = []
        self.reports: list[object] = []
        self.seen: Mapping[NodeId, datetime] = {}

    async def join(
        self, site: SiteName, *, epoch: str, software_version: str, lineage: Lineage | None = None
    ) -> JoinAnswer:
        self._answer()
        self.epochs.append(epoch)
        return JoinAnswer(self.sequences[-1] if self.sequences else 0)

    async def report(
        self,
        site: SiteName,
        reports: Sequence[Outgoing],
        *,
        epoch: str,
        seen: Mapping[NodeId, datetime],
        start: str = "",
    ) -> int:
        self._answer()
        self.seen = seen
        for item in reports:
            if not self.sequences or item.sequence > self.sequences[-1]:
                self.sequences.append(item.sequence)
                self.reports.append(decode(item.body))
        return self.sequences[-1] if self.sequences else 0

    async def secrets(self, site: SiteName, *, known: Mapping[str, int]) -> SecretsThere:
        self._answer()
        return SecretsThere({})

    async def call(self, site: SiteName, topic: str, body: bytes) -> bytes:
        raise AssertionError("nothing calls here")

    async def answer(self, site: SiteName, question: str, answer: Mapping[str, Any]) -> None:
        self._answer()

    async def watch(self, site: SiteName) -> AsyncIterator[Moved]:
        self._answer()
        await anyio.sleep_forever()
        yield Moved  # type: ignore[misc]

    def _answer(self) -> None:
        if self.is_away:
            raise PeerUnavailable("central is away")

    def notes(self) -> list[str]:
        told = [report.progress.step for report in self.reports if isinstance(report, Progressed)]
        return [step.value for step in told if step in (Step.DRIFTED, Step.RESTORED)]

    def steps(self) -> list[str]:
        return [report.trigger.value for report in self.reports if isinstance(report, Transition)]


async def test_reports_arrive_in_order_without_gaps(person: Person, start: OpenSite) -> None:
    central = Notebook()
    path, text = deployment_file()
    async with start(central) as site, scripted_node(InProcessLink(site.parts.reception)):
        person.write(path, text)
        person.push()
        await eventually(lambda: central.steps() == ["scheduled", "healthy"])
        assert central.sequences == list(range(1, len(central.sequences) + 1))
        assert any(isinstance(report, Synced) and report.deployment_ids for report in central.reports)
        assert NodeId("one") in central.seen


async def test_what_happens_while_central_is_gone_arrives_when_it_is_back(person: Person, start: OpenSite) -> None:
    central = Notebook()
    path, text = deployment_file()
    async with start(central) as site, scripted_node(InProcessLink(site.parts.reception)):
        await eventually(lambda: central.epochs)
        central.is_away = True
        person.write(path, text)
        person.push()
        await eventually(
            lambda: any(item.state == "INSTALLED" for item in site.parts.conductor.memory.instances.values())
        )
        person.remove(path)
        person.push()
        await eventually(lambda: not site.parts.conductor.memory.instances and site.parts.conductor.memory.applied)
        assert central.steps() == []
        assert (await site.parts.contact.checks())["git"] == "ok", "a site works with central gone"
        central.is_away = False
        await eventually(lambda: central.steps() == ["scheduled", "healthy", "unwanted", "removed"])
        assert central.sequences == list(range(1, len(central.sequences) + 1))


async def test_reports_queued_before_a_restart_are_sent_after_it(person: Person, start: OpenSite) -> None:
    central = Notebook()
    central.is_away = True
    path, text = deployment_file()
    person.write(path, text)
    person.push()
    async with start(central) as site, scripted_node(InProcessLink(site.parts.reception)):
        await eventually(
            lambda: any(item.state == "INSTALLED" for item in site.parts.conductor.memory.instances.values())
        )
    central.is_away = False
    async with start(central):
        await eventually(lambda: central.steps() == ["scheduled", "healthy"])
    assert len(set(central.epochs)) == 1


async def test_a_note_of_drift_that_comes_twice_is_told_once(person: Person, start: OpenSite) -> None:
    """Its node did not hear that the site has it, and says it again on its next stream."""
    central = Notebook()
    path, text = deployment_file()
    person.write(path, text)
    person.push()
    async with start(central) as site:
        link = InProcessLink(site.parts.reception)
        async with scripted_node(link) as node:
            await eventually(lambda: central.steps() == ["scheduled", "healthy"])
            (order,) = node.orders
            drift = Progress(order.deployment_id, order.generation, Step.DRIFTED, "web", "web was missing", NOW)
            later = replace(drift, step=Step.RESTORED, at=NOW + timedelta(seconds=1))
            held = tuple(node.held.values())
            await node.say(News(7, drift))
            await eventually(lambda: node.acknowledged == 7)
        async with scripted_node(link, held=held) as again:
            await again.say(News(7, drift))
            await again.say(News(8, later))
            await eventually(lambda: again.acknowledged == 8)
        await eventually(lambda: "restored" in central.notes())
        assert central.notes() == ["drifted", "restored"]
