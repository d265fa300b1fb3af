"""A site that follows a fleet manager and is killed with `kill -9`: what it has adopted survives, and what it is
offered when it comes back is judged by that."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from anyio.to_thread import run_sync

from homeport.core.margo.manifest import digest_of
from tests.support.mock_wfm import MockRealm, MockWfm, deployment, deployment_id, running_mock
from tests.support.ports import free_port
from tests.support.processes import Machine, Process, machine
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio
ONE, TWO = deployment_id(1), deployment_id(2)
WAIT_SECONDS = 60.0


@pytest.fixture
def realm(tmp_path: Path) -> MockRealm:
    return MockRealm(tmp_path / "authority")


@pytest.fixture
async def wfm(realm: MockRealm) -> AsyncIterator[MockWfm]:
    async with running_mock(realm) as mock:
        mock.want(deployment(1))
        yield mock


def start(machine: Machine, realm: MockRealm, wfm: MockWfm, *, dies_at: str = "") -> Process:
    machine.environment = {"HOMEPORT_FAILPOINT": dies_at} if dies_at else {}
    folder = realm.folder / "north"
    svid = folder if folder.exists() else realm.client("north")
    # fmt: off
    return machine.start(
        "north", "site", "--name", "north", "--source", "margo", "--wfm", wfm.url, "--wfm-poll", "1",
        "--svid-dir", str(svid), "--data", str(machine.folder / "north"),
        "--http", f"127.0.0.1:{free_port()}", "--grpc", f"127.0.0.1:{free_port()}", scheme="https",
    )
    # fmt: on


def polls(wfm: MockWfm) -> list[str]:
    """The ETags that came with polls, empty where none did."""
    asked = [each for each in wfm.heard if each.path == "/api/v1/deployments"]
    return [each.headers.get("if-none-match", "") for each in asked]


async def adopted(wfm: MockWfm) -> str:
    """Waits until the client polls with the ETag of the manifest."""
    etag = f'"{digest_of(wfm.manifest())}"'
    await eventually(lambda: polls(wfm)[-1:] == [etag])
    return etag


async def polled_twice(wfm: MockWfm) -> None:
    """From now on."""
    before = len(polls(wfm))
    await eventually(lambda: len(polls(wfm)) >= before + 2)


def wanted(site: Process) -> set[str]:
    return {each["id"] for each in site.get("/api/v1/deployments")["deployments"] if each["wanted"]}


async def killed(site: Process) -> None:
    await run_sync(site.kill)


async def test_version_and_etag_survive_kill_9_and_a_questionable_manifest_removes_nothing(
    tmp_path: Path, realm: MockRealm, wfm: MockWfm
) -> None:
    with machine(tmp_path / "machine") as computer:
        first = start(computer, realm, wfm)
        etag = await adopted(wfm)
        await killed(first)
        seen = len(polls(wfm))
        site: Process | None = None
        questionable: list[dict[str, Any]] = [
            {"bundle": None, "deployments": [], "manifestVersion": wfm.version},  # replayed: not newer
            {"bundle": None, "deployments": [], "manifestVersion": 0},
            {"bundle": None, "manifestVersion": wfm.version + 1},  # says nothing about deployments
        ]
        for body in questionable:
            wfm.manifest_body = json.dumps(body).encode()
            site = site or start(computer, realm, wfm)
            await polled_twice(wfm)
            assert await run_sync(wanted, site) == {ONE}
        assert site is not None
        rejected = [line for line in site.log.read_text().splitlines() if "margo update rejected" in line]
        assert rejected and all("security" in line for line in rejected)  # a security event
        assert set(polls(wfm)[seen:]) == {etag}
        wfm.manifest_body = None
        wfm.want(deployment(2))
        await adopted(wfm)
        assert await run_sync(wanted, site) == {TWO}


@pytest.mark.parametrize("point", ["git-before-commit", "git-after-push", "store-before-commit:2"])
async def test_a_site_that_dies_while_it_adopts_a_manifest_adopts_it_when_it_is_back(
    tmp_path: Path, realm: MockRealm, wfm: MockWfm, point: str
) -> None:
    """Neither half of it counts: the version is stored last, so the update is judged and carried out again."""
    with machine(tmp_path / "machine") as computer:
        first = start(computer, realm, wfm)
        before = await adopted(wfm)
        await killed(first)
        wfm.want(deployment(1), deployment(2))
        dying = start(computer, realm, wfm, dies_at=point)
        assert await run_sync(dying.popen.wait, WAIT_SECONDS) == -9
        assert set(polls(wfm)) <= {"", before}
        back = start(computer, realm, wfm)
        await adopted(wfm)
        assert await run_sync(wanted, back) == {ONE, TWO}
