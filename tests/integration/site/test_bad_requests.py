"""Whatever central sends to a site harms itself alone: each value of a good message becomes a bad one."""

import json
from collections import deque
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from homeport.core.jobs.job import Job, JobSpec, JobType
from homeport.core.model.deployment import Hold
from homeport.core.model.identity import IdentityKind, JoinToken
from homeport.core.model.node import Tunable
from homeport.ports import (
    Ask,
    CentralLink,
    DrainNode,
    ExpectNode,
    FromCentral,
    LiftHold,
    Moved,
    NodeIdentities,
    RemoveNode,
    Restate,
    RollBack,
    SecretsChanged,
    SetHold,
    Transaction,
    TuneNode,
)
from homeport.site.app import SiteApp
from homeport.site.capabilities import CAPABILITIES
from homeport.vocabulary import Commit, DeploymentId, Digest, JobId, JobState, NodeId, SiteName
from homeport.wire import site_messages
from tests.integration.site.conftest import OpenSite
from tests.support.builders import a_node, deployment_id
from tests.support.git import Person
from tests.support.running_central import Client, running_central
from tests.support.spoiling import spoiled_values
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio

HOME = SiteName("home")
NOW = datetime.now(UTC)
LATER = NOW + timedelta(hours=1)
SPAN = {"start": NOW.isoformat(), "end": LATER.isoformat()}
QUESTIONS: dict[str, dict[str, Any]] = {
    "jobs.output": {"id": "j-1", "after": 0, "generation": 1, "wait_seconds": 0.1},
    "jobs.wake": {},
    "content.usage": {},
    "telemetry-series": {"nodes": ["n1"], "metrics": ["cpu_used_ratio"], "step_seconds": 60, **SPAN},
    "telemetry-latest": {},
    "telemetry-heartbeats": {"node": "n1", **SPAN},
    "replicas": {},
    "engines.demand": {"by": "central", "pools": {"default": {"waiting": 1, "busy": {"r0": 1}}}},
}
"""By topic, as central asks them."""
MESSAGES: tuple[FromCentral, ...] = (
    Moved(Commit("a" * 40)),
    SecretsChanged(),
    RemoveNode(NodeId("n1")),
    RollBack(DeploymentId(deployment_id(1)), Digest("sha256:" + "0" * 64), "why", "ann"),
    NodeIdentities("q", "list", "n1", "ann", ""),
    ExpectNode(JoinToken("t", IdentityKind.NODE, HOME, "h" * 64, NOW, "ann", LATER)),
    DrainNode(NodeId("n1"), "why"),
    TuneNode(NodeId("n1"), Tunable(5.0, {"a": "b"}, "info", 10.0)),
    SetHold(Hold(site=HOME, deployment_id=None, reason="why", author="ann", at=NOW, expires_at=LATER)),
    LiftHold(None, "ann"),
    Restate((DeploymentId(deployment_id(1)),)),
)


class Spoiling:
    """A link to central on which spoiled messages arrive first."""

    def __init__(self, link: CentralLink, messages: list[str]) -> None:
        self._link = link
        self._messages = deque(messages)
        self.answers = 0
        self.is_over = anyio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._link, name)

    async def watch(self, site: SiteName) -> AsyncIterator[FromCentral]:
        while self._messages:
            yield site_messages.decode(json.loads(self._messages.popleft()))
        self.is_over.set()
        async for message in self._link.watch(site):
            yield message

    async def answer(self, site: SiteName, question: str, answer: Mapping[str, Any]) -> None:
        json.dumps(answer, allow_nan=False)
        if self.is_over.is_set() and not question.startswith("spoiled"):
            await self._link.answer(site, question, answer)
        else:
            self.answers += 1


def messages(questions: Mapping[str, Mapping[str, Any]]) -> list[str]:
    made = [*MESSAGES, *(Ask(topic, content) for topic, content in questions.items())]
    good = [{**json.loads(json.dumps(site_messages.encode(each), default=vars)), "reply_to": "r"} for each in made]
    assert {each["kind"] for each in good} == set(site_messages._READERS), "every kind has an example here"
    found = [bad for each in good for bad in spoiled_values(each) if isinstance(bad, dict)]
    return [json.dumps({**bad, "reply_to": f"spoiled {number}"}) for number, bad in enumerate(found)]


async def _plant(tx: Transaction) -> None:
    """What the messages are about, so that each is read to its end."""
    await tx.put_node(replace(a_node("n1"), site=HOME))
    spec = JobSpec(JobType.CONTAINER, command=("true",), image="i")
    await tx.put_jobs([Job(JobId("j-1"), HOME, spec, JobState.PENDING, 1, NOW, "ann", NOW)])


def topics(site: SiteApp) -> set[str]:
    return {topic for part in site.parts.brought for topic in part.asked}


async def _holds(client: Client, reason: str) -> bool:
    """Central asks the site, and hears from it what it did."""
    await client.post("/api/v1/sites/home/holds", {"reason": reason, "lasts_seconds": 3600})
    found = await client.get("/api/v1/sites/home/holds")
    return reason in str(found.body)


async def _is_told(site: SiteApp) -> bool:
    async with site.parts.store.read() as reader:
        return await reader.outbox_size() == 0


async def test_no_message_of_central_ends_a_site_or_stays_in_its_way(
    person: Person, start: OpenSite, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_central(tmp_path / "central") as (central, client):
        async with start(capabilities=CAPABILITIES) as site:
            await site.parts.store.write(_plant)
        link = Spoiling(central.link, messages(QUESTIONS))
        async with start(central=link, capabilities=CAPABILITIES) as site:
            assert topics(site) == set(QUESTIONS), "every topic has an example here"
            with anyio.fail_after(120):
                await link.is_over.wait()
                await eventually(partial(_holds, client, "after all that"), what="a good request to be carried out")
                await eventually(partial(_is_told, site), what="central to have taken every report")
        assert link.answers > 1000
        assert "question from central failed" not in caplog.text, "refused by chance, not by a rule"
        async with start(central=central.link, capabilities=CAPABILITIES) as site, site.parts.store.read() as reader:
            assert await reader.holds() is not None, "nothing that was stored is in the way of a restart"
