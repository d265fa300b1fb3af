"""F1 for several centrals: the replica that holds every lease is killed at each step, the other one goes on, and
nobody who deploys, reports or follows the log notices more than a retry.

Each round makes the victim the holder: the one before is stopped, which lets go of its leases, and a fresh one is
started beside the victim. A point that is never reached fails.
"""

import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import asyncpg
import pytest

from homeport.adapters.git import create_bare
from homeport.adapters.store.open import open_store
from homeport.adapters.system import SystemClock
from homeport.core.model.caller import INTERNAL, Role
from homeport.failpoints import VARIABLE, Point
from homeport.identity.tokens import Tokens
from homeport.node.settings import NodeSettings
from homeport.site.app import open_site
from homeport.site.settings import SiteSettings
from homeport.vocabulary import NodeId, SiteName, Trigger
from homeport.wire.reports import encode
from tests.faults.conftest import IS_LONG
from tests.support.forks import HomeportProcess
from tests.support.joining import running_node
from tests.support.ports import free_port
from tests.support.postgres import PostgresServer
from tests.support.replicas import RoundRobin, balanced
from tests.support.running_central import Client, node_changed, transition, write_app
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio

LEASES = {"git-writer", "pins", "rollouts", "sweeps"}
HELD = LEASES - {"git-writer"}
"""By whoever came first; the writer's is taken for each commit."""
STORE = (Point.STORE_BEFORE_COMMIT, Point.STORE_AFTER_COMMIT)
GIT = (Point.GIT_BEFORE_COMMIT, Point.GIT_BEFORE_PUSH, Point.GIT_AFTER_PUSH)
LONG = [(point, nth) for point in (*STORE, *GIT, Point.LEASE_TAKEN) for nth in range(1, 12)]
SHORT = [(Point.LEASE_TAKEN, 4), *((point, 15) for point in STORE), *((point, 1) for point in GIT)]
SITES = ("a", "b", "c")


@dataclass
class Replica:
    popen: "subprocess.Popen[str]"
    port: int

    @property
    def is_dead(self) -> bool:
        return self.popen.poll() is not None


@dataclass
class Stand:
    folder: Path
    store_url: str
    balancer: RoundRobin
    options: dict[str, Any] = field(default_factory=dict)
    """Further settings of each replica."""
    running: list[Replica] = field(default_factory=list)

    async def start(self, name: str, failpoint: str | None = None) -> Replica | None:
        """None when it has died before it was up."""
        given = {
            "data": str(self.folder / name),
            "keys": str(self.folder / "keys"),
            "git_url": str(self.folder / "deployments.git"),
            "store_url": self.store_url,
            **self.options,
        }
        environment = {**os.environ, **({VARIABLE: failpoint} if failpoint else {})}
        with (self.folder / f"{name}.log").open("ab") as log:
            popen = HomeportProcess(
                [json.dumps(given)],
                entry="tests.support.replica_process:main",
                env=environment, stdout=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip
        assert popen.stdout is not None
        line = await anyio.to_thread.run_sync(popen.stdout.readline)
        if not line.strip():
            popen.wait(10)
            return None
        replica = Replica(popen, int(line))
        self.running.append(replica)
        self.balancer.ports[:] = [each.port for each in self.running if not each.is_dead]
        return replica

    async def stop(self, replica: Replica) -> None:
        replica.popen.terminate()
        await anyio.to_thread.run_sync(lambda: replica.popen.wait(15))

    async def holders(self) -> dict[str, str]:
        connection = await asyncpg.connect(self.store_url)
        try:
            rows = await connection.fetch("SELECT name, holder FROM leases WHERE expires_at > clock_timestamp()")
        finally:
            await connection.close()
        return {row["name"]: row["holder"].split("/")[1] for row in rows}

    async def holds_all(self, replica: Replica) -> bool:
        held = await self.holders()
        return {name for name, holder in held.items() if holder == str(replica.popen.pid)} >= HELD

    def close(self) -> None:
        for replica in self.running:
            if not replica.is_dead:
                replica.popen.kill()
            replica.popen.communicate()


@asynccontextmanager
async def standing(folder: Path, postgres: PostgresServer, **settings: Any) -> AsyncIterator[tuple[Stand, Client]]:
    create_bare(folder / "deployments.git", "main")
    write_app(folder / "registry", version="1.0.0")
    name = await postgres.copy_database()
    async with open_store(postgres.url(name)) as store:
        made = await Tokens(store, SystemClock()).create(INTERNAL, name="ada", role=Role.ADMIN)
    # A key of this machine opens one replica; behind a balancer people have tokens.
    options: dict[str, Any] = {
        "connector": aiohttp.TCPConnector(force_close=True, ssl=False),
        "timeout": aiohttp.ClientTimeout(total=30),
        "headers": {"Authorization": f"Bearer {made.text}"},
    }
    async with balanced() as balancer, aiohttp.ClientSession(**options) as session:
        stand = Stand(folder, postgres.url(name), balancer, settings)
        try:
            yield stand, Client(f"http{'s' if settings.get('tls') else ''}://127.0.0.1:{balancer.port}", session)
        finally:
            stand.close()
            await postgres.drop_database(name)


@dataclass
class People:
    """Everybody who uses the fleet: they try again until they are answered, and remember what they were promised."""

    client: Client
    sequences: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SITES, 0))
    promised: set[str] = field(default_factory=set)
    rollouts: set[str] = field(default_factory=set)
    followed: list[int] = field(default_factory=list)
    is_quiet: bool = False

    async def insist(
        self, method: str, path: str, body: Any = None, *, good: tuple[int, ...] = (200, 201, 202)
    ) -> Any:
        async def ask() -> Any:
            try:
                answer = await self.client.call(method, path, json=body)
            except (aiohttp.ClientError, OSError, TimeoutError):
                return None
            assert answer.status < 300 or answer.status >= 500, answer.body
            return answer.body if answer.status < 300 else None

        return await eventually(ask, what=f"{method} {path}")

    async def begin(self, registry: Path) -> None:
        await self.insist("POST", "/api/v1/apps", {"repository": str(registry)})
        for site in SITES:
            await self.insist("PUT", f"/api/v1/sites/{site}", {"epoch": site, "software_version": "1"})
            await self.report(site, encode(node_changed(site=site)))
            await self.insist("PATCH", f"/api/v1/sites/{site}", {"labels": {"ring": "1"}})

    async def report(self, site: str, *bodies: dict[str, Any]) -> None:
        items = [{"sequence": self.sequences[site] + 1 + number, "body": body} for number, body in enumerate(bodies)]
        said = {"epoch": site, "reports": items, "seen": {}}
        self.sequences[site] = (await self.insist("POST", f"/api/v1/sites/{site}/reports", said))["last_sequence"]

    async def install(self) -> None:
        """What sites do: whatever is pending is installed and said so."""
        for row in (await self.insist("GET", "/api/v1/deployments"))["deployments"]:
            steps = (Trigger.SCHEDULED, Trigger.HEALTHY) if row["state"] == "PENDING" else ()
            told = [encode(transition(row["id"], step, revision=row["revision"])) for step in steps]
            await self.report(row["site"], *told)

    async def deploy(self, name: str) -> None:
        await self.deploy_at("a", name)

    async def deploy_at(self, site: str, name: str) -> None:
        sites = [{"site_id": site}]
        made = await self.insist("POST", "/api/v1/deployments", {"app_name": "hello", "name": name, "sites": sites})
        self.promised.update(made["deployment_ids"])

    async def roll_out(self, name: str) -> None:
        wanted = {"app_name": "hello", "name": name, "selector": "ring=1", "waves": [1, "100%"]}
        self.rollouts.add((await self.insist("POST", "/api/v1/deployments", wanted))["rollout_id"])

    async def follow(self) -> None:
        """The whole log, resumed at whichever replica answers."""
        while not self.is_quiet:
            after = str(self.followed[-1] if self.followed else 0)
            try:
                async for sent in self.client.events(**{"Last-Event-ID": after}):
                    self.followed.append(int(sent.id or 0))
            except (aiohttp.ClientError, OSError, TimeoutError, AssertionError):
                await anyio.sleep(0.05)


@pytest.mark.parametrize("points", [LONG if IS_LONG else SHORT], ids=["each point"])
async def test_the_holder_of_every_lease_is_killed_at_each_step_and_nothing_is_lost_or_doubled(
    tmp_path: Path, postgres: PostgresServer, points: list[tuple[Point, int]]
) -> None:
    async with standing(tmp_path, postgres) as (stand, client), anyio.create_task_group() as tasks:
        other = await stand.start("first")
        assert other is not None
        people = People(client)
        await people.begin(tmp_path / "registry")
        tasks.start_soon(people.follow)
        for number, (point, nth) in enumerate(points):
            other = await one_round(stand, people, other, number, f"{point}:{nth}")
        await settle(stand, people)
        people.is_quiet = True
        await check(people, client)
        tasks.cancel_scope.cancel()


async def one_round(stand: Stand, people: People, before: Replica, number: int, failpoint: str) -> Replica:
    victim = await stand.start(f"victim-{number}", failpoint)
    await stand.stop(before)
    if victim is not None and not failpoint.startswith(Point.LEASE_TAKEN):
        await eventually(lambda: victim.is_dead or stand.holds_all(victim), what="the victim to hold the leases")
    other = await stand.start(f"other-{number}")
    assert other is not None
    attempt = 0
    while victim is not None and not victim.is_dead:
        attempt += 1
        assert attempt < 40, f"the victim never came to {failpoint}"
        await people.deploy(f"app-{number}-{attempt}")
        if attempt == 1:
            await people.roll_out(f"roll-{number}")
        await people.install()
    if victim is not None:
        assert victim.popen.returncode == -signal.SIGKILL, failpoint
    await people.deploy(f"app-{number}-after")
    await eventually(lambda: stand.holds_all(other), what=f"the other to take over after {failpoint}")
    return other


async def settle(stand: Stand, people: People) -> None:
    async def is_done() -> bool:
        await people.install()
        states = {(await people.insist("GET", f"/api/v1/rollouts/{rollout}"))["state"] for rollout in people.rollouts}
        rows = (await people.insist("GET", "/api/v1/deployments"))["deployments"]
        return states <= {"done"} and {row["state"] for row in rows} == {"INSTALLED"}

    await eventually(is_done, what="all rollouts to be done and everything to be installed")
    # Nobody reports from here on: each site is said to be silent, once.
    await eventually(lambda: silence_of(people, len(SITES)), what="the sites to be silent")


async def silence_of(people: People, count: int) -> bool:
    found = await log_of(people.client)
    return len([event for event in found if "cannot be reached" in event["message"]]) >= count


async def log_of(client: Client) -> list[dict[str, Any]]:
    last = (await client.get("/api/v1/overview")).body["last_event_id"]
    found: list[dict[str, Any]] = []
    async for sent in client.events(**{"Last-Event-ID": "0"}):
        found.append(sent.data)
        if sent.data["id"] >= last:
            break
    return found


async def check(people: People, client: Client) -> None:
    events = await log_of(client)
    await eventually(lambda: len(people.followed) >= len(events), what="the follower to have seen everything")
    assert [event["id"] for event in events] == list(range(1, len(events) + 1)), "ids without gaps"
    assert people.followed[: len(events)] == [event["id"] for event in events], "followed in order, once"
    rows = (await client.get("/api/v1/deployments")).body["deployments"]
    assert people.promised <= {row["id"] for row in rows}, "whatever was promised is there"
    created = [event["deployment_id"] for event in events if event["kind"] == "deployment.created"]
    assert sorted(created) == sorted(row["id"] for row in rows), "each deployment was created once"
    steps = [
        (event["deployment_id"], event["node_id"], event["data"].get("after") or event["message"])
        for event in events
        if event["kind"] == "instance.state"
    ]
    assert len(steps) == len(set(steps)), "each step is told once"
    done = [event for event in events if event["kind"] == "rollout.state" and event["data"].get("state") == "done"]
    assert len(done) == len(people.rollouts), "each rollout was done once"
    silent = [event["site"] for event in events if "cannot be reached" in event["message"]]
    assert sorted(set(silent)) == sorted(SITES)


async def test_a_real_site_and_its_node_go_on_with_the_other_replica_when_theirs_is_killed(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    async with standing(tmp_path, postgres, tls=True) as (stand, client):
        one, other = await stand.start("one"), await stand.start("other")
        assert one is not None
        assert other is not None
        people = People(client)
        await people.insist("POST", "/api/v1/apps", {"repository": str(tmp_path / "registry")})
        async with a_site_and_a_node(tmp_path, people):
            through_one = People(Client(f"https://127.0.0.1:{one.port}", client.session))
            await through_one.deploy_at("north", "before")
            await eventually(lambda: are_installed(people, 1), what="the first deploy")
            one.popen.kill()
            await people.deploy_at("north", "after")
            await eventually(lambda: are_installed(people, 2), what="a deploy through the other replica")
        events = await log_of(client)
        assert [event["id"] for event in events] == list(range(1, len(events) + 1)), "ids without gaps"
        steps = [(event["deployment_id"], event["data"]["after"]) for event in events if "after" in event["data"]]
        assert len(steps) == len(set(steps)) == 4, "each step of both deployments, once"


async def are_installed(people: People, count: int) -> bool:
    rows = (await people.insist("GET", "/api/v1/deployments"))["deployments"]
    return [row["state"] for row in rows] == ["INSTALLED"] * count


@asynccontextmanager
async def a_site_and_a_node(folder: Path, people: People) -> AsyncIterator[None]:
    """Both real, with identities, behind the balancer."""
    site_ticket = await people.insist("POST", "/api/v1/sites/north/join-token", {})
    site = SiteSettings(
        name=SiteName("north"),
        data=folder / "north",
        git_url=str(folder / "deployments.git"),
        central_url=people.client.url,
        http_address=("127.0.0.1", free_port()),
        grpc_address=f"127.0.0.1:{free_port()}",
        pin=site_ticket["pin"],
        join_token=site_ticket["token"],
        report_seconds=0.2,
    )
    async with open_site(site) as app:
        ticket = await people.insist("POST", "/api/v1/sites/north/nodes/join-token", {})
        node = NodeSettings(
            data=folder / "n1",
            node_id=NodeId("n1"),
            site_address=f"127.0.0.1:{app.grpc_port}",
            http_address=None,
            runtime="null",
            join_url=ticket["api"],
            join_token=ticket["token"],
            pin=ticket["pin"],
        )
        async with running_node(node):
            yield
