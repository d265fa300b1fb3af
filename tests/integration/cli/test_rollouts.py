"""`homeport rollouts`, `sites label` and the waves of `deploy`, against a real central."""

import os
import subprocess
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
import yaml

from homeport.core.model.deployment import Hold
from homeport.core.model.order import Progress
from homeport.core.model.report import HoldsChanged, Progressed
from homeport.vocabulary import DeploymentId, Generation, NodeId, SiteName, Step, Trigger
from tests.support.forks import run_homeport
from tests.support.running_central import (
    AT,
    Client,
    FakeSite,
    node_changed,
    running_central,
    transition,
    write_app,
)

pytestmark = pytest.mark.anyio
Homeport = Callable[..., Any]


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    write_app(tmp_path / "registry")
    async with running_central(tmp_path / "central", sweep_seconds=0.05) as (_, client):
        assert (await client.post("/api/v1/apps", {"repository": str(tmp_path / "registry")})).status == 201
        for name in ("line-1", "line-2"):
            await FakeSite(client, name).join()
        yield client


@pytest.fixture
def homeport(client: Client) -> Homeport:
    async def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": os.environ["PATH"], "HOMEPORT_URL": client.url}
        return await anyio.to_thread.run_sync(partial(run_homeport, arguments, environment=environment))

    return run


async def test_labels_are_set_removed_listed_and_selected_by(homeport: Homeport) -> None:
    done = await homeport("sites", "label", "line-1", "region=eu", "tier=test")
    assert (done.returncode, done.stdout) == (0, "✓ line-1   region=eu,tier=test\n")
    assert (await homeport("sites", "label", "line-1", "tier-")).stdout == "✓ line-1   region=eu\n"
    assert (await homeport("sites", "list", "-l", "region=eu", "-q")).stdout == "line-1\n"
    assert "region=eu" in (await homeport("sites", "show", "line-1")).stdout
    wrong = await homeport("sites", "label", "line-1", "region")
    assert (wrong.returncode, "write KEY=VALUE, or KEY- to remove it" in wrong.stderr) == (2, True)
    refused = await homeport("sites", "list", "-l", "=")
    assert (refused.returncode, "cannot be read" in refused.stderr) == (1, True)


async def test_a_rollout_is_planned_started_shown_paused_resumed_and_aborted(homeport: Homeport) -> None:
    for site in ("line-1", "line-2"):
        await homeport("sites", "label", site, "region=eu")
    waves = ("-l", "region=eu", "--wave", "1", "--wave", "100%", "--bake", "5m", "--threshold", "90%")
    plan = await homeport("deploy", "hello", *waves, "--plan")
    assert plan.returncode == 6, plan.stderr
    assert "  wave 1       1   line-1" in plan.stdout
    assert "  wave 2    100%   line-2" in plan.stdout
    started = await homeport("deploy", "hello", *waves, "--no-wait")
    assert started.returncode == 0, started.stderr
    listed = (await homeport("rollouts", "list")).stdout
    assert all(word in listed for word in ("hello 1.0.0", "running", "1/2", "1 waiting, 1 pending"))
    shown = (await homeport("rollouts", "show", "hello")).stdout
    assert "90% installed, watched for 5m" in shown
    data = yaml.safe_load((await homeport("rollouts", "show", "hello", "-o", "yaml")).stdout)
    assert [member["site"] for member in data["members"]] == ["line-1", "line-2"]
    for word, told in (
        ("pause", "paused: no further wave begins until it is resumed"),
        ("resume", "running: resumed"),
        ("abort", "aborted: no further wave comes; what is deployed stays"),
    ):
        done = await homeport("rollouts", word, "hello")
        assert (done.returncode, told in done.stdout) == (0, True), done.stderr
    late = await homeport("rollouts", "pause", "hello")
    assert (late.returncode, "has ended: it is aborted" in late.stderr) == (5, True)
    ended = await homeport("rollouts", "watch", "hello")
    assert (ended.returncode, "ABORTED" in ended.stderr) == (1, True)


async def test_what_cannot_be_is_refused_with_its_exit_code(homeport: Homeport) -> None:
    for arguments, code, words in (
        (("deploy", "hello"), 2, "Missing site"),
        (("deploy", "hello", "-l", "region=eu"), 1, "matches no site"),
        (("deploy", "hello", "--site", "line-1", "--wave", "0", "--wave", "100%"), 1, "reaches no site"),
        (("rollouts", "show", "nothing"), 3, 'There is no rollout "nothing".'),
    ):
        done = await homeport(*arguments)
        assert (done.returncode, words in done.stderr) == (code, True), done.stderr


async def test_a_wait_that_runs_out_says_what_it_waits_for(homeport: Homeport) -> None:
    done = await homeport("deploy", "hello", "--site", "line-1", "--wave", "100%", "--timeout", "1")
    assert done.returncode == 7, done.stderr
    assert "0 of 1 site installed, 100% are needed" in done.stderr


async def test_who_waits_for_a_site_on_hold_is_told_of_it(client: Client, homeport: Homeport, tmp_path: Path) -> None:
    write_app(tmp_path / "registry", version="1.1.0")
    await client.post("/api/v1/apps", {"repository": str(tmp_path / "registry")})
    night = Hold(SiteName("line-2"), None, "night shift", "anna", AT, AT.replace(year=2999))
    await FakeSite(client, "line-2").say(HoldsChanged((night,)))
    told = "until 2999-01-01 00:00 UTC by anna: night shift"
    done = await homeport("deploy", "hello@1.0.0", "--site", "line-2", "--timeout", "1")
    assert (done.returncode, told in done.stdout) == (7, True), done.stdout
    assert (await homeport("deploy", "hello@1.1.0", "--site", "line-2", "--no-wait")).returncode == 0
    back = await homeport("deployments", "rollback", "hello@line-2", "--to", "1.0.0")
    assert back.returncode == 0, back.stderr
    assert f"It waits: line-2 is held {told}." in back.stdout
    assert "homeport sites release line-2" in back.stdout
    await homeport("deploy", "hello", "--site", "line-1", "--site", "line-2", "--wave", "100%", "--no-wait")
    shown = await homeport("rollouts", "show", "hello")
    assert "HELD" in shown.stdout and f"held {told}" in shown.stdout, shown.stdout


async def test_a_rollout_shows_what_each_node_does(client: Client, homeport: Homeport) -> None:
    """And nothing of what else happens at its sites."""
    line = FakeSite(client, "line-1", epoch="epoch-2")
    await line.join()
    (other,) = (await client.deploy("line-1", name="other")).body["deployment_ids"]
    shown: list[subprocess.CompletedProcess[str]] = []

    async def follow() -> None:
        shown.append(await homeport("deploy", "hello", "--site", "line-1", "--wave", "100%", "--timeout", "60"))

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follow)
            deployments: list[dict[str, Any]] = []
            while not deployments:
                await anyio.sleep(0.05)
                found = (await client.get("/api/v1/deployments")).body["deployments"]
                deployments = [each for each in found if each["name"] == "hello"]
            id_, revision = deployments[0]["id"], deployments[0]["revision"]
            await line.say(
                node_changed(site="line-1"),
                transition(other, Trigger.SCHEDULED),
                Progressed(NodeId("node-a"), _pulling(other, "another image")),
                transition(id_, Trigger.SCHEDULED, revision=revision),
                Progressed(NodeId("node-a"), _pulling(id_, "its image")),
                transition(id_, Trigger.HEALTHY, revision=revision),
            )
    (done,) = shown
    assert done.returncode == 0, done.stderr
    assert "rolling out hello 1.0.0, rollout " in done.stdout
    assert "line-1 / node-a   pulling      its image" in done.stdout
    assert "another image" not in done.stdout
    assert "✓ DONE: installed at 1 site" in done.stdout


def _pulling(deployment_id: str, what: str) -> Progress:
    return Progress(DeploymentId(deployment_id), Generation(1), Step.PULLING, "web", f"pulling {what}", AT)
