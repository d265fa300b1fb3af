"""What is put comes back equal, sorted and filtered as the port says."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from homeport.core.model.event import NewEvent, Subject
from homeport.core.model.instance import Unhealthy
from homeport.errors import Conflict, InvalidInput, InvariantViolated
from homeport.ports import DeploymentFilter, Store, Transaction
from homeport.vocabulary import (
    AppId,
    DeploymentId,
    EventKind,
    Liveness,
    LogStream,
    NodeId,
    RolloutId,
    SiteName,
    State,
    SubjectKind,
)
from tests.conformance.store import records

pytestmark = pytest.mark.anyio

HOME = SiteName("home")


# --- catalog ----------------------------------------------------------------------------------------------


async def test_an_app_comes_back_with_its_profiles_and_components_in_order(store: Store) -> None:
    app = records.app()
    profiles = [records.profile(app.id, "small", 0), records.profile(app.id, "a-large", 1, device_constraints=None)]
    components = [
        records.component(app.id, "small", "web", 0),
        records.component(app.id, "small", "cache", 1),
        records.component(app.id, "a-large", "web", 0),
    ]
    await store.write(lambda tx: tx.add_app(app, profiles[::-1], components[::-1]))
    async with store.read() as reader:
        assert await reader.app(app.id) == app
        assert await reader.profiles(app.id) == profiles
        assert await reader.components(app.id) == components
        assert await reader.app(AppId("unknown")) is None


async def test_apps_are_found_by_category_name_and_version(store: Store) -> None:
    first, second, third = (
        records.app(category="a", app_name="x", version="1.0.0"),
        records.app(category="a", app_name="x", version="1.1.0"),
        records.app(category="b", app_name="y", version="1.0.0", commit=None),
    )
    for app in (third, second, first):
        await store.write(lambda tx, app=app: tx.add_app(app, [], []))  # type: ignore[misc]
    async with store.read() as reader:
        assert await reader.apps() == [second, first, third], "the newest version first"
        assert await reader.apps(category="a") == [second, first]
        assert await reader.apps(app_name="y") == [third]
        assert await reader.apps(category="a", app_name="x", version="1.1.0") == [second]
        assert await reader.apps(version="9") == []


async def test_an_app_version_that_is_taken_is_a_conflict_and_the_work_may_go_on(store: Store) -> None:
    await store.write(lambda tx: tx.add_app(records.app(), [], []))

    async def add_again(tx: Transaction) -> None:
        with pytest.raises(Conflict, match="already there in version"):
            await tx.add_app(records.app(), [], [])
        await tx.add_app(records.app(version="2.0.0"), [], [])

    await store.write(add_again)
    async with store.read() as reader:
        assert [app.version for app in await reader.apps()] == ["2.0.0", "1.0.0"]


async def test_removing_an_app_removes_its_profiles_and_components(store: Store) -> None:
    app = records.app()
    profiles, components = [records.profile(app.id, "p", 0)], [records.component(app.id, "p", "web", 0)]
    await store.write(lambda tx: tx.add_app(app, profiles, components))
    await store.write(lambda tx: tx.remove_app(app.id))
    async with store.read() as reader:
        assert (await reader.apps(), await reader.profiles(app.id), await reader.components(app.id)) == ([], [], [])
    await store.write(lambda tx: tx.add_app(app, profiles, components))


# --- sites and nodes --------------------------------------------------------------------------------------


async def test_a_site_is_put_and_put_again(store: Store) -> None:
    later = records.site(last_seen=records.NOW, applied_commit=records.COMMIT, problem="no marker")
    await store.write(lambda tx: tx.put_site(records.site("line-7")))
    await store.write(lambda tx: tx.put_site(records.site()))
    await store.write(lambda tx: tx.put_site(later))
    async with store.read() as reader:
        assert await reader.sites() == [later, records.site("line-7")]
        assert await reader.site(SiteName("home")) == later
        assert await reader.site(SiteName("nowhere")) is None


async def test_the_sites_heard_of_longest_ago_come_first_until_their_silence_is_recorded(store: Store) -> None:
    long_ago, ago = records.NOW - timedelta(days=2), records.NOW - timedelta(days=1)
    sites = [
        records.site("a", last_seen=records.NOW),
        records.site("b", last_seen=long_ago),
        records.site("c", last_seen=ago),
        records.site("known", last_seen=long_ago - timedelta(days=1), silent_since=ago),
        records.site("never"),
    ]
    for site in sites:
        await store.write(lambda tx, site=site: tx.put_site(site))  # type: ignore[misc]
    async with store.read() as reader:
        assert [site.name for site in await reader.heard_longest_ago(limit=10)] == ["b", "c", "a"]
        assert [site.name for site in await reader.heard_longest_ago(limit=1)] == ["b"]
    await store.write(lambda tx: tx.touch_sites([SiteName("b")], records.NOW))
    async with store.read() as reader:
        assert [site.name for site in await reader.heard_longest_ago(limit=2)] == ["c", "a"]


async def test_what_is_kept_of_an_instance_is_a_row_of_its_own(store: Store) -> None:
    one, other = (DeploymentId("d-1"), NodeId("node-1")), (DeploymentId("d-1"), NodeId("node-2"))
    await store.write(lambda tx: tx.put_instance_values("seconds", {one: "1.5", other: "2.5"}))
    await store.write(lambda tx: tx.put_instance_values("words", {one: "hello"}))
    await store.write(lambda tx: tx.put_instance_values("seconds", {one: "3.5"}))
    async with store.read() as reader:
        assert await reader.instance_values("seconds", float) == {one: 3.5, other: 2.5}
    await store.write(lambda tx: tx.drop_instance_values("seconds", [one]))
    await store.write(lambda tx: tx.put_instance_values("seconds", {}))
    await store.write(lambda tx: tx.drop_instance_values("seconds", []))
    async with store.read() as reader:
        assert await reader.instance_values("seconds", float) == {other: 2.5}
        assert await reader.instance_values("words", str) == {one: "hello"}
        assert await reader.instance_values("nothing", str) == {}


async def test_nodes_keep_all_that_they_said_of_themselves(store: Store) -> None:
    home, other, lonely = records.node("b"), records.node("a", "line-7"), records.node("a-1")
    for node in (home, other, lonely):
        await store.write(lambda tx, node=node: tx.put_node(node))  # type: ignore[misc]
    async with store.read() as reader:
        assert await reader.nodes() == [lonely, home, other]
        assert await reader.nodes(SiteName("line-7")) == [other]
        assert await reader.nodes_called(NodeId("b")) == [home]
        assert await reader.nodes_called(NodeId("c")) == []


async def test_two_sites_may_have_a_node_of_the_same_name(store: Store) -> None:
    here, there = records.node("pi"), records.node("pi", "line-7")
    for node in (here, there):
        await store.write(lambda tx, node=node: tx.put_node(node))  # type: ignore[misc]
    later = records.NOW + timedelta(seconds=5)
    await store.write(lambda tx: tx.touch_nodes(SiteName("line-7"), {NodeId("pi"): later}))
    async with store.read() as reader:
        assert await reader.nodes_called(NodeId("pi")) == [here, replace(there, last_seen=later)]
    await store.write(lambda tx: tx.remove_node(SiteName("home"), NodeId("pi")))
    async with store.read() as reader:
        assert [node.site for node in await reader.nodes()] == ["line-7"]


async def test_a_node_is_touched_judged_and_removed(store: Store) -> None:
    await store.write(lambda tx: tx.put_node(records.node()))
    later = records.NOW + timedelta(seconds=5)
    await store.write(lambda tx: tx.touch_nodes(HOME, {NodeId("node-1"): later, NodeId("unknown"): later}))
    await store.write(lambda tx: tx.touch_nodes(HOME, {NodeId("node-1"): records.NOW}))
    await store.write(lambda tx: tx.touch_nodes(HOME, {}))
    stale = records.node(last_seen=later, liveness=Liveness.STALE)
    await store.write(lambda tx: tx.put_node(stale))
    async with store.read() as reader:
        assert await reader.nodes() == [stale]
    await store.write(lambda tx: tx.remove_node(HOME, NodeId("node-1")))
    async with store.read() as reader:
        assert await reader.nodes() == []


# --- deployments and instances ----------------------------------------------------------------------------


async def test_deployments_are_filtered_and_sorted_by_site_and_name(store: Store) -> None:
    home_b = records.deployment(name="b", state=State.FAILED)
    home_a = records.deployment(name="a", rollout_id=None)
    upper = records.deployment(name="Z")
    line = records.deployment(site="line-7", name="a", rollout_id=RolloutId("r2"))
    archived = records.deployment(name="old", archived_at=records.NOW, problem="gone", wanted=False)
    await store.write(lambda tx: tx.put_deployments([line, home_b, archived, home_a, upper]))
    async with store.read() as reader:
        assert await reader.deployments(DeploymentFilter()) == [upper, home_a, home_b, line]
        assert await reader.deployments(DeploymentFilter(archived=True)) == [archived]
        assert await reader.deployments(DeploymentFilter(site=SiteName("line-7"))) == [line]
        assert await reader.deployments(DeploymentFilter(name="a")) == [home_a, line]
        assert await reader.deployments(DeploymentFilter(state=State.FAILED)) == [home_b]
        assert await reader.deployments(DeploymentFilter(rollout_id="r2")) == [line]
        assert await reader.deployment(home_b.id) == home_b
        assert await reader.deployment(DeploymentId("unknown")) is None
        assert await reader.deployments_by_ids([line.id, home_a.id, DeploymentId("x")]) == [home_a, line]
        assert await reader.deployments_by_ids([]) == []


async def test_a_deployment_is_found_by_the_beginning_of_its_id(store: Store) -> None:
    first = records.deployment(id=DeploymentId("4f2c-1"), name="a")
    second = records.deployment(id=DeploymentId("4f2c-2"), name="b")
    third = records.deployment(id=DeploymentId("4F2c_%"), name="c")
    await store.write(lambda tx: tx.put_deployments([first, second, third]))
    async with store.read() as reader:
        assert await reader.deployments_by_prefix("4f2c") == [first, second]
        assert await reader.deployments_by_prefix("4f2c-2") == [second]
        assert await reader.deployments_by_prefix("4F2c_") == [third]
        assert await reader.deployments_by_prefix("%") == []
        assert await reader.deployments_by_prefix("") == [first, second, third]
        assert await reader.deployments_by_prefix("4f2c\0") == []


async def test_instances_come_back_with_their_failure(store: Store) -> None:
    placed = records.instance(
        "d-1", "node-1", failure=records.FAILURE, revision=records.REVISION, step="pulling 61 %"
    )
    unplaced, other = records.instance("d-1", ""), records.instance("d-2", "node-1")
    await store.write(lambda tx: tx.put_instances([other, placed, unplaced]))
    async with store.read() as reader:
        assert await reader.instances() == [unplaced, placed, other]
        assert await reader.instances([DeploymentId("d-2"), DeploymentId("d-9")]) == [other]
        assert await reader.instances([]) == []
    await store.write(lambda tx: tx.drop_instances([placed.key, other.key]))
    async with store.read() as reader:
        assert await reader.instances() == [unplaced]


async def test_a_step_is_said_without_a_guard(store: Store) -> None:
    await store.write(lambda tx: tx.put_instances([records.instance()]))
    known, unknown = records.instance().key, records.instance("d-9").key
    await store.write(lambda tx: tx.set_steps({known: "pulling 61 %", unknown: "x"}))
    await store.write(lambda tx: tx.set_steps({}))
    async with store.read() as reader:
        assert await reader.instances() == [records.instance(step="pulling 61 %")]


async def test_the_health_of_an_instance_is_kept_without_a_guard(store: Store) -> None:
    await store.write(lambda tx: tx.put_instances([records.instance()]))
    known, unknown = records.instance().key, records.instance("d-9").key
    unhealthy = Unhealthy(records.instance().updated_at, "web: GET /healthz answered 500")
    await store.write(lambda tx: tx.set_health({known: unhealthy, unknown: unhealthy}))
    await store.write(lambda tx: tx.set_health({}))
    async with store.read() as reader:
        assert await reader.instances() == [records.instance(unhealthy=unhealthy)]
    await store.write(lambda tx: tx.put_instances([records.instance(version=2, unhealthy=unhealthy)]))
    await store.write(lambda tx: tx.set_health({known: None}))
    async with store.read() as reader:
        assert await reader.instances() == [records.instance(version=2)]


async def test_thousands_of_ids_fit_into_one_question(store: Store) -> None:
    many = [records.instance(f"d-{number}") for number in range(12_000)]
    await store.write(lambda tx: tx.put_instances(many))
    newer = [replace(instance, version=2, state=State.INSTALLING) for instance in many]
    await store.write(lambda tx: tx.put_instances(newer))
    async with store.read() as reader:
        found = await reader.instances([instance.deployment_id for instance in many])
    assert {instance.key: instance for instance in found} == {instance.key: instance for instance in newer}


# --- what happened, and a role's own ----------------------------------------------------------------------


async def test_history_is_kept_in_order(store: Store) -> None:
    entries = [records.entry(reason=f"{number}") for number in range(3)]
    entries.append(records.entry(failure=None, revision=None, verdict="stale"))
    await store.write(lambda tx: tx.append_history(entries[:2]))
    await store.write(lambda tx: tx.append_history([records.entry("d-2"), *entries[2:]]))
    async with store.read() as reader:
        assert await reader.history(DeploymentId("d-1")) == entries
        assert await reader.history(DeploymentId("d-1"), newest=2) == entries[-2:]
        assert await reader.history(DeploymentId("d-1"), newest=9) == entries


async def test_events_are_read_from_where_one_stopped(store: Store) -> None:
    news = [
        records.event("one", site=SiteName("home"), data={"a": [1, {"b": None}]}),
        records.event("two", deployment_id=DeploymentId("d-1"), node_id=NodeId("n")),
        records.event("three"),
    ]
    async with store.read() as reader:
        assert await reader.last_event_id() == 0
    await store.write(lambda tx: tx.append_events(news))
    async with store.read() as reader:
        events = await reader.events(after=0, limit=10)
        assert [event.event for event in events] == news
        assert [event.id for event in events] == [1, 2, 3]
        assert await reader.events(after=1, limit=1) == events[1:2]
        assert await reader.events(after=0, limit=10, deployment_id=DeploymentId("d-1")) == events[1:2]
        assert await reader.events(after=2**70, limit=2**70) == []
        assert await reader.last_event_id() == 3


async def test_the_event_log_is_trimmed_and_its_numbers_go_on(store: Store) -> None:
    await store.write(lambda tx: tx.append_events([records.event(str(number)) for number in range(10)]))
    await store.write(lambda tx: tx.trim_events(LogStream.FLEET, keep=3))
    async with store.read() as reader:
        assert [event.id for event in await reader.events(after=0, limit=10)] == [8, 9, 10]
    await store.write(lambda tx: tx.trim_events(LogStream.FLEET, keep=0))
    await store.write(lambda tx: tx.append_events([records.event()]))
    async with store.read() as reader:
        assert [event.id for event in await reader.events(after=0, limit=10)] == [11]


async def test_each_stream_of_the_log_is_trimmed_for_itself_by_count_and_by_age(store: Store) -> None:
    old, young = records.NOW, records.NOW + timedelta(days=30)
    await store.write(lambda tx: tx.append_events([records.event("kept", at=old)]))
    await store.write(lambda tx: tx.append_events([about(SubjectKind.TASK, str(n), old) for n in range(5)]))
    await store.write(lambda tx: tx.append_events([about(SubjectKind.TASK, str(n), young) for n in range(5, 10)]))
    await store.write(lambda tx: tx.trim_events(LogStream.TASKS, keep=8))
    async with store.read() as reader:
        assert [event.id for event in await reader.events(after=0, limit=20)] == [1, *range(4, 12)]
    await store.write(lambda tx: tx.trim_events(LogStream.TASKS, keep=100, before=young - timedelta(days=1)))
    async with store.read() as reader:
        assert [event.id for event in await reader.events(after=0, limit=20)] == [1, *range(7, 12)]
    await store.write(lambda tx: tx.trim_events(LogStream.TASKS, keep=100, before=young + timedelta(days=1)))
    async with store.read() as reader:
        assert [event.event.message for event in await reader.events(after=0, limit=20)] == ["kept"]
        assert await reader.last_event_id() == 11


async def test_events_are_found_by_what_they_are_about(store: Store) -> None:
    await store.write(lambda tx: tx.append_events([about(SubjectKind.TASK, "t-1"), about(SubjectKind.JOB, "t-1")]))
    await store.write(lambda tx: tx.append_events([about(SubjectKind.TASK, "t-2"), about(SubjectKind.TASK, "t-1")]))
    async with store.read() as reader:
        found = await reader.events(after=0, limit=10, subject=Subject(SubjectKind.TASK, "t-1"))
        assert [(event.id, str(event.event.subject)) for event in found] == [(1, "task/t-1"), (4, "task/t-1")]


async def test_whether_an_event_is_about_a_kind_is_known_without_reading_them(store: Store) -> None:
    await store.write(lambda tx: tx.append_events([about(SubjectKind.PIPELINE, "p"), about(SubjectKind.JOB, "j")]))
    async with store.read() as reader:
        assert await reader.has_event_about(SubjectKind.PIPELINE, after=0)
        assert not await reader.has_event_about(SubjectKind.PIPELINE, after=1)
        assert await reader.has_event_about(SubjectKind.JOB, after=1)
        assert not await reader.has_event_about(SubjectKind.TASK, after=0)

    async def within(tx: Transaction) -> bool:
        await tx.append_events([about(SubjectKind.TASK, "t")])
        return await tx.has_event_about(SubjectKind.TASK, after=2)

    assert await store.write(within)


async def test_a_kind_of_event_that_another_version_has_written_is_read_as_it_is(store: Store) -> None:
    unknown = EventKind("comet.seen")
    assert unknown not in list(EventKind)
    await store.write(lambda tx: tx.append_events([replace(records.event(), kind=unknown)]))
    async with store.read() as reader:
        (found,) = await reader.events(after=0, limit=10)
    assert found.event.kind.value == "comet.seen"


def about(kind: SubjectKind, key: str, at: datetime = records.NOW) -> NewEvent:
    return replace(records.event(at=at), subject=Subject(kind, key))


async def test_desired_files_are_kept_byte_for_byte(store: Store) -> None:
    files = [records.desired_file("d-1"), records.desired_file("d-2", b"")]
    await store.write(lambda tx: tx.put_desired_files(files[::-1]))
    changed = records.desired_file("d-1", b"other")
    await store.write(lambda tx: tx.put_desired_files([changed]))
    async with store.read() as reader:
        assert await reader.desired_files() == [changed, files[1]]
    await store.write(lambda tx: tx.drop_desired_files([DeploymentId("d-1"), DeploymentId("d-9")]))
    async with store.read() as reader:
        assert await reader.desired_files() == [files[1]]


async def test_the_outbox_is_a_queue_whose_numbers_are_never_used_twice(store: Store) -> None:
    await store.write(lambda tx: tx.enqueue([{"n": 1}, {"n": 2}, {"n": 3}]))
    async with store.read() as reader:
        assert [(item.sequence, item.body) for item in await reader.outbox(limit=2)] == [(1, {"n": 1}), (2, {"n": 2})]
        assert await reader.outbox_size() == 3
        assert (await reader.outbox_bytes(), await reader.outbox_left()) == (3 * len('{"n":1}'), 0)
    await store.write(lambda tx: tx.dequeue(1))
    async with store.read() as reader:
        assert await reader.outbox_left() == 1
        assert [item.sequence for item in await reader.outbox(limit=9, after=2)] == [3]
    await store.write(lambda tx: tx.drop_outbox(2))
    async with store.read() as reader:
        assert [item.sequence for item in await reader.outbox(limit=9)] == [2]
    await store.write(lambda tx: tx.dequeue(2))
    async with store.read() as reader:
        assert (await reader.outbox_bytes(), await reader.outbox_left()) == (0, 3)
    await store.write(lambda tx: tx.enqueue([{"n": 4}]))
    async with store.read() as reader:
        assert [(item.sequence, item.body) for item in await reader.outbox(limit=9)] == [(4, {"n": 4})]


async def test_a_named_value_is_set_and_set_again(store: Store) -> None:
    await store.write(lambda tx: tx.set_value("commit", "a"))
    await store.write(lambda tx: tx.set_value("commit", "b"))
    async with store.read() as reader:
        assert (await reader.value("commit"), await reader.value("other")) == ("b", None)


# --- strange values ---------------------------------------------------------------------------------------


async def test_a_time_of_another_zone_is_the_same_moment_in_utc(store: Store) -> None:
    await store.write(lambda tx: tx.append_events([records.event(at=records.IN_TOKYO)]))
    await store.write(lambda tx: tx.put_site(records.site(joined_at=records.IN_TOKYO)))
    async with store.read() as reader:
        (event,), (site,) = await reader.events(after=0, limit=1), await reader.sites()
    assert event.event.at == site.joined_at == records.NOW
    assert event.event.at.tzinfo is site.joined_at.tzinfo is UTC


async def test_a_time_without_a_zone_is_refused(store: Store) -> None:
    naive = records.NOW.replace(tzinfo=None)
    with pytest.raises(InvariantViolated, match="no time zone"):
        await store.write(lambda tx: tx.append_events([records.event(at=naive)]))
    with pytest.raises(InvariantViolated, match="no time zone"):
        await store.write(lambda tx: tx.put_site(records.site(joined_at=naive)))


async def test_what_a_database_cannot_hold_is_shown_as_a_replacement_sign(store: Store) -> None:
    event = records.event("a\0b\ud800", data={"raw": "x\0y\ud800"})
    await store.write(lambda tx: tx.append_events([event]))
    async with store.read() as reader:
        (stored,) = await reader.events(after=0, limit=1)
    assert stored.event.message.startswith("a\ufffdb\ufffd")
    assert stored.event.data == event.data


async def test_what_json_cannot_say_is_refused_by_name(store: Store) -> None:
    with pytest.raises(InvalidInput, match="cannot be stored as JSON"):
        await store.write(lambda tx: tx.enqueue([{"n": float("nan")}]))
    with pytest.raises(InvalidInput, match="object is not JSON"):
        await store.write(lambda tx: tx.append_events([records.event(data={"n": object()})]))
