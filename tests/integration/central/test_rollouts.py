"""Rollouts over HTTP: waves, thresholds, pauses, late members; with sites that say what a test tells them."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from homeport.central.app import CentralApp
from homeport.core.model.deployment import Hold
from homeport.core.model.instance import Failure
from homeport.core.model.report import HoldsChanged
from homeport.ports import Change, Clock
from homeport.rollouts.loop import RolloutLoop
from homeport.vocabulary import Commit, SiteName, Trigger
from tests.support.proposals import saying
from tests.support.running_central import (
    AT,
    Answer,
    Client,
    FakeSite,
    indexed,
    running_central,
    transition,
    write_app,
)
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio

FAILURE = Failure("HEALTH_CHECK_FAILED", "GET /healthz answered 500", "web")


class Fleet:
    """A central and sites that follow it: each installs what it is given, or fails, when it is told to look."""

    def __init__(self, client: Client, central: CentralApp) -> None:
        self.client = client
        self.central = central
        self.sites: dict[str, FakeSite] = {}
        self.bad: set[str] = set()
        self.held: set[str] = set()
        self.seen: set[tuple[str, str]] = set()

    async def join(self, *names: str, **labels: str) -> None:
        for name in names:
            self.sites[name] = FakeSite(self.client, name)
            await self.sites[name].join()
            if labels:
                answer = await self.client.call("PATCH", f"/api/v1/sites/{name}", json={"labels": labels})
                assert answer.status == 200, answer.body

    async def work(self, *names: str) -> None:
        """Each site takes up what is wanted there and reports how it ended."""
        for name in names or tuple(self.sites):
            listed = (await self.client.get(f"/api/v1/deployments?site={name}")).body["deployments"]
            for item in listed:
                key = (item["id"], item["revision"])
                if key in self.seen or not item["wanted"] or name in self.held:
                    continue
                self.seen.add(key)
                begins = Trigger.CHANGED if item["instances"] else Trigger.SCHEDULED
                good = name not in self.bad
                end = Trigger.HEALTHY if good else Trigger.GAVE_UP
                failure = None if good else FAILURE
                await self.sites[name].say(
                    transition(item["id"], begins, revision=item["revision"]),
                    transition(item["id"], end, revision=item["revision"], failure=failure),
                )

    async def rollout(self, **body: Any) -> str:
        answer = await self.deploy(**body)
        assert answer.status == 202, answer.body
        return str(answer.body["rollout_id"])

    async def deploy(self, *, version: str = "1.0.0", **body: Any) -> Answer:
        return await self.client.post("/api/v1/deployments", {"app_name": "hello", "version": version, **body})

    async def show(self, rollout_id: str) -> Any:
        answer = await self.client.get(f"/api/v1/rollouts/{rollout_id}")
        assert answer.status == 200, answer.body
        return answer.body

    async def waves(self, rollout_id: str) -> list[list[str]]:
        """The sites of each wave that has begun."""
        members = (await self.show(rollout_id))["members"]
        numbers = sorted({member["wave"] for member in members if member["wave"]})
        return [[member["site"] for member in members if member["wave"] == number] for number in numbers]

    async def versions(self, name: str = "hello") -> dict[str, str]:
        """What is wanted under that name, by site."""
        found = (await self.client.get(f"/api/v1/deployments?name={name}")).body["deployments"]
        return {item["site"]: item["app_version"] for item in found if item["wanted"]}

    async def until(self, rollout_id: str, state: str) -> Any:
        """Lets every site work until the rollout has come to that state."""

        async def is_so() -> Any:
            await self.work()
            shown = await self.show(rollout_id)
            return shown if shown["state"] == state else None

        return await eventually(is_so, what=f"the rollout to be {state}")

    async def command(self, rollout_id: str, word: str) -> Answer:
        return await self.client.post(f"/api/v1/rollouts/{rollout_id}/{word}", {})

    async def messages(self) -> list[str]:
        async with self.central.parts.store.read() as reader:
            return [event.event.message for event in await reader.events(after=0, limit=10_000)]


@asynccontextmanager
async def a_fleet(data: Path, registry: Path, **settings: Any) -> AsyncIterator[Fleet]:
    # Sites that are only told to look say nothing by themselves, however long a busy machine takes.
    given = {"sweep_seconds": 0.05, "site_silence_seconds": 3600.0, **settings}
    async with running_central(data, **given) as (central, client):
        added = await client.post("/api/v1/apps", {"repository": str(registry)})
        assert added.status == 201, added.body
        yield Fleet(client, central)


@pytest.fixture
async def fleet(tmp_path: Path, registry: Path) -> AsyncIterator[Fleet]:
    async with a_fleet(tmp_path / "central", registry) as fleet:
        yield fleet


async def push(fleet: Fleet, path: str, content: str | None) -> None:
    """What a person pushes by hand, once central shows it."""

    async def decide(_: Commit | None) -> Sequence[Change]:
        return [Change(path, None if content is None else content.encode())]

    commit = await fleet.central.parts.git.commit(saying("by hand", decide), author="ann")
    assert commit is not None
    fleet.central.parts.git.nudge()
    await indexed(fleet.client, commit)


async def file_of(fleet: Fleet, rollout_id: str) -> str:
    git = fleet.central.parts.git
    head = await git.fetch()
    assert head is not None
    files = {file.path: file.content for file in await git.files(head, "rollouts", size_max=100_000)}
    return files[f"rollouts/{rollout_id}.yaml"].decode()


# --- labels -----------------------------------------------------------------------------------------------


async def test_labels_are_kept_in_git_shown_and_selected_by(fleet: Fleet) -> None:
    await fleet.join("a", region="eu", tier="gold")
    await fleet.join("b", region="us")
    answer = await fleet.client.call("PATCH", "/api/v1/sites/a", json={"labels": {"tier": None, "size": "m"}})
    assert answer.body["labels"] == {"region": "eu", "size": "m"}
    git = fleet.central.parts.git
    head = await git.fetch()
    assert head is not None
    files = {file.path: file.content for file in await git.files(head, "deployments/a", size_max=1000)}
    assert files["deployments/a/site.yaml"] == b"site: a\nlabels:\n  region: eu\n  size: m\n"
    for selector, names in (("region=eu", ["a"]), ("region", ["a", "b"]), ("!size", ["b"]), ("region=asia", [])):
        found = (await fleet.client.get("/api/v1/sites", params={"selector": selector})).body["sites"]
        assert [site["name"] for site in found] == names
    assert "site a has region=eu, size=m" in "\n".join(await fleet.messages())


@pytest.mark.parametrize(
    ("labels", "field", "words"),
    [
        ({"re gion": "eu"}, "labels.re gion", "is not a valid label name"),
        ({"region": "e u"}, "labels.region", "is not a valid value for the label"),
    ],
)
async def test_a_label_that_cannot_be_is_refused(
    fleet: Fleet, labels: dict[str, str], field: str, words: str
) -> None:
    await fleet.join("a")
    answer = await fleet.client.call("PATCH", "/api/v1/sites/a", json={"labels": labels})
    assert (answer.status, answer.fields) == (422, [field])
    assert words in answer.body["errors"][0]["message"]
    unknown = await fleet.client.call("PATCH", "/api/v1/sites/nowhere", json={"labels": {"a": "b"}})
    assert (unknown.status, unknown.body["detail"]) == (404, 'There is no site "nowhere".')


async def test_broken_labels_in_a_marker_change_nothing_and_are_told_with_file_and_line(fleet: Fleet) -> None:
    await fleet.join("a", region="eu")
    await push(fleet, "deployments/a/site.yaml", "site: a\nlabels:\n  region: us\n  tier: 1\n")
    sites = (await fleet.client.get("/api/v1/sites")).body["sites"]
    assert [site["labels"] for site in sites] == [{"region": "eu"}]
    assert any(
        "deployments/a/site.yaml:4" in message and "labels.tier" in message for message in await fleet.messages()
    )
    await push(fleet, "deployments/a/site.yaml", 'site: a\nlabels: {tier: "1"}\n')
    sites = (await fleet.client.get("/api/v1/sites")).body["sites"]
    assert [site["labels"] for site in sites] == [{"tier": "1"}]


# --- waves ------------------------------------------------------------------------------------------------


async def test_waves_follow_each_other_when_the_one_before_is_installed(fleet: Fleet) -> None:
    await fleet.join("a", "b", "c", "d", region="eu")
    await fleet.join("z", region="us")
    rollout_id = await fleet.rollout(selector="region=eu", waves=[1, "50%", "100%"])
    shown = await fleet.show(rollout_id)
    assert (shown["state"], shown["counts"]) == ("running", {"waiting": 3, "pending": 1})
    assert [wave["sites"] for wave in shown["waves"]] == [1, 0, 0]
    assert "0 of 1 site installed, 100% are needed" in shown["note"]
    done = await fleet.until(rollout_id, "done")
    assert done["counts"] == {"installed": 4}
    assert await fleet.waves(rollout_id) == [["a"], ["b"], ["c", "d"]]
    assert done["note"] == "installed at 4 sites"
    wanted = (await fleet.client.get("/api/v1/deployments")).body["deployments"]
    assert {item["site"] for item in wanted} == {"a", "b", "c", "d"}
    assert {item["rollout_id"] for item in wanted} == {rollout_id}
    # One commit for each wave, and the file in Git says who was in which.
    assert len({item["commit"] for item in wanted}) == 3
    assert "sites:\n  - c\n  - d\n" in (await file_of(fleet, rollout_id)).replace("    ", "  ")


async def test_the_order_is_the_operators_and_then_by_name(fleet: Fleet) -> None:
    await fleet.join("a", "b", "c", region="eu")
    sites = [{"site_id": "c"}]
    plan = await fleet.client.post(
        "/api/v1/deployments?plan=true",
        {"app_name": "hello", "sites": sites, "selector": "region=eu", "waves": ["1", "100%"]},
    )
    assert plan.status == 200, plan.body
    assert [(wave["number"], wave["size"], wave["sites"]) for wave in plan.body["waves"]] == [
        (1, "1", ["c"]),
        (2, "100%", ["a", "b"]),
    ]
    assert plan.body["changes"] is True
    assert (await fleet.client.get("/api/v1/rollouts")).body["rollouts"] == []


async def test_a_wave_with_too_many_failures_stops_the_rollout_and_says_who(fleet: Fleet) -> None:
    await fleet.join("a", "b", "c", "d", region="eu")
    fleet.bad = {"b"}
    rollout_id = await fleet.rollout(selector="region=eu", waves=["50%", "100%"], threshold="90%")
    stopped = await fleet.until(rollout_id, "stopped")
    assert stopped["note"] == (
        "wave 1: 1 of 2 sites failed, 10% are allowed: b: GET /healthz answered 500 (HEALTH_CHECK_FAILED)"
    )
    assert [(item["site"], item["wave"]) for item in stopped["failing"]] == [("b", 1)]
    assert stopped["counts"] == {"waiting": 2, "installed": 1, "failed": 1}
    assert [item["site"] for item in (await fleet.client.get("/api/v1/deployments")).body["deployments"]] == [
        "a",
        "b",
    ]
    # Nothing was mended: resumed, it stops again. Without the bad one, it goes on.
    assert (await fleet.command(rollout_id, "resume")).status == 200
    await fleet.until(rollout_id, "stopped")
    assert (await fleet.client.delete("/api/v1/deployments/hello@b")).status == 202
    assert (await fleet.command(rollout_id, "resume")).status == 200
    done = await fleet.until(rollout_id, "done")
    assert done["counts"] == {"installed": 3, "left": 1}


async def test_a_site_that_is_offline_holds_up_nobody_and_gets_its_file(fleet: Fleet) -> None:
    await push(fleet, "deployments/a/site.yaml", "site: a\nlabels: {region: eu}\n")
    await fleet.join("b", "c", region="eu")
    rollout_id = await fleet.rollout(selector="region=eu", waves=[1, "100%"])
    done = await fleet.until(rollout_id, "done")
    assert await fleet.waves(rollout_id) == [["b"], ["a", "c"]]
    assert done["counts"] == {"installed": 2, "offline": 1}
    assert done["note"] == "installed at 2 sites, waiting for a"
    await fleet.join("a")
    await fleet.work()
    assert (await fleet.show(rollout_id))["counts"] == {"installed": 3}


async def test_a_site_on_hold_holds_up_nobody_is_shown_with_the_reason_and_catches_up(fleet: Fleet) -> None:
    await fleet.join("a", "b", "c", region="eu")
    night = Hold(SiteName("b"), None, "night shift", "anna", AT, AT.replace(year=2999))
    await fleet.sites["b"].say(HoldsChanged((night,)))
    fleet.held = {"b"}
    rollout_id = await fleet.rollout(selector="region=eu", waves=[1, "100%"])
    shown = await fleet.show(rollout_id)
    why = f"held until {night.expires_at:%Y-%m-%d %H:%M} UTC by anna: night shift"
    assert [(item["site"], item["standing"], item["why"]) for item in shown["held"]] == [("b", "waiting", why)]
    done = await fleet.until(rollout_id, "done")
    assert await fleet.waves(rollout_id) == [["a"], ["b", "c"]]
    assert (done["counts"], done["note"]) == ({"installed": 2, "held": 1}, "installed at 2 sites, held at b")
    assert [(item["site"], item["standing"], item["why"]) for item in done["held"]] == [("b", "held", why)]
    assert done["failing"] == []
    await fleet.sites["b"].say(HoldsChanged(()))
    fleet.held = set()
    await fleet.work()
    assert (await fleet.show(rollout_id))["counts"] == {"installed": 3}


async def test_a_wave_is_watched_on_whatever_the_clock_and_a_restart_do(tmp_path: Path, registry: Path) -> None:
    async with a_fleet(tmp_path / "central", registry) as fleet:
        await fleet.join("a", "b", region="eu")
        rollout_id = await fleet.rollout(selector="region=eu", waves=[1, "100%"], bake="1h")
        await fleet.work()

        async def watched() -> Any:
            return (await fleet.show(rollout_id))["bake_ends_at"]

        await eventually(watched)
        parts = fleet.central.parts
        clock = Stepped(parts.clock)
        loop = RolloutLoop(replace(parts, clock=clock), period_seconds=1000.0)
        await loop.tend()
        clock.days = 365.0
        await loop.tend()
        clock.days = -1.0
        await loop.tend()
        assert await fleet.waves(rollout_id) == [["a"]]
        clock.seconds = 3590.0  # a look that comes late counts as one round: 1000 s
        await loop.tend()
        async with fleet.central.parts.store.read() as reader:
            (row,) = await reader.rollouts()
        assert 1000 <= row.progress["watched_seconds"] < 1100
        after = RolloutLoop(
            replace(parts, clock=clock), period_seconds=2600.0
        )  # as after a restart: what was watched still counts
        await after.tend()
        assert await fleet.waves(rollout_id) == [["a"]]
        clock.seconds += 2600.0
        await after.tend()
        assert await fleet.waves(rollout_id) == [["a"], ["b"]]


@pytest.mark.parametrize("days", [365.0, -1.0])
async def test_a_clock_that_is_set_makes_nobody_silent_and_ends_no_rollout(fleet: Fleet, days: float) -> None:
    await fleet.join("a", "b", region="eu")
    rollout_id = await fleet.rollout(selector="region=eu", waves=[1, "100%"])
    parts = fleet.central.parts
    clock = Stepped(parts.clock)
    loop = RolloutLoop(replace(parts, clock=clock), period_seconds=1.0)

    async def last_wave() -> bool:
        await fleet.work("a")
        return await fleet.waves(rollout_id) == [["a"], ["b"]]

    await eventually(last_wave)
    clock.days = days
    await loop.tend()
    assert (await fleet.show(rollout_id))["counts"] == {"installed": 1, "pending": 1}
    assert (await fleet.show(rollout_id))["state"] == "running"


class Stepped:
    """The real clock, and what a test adds to it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.days = 0.0
        self.seconds = 0.0

    def now(self) -> datetime:
        return self._clock.now() + timedelta(days=self.days)

    def monotonic(self) -> float:
        return self._clock.monotonic() + self.seconds


async def test_a_pause_holds_the_next_wave_and_resuming_lets_it_come(fleet: Fleet) -> None:
    await fleet.join("a", "b", region="eu")
    rollout_id = await fleet.rollout(selector="region=eu", waves=[1, "100%"])
    paused = await fleet.command(rollout_id, "pause")
    assert (paused.status, paused.body["state"]) == (200, "paused")
    assert "state: paused" in await file_of(fleet, rollout_id)
    await fleet.work()
    again = await fleet.command(rollout_id, "pause")
    assert (again.status, again.body["detail"]) == (409, "The rollout of hello 1.0.0 is paused already.")
    assert await fleet.waves(rollout_id) == [["a"]]
    assert (await fleet.command(rollout_id, "resume")).body["state"] == "running"
    await fleet.until(rollout_id, "done")
    late = await fleet.command(rollout_id, "pause")
    assert (late.status, late.body["detail"]) == (409, "The rollout of hello 1.0.0 has ended: it is done.")


async def test_an_abort_leaves_what_is_deployed_and_nothing_more_comes(fleet: Fleet) -> None:
    await fleet.join("a", "b", region="eu")
    rollout_id = await fleet.rollout(selector="region=eu", waves=[1, "100%"])
    assert (await fleet.command(rollout_id, "abort")).body["state"] == "aborted"
    await fleet.work()
    await fleet.join("c", region="eu")
    other = await fleet.rollout(sites=[{"site_id": "b"}], name="other", waves=["100%"])
    await fleet.until(other, "done")
    assert (await fleet.show(rollout_id))["counts"] == {"installed": 1}
    assert set(await fleet.versions()) == {"a"}


async def test_a_pause_pushed_by_hand_counts_and_a_broken_file_changes_nothing(fleet: Fleet) -> None:
    await fleet.join("a", "b", region="eu")
    rollout_id = await fleet.rollout(selector="region=eu", waves=[1, "100%"])
    text = await file_of(fleet, rollout_id)
    path = f"rollouts/{rollout_id}.yaml"
    await push(fleet, path, text.replace("state: running", "state: paused"))
    assert (await fleet.show(rollout_id))["state"] == "paused"
    await push(fleet, path, text.replace("state: running", "state: perhaps"))
    shown = await fleet.show(rollout_id)
    assert shown["state"] == "paused"
    assert f"{path}:" in shown["note"] and "must be one of" in shown["note"]
    await push(fleet, path, text)
    assert (await fleet.show(rollout_id))["state"] == "running"
    await fleet.until(rollout_id, "done")


async def test_a_copy_of_a_rollouts_file_elsewhere_says_nothing_about_it(fleet: Fleet) -> None:
    await fleet.join("a", "b", region="eu")
    rollout_id = await fleet.rollout(selector="region=eu", waves=[1, "100%"])
    before = await fleet.show(rollout_id)
    copy = f"rollouts/old/{rollout_id}.yaml"
    await push(fleet, copy, "state: [")
    await push(fleet, copy, None)
    after = await fleet.show(rollout_id)
    assert (after["state"], after["note"]) == ("running", before["note"])
    await fleet.until(rollout_id, "done")


async def test_a_pause_that_crosses_with_the_end_keeps_who_comes_later_waiting(fleet: Fleet) -> None:
    await fleet.join("a", region="eu")
    rollout_id = await fleet.rollout(selector="region=eu")
    await fleet.work()
    await fleet.until(rollout_id, "done")
    paused = (await file_of(fleet, rollout_id)).replace("state: running", "state: paused")
    await push(fleet, f"rollouts/{rollout_id}.yaml", paused)
    await fleet.until(rollout_id, "paused")
    await fleet.join("b", region="eu")
    assert (await fleet.command(rollout_id, "resume")).body["state"] == "running"
    await fleet.work()
    await fleet.until(rollout_id, "done")
    assert await fleet.waves(rollout_id) == [["a", "b"]]


async def test_who_comes_to_the_group_later_gets_what_it_has(fleet: Fleet) -> None:
    await fleet.join("a", region="eu")
    await fleet.join("z", region="us")
    first = await fleet.rollout(selector="region=eu")
    await fleet.until(first, "done")
    second = await fleet.rollout(selector="region=eu", version="1.1.0")
    await fleet.until(second, "done")
    await fleet.until(first, "superseded")
    await fleet.join("b", region="eu")  # joins later
    await fleet.client.call("PATCH", "/api/v1/sites/z", json={"labels": {"region": "eu"}})  # gets the label later

    async def have_it() -> bool:
        await fleet.work()
        return bool((await fleet.show(second))["counts"] == {"installed": 3})

    await eventually(have_it)
    wanted = (await fleet.client.get("/api/v1/deployments")).body["deployments"]
    assert {(item["site"], item["app_version"]) for item in wanted} == {
        ("a", "1.1.0"),
        ("b", "1.1.0"),
        ("z", "1.1.0"),
    }
    # Who deletes it at one site has deleted it there: the group does not bring it back.
    await fleet.client.delete("/api/v1/deployments/hello@z")
    other = await fleet.rollout(sites=[{"site_id": "z"}], name="other", waves=["100%"])
    await fleet.until(other, "done")
    assert set(await fleet.versions()) == {"a", "b"}


async def test_a_newer_rollout_takes_over_and_a_plain_deployment_is_left_alone(fleet: Fleet) -> None:
    await fleet.join("a", "b", "c", region="eu")
    older = await fleet.rollout(selector="region=eu", waves=[1, "100%"])
    plain = await fleet.client.deploy("b", version="1.1.0")
    assert plain.status == 202
    newer = await fleet.rollout(selector="region=eu", version="1.1.0", waves=[2, "100%"])
    superseded = await fleet.until(older, "superseded")
    assert "1.1.0 has taken its sites over" in superseded["note"]
    await fleet.until(newer, "done")
    wanted = (await fleet.client.get("/api/v1/deployments")).body["deployments"]
    assert {(item["site"], item["app_version"]) for item in wanted} == {
        ("a", "1.1.0"),
        ("b", "1.1.0"),
        ("c", "1.1.0"),
    }


async def test_a_deployment_made_by_hand_meanwhile_is_not_overwritten(fleet: Fleet) -> None:
    await fleet.join("a", "b", "c", region="eu")
    rollout_id = await fleet.rollout(selector="region=eu", waves=[1, "100%"])
    assert (await fleet.client.deploy("c", version="1.1.0")).status == 202
    done = await fleet.until(rollout_id, "done")
    assert done["counts"] == {"installed": 2, "left": 1}
    assert await fleet.versions() == {"a": "1.0.0", "b": "1.0.0", "c": "1.1.0"}


async def test_a_rollout_goes_on_after_central_was_restarted(tmp_path: Path, registry: Path) -> None:
    async with a_fleet(tmp_path / "central", registry) as fleet:
        await fleet.join("a", "b", region="eu")
        rollout_id = await fleet.rollout(selector="region=eu", waves=[1, "100%"])
        sites, seen = fleet.sites, fleet.seen
    async with running_central(tmp_path / "central", sweep_seconds=0.05) as (central, client):
        again = Fleet(client, central)
        again.sites, again.seen = sites, seen
        for site in sites.values():
            site.client = client
        await again.until(rollout_id, "done")
        assert await again.waves(rollout_id) == [["a"], ["b"]]


async def test_who_cannot_have_it_counts_as_failed_and_holds_up_no_other(fleet: Fleet, registry: Path) -> None:
    write_app(registry, "other")
    await fleet.client.post("/api/v1/apps", {"repository": str(registry)})
    await fleet.join("a", "b", "c", region="eu")
    await fleet.join("d")
    assert (await fleet.client.deploy("d", app="other", name="hello")).status == 202
    rollout_id = await fleet.rollout(selector="region=eu", waves=[1, "100%"], threshold="60%")
    await fleet.client.call("PATCH", "/api/v1/sites/d", json={"labels": {"region": "eu"}})
    done = await fleet.until(rollout_id, "done")
    assert done["counts"] == {"installed": 3, "failed": 1}
    assert [(item["site"], item["why"]) for item in done["failing"]] == [
        ("d", '"hello" at site "d" is another app: other 1.0.0.')
    ]
    assert "failed at d" in done["note"]


# --- what is refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "field", "words"),
    [
        ({"selector": "region=asia"}, "selector", '"region=asia" matches no site'),
        ({"selector": "region=="}, "selector", "matches no site"),
        ({"selector": "=eu"}, "selector", "cannot be read"),
        ({"selector": "region=eu", "waves": [0, "100%"]}, "waves[0].size", "reaches no site"),
        ({"selector": "region=eu", "waves": ["0%", "100%"]}, "waves[0].size", "reaches no site"),
        ({"selector": "region=eu", "waves": ["101%"]}, "waves[0].size", "more than all sites"),
        ({"selector": "region=eu", "waves": ["half", "100%"]}, "waves[0].size", "is not a valid wave size"),
        ({"selector": "region=eu", "waves": [1, "50%"]}, "waves[1].size", "must be 100%"),
        ({"selector": "region=eu", "waves": ["50%", "25%", "100%"]}, "waves[1].size", "adds no site"),
        ({"selector": "region=eu", "threshold": "0%"}, "threshold", "from 1% to 100%"),
        ({"selector": "region=eu", "threshold": "101%"}, "threshold", "from 1% to 100%"),
        ({"selector": "region=eu", "bake": "long"}, "bake", "such as 30s, 5m or 1h"),
        ({"sites": [{"site_id": "a"}], "bake": "5m"}, "bake", "needs waves, or a selector"),
        ({"sites": [{"site_id": "a", "host_ids": ["n"]}], "waves": ["100%"]}, "sites", "use placement"),
        ({}, "sites", "or give a selector"),
    ],
)
async def test_what_makes_no_sense_is_refused_with_a_sentence(
    fleet: Fleet, body: dict[str, Any], field: str, words: str
) -> None:
    await fleet.join("a", region="eu")
    answer = await fleet.deploy(**body)
    assert (answer.status, answer.fields) == (422, [field]), answer.body
    assert words in answer.body["errors"][0]["message"]
    assert (await fleet.client.get("/api/v1/rollouts")).body["rollouts"] == []
    assert (await fleet.client.get("/api/v1/deployments")).body["deployments"] == []


async def test_an_unknown_rollout_is_not_found(fleet: Fleet) -> None:
    for path, method in (("", "GET"), ("/pause", "POST"), ("/resume", "POST"), ("/abort", "POST")):
        answer = await fleet.client.call(method, f"/api/v1/rollouts/nothing{path}")
        assert (answer.status, answer.body["detail"]) == (404, 'There is no rollout "nothing".')
