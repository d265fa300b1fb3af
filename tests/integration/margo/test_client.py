"""A site as a client of a fleet manager that lies, refuses and cuts off: nothing that runs is touched by that."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

from homeport.adapters.link import central_http
from homeport.core.identity import spiffe
from homeport.core.margo.bundle import pack
from homeport.core.margo.manifest import MANIFEST_BYTES_MAX, MANIFEST_TYPE, deployment_url, digest_of
from homeport.fleet.shared.snapshot import FILE_SIZE_MAX
from homeport.margo.client import transport
from homeport.site.app import SiteApp
from homeport.vocabulary import DeploymentId, State
from tests.support.certificates import Made, forge, forge_root, rsa_key
from tests.support.margo_sites import running_site
from tests.support.mock_wfm import DOMAIN, WFM, Heard, MockRealm, MockWfm, deployment, deployment_id, running_mock
from tests.support.ports import free_port
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio
ONE, TWO = deployment_id(1), deployment_id(2)
RUNNING = {State.INSTALLED}


@pytest.fixture
def realm(tmp_path: Path) -> MockRealm:
    return MockRealm(tmp_path / "authority")


@pytest.fixture
async def wfm(realm: MockRealm) -> AsyncIterator[MockWfm]:
    async with running_mock(realm) as mock:
        yield mock
        assert mock.wrong_bodies == []


@pytest.fixture
def options(realm: MockRealm, wfm: MockWfm) -> dict[str, Any]:
    return {"svid_folder": realm.client("north"), "wfm_url": wfm.url}


def wanted(site: SiteApp) -> set[DeploymentId]:
    return set(site.parts.conductor.memory.wanted)


async def installed(wfm: MockWfm, key: DeploymentId) -> None:
    await eventually(lambda: wfm.states(key)[-1:] == ["installed"], what=f"{key} to be reported as installed")


async def polled_again(wfm: MockWfm) -> None:
    """Two whole rounds from now."""
    seen = len(wfm.paths("GET"))
    await eventually(lambda: len([path for path in wfm.paths("GET")[seen:] if path == "/api/v1/deployments"]) >= 2)


async def test_a_deployment_is_installed_updated_and_removed_with_a_report_of_each_step(
    tmp_path: Path, wfm: MockWfm, options: dict[str, Any]
) -> None:
    wfm.want(deployment(1), deployment(2))
    async with running_site(tmp_path, "north", **options) as site:
        await installed(wfm, ONE)
        await installed(wfm, TWO)
        assert wfm.heard[0].method == "PUT" and wfm.heard[0].path == "/api/v1/capabilities/north"
        assert {each.headers["user-agent"].partition("/")[0] for each in wfm.heard} == {"homeport"}
        report = wfm.statuses(ONE)[-1]
        assert report["adoptedManifestVersion"] == wfm.version
        assert [each["name"] for each in report["components"]] == ["web", "cache"]
        assert wfm.states(ONE)[0] == "pending" and "installing" in wfm.states(ONE)

        wfm.want(deployment(1, revision="1.1.0"))
        await eventually(lambda: wfm.states(TWO)[-1:] == ["removed"])
        assert "removing" in wfm.states(TWO)
        await eventually(lambda: wfm.statuses(ONE)[-1]["adoptedManifestVersion"] == wfm.version)
        await installed(wfm, ONE)
        assert wanted(site) == {ONE}
    hosting = next(each.body for each in reversed(wfm.heard) if each.method == "PUT")["properties"]
    assert hosting["supportedDeploymentTypes"] and hosting["otelCollector"] is True


async def test_version_and_etag_survive_a_restart_and_a_replayed_manifest_is_rejected(
    tmp_path: Path, wfm: MockWfm, options: dict[str, Any]
) -> None:
    wfm.want(deployment(1))
    async with running_site(tmp_path, "north", **options):
        await installed(wfm, ONE)
        await polled_again(wfm)
    old = wfm.manifest()
    asked = len(wfm.heard)
    async with running_site(tmp_path, "north", **options) as site:
        await polled_again(wfm)
        first = next(each for each in wfm.heard[asked:] if each.path == "/api/v1/deployments")
        assert first.headers["if-none-match"] == f'"{digest_of(old)}"'
        # An older manifest, without the deployment, and a new ETag.
        wfm.manifest_body = json.dumps({"bundle": None, "deployments": [], "manifestVersion": wfm.version}).encode()
        await polled_again(wfm)
        assert wanted(site) == {ONE}
        problem = await eventually(lambda: site.parts.conductor.memory.source_problem)
        assert "not newer" in problem


async def test_a_damaged_memory_is_made_of_the_commit_and_nothing_older_is_taken(
    tmp_path: Path, wfm: MockWfm, options: dict[str, Any]
) -> None:
    wfm.want(deployment(1))
    async with running_site(tmp_path, "north", node=False, **options) as site:
        await eventually(lambda: wanted(site) == {ONE})
        await polled_again(wfm)
        await site.parts.store.write(lambda tx: tx.set_value("margo_client", '{"version": 3}'))
    empty: dict[str, Any] = {"bundle": None, "deployments": [], "manifestVersion": wfm.version - 1}
    wfm.manifest_body = json.dumps(empty).encode()
    async with running_site(tmp_path, "north", node=False, **options) as site:
        problem = await eventually(lambda: site.parts.conductor.memory.source_problem)
        assert "not newer" in problem and wanted(site) == {ONE}
        wfm.manifest_body = None

        async def is_followed() -> bool:
            return (await site.parts.contact.checks()).get("wfm", "ok") in {"", "ok"}

        await eventually(is_followed, what="the same manifest to be taken once more")
        wfm.want(deployment(2))
        await eventually(lambda: wanted(site) == {TWO})


async def test_a_fleet_manager_that_lost_its_state_is_followed_again_when_an_operator_says_so(
    tmp_path: Path, wfm: MockWfm, options: dict[str, Any]
) -> None:
    """Once: what is adopted after that is as safe from older manifests as before."""
    wfm.version = 40
    wfm.want(deployment(1), deployment(2))
    async with running_site(tmp_path, "north", **options):
        await installed(wfm, ONE)
        await installed(wfm, TWO)
        await polled_again(wfm)
    wfm.version = 1
    wfm.want(deployment(1), deployment(3))  # version 2
    async with running_site(tmp_path, "north", wfm_forgotten_version=40, **options) as site:
        problem = await eventually(lambda: site.parts.conductor.memory.source_problem)
        assert "not newer than 41" in problem and "--wfm-forget 41" in problem and wanted(site) == {ONE, TWO}
    async with running_site(tmp_path, "north", wfm_forgotten_version=41, **options) as site:
        await installed(wfm, deployment_id(3))
        assert wanted(site) == {ONE, deployment_id(3)} and site.parts.conductor.memory.source_problem is None
        await eventually(lambda: wfm.states(TWO)[-1:] == ["removed"])
        assert wfm.states(ONE).count("installing") == 1  # what was not changed ran on
        assert {each["adoptedManifestVersion"] for each in wfm.statuses(deployment_id(3))} == {2}
        older: dict[str, Any] = {"bundle": None, "deployments": [], "manifestVersion": 1}
        wfm.manifest_body = json.dumps(older).encode()
        await polled_again(wfm)
        assert wanted(site) == {ONE, deployment_id(3)}


async def test_a_version_is_forgotten_once_also_where_the_option_stays(
    tmp_path: Path, wfm: MockWfm, options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """The new fleet manager comes to that version some day."""
    forgetful = {**options, "wfm_forgotten_version": 5}
    wfm.version = 4
    wfm.want(deployment(1))  # version 5
    async with running_site(tmp_path, "north", node=False, **options) as site:
        await eventually(lambda: wanted(site) == {ONE})
        await polled_again(wfm)
    wfm.version = 0
    wfm.want(deployment(1), deployment(2))  # version 1
    async with running_site(tmp_path, "north", node=False, **forgetful) as site:
        await eventually(lambda: wanted(site) == {ONE, TWO})
        await polled_again(wfm)
        wfm.version = 4
        wfm.want(deployment(2))  # version 5 again
        await eventually(lambda: wanted(site) == {TWO})
        await polled_again(wfm)
    wfm.version = 1
    wfm.want(deployment(1))  # version 2, replayed
    caplog.clear()
    for given in (forgetful, options):
        async with running_site(tmp_path, "north", node=False, **given) as site:
            await polled_again(wfm)
            problem = await eventually(lambda: site.parts.conductor.memory.source_problem)
            assert "not newer than 5" in problem and wanted(site) == {TWO}
    assert [each.getMessage() for each in caplog.records].count("--wfm-forget has no effect any more, remove it") == 1
    async with running_site(tmp_path, "north", node=False, **forgetful) as site:
        await eventually(lambda: wanted(site) == {ONE}, what="it to act once more, since it was taken away meanwhile")


async def test_capabilities_are_the_first_call_after_each_start(
    tmp_path: Path, wfm: MockWfm, options: dict[str, Any]
) -> None:
    """Also where nothing has changed: a fleet manager that has lost its state would never hear of them again."""
    for _ in range(2):
        asked = len(wfm.heard)
        async with running_site(tmp_path, "north", node=False, **options):
            await polled_again(wfm)
        assert [each.method for each in wfm.heard[asked : asked + 3]] == ["PUT", "GET", "GET"]


@pytest.mark.parametrize("without", ["conditions", "an ETag", "a digest as its ETag"])
async def test_a_manager_that_sends_the_same_manifest_each_time_is_followed(
    tmp_path: Path, wfm: MockWfm, options: dict[str, Any], without: str
) -> None:
    """One that knows no 304, leaves out the ETag, or has one of its own (a proxy may change it, too): the same bytes
    are neither news nor an attack. What it takes may be answered with any success."""
    wfm.knows_conditions = False
    wfm.failing |= {"/api/v1/capabilities": (202, {}), f"/api/v1/deployments/{ONE}/status": (204, {})}
    wfm.etag = {"an ETag": "", "a digest as its ETag": '"sha256:0-gzip"'}.get(without)
    wfm.want(deployment(1))
    async with running_site(tmp_path, "north", **options) as site:
        await installed(wfm, ONE)
        await polled_again(wfm)
        assert (await site.parts.contact.checks()).get("wfm", "ok") in {"", "ok"}
        assert site.parts.conductor.memory.source_problem is None
        wfm.want(deployment(1, revision="1.1.0"))
        await eventually(lambda: wfm.statuses(ONE)[-1]["adoptedManifestVersion"] == wfm.version)


async def corrupt(wfm: MockWfm, fault: str) -> None:  # noqa: PLR0912 - one for each
    content = wfm.files[TWO]
    path = deployment_url(TWO, digest_of(content))
    body = json.loads(wfm.manifest())
    match fault:
        case "deployment digest":
            wfm.served[path] = content + b"\n"
        case "algorithm":
            body["deployments"][0]["digest"] = "sha512:" + "0" * 128
            wfm.manifest_body = json.dumps(body).encode()
        case "version":
            body["manifestVersion"] = wfm.version - 1
            wfm.manifest_body = json.dumps(body).encode()
        case "etag":
            wfm.etag = '"sha256:' + "0" * 64 + '"'
        case "not json":
            wfm.manifest_body = b'{"manifestVersion": 9'
        case "404":
            wfm.failing[path] = (404, {})
        case "no manifest":
            wfm.failing["/api/v1/deployments"] = (404, {})
        case "bundle digest":
            wfm.want(*(deployment(number) for number in range(2, 12)))
            wfm.served[json.loads(wfm.manifest())["bundle"]["url"]] = pack(wfm.files)[:-1] + b"x"
        case "403":
            wfm.failing["/api/v1/deployments"] = (403, {})
        case "500":
            wfm.failing["/api/v1/deployments"] = (500, {"retry-after": "1"})
        case "cut off":
            wfm.cuts = True
        case "hanging":
            wfm.stalls = True
        case "redirect":
            wfm.failing["/api/v1/deployments"] = (307, {"location": wfm.url + "/api/v1/elsewhere"})
        case "media type":
            wfm.media_type = "text/html"
        case "oversized":
            wfm.manifest_body = b" " * (MANIFEST_BYTES_MAX + 1)
        case "oversized deployment":
            wfm.served[path] = content + b" " * FILE_SIZE_MAX
        case "another's url":
            body["deployments"][0]["url"] = "https://elsewhere.example/x"
            wfm.manifest_body = json.dumps(body).encode()
        case "empty":
            wfm.manifest_body = b""
        case "repeated key":
            wfm.manifest_body = wfm.manifest().replace(b'"bundle":', b'"bundle":null,"bundle":', 1)
        case "UTF-16":
            wfm.manifest_body = wfm.manifest().decode().encode("utf-16")


# fmt: off
FAULTS = [
    "deployment digest", "algorithm", "version", "etag", "not json", "404", "403", "500", "cut off", "hanging",
    "redirect", "media type", "oversized", "oversized deployment", "another's url", "empty", "no manifest",
    "bundle digest", "repeated key", "UTF-16",
]
# fmt: on


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_faulty_update_is_dropped_as_a_whole_and_what_runs_stays(
    tmp_path: Path, wfm: MockWfm, options: dict[str, Any], fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And it is said, and the next good manifest is taken."""
    monkeypatch.setattr(transport, "CALL_SECONDS_MAX", 1.0)
    wfm.want(deployment(1))
    async with running_site(tmp_path, "north", **options) as site:
        await installed(wfm, ONE)
        before, adopted = site.parts.conductor.memory.applied, wfm.version
        wfm.want(deployment(2))  # ONE is gone, TWO is new
        await corrupt(wfm, fault)
        await polled_again(wfm)
        # What was fetched and not begun is not adopted.
        assert {each["adoptedManifestVersion"] for each in wfm.statuses(ONE)} == {adopted}
        assert wanted(site) == {ONE} and site.parts.conductor.memory.applied == before

        async def said() -> bool:
            return (await site.parts.contact.checks()).get("wfm", "ok") not in {"", "ok"}

        await eventually(said, what="the fault to be shown")
        assert wfm.states(TWO) == []
        wfm.failing.clear()
        wfm.served.clear()
        wfm.manifest_body = wfm.etag = None
        wfm.cuts = wfm.stalls = False
        wfm.media_type = MANIFEST_TYPE
        await eventually(lambda: wanted(site) == set(wfm.files), what="the good manifest to be adopted")

        async def in_contact() -> bool:
            return not await said()

        await eventually(in_contact, what="the fault to be over")


async def test_answers_may_be_compressed_and_digests_are_of_what_is_in_them(
    tmp_path: Path, wfm: MockWfm, options: dict[str, Any]
) -> None:
    """The manifest, its bundle and a single file; and what is small until it is unpacked is not unpacked."""
    wfm.compresses = True
    many = [deployment(number) for number in range(1, 4)]
    wfm.want(*many)
    async with running_site(tmp_path, "north", node=False, **options) as site:
        await eventually(lambda: len(wanted(site)) == 3, what="the bundle")
        wfm.want(deployment(1, revision="1.1.0"), *many[1:])
        memory, new = site.parts.conductor.memory, digest_of(wfm.files[ONE])
        await eventually(lambda: memory.files[ONE].release.revision == new, what="the file")
        wfm.manifest_body = b" " * (8 * MANIFEST_BYTES_MAX)

        async def refused() -> bool:
            return "is longer than" in (await site.parts.contact.checks()).get("wfm", "")

        await eventually(refused)
        assert len(wanted(site)) == 3


async def test_a_wrong_bundle_is_dropped_and_a_wrong_size_is_not(
    tmp_path: Path, wfm: MockWfm, options: dict[str, Any]
) -> None:
    many = [deployment(number) for number in range(1, 11)]
    wfm.want(*many)
    body = json.loads(wfm.manifest())
    bundle = body["bundle"]["url"]
    wfm.served[bundle] = b"something else"
    async with running_site(tmp_path, "north", node=False, **options) as site:
        await polled_again(wfm)
        assert not wanted(site)
        wfm.served.clear()
        body["deployments"][0]["sizeBytes"] = body["bundle"]["sizeBytes"] = 1
        wfm.manifest_body = json.dumps(body).encode()
        await eventually(lambda: len(wanted(site)) == 10)
        assert single_files(wfm) == []


async def test_a_bundle_and_single_files_give_the_same_result(
    tmp_path: Path, wfm: MockWfm, options: dict[str, Any]
) -> None:
    many = [deployment(number) for number in range(1, 11)]
    wfm.want(*many)
    async with running_site(tmp_path / "bundle", "north", node=False, **options) as site:
        await eventually(lambda: len(wanted(site)) == 10)
        by_bundle = dict(site.parts.conductor.memory.files)
    assert single_files(wfm) == []
    wfm.want(*many[:-1])
    async with running_site(tmp_path / "single", "north", node=False, **options) as site:
        await eventually(lambda: len(wanted(site)) == 9)
        wfm.want(*many)
        await eventually(lambda: len(wanted(site)) == 10)
        assert dict(site.parts.conductor.memory.files) == by_bundle
    assert single_files(wfm) == [deployment_url(deployment_id(10), digest_of(many[-1]))]


def single_files(wfm: MockWfm) -> list[str]:
    return [path for path in wfm.paths("GET") if path.startswith("/api/v1/deployments/")]


async def test_a_slow_fleet_manager_and_retry_after_delay_nobody(
    tmp_path: Path, wfm: MockWfm, options: dict[str, Any]
) -> None:
    wfm.want(deployment(1))
    async with running_site(tmp_path, "north", **options) as site:
        await installed(wfm, ONE)
        wfm.failing["/"] = (503, {"retry-after": "3600"})
        before = len(wfm.heard)
        await eventually(lambda: len(wfm.heard) > before)
        asked = len(wfm.heard)
        await anyio.sleep(2.5)  # two polls would have come
        assert len(wfm.heard) <= asked + 1
        assert wanted(site) == {ONE}


@pytest.mark.parametrize("hints", ["do not repeat", "fixed"])
async def test_the_hints_of_a_problem_decide_about_the_next_attempt(
    tmp_path: Path, wfm: MockWfm, options: dict[str, Any], hints: str
) -> None:
    """A status that may not be repeated is left out, and one that may comes again after the wait that was asked for,
    however often it failed."""
    path = f"/api/v1/deployments/{ONE}/status"
    again = {"retryable": True, "backoffStrategy": "fixed", "retryAfterSeconds": 1}
    wfm.failing[path] = (500, {})
    wfm.hints = again if hints == "fixed" else {"retryable": False, "backoffStrategy": "none"}
    wfm.want(deployment(1), deployment(2))
    async with running_site(tmp_path, "north", **options):
        if hints == "fixed":
            await eventually(lambda: len(wfm.statuses(ONE)) >= 6, what="six attempts, a second apart")
            assert len({json.dumps(each) for each in wfm.statuses(ONE)}) == 1  # the same, in order
            wfm.failing.clear()
        await installed(wfm, TWO)
        await installed(wfm, ONE)
        if hints == "do not repeat":
            assert len(wfm.statuses(ONE)) == len({json.dumps(each) for each in wfm.statuses(ONE)})


async def test_what_happens_while_the_client_is_not_accepted_is_reported_when_it_is(
    tmp_path: Path, wfm: MockWfm, options: dict[str, Any]
) -> None:
    """Its polls are refused, too, so it is not about the report. Each is sent once, in order."""
    path = f"/api/v1/deployments/{ONE}/status"
    wfm.failing[path] = (503, {"retry-after": "1"})
    wfm.want(deployment(1))
    async with running_site(tmp_path, "north", **options) as site:
        await eventually(lambda: wfm.statuses(ONE), what="a report that has to wait")
        wfm.failing = {"/api/v1/deployments": (403, {})}
        await eventually(lambda: {each.state for each in site.parts.conductor.memory.instances.values()} == RUNNING)
        refused = len(wfm.statuses(ONE))
        await eventually(lambda: len(wfm.statuses(ONE)) > refused, what="a report that is refused")
        await polled_again(wfm)
        asked = len(wfm.statuses(ONE))
        wfm.failing.clear()
        await installed(wfm, ONE)
        taken = wfm.states(ONE)[asked:]
        assert taken[0] == "pending" and len(set(taken)) == len(taken)


async def test_a_report_that_is_refused_although_polls_are_answered_is_not_repeated(
    tmp_path: Path, wfm: MockWfm, options: dict[str, Any]
) -> None:
    wfm.failing[f"/api/v1/deployments/{ONE}/status"] = (403, {})
    wfm.want(deployment(1), deployment(2))
    async with running_site(tmp_path, "north", **options):
        await installed(wfm, TWO)
        await eventually(lambda: wfm.states(ONE)[-1:] == ["installed"])
        await polled_again(wfm)
        assert len(wfm.states(ONE)) == len(set(wfm.states(ONE)))


@pytest.mark.parametrize(
    "nonsense",
    [b"\x00\x16\x03nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 40_000, b"HTTP/1.1 200 OK\r\nX: "],
)
async def test_what_is_not_http_is_said_in_one_line(tmp_path: Path, realm: MockRealm, nonsense: bytes) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(nonsense if nonsense.endswith(b"\n") else nonsense + b"a" * 100_000)
        with suppress(ConnectionError):
            await writer.drain()
        writer.close()

    nobody = f"https://127.0.0.1:{free_port()}"
    async with running_site(tmp_path, "north", node=False, svid_folder=realm.client("north"), wfm_url=nobody) as site:
        identity: Any = site.parts.identity
        async with await asyncio.start_server(
            answer, "127.0.0.1", 0, ssl=realm.server().server_context("required")
        ) as server:
            url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            known = {"tls": identity.client.client_context, "verify": identity.verify_central}
            async with transport.open_transport(url, **known) as client:
                with pytest.raises(transport.WfmUnavailable) as caught:
                    await client.get("/api/v1/deployments")
    said = str(caught.value)
    assert "gave an answer that cannot be read: " in said and "\n" not in said and "b'" not in said


async def test_a_large_bundle_over_a_slow_line_takes_its_time(
    tmp_path: Path, wfm: MockWfm, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as something arrives."""
    monkeypatch.setattr(transport, "CALL_SECONDS_MAX", 2.0)
    wfm.want(*(deployment(number) for number in range(1, 4)))
    wfm.trickling = "/api/v1/bundles"
    async with running_site(tmp_path, "north", node=False, **options) as site:
        await eventually(lambda: len(wanted(site)) == 3, what="the bundle")


async def test_capabilities_that_are_refused_later_stop_nothing(
    tmp_path: Path, wfm: MockWfm, options: dict[str, Any]
) -> None:
    async with running_site(tmp_path, "north", **options):
        await eventually(lambda: any("cpus" in each.body["properties"] for each in reports(wfm)))
    wfm.failing["/api/v1/capabilities"] = (422, {})
    async with running_site(tmp_path, "north", node_labels={"line": "paint"}, **options):
        await eventually(lambda: reports(wfm)[-1].body.get("labels", {}).get("line") == "paint")
        wfm.want(deployment(1))
        await installed(wfm, ONE)


async def test_what_is_for_other_devices_is_answered_with_the_reserved_codes(
    tmp_path: Path, wfm: MockWfm, options: dict[str, Any]
) -> None:
    bad = b"id: 3b0a2f1e-6d0c-4f0a-9c51-000000000004\nmetadata: {name: broken, deviceId: north}\n"
    wfm.want(deployment(1, device="north/child"), deployment(2, device="north/*"), deployment(3), bad)
    async with running_site(tmp_path, "north", **options) as site:
        await installed(wfm, deployment_id(3))
        await eventually(lambda: wfm.states(deployment_id(4)) == ["failed"])
        assert wfm.statuses(ONE)[0]["status"]["error"]["code"] == "101"
        assert wfm.statuses(TWO)[0]["status"]["error"]["code"] == "103"
        assert {each["status"]["error"]["source"] for key in (ONE, TWO) for each in wfm.statuses(key)} == {"north"}
        assert wanted(site) >= {deployment_id(3)}


async def test_an_id_is_used_as_it_was_announced_and_one_that_is_no_uuid_fails_alone(
    tmp_path: Path, wfm: MockWfm, options: dict[str, Any]
) -> None:
    """A manifest may name any text; of the file itself Margo demands a UUID."""
    capitals, named = DeploymentId(ONE.upper()), DeploymentId("vision-20261006")
    both = [
        deployment(1, name=f"app-{name}").replace(ONE.encode(), key.encode())
        for name, key in (("capitals", capitals), ("named", named))
    ]
    wfm.want(deployment(2), *both)
    async with running_site(tmp_path, "north", **options) as site:
        await installed(wfm, TWO)
        await installed(wfm, capitals)
        await eventually(lambda: wfm.states(named) == ["failed"])
        assert "is not a UUID" in wfm.statuses(named)[0]["status"]["error"]["message"]
        assert wanted(site) == {TWO, DeploymentId(capitals.lower())}
        wfm.want(deployment(2))
        await eventually(lambda: wfm.states(capitals)[-1:] == ["removed"])
        assert wanted(site) == {TWO}
    paths = {each.path for each in wfm.heard if each.method == "POST"}
    assert paths == {f"/api/v1/deployments/{key}/status" for key in (TWO, capitals, named)}
    assert {each.body["deploymentId"] for each in wfm.heard if each.method == "POST"} == {TWO, capitals, named}


async def test_what_cannot_be_taken_is_reported_when_the_manager_is_back(
    tmp_path: Path, wfm: MockWfm, options: dict[str, Any]
) -> None:
    """Also after a restart: the manifest is adopted, and no later answer brings it up again."""
    wfm.failing[f"/api/v1/deployments/{ONE}/status"] = (503, {"retry-after": "1"})
    wfm.want(deployment(1, device="north/child"), deployment(2, device="north/*"))
    async with running_site(tmp_path, "north", node=False, **options):
        await eventually(lambda: wfm.statuses(ONE), what="a report that fails")
    wfm.failing.clear()
    failed = len(wfm.statuses(ONE))
    async with running_site(tmp_path, "north", node=False, **options):
        await eventually(lambda: len(wfm.statuses(ONE)) > failed, what="the report, once more")
        await eventually(lambda: wfm.statuses(TWO), what="the other one")
        await polled_again(wfm)
    assert wfm.statuses(ONE)[-1]["status"]["error"]["code"] == "101"
    assert wfm.statuses(ONE)[-1]["adoptedManifestVersion"] == wfm.version
    assert (len(wfm.statuses(ONE)), len(wfm.statuses(TWO))) == (failed + 1, 1)


async def test_a_device_that_does_not_meet_the_rules_reports_the_deployment_as_failed(
    tmp_path: Path, wfm: MockWfm, options: dict[str, Any]
) -> None:
    rules = """\
    deviceConstraints:
      eligibilityRules:
        - labelSelector:
            matchExpressions:
              - {key: line, operator: In, values: [paint]}
"""
    wfm.want(deployment(1, more=rules))
    async with running_site(tmp_path, "north", **options):
        await eventually(lambda: wfm.states(ONE)[-1:] == ["failed"])
        report = wfm.statuses(ONE)[-1]
        assert "line In paint" in report["status"]["error"]["message"]
        assert report["status"]["error"]["source"] == "app-1"  # its metadata.name
        assert [each["name"] for each in report["components"]] == ["web", "cache"]


DAY = timedelta(days=1)


async def test_a_server_with_another_identity_gets_nothing(tmp_path: Path, realm: MockRealm) -> None:
    """Each has the address that it is reached at, and none of them the identity that the client's own belongs to. The
    right one is taken under any address: the last one has none in its certificate."""
    root, ours, here = realm.root, spiffe.central_id(DOMAIN, WFM), ["127.0.0.1"]
    late = forge(root, uris=[], name="late", is_ca=True, begins=-2 * DAY, ends=-DAY)
    middle = forge(root, uris=[], name="middle", is_ca=True)
    # fmt: off
    wrong: dict[str, list[Made]] = {
        "another fleet manager":  [forge(root, uris=[spiffe.central_id(DOMAIN, "other")], addresses=here)],
        "another domain":         [forge(root, uris=[spiffe.central_id("other.example", WFM)], addresses=here)],
        "a client":               [forge(root, uris=[spiffe.client_id(DOMAIN, WFM, "north")], addresses=here)],
        "capitals":               [forge(root, uris=[spiffe.central_id(DOMAIN, WFM.upper())], addresses=here)],
        "no id":                  [forge(root, uris=[], addresses=here)],
        "two ids":                [forge(root, uris=[ours, spiffe.central_id(DOMAIN, "b")], addresses=here)],
        "a stranger's":           [forge(forge_root(DOMAIN), uris=[ours], addresses=here)],
        "expired":                [forge(root, uris=[ours], addresses=here, begins=-2 * DAY, ends=-DAY)],
        "not yet valid":          [forge(root, uris=[ours], addresses=here, begins=DAY, ends=2 * DAY)],
        "an authority":           [forge(root, uris=[ours], addresses=here, is_ca=True)],
        "one that may sign":      [forge(root, uris=[ours], addresses=here, signs=True)],
        "RSA of 2048 bits":       [forge(root, uris=[ours], addresses=here, key=rsa_key(2048))],
        "intermediate not sent":  [forge(middle, uris=[ours], addresses=here)],
        "expired intermediate":   [forge(late, uris=[ours], addresses=here), late],
    }
    right = {
        "no address":             [forge(root, uris=[ours])],
        "another address":        [forge(middle, uris=[ours], addresses=["192.0.2.1"]), middle],
        "RSA of 3072 bits":       [forge(root, uris=[ours], key=rsa_key(3072))],
    }
    # fmt: on
    nobody = f"https://127.0.0.1:{free_port()}"
    async with running_site(tmp_path, "north", node=False, svid_folder=realm.client("north"), wfm_url=nobody) as site:
        identity: Any = site.parts.identity
        known = {"tls": identity.client.client_context, "verify": identity.verify_central}
        for what, chain in (wrong | right).items():
            async with (
                running_mock(realm, chain=chain) as mock,
                transport.open_transport(mock.url, **known) as client,
            ):
                with suppress(transport.WfmUnavailable):
                    await client.get("/api/v1/deployments")
            assert mock.paths("GET") == (["/api/v1/deployments"] if what in right else []), what
        async with running_mock(realm, server_id=spiffe.central_id(DOMAIN, "other")) as other:
            again: dict[str, Any] = {"svid_folder": realm.client("south"), "wfm_url": other.url}
            async with running_site(tmp_path, "south", node=False, **again) as refusing:

                async def refused() -> bool:
                    return "not trusted" in (await refusing.parts.contact.checks()).get("wfm", "")

                await eventually(refused)
            assert other.heard == []


async def test_a_renewed_certificate_is_shown_on_new_connections(
    tmp_path: Path, realm: MockRealm, wfm: MockWfm, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(central_http, "CONNECTION_SECONDS_MAX", 1.0)
    async with running_site(tmp_path, "north", node=False, **options):
        await polled_again(wfm)
        (first,) = wfm.certificates
        realm.client("north")  # into the same folder
        await eventually(lambda: len(wfm.certificates) == 2, what="a connection with the new certificate")
        assert wfm.certificates[1] != first
        await polled_again(wfm)


async def test_what_changes_on_the_device_is_reported_again(
    tmp_path: Path, wfm: MockWfm, options: dict[str, Any]
) -> None:
    async with running_site(tmp_path, "north", **options):
        await eventually(lambda: any("cpus" in each.body["properties"] for each in reports(wfm)))
        first = len(reports(wfm))
        await polled_again(wfm)
        assert len(reports(wfm)) == first  # nothing has changed
    async with running_site(tmp_path, "north", node_labels={"line": "paint"}, **options):
        await eventually(lambda: reports(wfm)[-1].body.get("labels", {}).get("line") == "paint")


async def test_a_fleet_manager_is_told_of_no_more_than_its_share(
    tmp_path: Path, wfm: MockWfm, options: dict[str, Any]
) -> None:
    given = ("cores=1", "memory=64Mi", "storage=128Mi")
    async with running_site(tmp_path, "north", wfm_share=given, **options):
        await eventually(lambda: any("cpus" in each.body["properties"] for each in reports(wfm)))
    properties = reports(wfm)[-1].body["properties"]
    assert [each["cores"] for each in properties["cpus"]] == [1]
    assert (properties["memory"], properties["storage"]) == ("64Mi", "128Mi")


async def test_a_site_shows_itself_as_one_device_and_no_children(
    tmp_path: Path, wfm: MockWfm, options: dict[str, Any]
) -> None:
    """An opaque gateway: what is for see-thru gateways (children with path ids, their removal, their deviceId in
    reports) never applies, because no child is ever shown."""
    wfm.want(deployment(1))
    async with running_site(tmp_path, "north", **options):
        await installed(wfm, ONE)
    assert {each.path for each in reports(wfm)} == {"/api/v1/capabilities/north"}
    assert {each.body["properties"]["id"] for each in reports(wfm)} == {"north"}
    # Its node comes a moment later than the site itself, which is never shown as one that hosts nothing.
    assert all("cpus" in each.body["properties"] for each in reports(wfm))
    assert wfm.paths("DELETE") == [] and wfm.statuses(ONE)
    assert {each.get("deviceId", "north") for each in wfm.statuses(ONE)} == {"north"}


def reports(wfm: MockWfm) -> list[Heard]:
    return [each for each in wfm.heard if each.method == "PUT"]


async def test_each_site_polls_at_the_rate_that_it_is_given(
    tmp_path: Path, realm: MockRealm, wfm: MockWfm, options: dict[str, Any]
) -> None:
    async with running_mock(realm) as rare:
        rarely = {**options, "wfm_url": rare.url, "wfm_poll_seconds": 3600.0}
        async with (
            running_site(tmp_path / "rarely", "north", **rarely),
            running_site(tmp_path / "often", "north", node=False, **options),
        ):
            await eventually(lambda: "/api/v1/deployments" in rare.paths("GET"), what="the first poll")
            await polled_again(wfm)
            await polled_again(wfm)
            assert rare.paths("GET").count("/api/v1/deployments") == 1


def closed_now() -> tuple[str, str]:
    """Hours of which this is not one, however long a test takes, and hours of which it is."""
    hour = datetime.now().astimezone().hour
    return f"{(hour + 3) % 24:02}:00-{(hour + 4) % 24:02}:00", f"{hour:02}:00-{(hour + 2) % 24:02}:00"


async def test_outside_its_hours_and_in_a_downtime_nobody_is_called(
    tmp_path: Path, wfm: MockWfm, options: dict[str, Any]
) -> None:
    others, these = closed_now()
    wfm.want(deployment(1))
    async with (
        running_site(tmp_path / "a", "north", node=False, wfm_downtime=("00:00-24:00",), **options) as in_downtime,
        running_site(tmp_path / "b", "north", node=False, wfm_hours=(others,), **options) as outside,
    ):
        await anyio.sleep(1.5)  # a poll would have come
        assert wfm.heard == []
        for site in (in_downtime, outside):
            assert (await site.parts.contact.checks()).get("wfm", "ok") in {"", "ok"} and not wanted(site)
    async with running_site(tmp_path / "b", "north", node=False, wfm_hours=(others, these), **options) as open_now:
        await eventually(lambda: wanted(open_now) == {ONE}, what="the manifest to be adopted within the hours")


async def test_a_long_disconnection_is_survived_with_a_restart_in_it(tmp_path: Path, realm: MockRealm) -> None:
    """Nobody answers at the fleet manager's address: what runs stays, and what happened meanwhile is reported and
    caught up with when it is back."""
    mock, port = MockWfm(), free_port()
    mock.want(deployment(1), deployment(2))
    options: dict[str, Any] = {"svid_folder": realm.client("north"), "wfm_url": f"https://127.0.0.1:{port}/base"}
    async with running_mock(realm, mock, port=port), running_site(tmp_path, "north", **options) as site:
        await installed(mock, ONE)
        await installed(mock, TWO)
        adopted = mock.version
    async with running_site(tmp_path, "north", **options) as site:

        async def is_said() -> bool:
            return "cannot be reached" in (await site.parts.contact.checks()).get("wfm", "")

        await eventually(is_said)
        instances = site.parts.conductor.memory.instances.values()
        assert {each.deployment_id: each.state for each in instances} == dict.fromkeys((ONE, TWO), State.INSTALLED)
        mock.want(deployment(2), deployment(3))
        async with running_mock(realm, mock, port=port):
            await installed(mock, deployment_id(3))
            await eventually(lambda: mock.states(ONE)[-1:] == ["removed"])
    assert {each["adoptedManifestVersion"] for each in mock.statuses(deployment_id(3))} == {adopted + 1}
    assert mock.wrong_bodies == []


async def test_a_report_that_is_refused_delays_no_other(
    tmp_path: Path, wfm: MockWfm, options: dict[str, Any]
) -> None:
    wfm.failing[f"/api/v1/deployments/{ONE}/status"] = (422, {})
    wfm.want(deployment(1), deployment(2))
    async with running_site(tmp_path, "north", **options) as site:
        await installed(wfm, TWO)
        assert wfm.states(ONE) and wanted(site) == {ONE, TWO}
