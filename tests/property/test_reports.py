"""Whatever a site reports, it harms itself alone: central answers, goes on, and takes the reports around it."""

import copy
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from homeport.core.model.deployment import Hold, Pin, digest_of_bytes
from homeport.core.model.instance import Failure, Instance
from homeport.core.model.order import Progress
from homeport.core.model.report import (
    FileProblem,
    HoldsChanged,
    InstanceSnapshot,
    NodeGone,
    NodeNoticed,
    Pinned,
    PlanSetAside,
    Progressed,
    Report,
    Resync,
    Synced,
    SyncFailed,
)
from homeport.vocabulary import (
    Commit,
    DeploymentId,
    Generation,
    Incarnation,
    NodeId,
    NoticeCode,
    SiteName,
    State,
    Step,
    Trigger,
)
from homeport.wire.reports import _WRITERS, encode
from tests.support.examples import examples
from tests.support.running_central import Client, FakeSite, node_changed, running_central, transition, write_app

AT = datetime(2026, 1, 1, tzinfo=UTC)
NODE, SITE = NodeId("node-a"), SiteName("home")

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(2**63 - 2, 2**70)
    | st.just(10**400)
    | st.just(-(10**400))
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=30)
    | st.sampled_from(["\0", "\\", "\x1b[2J", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "a" * 50_000])
    | st.sampled_from([state.value for state in State])
    | st.datetimes().map(lambda at: at.replace(tzinfo=UTC).isoformat())
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)
GONE = object()


def every_report(deployment: DeploymentId) -> dict[str, Report]:
    """One good report of each kind."""
    failure = Failure("EXITED", "it ended", "web")
    content = b"id: x\n"
    revision = digest_of_bytes(content)
    hold = Hold(SITE, deployment, "quiet", "ada", AT, datetime(2027, 1, 1, tzinfo=UTC))
    instance = Instance(
        deployment, NODE, Incarnation(1), State.FAILED, 0, Generation(1), revision, revision, 1, "it", failure, AT
    )
    progress = Progress(deployment, Generation(1), Step.PULLING, "web", "pulling", AT, 1, 2)
    return {
        "transition": transition(deployment, Trigger.SCHEDULED, failure=failure),
        "progressed": Progressed(NODE, progress),
        "synced": Synced(Commit("a" * 40), (deployment,), (FileProblem("a.yaml", "bad", deployment, 3),)),
        "sync-failed": SyncFailed("it failed"),
        "node-changed": node_changed(),
        "node-gone": NodeGone(NodeId("node-z")),
        "node-noticed": NodeNoticed(NODE, next(iter(NoticeCode)), "orphans removed", AT),
        "plan-set-aside": PlanSetAside(deployment, "why", AT),
        "pinned": Pinned(Pin(deployment, revision, content, revision, "why", "ada", AT)),
        "restating": Resync("it forgot", (NODE,), ((deployment, NODE),), 3, AT),
        "restated": InstanceSnapshot(instance, 2, AT),
        "holds-changed": HoldsChanged((hold,)),
    }


def places(value: Any, here: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where every field and every item stands, however deep."""
    inner = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield (*here, key)
        yield from places(item, (*here, key))


def spoiled(body: dict[str, Any], place: tuple[Any, ...], value: Any) -> dict[str, Any]:
    spoilt = copy.deepcopy(body)
    inner: Any = spoilt
    for key in place[:-1]:
        inner = inner[key]
    if value is GONE:
        del inner[place[-1]]
    else:
        inner[place[-1]] = value
    return spoilt


@dataclass
class Running:
    """A central in a thread of its own, whose site lies."""

    portal: BlockingPortal
    client: Client
    site: FakeSite
    data: Path
    deployment: DeploymentId
    bodies: dict[str, dict[str, Any]]
    commit: str
    count: int = field(default=0)

    def main(self) -> str:
        return (self.data / "deployments.git/refs/heads/main").read_text().strip()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("lies")
    write_app(folder / "registry")
    with start_blocking_portal() as portal:
        opened: AbstractContextManager[Any] = portal.wrap_async_context_manager(running_central(folder / "central"))
        with opened as (_, client):
            assert portal.call(client.post, "/api/v1/apps", {"repository": str(folder / "registry")}).status == 201
            site = FakeSite(client)
            portal.call(site.join)
            (id_,) = portal.call(client.deploy).body["deployment_ids"]
            bodies = {kind: encode(report) for kind, report in every_report(id_).items()}
            commit = portal.call(client.get, "/api/v1/overview").body["commit"]
            yield Running(portal, client, site, folder / "central", id_, bodies, commit)


def test_there_is_a_good_report_of_every_kind() -> None:
    assert {kind for kind, _ in _WRITERS.values()} == every_report(DeploymentId("x")).keys()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=examples(100))
@given(data=st.data())
def test_any_value_in_any_field_harms_its_own_report_alone(running: Running, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(sorted(running.bodies)))
    place = data.draw(st.sampled_from(list(places(running.bodies[kind]))))
    body = spoiled(running.bodies[kind], place, data.draw(values | st.just(GONE)))
    running.count += 1
    beside, behind = f"beside {running.count}", f"behind {running.count}"
    good = [encode(SyncFailed(beside)), body, encode(NodeGone(NodeId("nobody"))), encode(SyncFailed(behind))]
    sequence = running.site.sequence
    running.portal.call(running.site.say_bodies, good)
    assert running.site.sequence == sequence + len(good)
    assert running.portal.call(running.client.get, "/api/v1/sites/home").body["problem"] == behind
    assert running.portal.call(running.client.get, "/api/v1/deployments").status == 200
    assert running.portal.call(running.client.get, "/api/v1/nodes").status == 200
    assert running.main() == running.commit
