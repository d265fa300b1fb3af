"""While central is gone the outbox keeps what matters, stops taking commentary, and says how full it is."""

from datetime import timedelta

import aiohttp
import pytest

from homeport.core.model.order import Progress
from homeport.fleet.site.reports.resync import BATCH_MAX, FULL, PROGRESS_QUEUED_MAX
from homeport.site.app import SiteApp
from homeport.vocabulary import DeploymentId, EventKind, NodeId, State, Step
from tests.integration.site.conftest import OpenSite
from tests.integration.site.test_site import link, reaches
from tests.support.builders import NOW
from tests.support.deployment_files import deployment_file
from tests.support.git import Person
from tests.support.local import local_key
from tests.support.scripted_node import scripted_node
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio

KEY = DeploymentId("6f9619ff-8b86-4d01-b42d-00c04fc964ff")


async def test_progress_stops_at_the_bound_and_steps_still_arrive(person: Person, start: OpenSite) -> None:
    path, text = deployment_file(deployment_id=KEY)
    person.write(path, text)
    person.push()
    async with start() as site, scripted_node(link(site)):
        await reaches(site, State.INSTALLED)
        (instance,) = site.parts.conductor.memory.instances.values()
        node, conductor = NodeId("one"), site.parts.conductor
        for batch in range(0, 2 * PROGRESS_QUEUED_MAX, 1000):
            news = [
                Progress(KEY, instance.generation, Step.CHECKING, "web", f"look {n}", NOW + timedelta(seconds=n))
                for n in range(batch, batch + 1000)
            ]
            await conductor.take([(node, each) for each in news])
        async with site.parts.store.read() as reader:
            full = await reader.outbox_size()
        assert PROGRESS_QUEUED_MAX <= full < PROGRESS_QUEUED_MAX + 1100
        person.write(path, text.replace("Ahoy", "Hello"))
        person.push()
        memory = conductor.memory
        await eventually(lambda: next(iter(memory.instances.values())).running_revision != instance.revision)
        async with site.parts.store.read() as reader:
            rows = await reader.outbox(limit=full + 100)
            bytes_kept = sum(len(str(row.body)) for row in rows)
        assert {row.body["kind"] for row in rows[full:]} >= {"synced", "transition"}
        assert bytes_kept < 10 * 1024 * 1024
        waiting = await metrics(site)
        assert waiting["homeport_outbox_size"] == len(rows)
        assert waiting["homeport_outbox_bytes"] == sum(row.size_bytes for row in rows)
        assert waiting["homeport_outbox_oldest_seconds"] > 0
        assert waiting["homeport_outbox_dropped"] == 0

        await conductor.resync(FULL)
        after = await metrics(site)
        dropped = len(rows) - BATCH_MAX
        assert after["homeport_outbox_dropped"] == dropped
        assert after["homeport_outbox_bytes"] < waiting["homeport_outbox_bytes"]
        async with site.parts.store.read() as reader:
            kinds = [row.body["kind"] for row in (await reader.outbox(limit=10**6))[BATCH_MAX:]]
            last = await reader.last_event_id()
            (told,) = await reader.events(after=last - 1, limit=1)
        assert kinds == ["restating", "node-changed", "holds-changed", "synced", "restated"]
        assert told.event.kind is EventKind.SITE_RESTATED
        assert f"{dropped} reports that waited since" in told.event.message


async def metrics(site: SiteApp) -> dict[str, float]:
    """Those without labels."""
    url = f"http://127.0.0.1:{site.http_port}/metrics"
    async with aiohttp.ClientSession(headers=local_key(site)) as session, session.get(url) as got:
        lines = [line.split(" ") for line in (await got.text()).splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in lines if "{" not in name}
