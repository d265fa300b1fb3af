"""Whatever a site says to a capability of central harms itself alone: each value of a good call becomes a bad one."""

import base64
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from homeport.central.app import CentralApp
from homeport.core.inference.engines.handoff import EngineName, Handoff, HandoffModel, to_data
from homeport.core.jobs.job import Job, JobSpec, JobType
from homeport.core.logs.line import LogLine, Origin, StoredLine
from homeport.vocabulary import JobId, JobState, SiteName
from homeport.wire.jobs import job_to_json
from homeport.wire.logs import encode_batch
from tests.support.git import bare_repository
from tests.support.postgres import PostgresServer
from tests.support.running_central import Client, FakeSite, running_central
from tests.support.spoiling import BAD, spoiled

pytestmark = pytest.mark.anyio

NOW = datetime.now(UTC)
HOME = SiteName("home")
BAD_FOR_POSTGRESQL = (10**40, "\x00", "\ud800", "0001-01-01T00:00:00+14:00")
"""What SQLite may store and PostgreSQL may not; the rest is refused before either is asked."""


def good_job() -> Job:
    spec = JobSpec(JobType.CONTAINER, command=("true",), image="i", environment={"A": "b"}, artifacts=("/a",))
    return Job(JobId("j-1"), HOME, spec, JobState.RUNNING, 1, NOW, "ann", NOW)


def good_calls() -> dict[str, Any]:
    """By topic, as a site says it: JSON as its value, anything else as its bytes."""
    row = {"node": "n1", "resolution": 60, "start": NOW.isoformat(), "content": base64.b64encode(b"{}").decode()}
    beat = {"node": "n1", "start": NOW.isoformat(), "end": None, "state": "live"}
    latest = {"node": "n1", "at": NOW.isoformat(), "values": [["cpu_used_ratio", {"a": "b"}, 0.5]]}
    report = {
        "position": 1,
        "body": {"job": job_to_json(good_job()), "before": "PENDING", "output": "ahoy", "files": []},
    }
    replica = to_data(Handoff(engine=EngineName.LLAMACPP, url="http://127.0.0.1:9", model=HandoffModel("m")))
    line = StoredLine(1, Origin("", "n1", "node"), LogLine(NOW, "node", "info", "ahoy", {"a": "b"}, 1))
    return {
        "telemetry": {"latest": [latest], "rows": [row], "heartbeats": [beat], "observed_until": NOW.isoformat()},
        "jobs.sync": {"epoch": "e", "reports": [report]},
        "replicas": {"network": "x", "replicas": [replica]},
        "logs": encode_batch("b", 0, [line]),
        "content.registry": b"",
        "inference.usage": {"usage": [["ann", NOW.date().isoformat(), "m", 1, 2, 3]]},
    }


def as_bytes(good: Any) -> bytes:
    return good if isinstance(good, bytes) else json.dumps(good).encode()


@pytest.fixture(params=["sqlite", "postgresql"])
async def settings(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[dict[str, Any]]:
    if request.param == "sqlite":
        yield {}
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    name = await server.create_database()
    yield {"store_url": server.url(name), "git_url": str(bare_repository(tmp_path / "deployments.git"))}
    await server.drop_database(name)


async def test_no_call_of_a_site_breaks_central(
    settings: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_central(tmp_path / "central", **settings) as (central, client):
        await FakeSite(client).join()
        known = good_calls()
        assert topics(central) == set(known), "every topic has an example here"
        for topic, good in known.items():
            for number, body in enumerate(spoiled(good, BAD_FOR_POSTGRESQL if settings else BAD)):
                answer = await said(client, topic, body)
                assert answer < 500, f"{topic}, spoiled body {number}: {body[:500]!r} gave {answer}"
            assert await said(client, topic, as_bytes(good)) == 200, topic
        assert "call of a site failed" not in caplog.text, "refused by chance, not by a rule"
        for path in ("/api/v1/jobs", "/api/v1/nodes", "/api/v1/sites", "/metrics"):
            assert (await client.get(path)).status == 200, path


def topics(central: CentralApp) -> set[str]:
    return {topic for part in central.parts.brought for topic in part.from_sites}


async def said(client: Client, topic: str, body: bytes) -> int:
    headers = {"content-type": "application/octet-stream"}
    answer = await client.call("POST", f"/api/v1/sites/home/calls?topic={topic}", data=body, headers=headers)
    return answer.status
