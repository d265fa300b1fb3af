"""Central keeps the engines of sites in memory: until a site has told them, it refuses no job for want of one."""

import json
from dataclasses import replace
from typing import Any

import pytest

from homeport.central.app import CentralApp
from homeport.central.site_link import answer_call, welcome
from homeport.core.inference.engines.handoff import EngineName, Handoff, HandoffModel, to_data
from homeport.core.model.protocol import OWN
from homeport.vocabulary import SiteName
from tests.support.running_central import Answer, Client, FakeSite, node_changed

pytestmark = pytest.mark.anyio

HOME, AWAY = SiteName("home"), SiteName("away")


async def joined(central: CentralApp, client: Client, site: SiteName) -> None:
    """With a node that lives."""
    fake = FakeSite(client, site)
    await welcome(central.parts, site, epoch=fake.epoch, software_version="1", protocol=OWN)
    await fake.say(node_changed(f"node-of-{site}", site))


async def told(central: CentralApp, site: SiteName, *models: str) -> None:
    """The site says which engines it has."""
    engine = Handoff(engine=EngineName.FAKE, url="http://127.0.0.1:1", model=HandoffModel(""))
    engines = [replace(engine, model=HandoffModel(model), pool_id=model) for model in models]
    content = {"network": "elsewhere", "replicas": [to_data(each) for each in engines], "behind_nodes": []}
    await answer_call(central.parts, site, "replicas", json.dumps(content).encode())


async def submitted(client: Client, **where: Any) -> Answer:
    asked = {"model": "tiny", "prompt": "hi", "max_tokens": 3}
    return await client.post("/api/v1/jobs", {"inference": asked, **where})


async def test_a_job_waits_at_a_site_that_has_not_told_its_engines(started: tuple[CentralApp, Client]) -> None:
    central, client = started
    await joined(central, client, HOME)
    for where in ({"site": HOME}, {}):
        made = await submitted(client, **where)
        assert (made.status, made.body["site"], made.body["state"]) == (201, HOME, "PENDING"), made.body


async def test_a_site_that_has_the_engine_is_preferred_to_one_that_has_told_nothing(
    started: tuple[CentralApp, Client],
) -> None:
    central, client = started
    for site in (AWAY, HOME):
        await joined(central, client, site)
    await told(central, HOME, "tiny")
    assert (await submitted(client)).body["site"] == HOME


async def test_once_told_a_missing_engine_is_a_refusal(started: tuple[CentralApp, Client]) -> None:
    central, client = started
    await joined(central, client, HOME)
    await told(central, HOME, "other")
    for where in ({"site": HOME}, {}):
        refused = await submitted(client, **where)
        assert refused.status == 422, refused.body
        assert refused.body["detail"] == 'No engine of site home serves the model "tiny".'
