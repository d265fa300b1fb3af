"""What central's lists and counts cost in a large fleet, and what those who follow its events cost a deployment."""

import statistics
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from subprocess import PIPE, Popen

import anyio
import anyio.to_thread

from homeport.core.model.instance import Failure
from homeport.ports import Store, Transaction
from homeport.vocabulary import Digest, Liveness, SiteName, State, Trigger
from tests.conformance.store import records
from tests.support.running_central import Client, FakeSite, running_central, transition, write_app

SITES = 10_000
DEPLOYMENTS_EACH = 5
ROUNDS = 11
FAILED_EVERY, OUTDATED_EVERY, SILENT_EVERY, LOST_EVERY = 500, 700, 1_000, 900
BATCH = 200

Numbers = dict[str, float]


def large_fleet() -> Numbers:
    """Milliseconds of each question at central, the median of some."""
    return anyio.run(_large_fleet)


async def _large_fleet() -> Numbers:
    with tempfile.TemporaryDirectory() as folder:
        # Filling it takes longer than a site may be silent.
        async with running_central(Path(folder), site_silence_seconds=3_600.0) as (central, client):
            await _fill(central.parts.store)
            questions = {
                "status": "/api/v1/overview",
                "a page of deployments": "/api/v1/deployments",
                "the last page of deployments": await _last_page(client),
                "deployments by time of change": "/api/v1/deployments?sort=updated",
                "deployments that need attention": "/api/v1/deployments?attention=true",
                "a page of sites": "/api/v1/sites",
                "sites by label": "/api/v1/sites?selector=region%3Dr7",
                "a page of nodes": "/api/v1/nodes",
                "one site": "/api/v1/sites/site-05000",
                "one deployment": "/api/v1/deployments/app-1@site-05000",
                "/metrics": "/metrics",
            }
            return {name: await _median(client, path) for name, path in questions.items()}


async def _median(client: Client, path: str) -> float:
    taken = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        answer = await client.get(path)
        taken.append((time.perf_counter() - began) * 1000)
        assert answer.status == 200, answer.body
    return statistics.median(taken)


async def _last_page(client: Client) -> str:
    """Pages through names alone until the last one, as a script would."""
    path, cursor = "/api/v1/deployments?limit=1000&fields=name", ""
    while True:
        answer = (await client.get(path + cursor)).body
        if answer["next"] is None:
            return f"/api/v1/deployments?{cursor.removeprefix('&')}"
        cursor = f"&cursor={answer['next']}"


async def _fill(store: Store) -> None:
    now = datetime.now(UTC)
    for first in range(0, SITES, BATCH):

        async def work(tx: Transaction, first: int = first) -> None:
            for number in range(first, first + BATCH):
                await _one_site(tx, number, now)

        await store.write(work)


async def _one_site(tx: Transaction, number: int, now: datetime) -> None:
    name = SiteName(f"site-{number:05}")
    seen = now - timedelta(days=1) if number % SILENT_EVERY == 0 else now
    await tx.put_site(records.site(name, last_seen=seen, labels={"region": f"r{number % 50}", "tier": "edge"}))
    lost = Liveness.LOST if number % LOST_EVERY == 1 else Liveness.LIVE
    await tx.put_node(records.node(f"node-{number:05}", name, liveness=lost))
    rows, instances = [], []
    for each in range(DEPLOYMENTS_EACH):
        place = number * DEPLOYMENTS_EACH + each
        is_failed = place % FAILED_EVERY == 0
        state = State.FAILED if is_failed else State.INSTALLED
        running = Digest("sha256:" + "b" * 64) if place % OUTDATED_EVERY == 0 else records.REVISION
        row = records.deployment(
            site=name, name=f"app-{each}", state=state, updated_at=now + timedelta(seconds=place)
        )
        rows.append(row)
        instances.append(
            records.instance(
                row.id,
                f"node-{number:05}",
                state=state,
                running_revision=running,
                failure=Failure("PULL_FAILED", "the registry does not answer", "web") if is_failed else None,
            )
        )
    await tx.put_deployments(rows)
    await tx.put_instances(instances)


FOLLOWERS = 1_000
DEPLOYS = 15
FOLLOW = """
import asyncio, sys
host, port, key, count, after = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), sys.argv[5]
lines = [f"GET /api/v1/events?after={after} HTTP/1.1", f"Host: {host}:{port}", f"Authorization: {key}", "", ""]
async def follow():
    reader, writer = await asyncio.open_connection(host, port)
    writer.write((chr(13) + chr(10)).join(lines).encode())
    assert b"200" in await reader.readline()
    return reader, writer
async def drain(reader):
    while await reader.read(65536):
        pass
async def main():
    opened = [await follow() for _ in range(count)]
    print("following", flush=True)
    await asyncio.gather(*(drain(reader) for reader, _ in opened))
asyncio.run(main())
"""


def followers() -> Numbers:
    """Milliseconds from a deploy to its INSTALLED event at one who watches it, the median of some: with nobody else,
    and with many who follow everything, in a process of their own."""
    return anyio.run(_followers)


async def _followers() -> Numbers:
    with tempfile.TemporaryDirectory() as folder:
        write_app(Path(folder) / "registry")
        async with running_central(Path(folder) / "central") as (central, client):
            added = await client.post("/api/v1/apps", {"repository": str(Path(folder) / "registry")})
            assert added.status == 201, added.body
            site = FakeSite(client)
            await site.join()
            await _deploys(site, "warm", 3)
            alone = await _deploys(site, "alone", DEPLOYS)
            key = client.session.headers["Authorization"]
            last = (await client.get("/api/v1/overview")).body["last_event_id"]
            given = ["127.0.0.1", str(central.http_port), key, str(FOLLOWERS), str(last)]
            arguments = [sys.executable, "-c", FOLLOW, *given]
            with Popen(arguments, stdout=PIPE) as process:  # noqa: ASYNC220 - nothing is measured meanwhile
                try:
                    assert process.stdout is not None
                    assert await anyio.to_thread.run_sync(process.stdout.readline) == b"following\n"
                    await anyio.sleep(2)
                    followed = await _deploys(site, "followed", DEPLOYS)
                finally:
                    process.terminate()
    return {"no followers": alone, "1000 followers": followed}


async def _deploys(site: FakeSite, name: str, count: int) -> float:
    taken = []
    for number in range(count):
        began = time.perf_counter()
        deployed = (await site.client.deploy(site.name, name=f"{name}-{number}")).body
        deployment_id = deployed["deployment_ids"][0]
        shown = (await site.client.get(f"/api/v1/deployments/{deployment_id}")).body
        await site.say(
            transition(deployment_id, Trigger.SCHEDULED, revision=shown["revision"]),
            transition(deployment_id, Trigger.HEALTHY, revision=shown["revision"]),
        )
        path = f"/api/v1/events?subject=deployment/{deployment_id}&after={deployed['last_event_id']}"
        async for sent in site.client.events(path):
            if sent.event == "deployment.state" and sent.data["data"]["state"] == "INSTALLED":
                break
        taken.append((time.perf_counter() - began) * 1000)
        await anyio.sleep(0.2)  # the followers have it too before the next begins
    return statistics.median(taken)
