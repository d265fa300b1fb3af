"""Central against the rules of Margo for a fleet manager; `claims.py` says which test shows which rule."""

import json
import re
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from anyio.to_thread import run_sync
from jsonschema import Draft202012Validator

import homeport.catalog
from homeport.core.margo.manifest import digest_of
from tests.support.margo import MargoClient, WfmStand, device, gateway, is_site, running_wfm, status
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio
ZERO = "sha256:" + "0" * 64
SCHEMA = Path(homeport.catalog.__path__[0]) / "schemas" / "application-deployment.schema.json"


@pytest.fixture
async def wfm(tmp_path: Path) -> AsyncIterator[WfmStand]:
    async with running_wfm(tmp_path) as stand:
        yield stand


@pytest.fixture
async def line7(wfm: WfmStand) -> AsyncIterator[MargoClient]:
    async with wfm.client("line-7") as client:
        yield client


async def deployed(wfm: WfmStand, client: MargoClient, count: int = 1) -> tuple[dict[str, Any], str]:
    """A manifest with a deployment of the client, and the deployment's id."""
    await client.manifest()
    await is_site(wfm, client.name)
    (deployment_id,) = await wfm.deploy(client.name)
    return await client.listed(count), deployment_id


async def test_manifest_answers(wfm: WfmStand, line7: MargoClient) -> None:
    first = await line7.manifest()
    assert first.headers["content-type"] == "application/vnd.margo.manifest.v1+json"
    assert first.headers["etag"] == f'"{digest_of(first.body)}"'
    assert first.headers["cache-control"] == "private, no-cache"
    assert first.json == {"bundle": None, "deployments": [], "manifestVersion": 1}
    assert (await line7.manifest()).body == first.body

    unchanged = await line7.manifest(**{"If-None-Match": first.headers["etag"]})
    assert (unchanged.status, unchanged.body) == (304, b"")
    assert (await line7.manifest(**{"If-None-Match": f'"{ZERO}"'})).status == 200
    for accept in ("*/*", "application/*", "application/json, application/vnd.margo.manifest.v1+json"):
        assert (await line7.manifest(Accept=accept)).status == 200
    refused = await line7.manifest(Accept="application/json")
    assert (refused.status, refused.problem) == (406, "server-cannot-generate-response")

    manifest, deployment_id = await deployed(wfm, line7)
    assert manifest["manifestVersion"] > 1
    (listed,) = manifest["deployments"]
    assert listed["url"] == f"/api/v1/deployments/{deployment_id}/{listed['digest']}"
    assert manifest["bundle"]["url"] == f"/api/v1/bundles/{manifest['bundle']['digest']}"
    assert manifest["bundle"]["mediaType"] == "application/vnd.margo.bundle.v1+tar+gzip"
    await wfm.deploy("line-7", name="second")
    later = await line7.listed(2)
    assert later["manifestVersion"] > manifest["manifestVersion"]
    # What the older manifest listed can still be fetched, with the same bytes.
    assert digest_of((await line7.get(manifest["bundle"]["url"])).body) == manifest["bundle"]["digest"]


async def test_artifacts(wfm: WfmStand, line7: MargoClient) -> None:
    manifest, deployment_id = await deployed(wfm, line7)
    (listed,) = manifest["deployments"]
    found = await line7.get(listed["url"])
    assert found.headers["content-type"] == "application/yaml"
    assert digest_of(found.body) == listed["digest"] and len(found.body) == listed["sizeBytes"]
    bundle = await line7.get(manifest["bundle"]["url"])
    assert bundle.headers["content-type"] == "application/vnd.margo.bundle.v1+tar+gzip"
    for each, digest in ((found, listed["digest"]), (bundle, manifest["bundle"]["digest"])):
        assert each.headers["etag"] == f'"{digest}"'
        assert each.headers["cache-control"] == "private, max-age=31536000, immutable"
        assert each.headers["vary"] == "Accept-Encoding" and "content-encoding" not in each.headers
    condition = {"If-None-Match": bundle.headers["etag"]}
    unchanged = await line7.get(manifest["bundle"]["url"], **condition)
    assert (unchanged.status, unchanged.body) == (304, b"")
    assert unchanged.headers["etag"] == bundle.headers["etag"]
    # The contract lists no 304 for a single deployment.
    again = await line7.get(listed["url"], **{"If-None-Match": found.headers["etag"]})
    assert (again.status, again.body) == (200, found.body)
    for path, name in (
        (f"/api/v1/deployments/{deployment_id}/{ZERO}", "deployment-not-found"),
        (f"/api/v1/deployments/{deployment_id}/sha512:00", "deployment-not-found"),
        (f"/api/v1/deployments/{deployment_id}/{manifest['bundle']['digest']}", "deployment-not-found"),
        (f"/api/v1/bundles/{ZERO}", "invalid-bundle"),
        (f"/api/v1/bundles/{listed['digest']}", "invalid-bundle"),
    ):
        refused = await line7.get(path)
        assert (refused.status, refused.problem) == (404, name)
        assert refused.json["retryable"] is False and refused.json["backoffStrategy"] == "none"


async def test_deployment_files(wfm: WfmStand, line7: MargoClient) -> None:
    manifest, deployment_id = await deployed(wfm, line7)
    content = (await line7.get(manifest["deployments"][0]["url"])).body
    data = yaml.safe_load(content)
    Draft202012Validator(json.loads(SCHEMA.read_text("utf-8"))).validate(data)
    assert data["id"] == deployment_id and data.keys() == {"id", "metadata", "spec"}
    assert "x-homeport-extensions" in data["spec"]
    assert data["metadata"].keys() >= {"name", "namespace", "deviceId"}
    assert data["spec"]["applicationId"] == "demo-hello"
    components = data["spec"]["deploymentProfile"]["components"]
    assert [each["name"] for each in components] == ["web", "cache"]
    assert b"wait: true" in content and components[0]["properties"]["revision"] == "1.1.0"
    # As given, and no timeout of ours: the device's own holds where the app names none.
    assert components[0]["properties"].keys() == {"repository", "revision", "wait"}
    for parameter in data["spec"]["parameters"].values():
        assert "value" in parameter
        assert {name for each in parameter["targets"] for name in each["components"]} <= {"web", "cache"}
    git = wfm.central.parts.git
    head = await git.head()
    assert head is not None
    files = await git.files(head, "deployments/line-7", size_max=10**6)
    assert content in [file.content for file in files]  # byte for byte as in Git
    await wfm.deploy("line-7", parameters={"greeting": "Moin"})

    async def changed() -> bool:
        (listed,) = (await line7.manifest()).json["deployments"]
        return bool(listed["deploymentId"] == deployment_id and listed["digest"] != digest_of(content))

    await eventually(changed, what="the same id with another digest")


async def test_what_belongs_to_another_client_does_not_exist(wfm: WfmStand, line7: MargoClient) -> None:
    manifest, deployment_id = await deployed(wfm, line7)
    async with wfm.client("line-8") as other:
        assert (await other.manifest()).json["deployments"] == []
        assert (await other.get(manifest["deployments"][0]["url"])).problem == "deployment-not-found"
        assert (await other.get(manifest["bundle"]["url"])).problem == "invalid-bundle"
        refused = await other.report(deployment_id, status(deployment_id, 1))
        assert (refused.status, refused.problem) == (422, "semantic-error")
        assert (await line7.put_device(device("press"))).status == 201
        assert (await other.put_device(device("press", vendor="Other"))).status == 201
        assert (await other.call("DELETE", "/api/v1/capabilities/press")).status == 204
        assert (await line7.put_device(device("press"))).status == 200
    # A header that names somebody is not read.
    claimed = await line7.manifest(**{"Client-Cert": ":bGluZS04:", "X-Client-Id": "line-8"})
    assert claimed.json == (await line7.manifest()).json


async def test_capabilities(wfm: WfmStand, line7: MargoClient) -> None:
    assert (await line7.put_device(device("press-1", vendor="Before"))).status == 201
    assert (await line7.put_device(device("press-1"))).status == 200
    await is_site(wfm, "line-7")
    (kept,) = (await wfm.api.get("/api/v1/sites/line-7/devices")).body["items"]
    assert "Before" not in json.dumps(kept) and "Acme" in json.dumps(kept)
    assert (await line7.put_device(gateway("gw1"))).status == 201
    assert (await line7.put_device(device("gw1/path/press"))).status == 201
    orphan = await line7.put_device(device("gw9/press"))
    assert (orphan.status, orphan.problem) == (404, "gateway-not-found")
    extended = {**device("press-2", otelCollector=False), "x-acme-extensions": {"a": 1}}
    del extended["properties"]["peripherals"]
    assert (await line7.put_device(extended)).status == 201
    for field, wrong in (
        ("kind", {**device("press-1"), "kind": "DeviceCapabilitiesManifest"}),
        ("x-Acme-extensions", {**device("press-1"), "x-Acme-extensions": {}}),
        ("labels.b", {**device("press-1"), "labels": {"a": 1, "b": None}}),
        ("properties.cpus.0.cores", device("press-1", cpus=[{"cores": -1}])),
        ("properties.supportedRuntimes", device("press-1", supportedRuntimes=[])),
        ("properties.supportedDeploymentTypes.0", device("press-1", supportedDeploymentTypes=["quadlet"])),
        ("properties.cpus.0.cores", device("press-1", cpus=[{"architecture": "amd64"}])),
        ("properties.memory", device("press-1", memory=None)),
        ("labels.a", {**device("press-1"), "labels": {"a": [1, "b"]}}),
        ("properties.vendor", {"properties": {**gateway("press-1")["properties"], "vendor": True}}),
        ("properties.vendor", {"properties": {"id": "press-1", "modelNumber": "", "serialNumber": ""}}),
        ("properties.modelNumber", {"properties": {"id": "press-1", "vendor": "", "serialNumber": ""}}),
        ("properties.serialNumber", {"properties": {"id": "press-1", "vendor": "", "modelNumber": ""}}),
    ):
        refused = await line7.put_device(wrong)
        assert (refused.status, refused.problem) == (422, "semantic-error")
        assert [each["field"] for each in refused.json["errors"]] == [field], wrong
        for text in (refused.json["detail"], *(each["message"] for each in refused.json["errors"])):
            assert not re.search(r"None|True|False|regex|schemas|\['", text), text  # as Python would write it
    mismatch = await line7.put_device(device("press-1"), path="press-3")
    assert mismatch.status == 422 and mismatch.json["errors"][0]["field"] == "properties.id"
    for body in (b"{", b"[]", b"", b'{"properties": NaN}', b"[" * 50_000):
        malformed = await line7.call("PUT", "/api/v1/capabilities/press-1", data=body)
        assert (malformed.status, malformed.problem) == (400, "invalid-request")
    assert (await line7.call("PUT", "/api/v1/capabilities/press-1", data=b" " * 300_000)).status == 413
    assert (await line7.call("DELETE", "/api/v1/capabilities/gw1")).status == 204
    for gone in ("gw1", "gw1/path/press"):
        refused = await line7.call("DELETE", f"/api/v1/capabilities/{gone}")
        assert (refused.status, refused.problem) == (404, "device-not-found")


async def test_a_type_that_margo_does_not_name_counts_as_custom_where_that_is_wanted(tmp_path: Path) -> None:
    async with running_wfm(tmp_path, margo_unknown_types="custom") as wfm, wfm.client("line-7") as line7:
        other = device("press-1", supportedRuntimes=["wasm"], supportedDeploymentTypes=["compose", "quadlet"])
        assert (await line7.put_device(other)).status == 201
        assert (await line7.put_device(device("press-2"))).status == 201
        for wrong in (
            device("press-1", supportedRuntimes=[]),
            device("press-1", supportedRuntimes=[1]),
            device("press-1", supportedDeploymentTypes="quadlet"),
            device("press-1", peripherals=[{"type": "lamp"}]),
            {"properties": None},
        ):
            assert (await line7.put_device(wrong, path="press-1")).problem == "semantic-error", wrong
        await is_site(wfm, "line-7")
        kept = [each["properties"] for each in (await wfm.api.get("/api/v1/sites/line-7/devices")).body["items"]]
        types = [(each["supportedRuntimes"], each["supportedDeploymentTypes"]) for each in kept]
        assert types == [(["wasm", "custom"], ["compose", "quadlet", "custom"]), (["oci"], ["compose"])]


async def test_what_is_for_a_removed_gateway_is_not_listed_until_its_device_is_back(
    wfm: WfmStand, line7: MargoClient
) -> None:
    """The desired state stays as it is; other devices of the client keep theirs."""
    for body in (gateway("gw1"), device("gw1/press-1"), device("press-9")):
        await line7.put_device(body)
    await is_site(wfm, "line-7")
    (child,) = await wfm.deploy(sites=[{"site_id": "line-7", "device_id": "gw1/press-1"}])
    (other,) = await wfm.deploy(sites=[{"site_id": "line-7", "device_id": "press-9"}], name="other")
    before = await line7.listed(2)
    assert (await line7.report(child, status(child, before["manifestVersion"]))).status == 201
    assert (await line7.call("DELETE", "/api/v1/capabilities/gw1")).status == 204
    without = await line7.listed(1)
    assert without["deployments"][0]["deploymentId"] == other
    assert without["manifestVersion"] > before["manifestVersion"]
    for state in ("removing", "removed"):  # as its client has to say
        assert (await line7.report(child, status(child, without["manifestVersion"], state))).status == 200
    assert (await wfm.api.get(f"/api/v1/deployments/{child}")).body["wanted"] is True
    exported = str((await wfm.api.get("/api/v1/events/export?site=line-7")).body)
    assert "gw1 was removed by its client" in exported
    assert (await line7.put_device(gateway("gw1"))).status == 201
    assert (await line7.manifest()).json == without  # whose child is not there yet
    assert (await line7.put_device(device("gw1/press-1"))).status == 201
    again = await line7.listed(2)
    assert again["deployments"] == before["deployments"]
    assert again["manifestVersion"] > without["manifestVersion"]
    # A device that nothing is deployed to goes without a new manifest.
    await line7.put_device(device("press-8"))
    assert (await line7.call("DELETE", "/api/v1/capabilities/press-8")).status == 204
    assert (await line7.manifest()).json == again


async def test_status(wfm: WfmStand, line7: MargoClient) -> None:
    manifest, deployment_id = await deployed(wfm, line7)
    version = manifest["manifestVersion"]
    assert (await line7.report(deployment_id, status(deployment_id, version, "pending"))).status == 201
    for state in ("installing", "installed", "removing", "removed", "failed"):
        assert (await line7.report(deployment_id, status(deployment_id, version, state))).status == 200
    good = status(deployment_id, version)
    for wrong in (
        {key: value for key, value in good.items() if key != "deploymentId"},
        {key: value for key, value in good.items() if key != "adoptedManifestVersion"},
        {key: value for key, value in good.items() if key != "components"},
        {**good, "status": {}},
        {**good, "status": {"state": "running"}},
        {**good, "adoptedManifestVersion": 0},
        {**good, "adoptedManifestVersion": version + 1},
        {**good, "deploymentId": "3b0a2f1e-6d0c-4f0a-9c51-0f3a54f0a001"},
        {**good, "components": [{"name": "web", "state": "failed"}]},
        {**good, "components": [*good["components"], *good["components"]]},
    ):
        refused = await line7.report(deployment_id, wrong)
        assert (refused.status, refused.problem) == (422, "semantic-error"), wrong
        assert refused.json["errors"]
    for names in ((), ("web",), ("sidecar",)):  # some clients send none, or their own
        loose = status(deployment_id, version, "failed", names=names)
        assert (await line7.report(deployment_id, loose)).status == 200, names
    partial: list[dict[str, Any]] = [{}, {"code": "PULL"}, {"message": "no space"}, {"source": "web", "more": 7}]
    for error in partial:
        # No member of it is required by the contract.
        failed = {**status(deployment_id, version, "failed"), "status": {"state": "failed", "error": error}}
        assert (await line7.report(deployment_id, failed)).status == 200, error
        shown = (await wfm.api.get(f"/api/v1/deployments/{deployment_id}")).body
        assert error.get("message", "gave no reason") in json.dumps(shown["instances"]), shown
        (kept,) = (await wfm.api.get("/api/v1/sites/line-7/devices")).body["statuses"]
        assert kept["error"].keys() >= {"code", "source", "message"}
    unknown = "3b0a2f1e-6d0c-4f0a-9c51-0f3a54f0a001"
    assert (await line7.report(unknown, status(unknown, version))).status == 422
    malformed = await line7.call("POST", f"/api/v1/deployments/{deployment_id}/status", data=b"{")
    assert (malformed.status, malformed.problem) == (400, "invalid-request")
    shown = (await wfm.api.get("/api/v1/sites/line-7/devices")).body["statuses"]
    assert [each["state"] for each in shown] == ["failed"]


async def test_a_status_is_of_a_device_that_its_client_has_reported(wfm: WfmStand, line7: MargoClient) -> None:
    """What nobody has is no device: it would stand in the lists for good. One that is gone is reported about to the
    end, and a client that reports no devices may name its own."""
    async with wfm.client("line-8") as line8:
        await line8.put_device(device("press-8"))
    for body in (gateway("gw1"), device("gw1/press-1")):
        await line7.put_device(body)
    await is_site(wfm, "line-7")
    (child,) = await wfm.deploy(sites=[{"site_id": "line-7", "device_id": "gw1/press-1"}])
    version = (await line7.listed(1))["manifestVersion"]
    for unknown in ("gw1/press-2", "press-8", "GW1/press-1"):
        refused = await line7.report(child, status(child, version, deviceId=unknown))
        assert (refused.status, refused.problem) == (422, "semantic-error")
        assert refused.json["errors"] == [
            {"field": "deviceId", "message": f'"{unknown}" is not a device that this client has reported'}
        ]
    assert (await line7.report(child, status(child, version, deviceId="gw1/press-1"))).status == 201
    assert (await line7.call("DELETE", "/api/v1/capabilities/gw1")).status == 204
    gone = status(child, (await line7.listed(0))["manifestVersion"], "removed", deviceId="gw1/press-1")
    assert (await line7.report(child, gone)).status == 200
    shown = (await wfm.api.get(f"/api/v1/deployments/{child}")).body["instances"]
    assert [each["node_id"] for each in shown] == ["gw1/press-1"]
    # With no devices at all.
    assert (
        await line7.report(child, status(child, gone["adoptedManifestVersion"], deviceId="press-3"))
    ).status == 201


async def test_identity_and_policy(wfm: WfmStand, line7: MargoClient) -> None:
    assert (await line7.manifest()).status == 200
    for path in ("/api/v1/onboarding", "/api/v1/onboarding/certificate", "/api/v1/clients/x/deployments", "/"):
        assert (await line7.get(path)).status == 404
    assert (await line7.call("DELETE", "/api/v1/deployments")).status == 405
    removed = await wfm.api.delete("/api/v1/identities/line-7")
    assert removed.status in (200, 204)
    refused = await line7.manifest()  # on the connection that is open
    assert (refused.status, refused.problem) == (403, "not-authorized")

    async def is_in_the_trail() -> bool:
        return "margo.connect" in json.dumps((await wfm.api.get("/api/v1/audit?limit=50")).body)

    await eventually(is_in_the_trail)
    nobody = ssl.create_default_context()
    nobody.check_hostname, nobody.verify_mode = False, ssl.CERT_NONE
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=nobody)) as session:
        with pytest.raises(aiohttp.ClientError):
            await session.get(wfm.url + "/api/v1/deployments")


async def test_transport(wfm: WfmStand) -> None:
    context = await wfm.context("line-7")
    port = int(wfm.url.rpartition(":")[2])

    def negotiated() -> tuple[str | None, str | None]:
        with socket.create_connection(("127.0.0.1", port)) as plain, context.wrap_socket(plain) as secured:
            return secured.version(), secured.selected_alpn_protocol()

    assert await run_sync(negotiated) == ("TLSv1.3", None)
    peer = wfm.central.parts.identity.credentials.spiffe_id
    assert peer == "spiffe://homeport.internal/margo/wfm/central"


async def test_a_base_path_is_in_front_of_routes_and_never_in_a_manifest(tmp_path: Path) -> None:
    async with running_wfm(tmp_path, base="/v1alpha2/margo") as wfm, wfm.client("Line_7") as client:
        assert (await client.manifest()).status == 200
        async with wfm.client("Line_7") as outside:
            outside.url = outside.url.removesuffix("/v1alpha2/margo")
            assert (await outside.manifest()).status == 404


async def test_matching_is_explained(wfm: WfmStand, line7: MargoClient) -> None:
    await deployed(wfm, line7)
    await line7.put_device(device("press-1"))
    await line7.put_device(device("press-2", supportedDeploymentTypes=["helm"]))
    await line7.put_device(gateway("gw1"))
    found = (await wfm.api.get("/api/v1/sites/line-7/devices/matches?app_name=hello")).body
    (profile,) = found["profiles"]
    assert profile["placeable"] is True
    assert {each["device_id"]: each["why"] for each in profile["devices"]} == {
        "gw1": "hosts no workloads",
        "press-1": None,
        "press-2": "supports helm, not compose",
    }
    assert (await wfm.api.get("/api/v1/sites/line-7/devices/matches?app_name=none")).status == 404
    assert (await wfm.api.get("/api/v1/sites/nowhere/devices")).status == 404


async def test_a_deployment_is_for_a_device_that_fits_or_is_not_placeable(wfm: WfmStand, line7: MargoClient) -> None:
    await line7.put_device(gateway("gw1"))
    await line7.put_device(device("gw1/press-1", supportedDeploymentTypes=["helm"]))
    await line7.put_device(device("gw1/press-2"))
    manifest, _ = await deployed(wfm, line7)
    data = yaml.safe_load((await line7.get(manifest["deployments"][0]["url"])).body)
    assert data["metadata"]["deviceId"] == "gw1/press-2"
    await line7.call("DELETE", "/api/v1/capabilities/gw1/press-2")
    refused = await wfm.api.deploy("line-7", name="second")
    assert (refused.status, refused.body["code"]) == (422, "not-placeable")
    assert "gw1/press-1 supports helm, not compose" in refused.body["detail"]
