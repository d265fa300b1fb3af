"""Central as a Margo fleet manager over real mutual TLS, driven by a client of another vendor."""

import gzip
import io
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from homeport.core.margo.manifest import digest_of
from homeport.errors import TransientError
from homeport.margo.wfm.manifests import Manifests
from homeport.vocabulary import DeploymentId, SiteName
from tests.support.margo import MargoClient, WfmStand, device, is_site, running_wfm, status
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio


@pytest.fixture
async def wfm(tmp_path: Path) -> AsyncIterator[WfmStand]:
    async with running_wfm(tmp_path) as stand:
        yield stand


@pytest.fixture
async def line7(wfm: WfmStand) -> AsyncIterator[MargoClient]:
    async with wfm.client("line-7") as client:
        yield client


async def test_a_client_of_another_vendor_is_a_site_like_any_other(wfm: WfmStand, line7: MargoClient) -> None:
    first = await line7.manifest()
    assert first.body == b'{"bundle":null,"deployments":[],"manifestVersion":1}'
    assert (await line7.put_device(device("press-1"))).status == 201
    await is_site(wfm, "line-7")
    (deployment_id,) = await wfm.deploy("line-7")
    manifest = await line7.listed(1)
    (listed,) = manifest["deployments"]
    yaml = await line7.get(listed["url"])
    assert listed["deploymentId"] == deployment_id and digest_of(yaml.body) == listed["digest"]
    bundle = await line7.get(manifest["bundle"]["url"])
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(bundle.body))) as archive:
        assert archive.getnames() == [f"{deployment_id}.yaml"]

    version = manifest["manifestVersion"]
    assert (await line7.report(deployment_id, status(deployment_id, version, "installing"))).status == 201
    assert (await line7.report(deployment_id, status(deployment_id, version))).status == 200
    shown = (await wfm.api.get(f"/api/v1/deployments/{deployment_id}")).body
    assert (shown["state"], shown["note"]) == ("INSTALLED", "")
    assert [each["reachable"] for each in shown["instances"]] == [
        True
    ]  # a device, as long as its client is in contact
    devices = (await wfm.api.get("/api/v1/sites/line-7/devices")).body
    assert [each["id"] for each in devices["items"]] == ["press-1"]
    assert devices["statuses"][0]["components"][0] == {"name": "web", "state": "installed", "error": None}


async def test_a_failure_reaches_the_operator_and_removal_ends_the_deployment(
    wfm: WfmStand, line7: MargoClient
) -> None:
    await line7.manifest()
    await is_site(wfm, "line-7")
    (deployment_id,) = await wfm.deploy("line-7")
    version = (await line7.listed(1))["manifestVersion"]
    error = {"code": "PULL", "source": "cache", "message": "registry unreachable"}
    body = status(deployment_id, version, "failed")
    body["components"] = [{"name": "web", "state": "installed"}, {"name": "cache", "state": "failed", "error": error}]
    assert (await line7.report(deployment_id, body)).status == 201
    shown = (await wfm.api.get(f"/api/v1/deployments/{deployment_id}")).body
    assert shown["state"] == "FAILED"
    assert "registry unreachable" in str(shown)

    await wfm.api.delete(f"/api/v1/deployments/{deployment_id}")
    version = (await line7.listed(0))["manifestVersion"]
    for state in ("removing", "removed"):
        assert (await line7.report(deployment_id, status(deployment_id, version, state))).status == 200
    assert (await wfm.api.get(f"/api/v1/deployments/{deployment_id}")).body["state"] == "DELETED"


async def test_versions_go_on_above_all_served_ones_when_central_is_rebuilt_from_git(tmp_path: Path) -> None:
    """Also those of a client that has nothing any more: a version that goes back is a replay to it."""
    async with running_wfm(tmp_path) as wfm, wfm.client("line-7") as client, wfm.client("line-8") as emptied:
        for each in (client, emptied):
            await each.manifest()
            await is_site(wfm, each.name)
        _, gone = await wfm.deploy("line-7", "line-8")
        served = (await client.listed(1))["manifestVersion"]
        await emptied.listed(1)
        await wfm.api.delete(f"/api/v1/deployments/{gone}")
        served = max(served, (await emptied.listed(0))["manifestVersion"])
    for path in (tmp_path / "central").glob("central.db*"):
        path.unlink()
    async with running_wfm(tmp_path) as wfm:
        for name, count in (("line-7", 1), ("line-8", 0)):
            await wfm.api.post(f"/api/v1/identities/{name}/approve", {})
            async with wfm.client(name) as client:
                assert (await client.listed(count))["manifestVersion"] > served
        async with wfm.client("line-9") as client:
            assert (await client.manifest()).json["manifestVersion"] == 1


async def test_a_restart_serves_the_same_bytes(tmp_path: Path) -> None:
    async with running_wfm(tmp_path) as wfm, wfm.client("line-7") as client:
        await client.manifest()
        await is_site(wfm, "line-7")
        await wfm.deploy("line-7")
        await client.listed(1)
        before, contexts = await client.manifest(), wfm.contexts
    async with running_wfm(tmp_path) as wfm:
        wfm.contexts.update(contexts)
        async with wfm.client("line-7") as client:
            after = await client.manifest()
            assert (after.body, after.headers["etag"]) == (before.body, before.headers["etag"])
            unchanged = await client.manifest(**{"If-None-Match": before.headers["etag"]})
            assert (unchanged.status, unchanged.body) == (304, b"")


async def test_an_artifact_can_be_fetched_while_one_of_the_last_ten_manifests_lists_it(
    wfm: WfmStand, line7: MargoClient
) -> None:
    await line7.manifest()
    await is_site(wfm, "line-7")
    seen: list[dict[str, str]] = []
    for number in range(11):
        await wfm.deploy("line-7", parameters={"greeting": f"Moin {number}"})
        known = {each["url"] for each in seen}

        async def changed(known: set[str] = known) -> dict[str, str]:
            listed = (await line7.manifest()).json["deployments"]
            return listed[0] if listed and listed[0]["url"] not in known else {}

        seen.append(await eventually(changed))
    assert (await line7.get(seen[0]["url"])).problem == "deployment-not-found"
    for each in seen[1:]:
        assert digest_of((await line7.get(each["url"])).body) == each["digest"]


async def test_a_client_that_was_removed_and_comes_back_finds_its_versions_go_on(
    wfm: WfmStand, line7: MargoClient
) -> None:
    await line7.manifest()
    await is_site(wfm, "line-7")
    await wfm.deploy("line-7")
    before = await line7.listed(1)
    assert (await wfm.api.delete("/api/v1/identities/line-7")).status in (200, 204)
    assert (await line7.manifest()).status == 403
    wfm.contexts.clear()
    async with wfm.client("line-7") as again:  # with a certificate that it was issued anew
        assert (await again.manifest()).json == before
        await wfm.deploy("line-7", name="second")
        assert (await again.listed(2))["manifestVersion"] > before["manifestVersion"]


async def test_many_clients_that_come_at_once_wait_for_their_turn_and_are_all_answered(wfm: WfmStand) -> None:
    parts = wfm.central.parts
    manifests = Manifests(parts.store, parts.clock, parts.in_thread)
    versions: list[int] = []

    async def ask(number: int) -> None:
        versions.append((await manifests.current(SiteName(f"client-{number}"))).version)

    async with anyio.create_task_group() as tasks:
        for number in range(200):
            tasks.start_soon(ask, number)
    assert versions == [1] * 200


async def test_a_client_whose_file_is_missing_waits_alone(wfm: WfmStand, line7: MargoClient) -> None:
    """Leaving the file out of its manifest would remove it from its device."""
    await line7.manifest()
    await is_site(wfm, "line-7")
    parts = wfm.central.parts
    (deployment_id,) = await wfm.deploy("line-7")
    await parts.store.write(lambda tx: tx.drop_revisions([DeploymentId(deployment_id)]))
    await parts.store.write(lambda tx: tx.drop_margo_artifacts({SiteName("line-7"): 2**60}))
    manifests = Manifests(parts.store, parts.clock, parts.in_thread)
    answers: dict[str, str] = {}

    async def ask(name: str) -> None:
        try:
            answers[name] = str((await manifests.current(SiteName(name))).version)
        except TransientError as error:
            answers[name] = str(error)

    async with anyio.create_task_group() as tasks:
        for name in ("line-1", "line-7", "line-9"):
            tasks.start_soon(ask, name)
    assert answers["line-1"] == answers["line-9"] == "1"
    assert "not there yet" in answers["line-7"]
    refused = await line7.manifest()
    assert (refused.status, refused.problem) == (503, "about:blank")  # which looks at the hints, too
    assert refused.headers["retry-after"] == str(refused.json["retryAfterSeconds"])
