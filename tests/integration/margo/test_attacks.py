"""A client that attacks its fleet manager: refused, recorded, nothing changed, and others notice nothing."""

import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest
from anyio.to_thread import run_sync

from homeport.serving.server.limits import Limits
from tests.support.margo import MargoClient, WfmStand, device, is_site, running_wfm, status
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio
HERD = 150


@pytest.fixture
async def wfm(tmp_path: Path) -> AsyncIterator[WfmStand]:
    limits = Limits(head_seconds=1.0, body_seconds=1.0, connections_per_address_max=1_000)
    async with running_wfm(tmp_path, limits=limits) as stand:
        yield stand


@pytest.fixture
async def line7(wfm: WfmStand) -> AsyncIterator[MargoClient]:
    async with wfm.client("line-7") as client:
        await client.manifest()
        await is_site(wfm, client.name)
        yield client


async def deployed(wfm: WfmStand, client: MargoClient) -> tuple[str, int]:
    (deployment_id,) = await wfm.deploy(client.name)
    return deployment_id, int((await client.listed(1))["manifestVersion"])


async def actions(wfm: WfmStand) -> set[tuple[str, str, str]]:
    entries = (await wfm.api.get("/api/v1/audit?limit=200")).body["entries"]
    return {(each["action"], each["actor"], str(each["detail"].get("code"))) for each in entries}


async def test_a_status_that_is_replayed_changes_nothing(wfm: WfmStand, line7: MargoClient) -> None:
    deployment_id, version = await deployed(wfm, line7)
    old = status(deployment_id, version, "failed")
    assert (await line7.report(deployment_id, old)).status == 201
    await wfm.deploy("line-7", name="second")
    newer = (await line7.listed(2))["manifestVersion"]
    assert (await line7.report(deployment_id, status(deployment_id, newer))).status == 200
    assert (await line7.report(deployment_id, old)).status == 200  # late, or repeated by somebody
    shown = (await wfm.api.get(f"/api/v1/deployments/{deployment_id}")).body
    assert shown["state"] == "INSTALLED"

    async def recorded() -> bool:
        return ("margo.status", "line-7", "stale-report") in await actions(wfm)

    await eventually(recorded)


DEVICE, STATUS = "/api/v1/capabilities/press", "/api/v1/deployments/{id}/status"
GOOD = json.dumps(device("press")).encode()
DEEP = b'{"properties": ' + b"[" * 100 + b"]" * 100 + b"}"
ZEROS = "0" * 64
ACCEPT = "server-cannot-generate-response"
# fmt: off
REFUSED: list[tuple[str, str, bytes, int, str, str]] = [
    # method, path, body, status, problem type, action in the audit trail
    ("PUT",    DEVICE,                              b"",                400, "invalid-request", "device-report"),
    ("PUT",    DEVICE,                              GOOD[:-1],          400, "invalid-request", "device-report"),
    ("PUT",    DEVICE,                              DEEP,               422, "semantic-error", "device-report"),
    ("PUT",    DEVICE,                              b"[" * 100_000,     400, "invalid-request", "device-report"),
    ("PUT",    DEVICE,                              b"\xff\xfe",        400, "invalid-request", "device-report"),
    ("PUT",    DEVICE,                              b" " * 300_000,     413, "about:blank", "device-report"),
    ("PUT",    DEVICE,                              b"{}",              422, "semantic-error", "device-report"),
    ("PUT",    DEVICE + "-2",                       GOOD,               422, "semantic-error", "device-report"),
    ("PUT",    "/api/v1/capabilities/a%20b",        GOOD,               422, "semantic-error", "device-report"),
    ("PUT",    "/api/v1/capabilities/" + "a" * 600, GOOD,               422, "semantic-error", "device-report"),
    ("PUT",    "/api/v1/capabilities/gw/press",     b"CHILD",           404, "gateway-not-found", "device-report"),
    ("DELETE", DEVICE,                              b"",                404, "device-not-found", "device-remove"),
    ("DELETE", "/api/v1/capabilities/gw/press",     b"",                404, "device-not-found", "device-remove"),
    ("POST",   STATUS,                              b"",                400, "invalid-request", "status"),
    ("POST",   STATUS,                              b"[]",              400, "invalid-request", "status"),
    ("POST",   STATUS,                              DEEP,               422, "semantic-error", "status"),
    ("POST",   STATUS,                              b" " * 300_000,     413, "about:blank", "status"),
    ("POST",   STATUS,                              b"{}",              422, "semantic-error", "status"),
    ("POST",   STATUS,                              b"FUTURE",          422, "semantic-error", "status"),
    ("POST",   STATUS.replace("{id}", "no-id"),     b"{}",              422, "semantic-error", "status"),
    ("GET",    "/api/v1/bundles/sha256:" + ZEROS,   b"",                404, "invalid-bundle", "bundle"),
    ("GET",    "/api/v1/bundles/sha512:" + ZEROS,   b"",                404, "invalid-bundle", "bundle"),
    ("GET",    "/api/v1/bundles/SHA256:" + ZEROS,   b"",                404, "invalid-bundle", "bundle"),
    ("GET",    "/api/v1/bundles/sha256:..",         b"",                404, "invalid-bundle", "bundle"),
    ("GET",    "/api/v1/deployments/{id}/sha1:00",  b"",                404, "deployment-not-found", "deployment"),
    ("GET",    "/api/v1/deployments/no-id/sha256:" + ZEROS, b"",        404, "deployment-not-found", "deployment"),
    ("GET",    "/api/v1/deployments",               b"ACCEPT",          406, ACCEPT, "manifest"),
    ("GET",    "/api/v1/onboarding",                b"",                404, "about:blank", "request"),
    ("PATCH",  "/api/v1/deployments",               b"",                405, "about:blank", "request"),
]
# fmt: on


async def test_what_the_contract_refuses_changes_nothing_is_recorded_and_concerns_nobody_else(
    wfm: WfmStand, line7: MargoClient
) -> None:
    deployment_id, version = await deployed(wfm, line7)
    bodies = {
        b"CHILD": json.dumps(device("gw/press")).encode(),
        b"FUTURE": json.dumps(status(deployment_id, version + 1)).encode(),
        b"ACCEPT": b"",
    }
    async with wfm.client("line-8") as other:
        await other.put_device(device("press"))
        await is_site(wfm, "line-8")
        before = [await stored(wfm, client) for client in (line7, other)]
        for method, path, body, code, kind, _ in REFUSED:
            headers = {"Accept": "text/html"} if body == b"ACCEPT" else {}
            target = path.replace("{id}", deployment_id)
            reply = await line7.call(method, target, data=bodies.get(body, body), headers=headers)
            assert (reply.status, reply.problem) == (code, kind), (method, target, body[:50])
        assert [await stored(wfm, client) for client in (line7, other)] == before
    wanted = {
        (f"margo.{action}", "line-7", kind if code != 413 else "413") for _, _, _, code, kind, action in REFUSED
    }
    wanted = {each for each in wanted if each[2] != "about:blank"} | {("margo.request", "line-7", "404")}

    async def recorded() -> bool:
        return wanted <= await actions(wfm)

    await eventually(recorded)


async def stored(wfm: WfmStand, client: MargoClient) -> tuple[bytes, str]:
    """What the fleet manager serves to a client, and what it keeps of it."""
    manifest = (await client.manifest()).body
    devices = (await wfm.api.get(f"/api/v1/sites/{client.name}/devices")).body
    return manifest, json.dumps(devices, sort_keys=True)


async def test_slow_huge_and_broken_bodies_end_alone(wfm: WfmStand, line7: MargoClient) -> None:
    context = await wfm.context("line-7")
    port = int(wfm.url.rpartition(":")[2])

    def slow() -> bytes:
        """A body that never comes to its end."""
        with socket.create_connection(("127.0.0.1", port)) as plain, context.wrap_socket(plain) as secured:
            secured.settimeout(15)
            head = b"PUT /api/v1/capabilities/press HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n{"
            secured.sendall(head)
            try:
                return secured.recv(4096)
            except OSError:
                return b""

    async with anyio.create_task_group() as tasks, wfm.client("line-8") as other:
        found: list[bytes] = []

        async def attack() -> None:
            found.append(await run_sync(slow))

        for _ in range(5):
            tasks.start_soon(attack)
        huge = await line7.call("PUT", "/api/v1/capabilities/press", data=b'{"a":"' + b"x" * 400_000 + b'"}')
        assert huge.status == 413 and "about:blank" in huge.problem

        async def endless() -> AsyncIterator[bytes]:
            for _ in range(64):
                yield b" " * 16_384

        try:
            chunked = await line7.call("PUT", "/api/v1/capabilities/press", data=endless())
            assert chunked.status == 413
        except aiohttp.ClientError:
            pass  # left before everything was sent
        assert (await other.manifest()).status == 200
        assert (await other.put_device(device("press"))).status == 201
    assert len(found) == 5 and not any(answer.startswith(b"HTTP/1.1 2") for answer in found)
    devices = await wfm.api.get("/api/v1/sites/line-7/devices")
    assert (devices.status, devices.body.get("items")) == (200, []), devices.body


async def test_what_is_anothers_stays_unknown_and_is_recorded(wfm: WfmStand, line7: MargoClient) -> None:
    deployment_id, version = await deployed(wfm, line7)
    manifest = (await line7.manifest()).json
    async with wfm.client("line-8") as other:
        for path in (manifest["bundle"]["url"], manifest["deployments"][0]["url"]):
            assert (await other.get(path)).status == 404
            assert (await other.get(path.replace("sha256:", "sha512:"))).status == 404
            assert (await other.get(path, **{"If-None-Match": "*"})).status == 404
        assert (await other.report(deployment_id, status(deployment_id, 1, "removed"))).status == 422
        assert (await other.report(deployment_id, status(deployment_id, version, deviceId="line-7"))).status == 422
    assert (await line7.manifest()).json == manifest
    assert (await wfm.api.get("/api/v1/sites/line-7/devices")).body["statuses"] == []

    async def recorded() -> bool:
        wanted = {"margo.bundle", "margo.deployment", "margo.status"}
        return wanted <= {action for action, actor, _ in await actions(wfm) if actor == "line-8"}

    await eventually(recorded)


async def test_a_herd_that_reconnects_at_once_is_answered_and_nothing_new_is_rendered(
    wfm: WfmStand, line7: MargoClient
) -> None:
    """Many connections of an accepted client and of one that was removed, all at the same moment."""
    await deployed(wfm, line7)
    etag = (await line7.manifest()).headers["etag"]
    accepted, removed = await wfm.context("line-7"), await wfm.context("line-9")
    await wfm.api.delete("/api/v1/identities/line-9")
    answers: list[int] = []

    async def ask(number: int) -> None:
        context = removed if number % 3 == 0 else accepted
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:
            client = MargoClient("", wfm.url, session)
            answers.append((await client.manifest(**{"If-None-Match": etag})).status)

    async with anyio.create_task_group() as tasks:
        for number in range(HERD):
            tasks.start_soon(ask, number)
    assert sorted(set(answers)) == [304, 403] and answers.count(403) == HERD // 3
    assert (await line7.manifest()).headers["etag"] == etag

    async def refused() -> list[Any]:
        entries = (await wfm.api.get("/api/v1/audit?limit=500")).body["entries"]
        return [each for each in entries if each["action"] == "margo.connect"]

    async def is_recorded() -> bool:
        return bool(await refused())

    await eventually(is_recorded, what="the refusals to be recorded, which nobody waits for")
    refusals = await refused()
    assert 1 <= len(refusals) <= 3  # counted, not written each
    assert "line-9" in json.dumps(refusals)
