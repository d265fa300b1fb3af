"""Central byte for byte against the contract: what other implementations are known to get wrong, each as a test."""

import asyncio
import gzip
import io
import json
import re
import socket
import sqlite3
import ssl
import tarfile
import time
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest
import yaml
from anyio.to_thread import run_sync
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from multidict import CIMultiDict
from starlette.types import Receive, Scope, Send
from yarl import URL

from homeport.adapters.identity.authority import open_authority
from homeport.core.margo import problems
from homeport.core.margo.manifest import digest_of
from homeport.core.model.event import NewEvent
from homeport.margo.wfm.app import REPORTS_MAX, refuse_while_stopping
from homeport.serving.server.limits import Limits
from homeport.serving.server.run import Stopping, bind, http_server
from homeport.vocabulary import EventKind, SiteName
from tests.support.margo import MargoClient, WfmStand, assert_valid, device, gateway, is_site, running_wfm, status
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio
MANIFEST_TYPE = "application/vnd.margo.manifest.v1+json"
UNKNOWN = "3b0a2f1e-6d0c-4f0a-9c51-0f3a54f0a001"

CONSTRAINED = """\
apiVersion: v1
id: demo-vision
metadata:
  name: vision
  version: "1.0.0"
  catalog:
    organization: [{name: Acme}]
x-acme-extensions: {for: the fleet manager}
deploymentProfiles:
  - type: compose
    id: demo-vision-compose
    x-acme-extensions: {for: [the, device]}
    components:
      - name: vision
        x-other-extensions: {depth: {a: 1}}
        properties: {repository: "oci://registry.example/vision", revision: 1.0.0, wait: false, timeout: 5m0s}
      - name: archive
        properties: {repository: "oci://registry.example/archive", revision: 1.10.0-rc.1_build.5}
    deviceConstraints:
      capacityRequirements: {cpu: {cores: 0.5, architectures: [amd64]}, memory: 64Mi}
      eligibilityRules:
        - propertySelector:
            matchExpressions:
              - key: /peripherals
                operator: ContainsAll
                itemSelector: {matchExpressions: [{key: /type, operator: In, values: [camera]}]}
"""
OTHER_PROFILE = """\
  - type: helm
    id: demo-vision-helm
    components:
      - name: chart
        properties: {repository: "oci://registry.example/chart", revision: 1.0.0}
"""


@pytest.fixture
async def wfm(tmp_path: Path) -> AsyncIterator[WfmStand]:
    async with running_wfm(tmp_path) as stand:
        yield stand


@pytest.fixture
async def line7(wfm: WfmStand) -> AsyncIterator[MargoClient]:
    async with wfm.client("line-7") as client:
        yield client


async def test_a_manifest_is_asked_for_in_every_way_that_http_allows(line7: MargoClient) -> None:
    """No Accept, an empty one, wildcards, several lines, weights; a condition never hides a 406."""
    first = await line7.manifest()
    etag = first.headers["etag"]
    assert "vary" not in first.headers and "content-encoding" not in first.headers
    weighted = f"text/html, {MANIFEST_TYPE};q=0.1"
    for accept in ("", "*/*", MANIFEST_TYPE, f"{MANIFEST_TYPE};q=0.5", weighted, "application/*"):
        assert (await line7.manifest(Accept=accept)).headers["content-type"] == MANIFEST_TYPE
        assert (await line7.manifest(**{"Accept": accept, "If-None-Match": etag})).status == 304
    for accept in ("application/json", "text/*", f"{MANIFEST_TYPE};q=0", f"*/*, {MANIFEST_TYPE};q=0.0"):
        for more in ({}, {"If-None-Match": etag}):
            refused = await line7.manifest(Accept=accept, **more)
            assert (refused.status, refused.problem) == (406, "server-cannot-generate-response")
    for condition in (etag, f"W/{etag}", f'"other", {etag}', "*"):
        unchanged = await line7.manifest(**{"If-None-Match": condition})
        assert (unchanged.status, unchanged.body, unchanged.headers["etag"]) == (304, b"", etag)
        assert unchanged.headers["cache-control"] == "private, no-cache"
    for condition in (etag.strip('"'), '"other"', "", "W/"):
        assert (await line7.manifest(**{"If-None-Match": condition})).status == 200
    packed = await line7.manifest(**{"Accept-Encoding": "gzip, br"})
    assert packed.body == first.body


async def test_a_head_answers_as_a_get_without_its_body(line7: MargoClient) -> None:
    got, head = await line7.manifest(), await line7.call("HEAD", "/api/v1/deployments")
    assert (head.status, head.body) == (200, b"")
    assert head.headers["etag"] == got.headers["etag"] and head.headers["content-length"] == str(len(got.body))


async def test_artifacts_are_found_however_a_library_writes_their_path(wfm: WfmStand, line7: MargoClient) -> None:
    """Encoded, with a query, as a whole URI, with HEAD; and nothing is found that is not spelt as in the contract."""
    await line7.manifest()
    await is_site(wfm, "line-7")
    await wfm.deploy("line-7")
    manifest = await line7.listed(1)
    (listed,) = manifest["deployments"]
    for path in ("/api/v1/deployments", listed["url"], manifest["bundle"]["url"]):
        plain = await line7.get(path)
        etag, length = plain.headers["etag"], str(len(plain.body))
        for target in (path, path.replace(":", "%3A"), path.replace("api", "%61p%69"), f"{path}?x=1", wfm.url + path):
            first, headers, body = await raw_answer(wfm, f"GET {target} HTTP/1.1\r\nhOST: x\r\n\r\n".encode())
            assert first.startswith(b"HTTP/1.1 200") and body == plain.body, target
            assert f"etag: {etag}".encode() in headers, target
        known = 200 if path == listed["url"] else 304
        for condition, status_code in (({}, 200), ({"If-None-Match": etag}, known), ({"if-none-match": '"x"'}, 200)):
            head = await line7.call("HEAD", path, headers=condition)
            assert (head.status, head.body, head.headers["etag"]) == (status_code, b"", etag)
            assert head.headers.get("content-length", length) == length
        for wrong in (f"{path}/", f"/{path}", path.upper(), path.replace("/v1/", "/v2/"), f"/x{path}"):
            first, headers, body = await raw_answer(wfm, f"GET {wrong} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            assert first.startswith(b"HTTP/1.1 404"), wrong
            assert b"content-type: application/problem+json" in headers
            assert_valid(json.loads(body), "problem-detail")
    missing = await line7.call("HEAD", "/api/v1/bundles/sha256:" + "0" * 64)
    assert (missing.status, missing.body) == (404, b"")
    assert missing.headers["content-type"] == "application/problem+json"
    for digest in ("sha256:" + "A" * 64, "sha512:" + "0" * 128, "sha256:", "latest", listed["digest"] + "0"):
        assert (await line7.get(f"/api/v1/bundles/{digest}")).problem == "invalid-bundle", digest
        other = await line7.get(f"/api/v1/deployments/{listed['deploymentId']}/{digest}")
        assert other.problem == "deployment-not-found", digest


async def test_a_body_comes_in_parts_or_whole_and_its_type_is_not_asked_for(
    wfm: WfmStand, line7: MargoClient
) -> None:
    content = json.dumps(device("press-1")).encode()
    head = b"PUT /api/v1/capabilities/press-1 HTTP/1.1\r\nHost: x\r\n"
    parts = b"".join(
        b"%x;ext=1\r\n%s\r\n" % (len(content[at : at + 50]), content[at : at + 50])
        for at in range(0, len(content), 50)
    )
    for number, framed in enumerate(
        (
            b"Transfer-Encoding: chunked\r\n\r\n" + parts + b"0\r\nTrailer: x\r\n\r\n",
            b"Content-Type: application/json; charset=utf-8\r\nCONTENT-LENGTH: %d\r\n\r\n" % len(content) + content,
            b"Content-Type: text/plain\r\nContent-Length: %d\r\n\r\n" % len(content) + content,
        )
    ):
        first, _, _ = await raw_answer(wfm, head + framed)
        assert first.split()[1] == (b"200" if number else b"201"), framed[:60]
    for empty in (b"\r\n", b"Content-Length: 0\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"):
        first, _, body = await raw_answer(wfm, head + empty)
        assert first.startswith(b"HTTP/1.1 400"), empty
        assert json.loads(body)["type"] == f"{problems.SPACE}invalid-request"


async def test_a_method_that_is_not_there_says_which_are(line7: MargoClient) -> None:
    for path, allowed in (
        ("/api/v1/deployments", "GET, HEAD"),
        (f"/api/v1/deployments/{UNKNOWN}/status", "POST"),
        ("/api/v1/capabilities/a/b", "DELETE, PUT"),
    ):
        refused = await line7.call("PATCH", path)
        assert refused.status == 405 and "about:blank" in refused.problem
        assert (refused.headers["allow"], refused.headers["cache-control"]) == (allowed, "no-store")
    # Spelt out in the contract, so it is not a deployment with the digest "status".
    assert (await line7.get(f"/api/v1/deployments/{UNKNOWN}/status")).status == 405
    unusual = await line7.get("/api/v1/nothing/%20%22/x")
    assert unusual.status == 404 and "about:blank" in unusual.problem
    assert unusual.json["instance"] == "/api/v1/nothing/%20%22/x"


async def test_a_host_is_named_once_and_a_body_is_not_compressed(wfm: WfmStand, line7: MargoClient) -> None:
    await line7.manifest()
    for hosts in ("", "Host: a\r\nHost: b\r\n", "Host:\r\n", "Host: a b\r\n", "Host: a/b\r\n", "Host: a:b\r\n"):
        for target in ("/api/v1/deployments", "/api/v1/bundles/x"):
            first, _, body = await raw_answer(wfm, f"GET {target} HTTP/1.1\r\n{hosts}\r\n".encode())
            assert first.startswith(b"HTTP/1.1 400"), (hosts, target)
            assert json.loads(body)["type"] == f"{problems.SPACE}invalid-request"
    first, _, _ = await raw_answer(wfm, b"GET /api/v1/deployments HTTP/1.0\r\n\r\n")
    assert first.startswith(b"HTTP/1.1 200")  # which knows no Host
    for host in ("[::1]:443", "wfm.example", "10.0.0.1:8443", "WFM_1.example:"):
        first, _, _ = await raw_answer(wfm, f"GET /api/v1/deployments HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        assert first.startswith(b"HTTP/1.1 200"), host
    for line in ("GET /api/v1/deployments HTTP/2.0", "GET /api/v1/deployments"):
        first, answered, body = await raw_answer(wfm, f"{line}\r\nHost: x\r\n\r\n".encode())
        assert first.startswith(b"HTTP/1.1 505") and b"connection: close" in answered, line
        assert_valid(json.loads(body), "problem-detail")
    packed = gzip.compress(json.dumps(device("press-1")).encode())
    headers = {"Content-Encoding": "gzip"}
    refused = await line7.call("PUT", "/api/v1/capabilities/press-1", data=packed, headers=headers)
    assert refused.status == 415 and "about:blank" in refused.problem
    assert refused.headers["accept-encoding"] == "identity"
    plain = json.dumps(device("press-1")).encode()
    for codings in ("identity", "", "Identity, identity"):
        headers = {"Content-Encoding": codings}
        taken = await line7.call("PUT", "/api/v1/capabilities/press-1", data=plain, headers=headers)
        assert taken.status == (201 if codings == "identity" else 200), codings
    head = b"PUT /api/v1/capabilities/press-1 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n"
    first, _, body = await raw_answer(wfm, head + b"%x\r\n%s\r\n0\r\n\r\n" % (len(plain), plain))
    assert first.startswith(b"HTTP/1.1 501") and json.loads(body)["retryable"] is False


async def test_a_deviceid_may_come_with_its_slashes_encoded(line7: MargoClient) -> None:
    """As libraries do that write a value into a path."""
    await line7.put_device(gateway("gw1"))
    child = json.dumps(device("gw1/press-1")).encode()
    path = URL(f"{line7.url}/api/v1/capabilities/gw1%2Fpress-1", encoded=True)
    async with line7.session.put(path, data=child) as answer:
        assert answer.status == 201
    async with line7.session.put(path, data=child) as answer:
        assert answer.status == 200
    assert (await line7.call("DELETE", "/api/v1/capabilities/gw1/press-1")).status == 204


async def test_what_the_sandbox_gets_wrong_is_right_here(wfm: WfmStand, line7: MargoClient) -> None:
    """One line for each limit that its own notes name."""
    # Capabilities: 201 only for a new device, values are judged, and DELETE answers.
    assert (await line7.put_device(device("press-1"))).status == 201
    assert (await line7.put_device(device("press-1"))).status == 200
    for wrong in (
        device("press-1", supportedRuntimes=["wasm"]),
        device("press-1", interfaces=[{"type": "token-ring"}]),
        device("press-1", peripherals=[{"type": "lamp"}]),
        device("press-1", cpus=[{"cores": 1, "architecture": "sparc"}]),
    ):
        assert (await line7.put_device(wrong)).problem == "semantic-error"
    assert (await line7.call("DELETE", "/api/v1/capabilities/press-1")).status == 204
    # Without Accept there is a manifest, private, never immutable, with a strong and quoted ETag.
    manifest = await line7.manifest()
    assert manifest.status == 200 and manifest.headers["etag"].startswith('"sha256:')
    assert manifest.headers["cache-control"] == "private, no-cache"
    # A status for an unknown deployment is 422, not 500.
    unknown = await line7.report(UNKNOWN, status(UNKNOWN, 1))
    assert (unknown.status, unknown.problem) == (422, "semantic-error")
    # A report without components says nothing about their states, and a wrong overall state is refused.
    await is_site(wfm, "line-7")
    (deployment_id,) = await wfm.deploy("line-7")
    version = (await line7.listed(1))["manifestVersion"]
    body = status(deployment_id, version, "installed")
    assert (await line7.report(deployment_id, {**body, "status": {"state": "pending"}})).status == 422
    assert (await line7.report(deployment_id, body)).status == 201
    # A connection is kept open, and the policy still counts for each request on it.
    connector = line7.session.connector
    assert connector is not None and len(connector._conns) == 1
    await wfm.api.delete("/api/v1/identities/line-7")
    assert (await line7.manifest()).problem == "not-authorized"


async def test_a_deployment_carries_constraints_and_extensions_to_where_they_belong(
    wfm: WfmStand, line7: MargoClient
) -> None:
    apps = wfm.folder / "more" / "demo" / "vision" / "1.0.0"
    apps.mkdir(parents=True)
    (apps / "margo.yaml").write_text(CONSTRAINED + OTHER_PROFILE)
    added = await wfm.api.post("/api/v1/apps", {"repository": str(wfm.folder / "more")})
    assert added.status in (200, 201), added.body
    await line7.put_device(device("press-1"))
    await is_site(wfm, "line-7")
    await wfm.deploy("line-7", app="vision", profile="demo-vision-compose")
    (listed,) = (await line7.listed(1))["deployments"]
    content = (await line7.get(listed["url"])).body
    found, described = yaml.safe_load(content), yaml.safe_load(CONSTRAINED)
    profile, given = found["spec"]["deploymentProfile"], described["deploymentProfiles"][0]
    assert profile["deviceConstraints"] == given["deviceConstraints"]
    assert profile["x-acme-extensions"] == {"for": ["the", "device"]}
    assert profile["components"][0]["x-other-extensions"] == {"depth": {"a": 1}}
    assert "x-acme-extensions" not in found and "x-acme-extensions" not in found["spec"]
    first, second = profile["components"]  # in their order, and none of the other profile
    assert (profile["type"], first["name"], second["name"]) == ("compose", "vision", "archive")
    assert first["properties"].items() >= given["components"][0]["properties"].items()
    assert second["properties"] == {**given["components"][1]["properties"], "wait": True}  # and no timeout of ours
    assert second["properties"]["revision"] == "1.10.0-rc.1_build.5"
    # Written out and in block style, for readers that look for the text.
    assert b"wait: false\n" in content and b"wait: true\n" in content and b"{" not in content.split(b"device")[0]
    assert found["spec"]["parameters"] == {} and found["metadata"]["deviceId"] == "press-1"


async def test_a_custom_profile_is_carried_through_although_nothing_is_known_of_it(
    wfm: WfmStand, line7: MargoClient
) -> None:
    """To the devices that can take it, and to no other."""
    custom = re.sub(r"\bvision\b", "firmware", CONSTRAINED.replace("type: compose", "type: custom"))
    given = yaml.safe_load(custom)
    profile = given["deploymentProfiles"][0]
    profile["components"][0]["properties"]["flash"] = {"slots": ["a", "b"], "erase": True}
    selector = {"matchExpressions": [{"key": "acme.example/loader", "operator": "In", "values": [3]}]}
    profile["deviceConstraints"] = {"eligibilityRules": [{"labelSelector": selector}]}
    folder = wfm.folder / "more" / "demo" / "firmware" / "1.0.0"
    folder.mkdir(parents=True)
    (folder / "margo.yaml").write_text(yaml.safe_dump(given))
    added = await wfm.api.post("/api/v1/apps", {"repository": str(wfm.folder / "more")})
    assert added.status in (200, 201), added.body
    able = device("press-2", supportedDeploymentTypes=["custom"], supportedRuntimes=["custom"])
    await line7.put_device(device("press-1"))
    await line7.put_device({**able, "labels": {"acme.example/loader": 3}})
    await is_site(wfm, "line-7")
    await wfm.deploy("line-7", app="firmware")
    (listed,) = (await line7.listed(1))["deployments"]
    found = yaml.safe_load((await line7.get(listed["url"])).body)
    assert found["metadata"]["deviceId"] == "press-2"
    carried = found["spec"]["deploymentProfile"]
    assert (carried["type"], carried["x-acme-extensions"]) == ("custom", profile["x-acme-extensions"])
    assert carried["deviceConstraints"] == profile["deviceConstraints"]
    for sent, described in zip(carried["components"], profile["components"], strict=True):
        assert sent["properties"].items() >= described["properties"].items()
        assert sent.get("x-other-extensions") == described.get("x-other-extensions")


async def test_a_bundle_holds_exactly_the_files_of_its_manifest(wfm: WfmStand, line7: MargoClient) -> None:
    """Over the devices of a gateway: one manifest, one sequence of versions, one bundle."""
    await line7.put_device(gateway("gw1"))
    await line7.put_device(device("gw1/press-1"))
    await is_site(wfm, "line-7")
    versions = [(await line7.manifest()).json["manifestVersion"]]
    for number in range(3):
        await wfm.deploy("line-7", name=f"app-{number}")
        manifest = await line7.listed(number + 1)
        versions.append(manifest["manifestVersion"])
        bundle = (await line7.get(manifest["bundle"]["url"], **{"Accept-Encoding": "gzip"})).body
        assert digest_of(bundle) == manifest["bundle"]["digest"]
        with tarfile.open(fileobj=io.BytesIO(gzip.decompress(bundle))) as archive:
            members = archive.getmembers()
            digests = {digest_of(_read(archive, each)) for each in members}
        assert digests == {each["digest"] for each in manifest["deployments"]}
        assert len(members) == number + 1 and all("/" not in each.name and each.mode == 0o644 for each in members)
        for each in manifest["deployments"]:
            file = yaml.safe_load((await line7.get(each["url"])).body)
            assert file["id"] == each["deploymentId"]
    assert versions == sorted(set(versions)) and versions[0] == 1 and versions[-1] < 2**64


def port_of(wfm: WfmStand) -> int:
    return int(wfm.url.rpartition(":")[2])


def _read(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    stream = archive.extractfile(member)
    assert stream is not None
    return stream.read()


async def test_numbers_texts_and_nesting_that_nobody_could_store_are_refused(line7: MargoClient) -> None:
    good = json.dumps(device("press-1"))
    for code, name, all_wrong in (
        (
            422,
            "semantic-error",
            (
                good.replace('"Acme"', '"\\ud800"', 1),
                good.replace('"Acme"', '"\\u0000"', 1),
                good.replace("[{", '[{"cores": 1e999}, {', 1),
                good.replace("[{", f'[{{"cores": {2**64}}}, {{', 1),
                good.replace('"Acme"', '"Acme", "vendor": "Other"', 1),  # which of the two would be meant?
                good[:-1] + ', "properties": {}}',
                good[:-1] + ', "x-a-extensions": {"a": ' + "[" * 60 + "]" * 60 + "}}",
            ),
        ),
        # Not JSON at all, whatever Python thinks of it.
        (400, "invalid-request", (good.replace('"Acme"', "NaN", 1), good + "x", "\N{BYTE ORDER MARK}" + good)),
    ):
        for wrong in all_wrong:
            refused = await line7.call("PUT", "/api/v1/capabilities/press-1", data=wrong.encode())
            assert (refused.status, refused.problem) == (code, name), wrong
            assert (refused.json.get("errors", [{}])[0].get("field") == "body") is (code == 422)
    whole = json.dumps({**device("press-1"), "labels": {"a": 1.5, "b": [1, 2], "c": ["x"], "d": True, "e": "é"}})
    assert (await line7.call("PUT", "/api/v1/capabilities/press-1", data=whole.encode())).status == 201


async def test_a_version_may_be_written_as_any_json_number(wfm: WfmStand, line7: MargoClient) -> None:
    await line7.manifest()
    await is_site(wfm, "line-7")
    (deployment_id,) = await wfm.deploy("line-7")
    version = (await line7.listed(1))["manifestVersion"]
    body = json.dumps(status(deployment_id, version)).replace(f": {version}", f": {version}.0")
    path = f"/api/v1/deployments/{deployment_id}/status"
    assert (await line7.call("POST", path, data=body.encode())).status == 201
    shown = (await wfm.api.get("/api/v1/sites/line-7/devices")).body["statuses"]
    assert shown[0]["adopted_manifest_version"] == version


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
async def test_the_port_speaks_tls_1_3_alone_and_shows_the_identity_of_its_fleet_manager(wfm: WfmStand) -> None:
    port = int(wfm.url.rpartition(":")[2])
    context = await wfm.context("line-7")

    def shown() -> bytes:
        with socket.create_connection(("127.0.0.1", port)) as plain, context.wrap_socket(plain) as secured:
            assert (secured.version(), secured.selected_alpn_protocol()) == ("TLSv1.3", None)
            secured.sendall(b"GET /api/v1/deployments HTTP/1.1\r\nHost: x\r\n\r\n")
            assert secured.recv(4096).startswith(b"HTTP/1.1 200")
            # A session is never resumed, however hard the client asks for it.
            assert secured.session is None or not secured.session.has_ticket
            assert not secured.session_reused
            return secured.getpeercert(binary_form=True) or b""

    def offered(version: ssl.TLSVersion) -> None:
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
        old.set_ciphers("ALL:@SECLEVEL=0")
        old.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
        old.maximum_version = version
        with socket.create_connection(("127.0.0.1", port)) as plain, old.wrap_socket(plain):
            pass

    certificate = x509.load_der_x509_certificate(await run_sync(shown))
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    assert uris == ["spiffe://homeport.internal/margo/wfm/central"]
    key: Any = certificate.public_key()
    assert isinstance(key.curve, ec.SECP256R1)
    await run_sync(offered, ssl.TLSVersion.TLSv1_3)  # the same client, and nothing but its version differs
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_1, ssl.TLSVersion.TLSv1):
        with pytest.raises(ssl.SSLError, match="alert protocol version"):
            await run_sync(offered, version)

    def unnamed() -> bytes:
        nobody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        nobody.check_hostname, nobody.verify_mode = False, ssl.CERT_NONE
        with socket.create_connection(("127.0.0.1", port)) as plain, nobody.wrap_socket(plain) as secured:
            return secured.recv(1)

    with pytest.raises(ssl.SSLError, match="alert certificate required"):
        await run_sync(unnamed)


async def test_an_http_1_1_connection_is_plain_and_kept(wfm: WfmStand) -> None:
    context = await wfm.context("line-7")
    port = int(wfm.url.rpartition(":")[2])

    def asked() -> bytes:
        with socket.create_connection(("127.0.0.1", port)) as plain, context.wrap_socket(plain) as secured:
            request = b"GET /api/v1/deployments HTTP/1.1\r\nHost: x\r\n"
            secured.sendall(request + b"\r\n" + request + b"Connection: close\r\n\r\n")
            found = b""
            while part := secured.recv(65536):
                found += part
            return found

    answers = await run_sync(asked)
    assert answers.count(b"HTTP/1.1 200 OK\r\n") == 2
    assert answers.count(b"content-type: application/vnd.margo.manifest.v1+json\r\n") == 2


async def test_a_field_in_several_lines_is_one_list(wfm: WfmStand, line7: MargoClient) -> None:
    await line7.manifest()
    await is_site(wfm, "line-7")
    await wfm.deploy("line-7")
    manifest = await line7.listed(1)
    paths = ["/api/v1/deployments", manifest["bundle"]["url"]]

    async def status_of(path: str, *fields: tuple[str, str]) -> int:
        async with line7.session.get(line7.url + path, headers=CIMultiDict(fields)) as answer:
            return answer.status

    for path in paths:
        etag = (await line7.get(path)).headers["etag"]
        for lines in ((etag, '"other"'), ('"other"', etag), ('"a", "b"', f"W/{etag}, {etag}")):
            assert await status_of(path, *(("If-None-Match", each) for each in lines)) == 304, (path, lines)
        assert await status_of(path, ("If-None-Match", '"a"'), ("If-None-Match", '"b"')) == 200
    assert await status_of(paths[0], ("Accept", "text/html"), ("Accept", MANIFEST_TYPE)) == 200
    assert await status_of(paths[0], ("Accept", "text/html"), ("Accept", "application/json")) == 406


async def test_what_is_not_http_gets_a_problem_document(wfm: WfmStand) -> None:
    """Also where only the framing of the body is wrong."""
    head = b"PUT /api/v1/capabilities/press-1 HTTP/1.1\r\nHost: x\r\n"
    for request in (
        b"HALLO\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /api/v1/deployments HTTP/1.1\r\nHost : x\r\n\r\n",
        head + b"Transfer-Encoding: chunked\r\n\r\nno number\r\n",
        head + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
        head + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        head + b"Content-Length: -1\r\n\r\n{}",
    ):
        first, headers, body = await raw_answer(wfm, request)
        assert first.startswith(b"HTTP/1.1 400"), request
        assert headers >= {b"content-type: application/problem+json", b"connection: close"}
        assert_valid(json.loads(body), "problem-detail")
        assert json.loads(body)["type"] == f"{problems.SPACE}invalid-request"
    too_large = b"GET /api/v1/deployments HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 40_000 + b"\r\n\r\n"
    first, _, body = await raw_answer(wfm, too_large)
    assert first.startswith(b"HTTP/1.1 431") and json.loads(body)["type"] == "about:blank"
    assert_valid(json.loads(body), "problem-detail")


async def test_a_body_that_is_announced_is_asked_for_only_where_it_is_wanted(wfm: WfmStand) -> None:
    """And what is refused without it ends the connection: what follows may or may not be the body."""
    head = "{} HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: {}\r\n\r\n"
    for target, length, code in (
        ("PUT /api/v1/capabilities/press-1", 10**9, b"413"),
        ("POST /api/v1/nothing", 50, b"404"),
        ("POST /api/v1/deployments", 50, b"405"),
    ):
        first, headers, _ = await raw_answer(wfm, head.format(target, length).encode())
        assert first.split()[1] == code and b"connection: close" in headers
    content = json.dumps(device("press-1")).encode()
    asked = head.format("PUT /api/v1/capabilities/press-1", len(content)).encode()
    port, context = int(wfm.url.rpartition(":")[2]), await wfm.context("line-7")

    def reported() -> tuple[bytes, bytes]:
        with socket.create_connection(("127.0.0.1", port)) as plain, context.wrap_socket(plain) as secured:
            secured.settimeout(60)
            secured.sendall(asked)
            stream = secured.makefile("rb")
            goes_on = stream.readline() + stream.readline()
            secured.sendall(content)
            return goes_on, _response(stream)[0]

    goes_on, answer = await run_sync(reported)
    assert goes_on == b"HTTP/1.1 100 Continue\r\n\r\n" and answer.startswith(b"HTTP/1.1 201")


async def raw_answer(wfm: WfmStand, request: bytes) -> tuple[bytes, frozenset[bytes], bytes]:
    port, context = int(wfm.url.rpartition(":")[2]), await wfm.context("line-7")

    def asked() -> tuple[bytes, frozenset[bytes], bytes]:
        with socket.create_connection(("127.0.0.1", port)) as plain, context.wrap_socket(plain) as secured:
            secured.settimeout(60)
            secured.sendall(request)
            return _response(secured.makefile("rb"))

    return await run_sync(asked)


async def test_what_goes_wrong_inside_is_a_500_that_may_be_tried_again(wfm: WfmStand, line7: MargoClient) -> None:
    """Somebody has changed a table by hand. The client is told to come again, the rest goes on, and when the table is
    whole again, so is everything. A record that was damaged is replaced by the next report."""
    await line7.manifest()
    await is_site(wfm, "line-7")
    (deployment_id,) = await wfm.deploy("line-7")
    body = status(deployment_id, (await line7.listed(1))["manifestVersion"])
    etag = (await line7.manifest()).headers["etag"]
    assert (await line7.report(deployment_id, body)).status == 201

    def change(statement: str) -> None:
        with closing(sqlite3.connect(wfm.folder / "central" / "central.db", timeout=30)) as database, database:
            database.execute(statement)

    await run_sync(change, "UPDATE margo_statuses SET components = '{'")
    assert (await line7.report(deployment_id, body)).status == 201
    await run_sync(change, "ALTER TABLE margo_statuses RENAME COLUMN components TO parts")
    failed = await line7.report(deployment_id, body)
    assert failed.status == 500 and "about:blank" in failed.problem  # with its retry hints
    assert failed.headers["retry-after"] == str(failed.json["retryAfterSeconds"])
    assert failed.json["retryable"] is True and failed.json["backoffStrategy"] == "exponential"
    assert "JSON" not in failed.body.decode()  # what went wrong is for the log, not for a client
    head = await line7.call("HEAD", "/api/v1/deployments")
    assert (head.status, head.headers["etag"]) == (200, etag)
    async with wfm.client("line-8") as other:
        assert (await other.put_device(device("press-1"))).status == 201
    await run_sync(change, "ALTER TABLE margo_statuses RENAME COLUMN parts TO components")
    assert (await line7.report(deployment_id, body)).status == 200


async def test_a_client_that_floods_is_told_to_wait_and_others_are_not(wfm: WfmStand, line7: MargoClient) -> None:
    content = json.dumps(device("press-1")).encode()
    head = b"PUT /api/v1/capabilities/press-1 HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(content)
    streams = []
    for _ in range(REPORTS_MAX):
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(wfm), ssl=await wfm.context("line-7"))
        writer.write(head + content[:1])
        streams.append((reader, writer))

    async def refused() -> bool:
        return (await line7.put_device(device("press-1"))).status == 429

    await eventually(refused, what="all of them to be under way")
    for reply in (
        await line7.put_device(device("press-1")),
        await line7.call("DELETE", "/api/v1/capabilities/press-1"),
        await line7.report(UNKNOWN, status(UNKNOWN, 1)),
    ):
        assert (reply.status, reply.problem) == (429, "about:blank")  # which looks at the hints, too
        assert reply.headers["retry-after"] == str(reply.json["retryAfterSeconds"])
    assert (await line7.manifest()).status == 200
    async with wfm.client("line-8") as other:
        assert (await other.put_device(device("press-1"))).status == 201
    for _, writer in streams:
        writer.write(content[1:])
    answers = [(await reader.readline()).split()[1] for reader, _ in streams]
    assert set(answers) <= {b"200", b"201"}
    for _, writer in streams:
        writer.close()
    assert (await line7.put_device(device("press-1"))).status == 200


async def test_damaged_records_harm_their_own_client_alone_and_wrong_bytes_are_never_served(
    wfm: WfmStand, line7: MargoClient
) -> None:
    await line7.manifest()
    await is_site(wfm, "line-7")
    await wfm.deploy("line-7")
    manifest = await line7.listed(1)
    urls = [manifest["bundle"]["url"], manifest["deployments"][0]["url"]]

    def damage(*statements: str) -> None:
        with closing(sqlite3.connect(wfm.folder / "central" / "central.db", timeout=30)) as database, database:
            for statement in statements:
                assert database.execute(statement).rowcount > 0, statement

    # Other bytes at a digest: nothing is there, and the next manifest brings all of it back.
    for url, kind in ((urls[0], "IS NULL"), (urls[1], "IS NOT NULL")):
        await run_sync(damage, f"UPDATE margo_artifacts SET content = x'00' WHERE deployment_id {kind}")
        assert (await line7.get(url)).status == 404
        again = await line7.listed(1)
        assert again["manifestVersion"] > manifest["manifestVersion"] and again["bundle"] == manifest["bundle"]
        assert digest_of((await line7.get(url)).body) == url.rpartition("/")[2]
    # A record that cannot be read, or a file of which no copy is whole: its client waits, alone and told so.
    news = NewEvent(EventKind.SITE_DEVICES, datetime.now(UTC), "something of it changes", site=SiteName("line-7"))
    for name, statements in (
        ("line-6", ["UPDATE deployments SET site = x'00' WHERE site = 'line-7'"]),
        (
            "line-8",
            [
                "UPDATE deployments SET site = 'line-7' WHERE site = x'00'",
                "UPDATE margo_manifests SET recent = '{' WHERE site = 'line-7'",
            ],
        ),
        (
            "line-9",
            [
                "UPDATE margo_manifests SET recent = '[]', body = x'7b' WHERE site = 'line-7'",
                "UPDATE margo_artifacts SET content = x'00'",
                "UPDATE revisions SET content = x'00'",
            ],
        ),
    ):
        await run_sync(damage, *statements)
        await wfm.central.parts.store.write(lambda tx: tx.append_events([news]))

        async def fails() -> bool:
            return (await line7.manifest()).status == 503

        await eventually(fails, what="the damage to be noticed")
        replies: dict[str, Any] = {}
        async with wfm.client(name) as other, anyio.create_task_group() as tasks:

            async def ask(client: MargoClient, replies: dict[str, Any] = replies) -> None:
                replies[client.name] = await client.manifest()

            for client in (line7, other):
                tasks.start_soon(ask, client)
        assert {key: each.status for key, each in replies.items()} == {"line-7": 503, name: 200}
        assert "about:blank" in replies["line-7"].problem


async def test_a_certificate_that_is_no_longer_trusted_is_refused_on_an_open_connection(
    tmp_path: Path, wfm: WfmStand
) -> None:
    port, context = int(wfm.url.rpartition(":")[2]), await wfm.context("line-7")
    stranger = open_authority(tmp_path / "stranger", domain="homeport.internal")
    with socket.create_connection(("127.0.0.1", port)) as plain:
        secured = await run_sync(context.wrap_socket, plain)
        with secured:
            secured.settimeout(60)
            stream = secured.makefile("rb")

            def asked() -> tuple[bytes, frozenset[bytes], bytes]:
                secured.sendall(b"GET /api/v1/deployments HTTP/1.1\r\nHost: x\r\n\r\n")
                return _response(stream)

            assert (await run_sync(asked))[0].startswith(b"HTTP/1.1 200")
            wfm.central.parts.identity.credentials.install_bundle(stranger.bundle())
            answers = [await run_sync(asked)]

            async def is_refused() -> bool:
                if answers[-1][0].startswith(b"HTTP/1.1 200"):
                    answers.append(await run_sync(asked))
                return not answers[-1][0].startswith(b"HTTP/1.1 200")

            await eventually(is_refused, what="the connection to be refused")
    first, headers, body = answers[-1]
    assert first.startswith(b"HTTP/1.1 403") and b"connection: close" in headers
    assert_valid(json.loads(body), "problem-detail")
    assert json.loads(body)["type"] == f"{problems.SPACE}not-authorized"


async def test_what_comes_while_central_stops_is_told_when_to_come_again() -> None:
    async def unreachable(scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError("nothing reaches the application")

    stopping, listener = Stopping(), bind("127.0.0.1", 0)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    async with (
        http_server(unreachable, [listener], stopping, limits=Limits(), refuse=refuse_while_stopping),
        aiohttp.ClientSession() as session,
    ):
        stopping.set()
        reply = await MargoClient("", url, session).manifest()
    assert (reply.status, reply.problem) == (503, "about:blank")  # which looks at the hints, too
    assert reply.headers["retry-after"] == str(reply.json["retryAfterSeconds"])
    assert 5 <= reply.json["retryAfterSeconds"] <= 10  # not the same for all


async def test_a_connection_ends_when_it_is_too_old(tmp_path: Path) -> None:
    """Then the client shows its certificate again."""
    async with running_wfm(tmp_path, limits=Limits(connection_seconds=1.0)) as wfm:
        context = await wfm.context("line-7")
        port = int(wfm.url.rpartition(":")[2])

        def asked() -> tuple[bytes, bytes]:
            with socket.create_connection(("127.0.0.1", port)) as plain, context.wrap_socket(plain) as secured:
                secured.settimeout(30)
                secured.sendall(b"GET /api/v1/deployments HTTP/1.1\r\nHost: x\r\n\r\n")
                stream = secured.makefile("rb")
                return _response(stream)[0], stream.read()

        first, rest = await run_sync(asked)
        assert first.startswith(b"HTTP/1.1 200") and rest == b""


async def test_a_request_under_way_on_a_connection_that_is_too_old_is_answered(tmp_path: Path) -> None:
    async with running_wfm(tmp_path, limits=Limits(connection_seconds=1.0, body_seconds=60.0)) as wfm:
        context = await wfm.context("line-7")
        port = int(wfm.url.rpartition(":")[2])
        content = json.dumps(device("press-1")).encode()
        head = f"PUT /api/v1/capabilities/press-1 HTTP/1.1\r\nHost: x\r\nContent-Length: {len(content)}\r\n\r\n"

        def asked() -> tuple[bytes, frozenset[bytes], bytes]:
            with socket.create_connection(("127.0.0.1", port)) as plain, context.wrap_socket(plain) as secured:
                secured.settimeout(60)
                secured.sendall(head.encode() + content[:10])
                time.sleep(2.0)  # the connection becomes too old meanwhile
                secured.sendall(content[10:])
                stream = secured.makefile("rb")
                found = _response(stream)
                assert stream.read() == b""
                return found

        first, headers, _ = await run_sync(asked)
        assert first.startswith(b"HTTP/1.1 201") and b"connection: close" in headers


async def test_a_poll_from_memory_is_answered_like_one_through_the_application(wfm: WfmStand) -> None:
    """In order, also behind a request that takes longer, and one that has a body."""
    context = await wfm.context("line-7")
    port = int(wfm.url.rpartition(":")[2])

    def asked(*requests: bytes) -> list[tuple[bytes, frozenset[bytes], bytes]]:
        with socket.create_connection(("127.0.0.1", port)) as plain, context.wrap_socket(plain) as secured:
            secured.sendall(b"".join(requests))
            stream = secured.makefile("rb")
            return [_response(stream) for _ in requests]

    def poll(*headers: str, body: bytes = b"") -> bytes:
        lines = ["GET /api/v1/deployments HTTP/1.1", "Host: x", *headers]
        return "\r\n".join([*lines, "", ""]).encode() + body

    ((_, headers, manifest),) = await run_sync(asked, poll())
    (etag,) = [each.partition(b": ")[2].decode() for each in headers if each.startswith(b"etag")]
    content = json.dumps(device("press-1")).encode()
    report = b"PUT /api/v1/capabilities/press-1 HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(content)
    condition = f"If-None-Match: {etag}"
    found = await run_sync(
        asked,
        poll(f"Accept: {MANIFEST_TYPE}"),
        poll("Accept: */*"),
        report + content,
        poll(condition),
        poll(condition, "Accept: */*"),
        poll("Content-Length: 3", body=b"abc"),
    )
    assert [line.split()[1] for line, _, _ in found] == [b"200", b"200", b"201", b"304", b"304", b"200"]
    assert found[0] == found[1] == found[5] and found[0][1:] == (headers, manifest)
    assert found[3] == found[4] and found[3][2] == b""


def _response(stream: Any) -> tuple[bytes, frozenset[bytes], bytes]:
    """The status line, the headers but for the Date, which has to be there, and the body."""
    first, lines = stream.readline(), []
    while (line := stream.readline().strip()) != b"":
        lines.append(line)
    length = next((int(line.partition(b":")[2]) for line in lines if line.startswith(b"content-length")), 0)
    assert any(line.startswith(b"date: ") for line in lines)
    return first, frozenset(line for line in lines if not line.startswith(b"date: ")), stream.read(length)


async def test_what_is_refused_is_in_the_audit_trail(wfm: WfmStand, line7: MargoClient) -> None:
    await line7.manifest()
    await line7.put_device(device("press-1", supportedRuntimes=[]))
    await line7.report(UNKNOWN, status(UNKNOWN, 1))
    await line7.get("/api/v1/bundles/sha256:" + "0" * 64)

    async def recorded() -> set[tuple[str, str, str]]:
        entries = (await wfm.api.get("/api/v1/audit?limit=100")).body["entries"]
        return {(each["action"], each["actor"], each["result"]) for each in entries}

    wanted = {(f"margo.{name}", "line-7", "refused") for name in ("device-report", "status", "bundle")}

    async def all_there() -> bool:
        return wanted <= await recorded()

    await eventually(all_there)
