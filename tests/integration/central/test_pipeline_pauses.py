"""A saved pipeline that is paused: its schedule and webhook start nothing until it is resumed."""

from datetime import UTC, datetime

import pytest

from homeport.central.app import CentralApp
from homeport.core.model.event import Subject
from homeport.vocabulary import SubjectKind
from tests.support.running_central import Client

pytestmark = pytest.mark.anyio

SOURCE = """
name: nightly
triggers: {schedule: {cron: "0 3 * * *"}}
steps: {one: {job: {command: [echo, hi]}}}
"""
PAUSE, RESUME = (f"/api/v1/pipelines/nightly/{word}" for word in ("pause", "resume"))
ABOUT = Subject(SubjectKind.PIPELINE, "nightly")


async def test_a_paused_pipeline_has_no_next_time_until_it_is_resumed(client: Client, central: CentralApp) -> None:
    made = await client.post("/api/v1/tokens", {"name": "bob", "role": "operator"})
    bob = {"Authorization": f"Bearer {made.body['token']}"}
    saved = (await client.post("/api/v1/pipelines", {"source": SOURCE})).body
    paused = await client.post(PAUSE, {}, headers=bob)
    assert (paused.status, paused.body["paused"], paused.body["next_at"]) == (200, True, None)
    assert paused.body["saved_by"] == saved["saved_by"] != "bob", "it acts with the rights of who saved it"
    assert (await client.post(PAUSE, {})).body == paused.body, "a pause of what is paused changes nothing"
    resumed = (await client.post(RESUME, {}, headers=bob)).body
    assert resumed["paused"] is False
    assert datetime.fromisoformat(resumed["next_at"]) > datetime.now(UTC)
    async with central.parts.store.read() as reader:
        said = [each.event.message for each in await reader.events(after=0, limit=100) if each.event.subject == ABOUT]
    assert said == [
        "pipeline nightly was saved as version 1",
        "pipeline nightly was paused by bob",
        "pipeline nightly was resumed by bob",
    ]


async def test_a_new_version_of_a_paused_pipeline_stays_paused(client: Client) -> None:
    """Who edits it may not know that somebody has stopped it."""
    await client.post("/api/v1/pipelines", {"source": SOURCE, "paused": True})
    edited = (await client.post("/api/v1/pipelines", {"source": SOURCE.replace("hi", "hello")})).body
    assert (edited["version"], edited["paused"], edited["next_at"]) == (2, True, None)
    edited = (await client.post("/api/v1/pipelines", {"source": SOURCE, "paused": False})).body
    assert (edited["paused"], edited["next_at"] is None) == (False, False)


async def test_who_may_not_change_a_pipeline_pauses_none(client: Client) -> None:
    await client.post("/api/v1/pipelines", {"source": SOURCE})
    for name, role, sites, status in (("vera", "viewer", [], 403), ("sam", "operator", ["shop"], 404)):
        made = await client.post("/api/v1/tokens", {"name": name, "role": role, "sites": sites})
        headers = {"Authorization": f"Bearer {made.body['token']}"}
        assert (await client.post(PAUSE, {}, headers=headers)).status == status, name
    missing = await client.post("/api/v1/pipelines/nighty/pause", {})
    assert missing.status == 404
    assert missing.body["hint"].startswith('Did you mean "nightly"?')
    assert (await client.get("/api/v1/pipelines/nightly")).body["paused"] is False
