"""Central and a site whose database was put back from an older copy: reports under used positions are not lost."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from homeport.central.app import CentralApp
from homeport.core.jobs.job import Job, JobSpec, JobType
from homeport.jobs.ports import SYNC
from homeport.vocabulary import JobId, JobState, SiteName
from homeport.wire.jobs import job_to_json
from tests.support.running_central import Client, FakeSite, node_changed, running_central

pytestmark = pytest.mark.anyio

HOME = SiteName("home")
NOW = datetime.now(UTC)
SPEC = JobSpec(JobType.CONTAINER, image="app:1")
RUNS = Job(JobId("one"), HOME, SPEC, JobState.RUNNING, 1, NOW, "ann", NOW)
ENDED = replace(RUNS, state=JobState.COMPLETED, finished_at=NOW)


async def exchange(central: CentralApp, *reports: tuple[int, Job], **more: Any) -> Any:
    body = {
        "epoch": "epoch-1",
        "reports": [
            {"position": position, "body": {"job": job_to_json(job), "before": "PENDING"}}
            for position, job in reports
        ],
        **more,
    }
    return json.loads(await central.link.call(HOME, SYNC, json.dumps(body).encode()))


async def state_of(client: Client, job: str) -> str:
    return str((await client.get(f"/api/v1/jobs/{job}")).body["state"])


async def test_a_site_from_an_older_copy_is_told_so_and_reports_again(tmp_path: Path) -> None:
    async with running_central(tmp_path / "central") as (central, client):
        await FakeSite(client).join()
        other = replace(RUNS, id=JobId("two"))
        taken = await exchange(central, (1, RUNS), (2, other))
        assert (taken["acknowledged"], taken["restored"]) == (2, False)
        lost_answer = await exchange(central, (1, RUNS), (2, other))
        assert (lost_answer["acknowledged"], lost_answer["restored"]) == (2, False), "the same again is no restore"
        restored = await exchange(central, (1, RUNS), (2, ENDED))
        assert (restored["acknowledged"], restored["restored"]) == (2, True)
        assert await state_of(client, "one") == "RUNNING", "nothing of it was taken"
        again = await exchange(central, (3, ENDED), open=["one"])
        assert (again["acknowledged"], again["restored"]) == (3, False)
        assert await state_of(client, "one") == "COMPLETED"
        assert await state_of(client, "two") == "FAILED", "the copy does not know it, so it has no result any more"


async def test_a_position_beyond_that_of_the_site_shows_the_restore_too(tmp_path: Path) -> None:
    async with running_central(tmp_path / "central") as (central, client):
        await FakeSite(client).join()
        await exchange(central, (1, RUNS), (2, RUNS))
        assert (await exchange(central))["acknowledged"] == 2, "a site at position 1 sees that it was further before"


async def test_jobs_of_a_site_that_is_removed_from_the_fleet_end(tmp_path: Path) -> None:
    """Those that it has, and those that still wait for it."""
    async with running_central(tmp_path / "central") as (central, client):
        site = FakeSite(client)
        await site.join()
        await site.say(node_changed())
        await exchange(central, (1, RUNS))
        waits = await client.post("/api/v1/jobs", {"id": "two", "site": "home", "image": "app:1"})
        assert (waits.status, waits.body["state"]) == (201, "PENDING"), waits.body
        assert (await client.delete("/api/v1/sites/home", params={"force": "true"})).status == 200
        for name in ("one", "two"):
            shown = (await client.get(f"/api/v1/jobs/{name}")).body
            assert (shown["state"], shown["reason"]) == ("FAILED", "Its site was removed from the fleet."), shown
        await FakeSite(client).join()
        assert (await exchange(central, (2, ENDED)))["jobs"] == [], "nothing waits for a site of the same name"
        assert await state_of(client, "one") == "FAILED", "an ended job stays as it is"
