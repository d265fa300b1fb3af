"""A real central whose store holds a large fleet, for the pages that must stay readable: nothing runs, every row is
as a site would have reported it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from anyio.from_thread import BlockingPortal, start_blocking_portal

from homeport.central.app import CentralApp
from homeport.core.model.instance import Failure
from homeport.core.model.node import Tunable
from homeport.ports import Transaction
from homeport.vocabulary import Digest, Liveness, SiteName, State
from tests.conformance.store import records
from tests.support.running_central import Client, running_central

CITIES = ("aalborg", "bergen", "bremen", "gdansk", "hamburg", "kiel", "malmo", "oslo", "riga", "turku")
APPS = ("edge-gateway", "historian", "label-print", "line-vision", "shift-board")
REGIONS = ("north", "south", "east", "west")
OLDER = Digest("sha256:" + "b" * 64)
FAILURE = Failure("HEALTH_CHECK_FAILED", "GET /healthz answered 500", "web")
SILENCE_SECONDS = 3_600.0


@dataclass
class LargeFleet:
    url: str
    token: str
    """Of an administrator."""
    _central: CentralApp
    _portal: BlockingPortal

    def add_sites(self, first: int, count: int, *, nodes: int, names: Sequence[str] = ()) -> None:
        """Each with nodes and five deployments for each; a few are not as wanted. `names`: more at the first
        one."""
        now = datetime.now(UTC)

        async def work(tx: Transaction) -> None:
            for number in range(first, first + count):
                await _add_site(tx, number, nodes, now, names if number == first else ())

        self._portal.call(self._central.parts.store.write, work)

    def add_event(self) -> None:
        """Pages read what they show again."""
        self._portal.call(self._central.parts.store.write, lambda tx: tx.append_events([records.event()]))


@contextmanager
def large_fleet(folder: Path, **settings: Any) -> Iterator[LargeFleet]:
    with start_blocking_portal() as portal:
        opened = running_central(folder / "central", site_silence_seconds=SILENCE_SECONDS, **settings)
        with portal.wrap_async_context_manager(opened) as (central, client):
            token = portal.call(_token, client)
            yield LargeFleet(client.url, token, central, portal)


async def _token(client: Client) -> str:
    made = await client.post("/api/v1/tokens", {"name": "ada", "role": "admin"})
    assert made.status == 201, made.body
    token: str = made.body["token"]
    return token


def site_name(number: int) -> SiteName:
    return SiteName(f"{CITIES[number % len(CITIES)]}-{number // len(CITIES) + 1}")


async def _add_site(tx: Transaction, number: int, nodes: int, now: datetime, names: Sequence[str]) -> None:
    name = site_name(number)
    is_lost = number % 40 == 33
    labels = {"region": REGIONS[number % len(REGIONS)], "tier": str(number % 3 + 1)}
    seen = now - timedelta(hours=2) if is_lost else now
    await tx.put_site(records.site(name, joined_at=now, last_seen=seen, labels=labels))
    ids = [f"{name}-edge-{each + 1:02}" for each in range(nodes)]
    for place, each in enumerate(ids):
        node = records.node(each, name, last_seen=seen, registered_at=now)
        if number % 20 == 7 and place == 1:
            node = replace(node, liveness=Liveness.LOST)
        if number % 25 == 4 and place == 2:
            node = replace(node, drain="new disk", tunable=Tunable(labels={"camera": "yes"}))
        await tx.put_node(node)
    rows, instances = [], []
    for place, each in enumerate(ids * 5):
        app = APPS[place % len(APPS)]
        state = State.INSTALLED
        if place == 0 and number % 30 == 2:
            state = State.FAILED
        elif place == 1 and number % 15 == 5:
            state = State.UPDATING
        row = records.deployment(
            site=name, name=f"{app}-{place + 1}", app_name=app, state=state, revision=records.REVISION, updated_at=now
        )
        rows.append(row)
        failure = FAILURE if state is State.FAILED else None
        running = records.REVISION if state is State.INSTALLED else OLDER
        instances.append(records.instance(row.id, each, state=state, running_revision=running, failure=failure))
    for each in names:
        rows.append(records.deployment(site=name, name=each, state=State.INSTALLED, updated_at=now))
    await tx.put_deployments(rows)
    await tx.put_instances(instances)
