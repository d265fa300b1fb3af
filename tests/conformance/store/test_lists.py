"""Every list comes in pages that together are the list, filtered and counted by the database."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any, Final

import pytest

from homeport.core.model.access import ApiToken, AuditResult, NewAudit, SecretRecord
from homeport.core.model.caller import Role
from homeport.core.model.deployment import Hold, Pin, Revision
from homeport.core.model.identity import IdentityKind, IdentityRecord, IdentityStatus
from homeport.core.model.instance import Failure, Unhealthy
from homeport.core.model.node import Tunable
from homeport.core.model.rollout import RolloutRow
from homeport.core.values.filters import DEPLOYMENT_WORDS, parse_filter
from homeport.core.values.selectors import parse_selector
from homeport.fleet.shared.answers.filter_values import Filtered, filter_values
from homeport.ports import (
    APPS,
    AUDIT,
    DEPLOYMENTS,
    HOLDS,
    IDENTITIES,
    NODES,
    ROLLOUTS,
    SECRETS,
    SITES,
    TOKENS,
    WHOLE,
    AppFilter,
    AuditFilter,
    Cut,
    DeploymentFilter,
    HoldFilter,
    IdentityFilter,
    Key,
    Listing,
    NodeFilter,
    ReachWindow,
    Reader,
    RevisionUser,
    RolloutFilter,
    SecretFilter,
    SiteFilter,
    Store,
    TokenFilter,
    Transaction,
)
from homeport.vocabulary import (
    Commit,
    DeploymentId,
    Digest,
    Liveness,
    NodeId,
    RolloutId,
    RolloutState,
    SiteName,
    State,
)
from tests.conformance.store import records
from tests.conformance.store.records import NOW, REVISION

pytestmark = pytest.mark.anyio

OLDER: Final = Digest("sha256:" + "b" * 64)
LISTS: Final[Sequence[tuple[Listing[Any, Any], Any]]] = (
    (APPS, AppFilter()),
    (AUDIT, AuditFilter()),
    (DEPLOYMENTS, DeploymentFilter()),
    (HOLDS, HoldFilter()),
    (IDENTITIES, IdentityFilter()),
    (NODES, NodeFilter()),
    (ROLLOUTS, RolloutFilter()),
    (SECRETS, SecretFilter()),
    (SITES, SiteFilter()),
    (TOKENS, TokenFilter()),
)


async def seven_of_each(tx: Transaction) -> None:
    """Some share the time at which they were made, and the names of others."""
    for number in range(7):
        at, site = NOW + timedelta(seconds=number // 2), SiteName(f"site-{number % 3}")
        await tx.add_app(records.app(app_name=f"app-{number % 2}", version=f"1.{number * 3}.0", added_at=at), [], [])
        await tx.append_audit([NewAudit(at, "ann", "admin", "", "apps.add", "", AuditResult.DONE)])
        await tx.put_deployments([records.deployment(name=f"app-{number % 2}", site=site, updated_at=at)])
        hold = [Hold(site, DeploymentId(f"d-{number}-{each}"), "", "ann", at, at) for each in range(3)]
        await tx.put_holds(site, hold)
        await tx.put_identity(an_identity(f"spiffe://home/{number}", requested_at=at))
        await tx.put_node(records.node(f"node-{number}", site, last_seen=at))
        await tx.put_rollouts([a_rollout(f"r-{number}", created_at=at)])
        await tx.put_secret(SecretRecord(site, f"secret-{number}", b"", 1, at, "ann"))
        await tx.put_site(records.site(f"site-{number}", joined_at=at))
        await tx.put_token(ApiToken(f"t-{number}", "ann", Role.ADMIN, (), "hash", at, "ann", None))


def an_identity(spiffe_id: str, **changes: Any) -> IdentityRecord:
    values: dict[str, Any] = {
        "kind": IdentityKind.CLIENT,
        "name": spiffe_id,
        "site": None,
        "spki": "",
        "standing": IdentityStatus.ACCEPTED,
        "csr": None,
        "not_after": None,
        "address": "",
        "requested_at": NOW,
        "decided_at": None,
        "decided_by": "",
    }
    return IdentityRecord(spiffe_id=spiffe_id, **values | changes)


def a_rollout(rollout_id: str, **changes: Any) -> RolloutRow:
    values: dict[str, Any] = {
        "name": "hello",
        "state": RolloutState.RUNNING,
        "intent": {},
        "progress": {},
        "version": 1,
        "created_at": NOW,
        "updated_at": NOW,
        "created_by": "ann",
    }
    return RolloutRow(id=RolloutId(rollout_id), **values | changes)


async def pages(reader: Reader, listing: Listing[Any, Any], where: Any, limit: int, order: str) -> list[list[Any]]:
    found: list[list[Any]] = []
    after: Key | None = None
    while True:
        page = await reader.page(listing, where, Cut(limit, after, order))
        found.append(list(page.items))
        if page.next is None:
            return found
        assert [type(part) for part in page.next] == list(listing.orders[order])
        after = page.next


async def test_the_pages_of_a_list_are_the_list_in_each_of_its_orders(store: Store) -> None:
    await store.write(seven_of_each)
    async with store.read() as reader:
        for listing, where in LISTS:
            for order in listing.orders:
                whole = (await reader.page(listing, where, Cut(None, order=order))).items
                paged = await pages(reader, listing, where, 3, order)
                assert [each for page in paged for each in page] == list(whole), (listing.name, order)
                assert [len(page) for page in paged[:-1]] == [3] * (len(paged) - 1)
                assert len(whole) >= 7 and await reader.counts(listing, where) == {(): len(whole)}


async def test_the_newest_version_of_an_app_comes_first(store: Store) -> None:
    await store.write(seven_of_each)
    async with store.read() as reader:
        found = (await reader.page(APPS, AppFilter(app_name="app-0"), Cut(3))).items
    assert [app.version for app in found] == ["1.18.0", "1.12.0", "1.6.0"]


async def test_what_is_added_meanwhile_is_shown_neither_twice_nor_in_the_place_of_others(store: Store) -> None:
    names = [f"d-{number}" for number in range(4)]
    await store.write(lambda tx: tx.put_deployments([records.deployment(name=name) for name in names]))
    async with store.read() as reader:
        first = await reader.page(DEPLOYMENTS, DeploymentFilter(), Cut(2))
    await store.write(lambda tx: tx.put_deployments([records.deployment(name="a-first")]))
    async with store.read() as reader:
        rest = await reader.page(DEPLOYMENTS, DeploymentFilter(), Cut(10, first.next))
    assert [row.name for row in (*first.items, *rest.items)] == names


Prepare = Callable[[Transaction], Awaitable[None]]


async def _deployments(tx: Transaction) -> None:
    installed = {"state": State.INSTALLED}
    rows = [
        records.deployment(id="well", name="well", **installed),
        records.deployment(id="failed", name="failed", state=State.FAILED, app_name="other"),
        records.deployment(id="held", name="held", site=SiteName("line"), **installed),
        records.deployment(id="ill", name="ill", **installed),
        records.deployment(id="busy", name="busy", state=State.UPDATING),
        records.deployment(id="broken", name="broken", problem="line 3 is no YAML", **installed),
        records.deployment(id="gone", name="gone", state=State.FAILED, archived_at=NOW),
    ]
    await tx.put_deployments(rows)
    await tx.put_instances(
        [
            records.instance("well", running_revision=REVISION),
            records.instance("held", running_revision=OLDER),
            records.instance("ill", "node-2", running_revision=REVISION, unhealthy=Unhealthy(NOW, "500")),
            records.instance("busy", running_revision=OLDER),
            records.instance("failed", "node-2", state=State.DELETED),
        ]
    )


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (DeploymentFilter(), {"well", "failed", "held", "ill", "busy", "broken"}),
        (DeploymentFilter(archived=True), {"gone"}),
        (DeploymentFilter(state=State.FAILED), {"failed"}),
        (DeploymentFilter(site=SiteName("line")), {"held"}),
        (DeploymentFilter(sites=frozenset()), set()),
        (DeploymentFilter(sites=frozenset({SiteName("line"), SiteName("x")})), {"held"}),
        (DeploymentFilter(app_name="other"), {"failed"}),
        (DeploymentFilter(node=NodeId("node-2")), {"ill"}),
        (DeploymentFilter(attention=True), {"failed", "held", "ill", "broken"}),
        (DeploymentFilter(contains="HEL"), {"held"}),
        (DeploymentFilter(contains="d@li"), {"held"}),
        (DeploymentFilter(contains="%"), set()),
    ],
)
async def test_deployments_are_filtered(store: Store, where: DeploymentFilter, expected: set[str]) -> None:
    await store.write(_deployments)
    async with store.read() as reader:
        assert {row.name for row in (await reader.page(DEPLOYMENTS, where, WHOLE)).items} == expected
        assert await reader.counts(DEPLOYMENTS, where) == {(): len(expected)}


async def _fleet(tx: Transaction) -> None:
    """Two labelled sites, a lost one, and what they have."""
    await _places(tx)
    await tx.put_node(records.node("cam-1", "home", tunable=Tunable(labels={"camera": "yes"}), drain="new disk"))
    await tx.put_node(records.node("cam-2", "line", tunable=Tunable(labels={"camera": "No_w"})))
    vision = records.deployment(name="vision", site="home", app_name="line-vision", state=State.FAILED)
    edge = records.deployment(name="edge", site="line", app_name="gateway", state=State.INSTALLED)
    lost = records.deployment(name="lost", site="new", app_name="gateway", state=State.PENDING)
    gone = records.deployment(name="gone", site="new", app_name="line-vision", archived_at=NOW)
    await tx.put_deployments([vision, edge, lost, gone])
    failure = Failure("HEALTH_CHECK_FAILED", "it answered 500", "web")
    await tx.put_instances(
        [
            records.instance(vision.id, "cam-1", state=State.FAILED, failure=failure),
            records.instance(edge.id, "cam-2", state=State.INSTALLED),
            records.instance(gone.id, "cam-1", state=State.DELETED, failure=failure),
        ]
    )


@pytest.mark.parametrize(
    ("text", "deployments", "nodes", "sites"),
    [
        ("HOM", {"vision"}, {"live", "stale", "twin", "cam-1"}, {"home"}),
        ("site:*e", {"vision", "edge"}, {"live", "stale", "twin", "cam-1", "cam-2", "heard-of", "lost", "orphan"},
         {"home", "line"}),
        ("site:home site:new", {"vision", "lost"}, {"live", "stale", "twin", "cam-1"}, {"home", "new"}),
        ("-site:home -site:line", {"lost"}, {"orphan"}, {"new", "ill"}),
        ("app:line-*", {"vision"}, {"cam-1"}, {"home"}),
        ("app:gateway -state:pending", {"edge"}, {"cam-2"}, {"line"}),
        ("code:HEALTH_CHECK_*", {"vision"}, {"cam-1"}, {"home"}),
        ("-code:* -site:nowhere", {"edge", "lost"}, {"live", "stale", "twin", "heard-of", "lost", "cam-2"},
         {"line", "new", "ill"}),
        ("state:failed", {"vision"}, {"cam-1"}, {"home"}),
        ("state:lost", set(), {"lost"}, {"line", "new"}),
        ("state:drained", set(), {"cam-1"}, set()),
        ("node:cam-*", {"vision", "edge"}, {"cam-1", "cam-2"}, {"home", "line"}),
        ("label:camera", {"vision", "edge"}, {"cam-1", "cam-2"}, set()),
        ("label:camera=no_W", {"edge"}, {"cam-2"}, set()),
        ("label:camera=no-W", set(), set(), set()),
        ("label:rack=7 node:cam-1", {"vision"}, {"cam-1"}, set()),
        ("label:region=u*", {"edge"}, {"heard-of", "lost", "cam-2"}, {"line"}),
        ("-label:region", {"lost"}, {"orphan"}, {"new", "ill"}),
        ("%", set(), set(), set()),
    ],
)  # fmt: skip
async def test_the_filter_language_means_the_same_in_every_list(
    store: Store, text: str, deployments: set[str], nodes: set[str], sites: set[str]
) -> None:
    await store.write(_fleet)
    parts = parse_filter(text, DEPLOYMENT_WORDS)
    async with store.read() as reader:
        where = DeploymentFilter(parts=parts)
        assert {row.name for row in (await reader.page(DEPLOYMENTS, where, WHOLE)).items} == deployments
        assert await reader.counts(DEPLOYMENTS, where) == {(): len(deployments)}
        found = await reader.page(NODES, NodeFilter(parts=parts, window=WINDOW), WHOLE)
        assert {node.id for node in found.items} == nodes
        places = await reader.page(SITES, SiteFilter(parts=parts, window=WINDOW), WHOLE)
        assert {site.name for site in places.items} == sites


async def test_what_a_field_offers_is_what_choosing_it_leaves(store: Store) -> None:
    await store.write(_fleet)

    async def offered(filtered: Filtered, word: str, text: str = "", rest: str = "") -> dict[str, int]:
        parts = parse_filter(rest, DEPLOYMENT_WORDS)
        async with store.read() as reader:
            found = await filter_values(reader, filtered, word, text, parts=parts, window=WINDOW)
        return {each.value: each.count for each in found}

    assert await offered(Filtered.DEPLOYMENTS, "site") == {"home": 1, "line": 1, "new": 1}
    assert await offered(Filtered.DEPLOYMENTS, "app", "WAY") == {"gateway": 2}
    assert await offered(Filtered.DEPLOYMENTS, "app", rest="-state:PENDING") == {"gateway": 1, "line-vision": 1}
    assert await offered(Filtered.DEPLOYMENTS, "state") == {"FAILED": 1, "INSTALLED": 1, "PENDING": 1}
    assert await offered(Filtered.DEPLOYMENTS, "code") == {"HEALTH_CHECK_FAILED": 1}
    assert await offered(Filtered.DEPLOYMENTS, "name", "ed") == {"edge": 1}
    assert await offered(Filtered.NODES, "state", "d") == {"drained": 1, "FAILED": 1, "INSTALLED": 1}
    assert await offered(Filtered.NODES, "label", "cam") == {"camera=No_w": 1, "camera=yes": 1}
    assert await offered(Filtered.SITES, "state", "l") == {"live": 2, "lost": 2, "FAILED": 1, "INSTALLED": 1}
    assert await offered(Filtered.SITES, "node", "cam", rest="site:home") == {"cam-1": 1}


async def test_deployments_are_counted_by_site_and_state(store: Store) -> None:
    await store.write(_deployments)
    async with store.read() as reader:
        counts = await reader.counts(DEPLOYMENTS, DeploymentFilter(), ("site", "state"))
    assert counts == {
        ("home", "FAILED"): 1,
        ("home", "INSTALLED"): 3,
        ("home", "UPDATING"): 1,
        ("line", "INSTALLED"): 1,
    }


WINDOW: Final = ReachWindow(NOW - timedelta(minutes=1), NOW + timedelta(minutes=1))


async def _places(tx: Transaction) -> None:
    await tx.put_site(records.site("home", last_seen=NOW, labels={"region": "eu", "tier": "a/b"}))
    await tx.put_site(records.site("line", last_seen=NOW - timedelta(hours=1), labels={"region": "us"}))
    await tx.put_site(records.site("new", problem="its folder is gone"))
    await tx.put_site(records.site("ill", last_seen=NOW, problem="Git cannot be reached"))
    for site, node, liveness in (
        ("home", "live", Liveness.LIVE),
        ("home", "stale", Liveness.STALE),
        ("line", "heard-of", Liveness.LIVE),
        ("line", "lost", Liveness.LOST),
        ("nowhere", "orphan", Liveness.LIVE),
    ):
        await tx.put_node(records.node(node, site, liveness=liveness))
    await tx.put_node(records.node("twin", "home", problem="two machines have this name"))


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (SiteFilter(window=WINDOW, in_reach=True), {"home", "ill"}),
        (SiteFilter(window=WINDOW, in_reach=False), {"line", "new"}),
        (SiteFilter(window=WINDOW, attention=True), {"line", "new", "ill"}),
        (SiteFilter(attention=True), {"new", "ill"}),
        (SiteFilter(in_reach=False), set()),
        (SiteFilter(selector=parse_selector("region=eu")), {"home"}),
        (SiteFilter(selector=parse_selector("region in (eu,us),!tier")), {"line"}),
        (SiteFilter(selector=parse_selector("region!=eu")), {"line", "new", "ill"}),
        (SiteFilter(selector=parse_selector("tier")), {"home"}),
        (SiteFilter(contains="IN"), {"line"}),
        (SiteFilter(contains="_"), set()),
    ],
)
async def test_sites_are_filtered_by_reach_problem_and_label(
    store: Store, where: SiteFilter, expected: set[str]
) -> None:
    await store.write(_places)
    async with store.read() as reader:
        assert {site.name for site in (await reader.page(SITES, where, WHOLE)).items} == expected


async def test_nodes_are_counted_as_they_may_be_believed(store: Store) -> None:
    await store.write(_places)
    async with store.read() as reader:
        afar = await reader.counts(NODES, NodeFilter(window=WINDOW), ("liveness",))
        near = await reader.counts(NODES, NodeFilter(), ("liveness",))
        wrong = (await reader.page(NODES, NodeFilter(window=WINDOW, attention=True), WHOLE)).items
        unknown = (await reader.page(NODES, NodeFilter(window=WINDOW, liveness=Liveness.UNKNOWN), WHOLE)).items
    assert afar == {("live",): 2, ("stale",): 1, ("lost",): 1, ("unknown",): 2}
    assert near == {("live",): 4, ("stale",): 1, ("lost",): 1}
    assert [node.id for node in wrong] == ["stale", "twin", "lost"]
    assert [node.id for node in unknown] == ["heard-of", "orphan"]


async def test_the_users_of_revisions_are_those_of_deployments_that_are_not_archived(store: Store) -> None:
    wanted = records.deployment(name="wanted", site="home")
    gone = records.deployment(name="gone", site="line", archived_at=NOW)

    async def work(tx: Transaction) -> None:
        await tx.put_deployments([wanted, gone])
        for row in (wanted, gone):
            for digest in ("sha256:a", "sha256:b"):
                kept = Revision(row.id, Digest(digest), "1", b"content", Commit("c"), "ann", NOW)
                await tx.put_revisions([kept], keep=5)

    await store.write(work)
    async with store.read() as reader:
        assert await reader.revision_users() == [
            RevisionUser(wanted.id, Digest("sha256:a"), SiteName("home"), "wanted"),
            RevisionUser(wanted.id, Digest("sha256:b"), SiteName("home"), "wanted"),
        ]


async def test_pins_and_versions_are_read_for_some_deployments(store: Store) -> None:
    async def work(tx: Transaction) -> None:
        for each in ("d-1", "d-2"):
            deployment_id, digest = DeploymentId(each), Digest(f"sha256:{each}")
            await tx.put_pin(Pin(deployment_id, digest, b"", digest, "", "ann", NOW))
            await tx.put_revisions([Revision(deployment_id, digest, each, b"", Commit("c"), "ann", NOW)], keep=5)

    await store.write(work)
    async with store.read() as reader:
        assert [pin.deployment_id for pin in await reader.pins([DeploymentId("d-2")])] == ["d-2"]
        assert len(await reader.pins()) == 2
        assert await reader.versions_kept([DeploymentId("d-1")]) == {"sha256:d-1": "d-1"}
