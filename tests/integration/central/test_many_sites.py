"""A hundred sites of which ten are bad and ten offline: the rollout stops at its threshold, the good are unaffected,
and the offline catch up when they return (F11). Real central, Git and store; the sites say what the test decides."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from homeport.central.app import CentralApp
from homeport.core.model.caller import Caller, Role
from homeport.core.model.event import Deployment
from homeport.core.model.instance import Failure, Transition
from homeport.core.model.rollout import Size
from homeport.core.update_values import RequestedValues
from homeport.core.values.selectors import parse_selector
from homeport.fleet.central.apps import AppQuery
from homeport.fleet.central.resolve import DeployRequest
from homeport.ports import Change, DeploymentFilter, Outgoing
from homeport.rollouts.start import RolloutRequest, find_rollout, start_rollout
from homeport.rollouts.view import RolloutView, view_rollouts
from homeport.vocabulary import Commit, RolloutId, RolloutSiteStatus, RolloutState, SiteName, State, Trigger
from homeport.wire.reports import encode
from tests.support.proposals import saying
from tests.support.running_central import running_central, transition
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio

ANN = Caller("ann", Role.ADMIN)
NAMES = [SiteName(f"site-{number:02}") for number in range(100)]
OFFLINE = NAMES[5:100:10]
BAD = [name for name in NAMES[30:42] if name not in OFFLINE][:10]
FAILURE = Failure("HEALTH_CHECK_FAILED", "it answered 500", "web")
WAVES = (Size(10, True), Size(50, True), Size(100, True))


class Sites:
    """All of them at once, each with its own numbered reports."""

    def __init__(self, central: CentralApp) -> None:
        self.central = central
        self.sequences: dict[SiteName, int] = {}
        self.bad: set[SiteName] = set()
        self.seen: set[tuple[str, str]] = set()

    async def join(self, names: Sequence[SiteName]) -> None:
        for name in names:
            await self.central.link.join(name, epoch="one", software_version="1")
            self.sequences[name] = 0

    async def wanted(self) -> Sequence[Deployment]:
        async with self.central.parts.store.read() as reader:
            return [row for row in await reader.deployments(DeploymentFilter(name="hello")) if row.wanted]

    async def work(self) -> None:
        async with self.central.parts.store.read() as reader:
            known = {item.deployment_id: item for item in await reader.instances()}
        for row in await self.wanted():
            if row.site in self.sequences and (row.id, row.revision) not in self.seen:
                self.seen.add((row.id, row.revision))
                before = known.get(row.id)
                await self._say(row.site, self._story(row, before.running_revision if before else None))

    def _story(self, row: Deployment, runs: str | None) -> list[Transition]:
        begin = transition(row.id, Trigger.CHANGED if runs else Trigger.SCHEDULED, revision=row.revision)
        if row.site not in self.bad:
            return [begin, transition(row.id, Trigger.HEALTHY, revision=row.revision)]
        return [
            begin,
            transition(row.id, Trigger.GAVE_UP, revision=row.revision, failure=FAILURE),
            transition(row.id, Trigger.ROLLED_BACK, revision=runs),
            transition(row.id, Trigger.HEALTHY, revision=runs),
        ]

    async def _say(self, site: SiteName, said: Sequence[Transition]) -> None:
        first = self.sequences[site] + 1
        reports = [Outgoing(number, encode(report)) for number, report in enumerate(said, first)]
        self.sequences[site] = await self.central.link.report(site, reports, epoch="one", seen={})

    async def roll_out(self, version: str, **parameters: str) -> RolloutId:
        request = DeployRequest(
            (), app=AppQuery("demo", "hello", version), requested=RequestedValues(parameters=parameters)
        )
        wanted = RolloutRequest(request, parse_selector("region=eu"), WAVES, threshold_percent=90)
        return (await start_rollout(wanted, ANN, self.central.parts)).rollout_id

    async def until(self, rollout_id: RolloutId, state: RolloutState) -> RolloutView:
        async def is_so() -> RolloutView | None:
            await self.work()
            view = await self.view(rollout_id)
            return view if view.rollout.state is state else None

        view = await eventually(is_so, seconds=120.0, what=f"the rollout to be {state}")
        assert isinstance(view, RolloutView)
        return view

    async def view(self, rollout_id: RolloutId) -> RolloutView:
        async with self.central.parts.store.read() as reader:
            found = await find_rollout(reader, rollout_id)
            return (await view_rollouts(reader, [found], self.central.parts))[0]


def standing(view: RolloutView, which: RolloutSiteStatus) -> set[SiteName]:
    return {member.site for member in view.members if member.standing is which}


@pytest.fixture
async def sites(tmp_path: Path, registry: Path) -> AsyncIterator[Sites]:
    async with running_central(tmp_path, sweep_seconds=0.05, site_silence_seconds=3600.0) as (central, client):
        assert (await client.post("/api/v1/apps", {"repository": str(registry)})).status == 201

        async def decide(_: Commit | None) -> Sequence[Change]:
            marker = "site: {0}\nlabels: {{region: eu}}\n"
            return [Change(f"deployments/{name}/site.yaml", marker.format(name).encode()) for name in NAMES]

        await central.parts.git.commit(saying("markers", decide), author="ann")
        await central.parts.index.catch_up()
        sites = Sites(central)
        await sites.join([name for name in NAMES if name not in OFFLINE])
        yield sites


async def test_a_hundred_sites_with_ten_bad_and_ten_offline(sites: Sites) -> None:
    first = await sites.until(await sites.roll_out("1.0.0"), RolloutState.DONE)
    assert standing(first, RolloutSiteStatus.OFFLINE) == set(OFFLINE)
    assert len(standing(first, RolloutSiteStatus.INSTALLED)) == 90

    sites.bad = set(BAD)
    broken = await sites.roll_out("1.1.0")
    stopped = await sites.until(broken, RolloutState.STOPPED)
    # It stops as soon as the share is exceeded, so how many had failed by then depends on who reported first.
    assert "of 40 sites failed, 10% are allowed: site-30: it was rolled back" in stopped.rollout.reason
    assert standing(stopped, RolloutSiteStatus.FAILED) == set(BAD)
    assert standing(stopped, RolloutSiteStatus.WAITING) >= set(OFFLINE)
    # The good are unaffected: half has the new version, the others keep the old one, and all of them run.
    rows = {row.site: row for row in await sites.wanted()}
    reached = standing(stopped, RolloutSiteStatus.INSTALLED)
    assert len(reached) == 40
    for name in set(NAMES) - set(OFFLINE):
        assert rows[name].state is State.INSTALLED
        assert rows[name].app_version == ("1.1.0" if name in reached or name in BAD else "1.0.0")

    sites.bad = set()
    mended = await sites.roll_out("1.1.0", greeting="Hi")
    await sites.until(broken, RolloutState.SUPERSEDED)
    done = await sites.until(mended, RolloutState.DONE)
    assert standing(done, RolloutSiteStatus.OFFLINE) == set(OFFLINE)
    assert len(standing(done, RolloutSiteStatus.INSTALLED)) == 90

    # Their files wait for them in Git.
    await sites.join(OFFLINE)
    await sites.work()
    back = await sites.view(mended)
    assert standing(back, RolloutSiteStatus.INSTALLED) == set(NAMES)
