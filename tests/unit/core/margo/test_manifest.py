"""State Manifests: their bytes, their digests, and what a reader refuses."""

import gzip
import io
import json
import tarfile
import tracemalloc
from typing import Any

import pytest

from homeport.core.margo.bundle import pack, unpack
from homeport.core.margo.manifest import (
    BUNDLE_TYPE,
    DEPLOYMENTS_MAX,
    MANIFEST_BYTES_MAX,
    Manifest,
    ManifestDeployment,
    digest_of,
    etag_of,
    is_digest,
    next_version,
    parse,
    render,
)
from homeport.core.margo.text import accepts, gateway_of, is_device_id, is_not_modified, site_of_client
from homeport.errors import InvalidInput
from homeport.vocabulary import DeploymentId
from tests.support.vectors import load_json

ONE = DeploymentId("3b0a2f1e-6d0c-4f0a-9c51-0f3a54f0a001")
TWO = DeploymentId("3b0a2f1e-6d0c-4f0a-9c51-0f3a54f0a002")
DIGESTS = load_json("digest")


@pytest.mark.parametrize("case", DIGESTS["cases"], ids=lambda case: case["id"])
def test_digests_and_etags_are_those_of_the_vectors(case: dict[str, str]) -> None:
    digest = digest_of(case["body"].encode())
    assert digest == case["digest"] and is_digest(digest)
    assert etag_of(digest) == case.get("etag", f'"{case["digest"]}"')


@pytest.mark.parametrize("text", DIGESTS["invalid_digest_strings"])
def test_what_is_not_a_lowercase_sha256_is_no_digest(text: str) -> None:
    assert not is_digest(text)


def test_an_empty_manifest_has_exactly_these_bytes() -> None:
    assert render(Manifest(1, ())) == b'{"bundle":null,"deployments":[],"manifestVersion":1}'


def manifest(version: int = 7) -> tuple[Manifest, dict[DeploymentId, bytes], bytes]:
    files = {TWO: b"two", ONE: b"one"}
    bundle = pack(files)
    listed = tuple(ManifestDeployment(key, digest_of(content), len(content)) for key, content in files.items())
    return Manifest(version, listed, digest_of(bundle), len(bundle)), files, bundle


def test_a_manifest_is_read_back_and_its_bytes_do_not_depend_on_order() -> None:
    made, _, _ = manifest()
    assert set(parse(render(made)).deployments) == set(made.deployments)
    reversed_ = Manifest(made.version, made.deployments[::-1], made.bundle, made.bundle_bytes)
    assert render(reversed_) == render(made)


def test_a_bundle_is_reproducible_and_holds_exactly_what_is_listed() -> None:
    made, files, bundle = manifest()
    assert pack(dict(reversed(files.items()))) == bundle
    assert unpack(bundle, made) == files
    with pytest.raises(InvalidInput, match="lacks 1"):
        unpack(pack({ONE: b"one"}), made)
    with pytest.raises(InvalidInput, match="1 other"):
        unpack(pack({**files, DeploymentId("x"): b"three"}), made)
    for broken in (b"", b"no gzip", bundle[:-20], bundle[:40]):
        with pytest.raises(InvalidInput):
            unpack(broken, made)


def test_a_file_of_a_bundle_is_never_larger_than_the_bundle() -> None:
    """One with holes says any size, and reading it would take that much memory."""
    made, _, _ = manifest()
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as archive:
        entry = tarfile.TarInfo("a.yaml")
        entry.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": str(2**28)}
        entry.size = 512
        archive.addfile(entry, io.BytesIO(b"1\n0\n0\n".ljust(512, b"\0")))
    tracemalloc.start()
    try:
        with pytest.raises(InvalidInput, match="1 other"):
            unpack(gzip.compress(plain.getvalue()), made)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"manifestVersion": 0}, "manifestVersion"),
        ({"manifestVersion": "7"}, "manifestVersion"),
        ({"manifestVersion": True}, "manifestVersion"),
        ({"manifestVersion": 2**64}, "manifestVersion"),
        ({"bundle": None}, "exactly where"),
        ({"deployments": []}, "exactly where"),
        ({"deployments": {}}, "lacks"),
        ({"deployments": [7]}, "no deploymentId"),
        ({"deployments": [{"deploymentId": 7}]}, "no deploymentId"),
        ({"deployments": [{}] * (DEPLOYMENTS_MAX + 1)}, "more than"),
    ],
)
def test_a_manifest_that_is_not_one_is_refused_as_a_whole(change: dict[str, Any], why: str) -> None:
    data = {**json.loads(render(manifest()[0])), **change}
    with pytest.raises(InvalidInput, match=why):
        parse(json.dumps(data).encode())


def test_what_is_left_out_or_listed_twice_makes_the_whole_manifest_invalid() -> None:
    whole = json.loads(render(manifest()[0]))
    for name, why in (("manifestVersion", "manifestVersion"), ("bundle", "lacks"), ("deployments", "lacks")):
        with pytest.raises(InvalidInput, match=why):
            parse(json.dumps({key: value for key, value in whole.items() if key != name}).encode())
    twice = {**whole, "deployments": whole["deployments"] * 2}
    with pytest.raises(InvalidInput, match="twice"):
        parse(json.dumps(twice).encode())
    for wrong in ("../x", "a/b", "", ".", "a b", "x" * 201):
        with pytest.raises(InvalidInput, match="part of a path"):
            parse(with_id(wrong))
    for content, why in ((b"[]", "not an object"), (b"{", "not JSON"), (b" " * (MANIFEST_BYTES_MAX + 1), "larger")):
        with pytest.raises(InvalidInput, match=why):
            parse(content)


def test_one_digest_of_another_algorithm_makes_the_whole_manifest_invalid() -> None:
    data = json.loads(render(manifest()[0]))
    data["deployments"][1]["digest"] = "sha512:" + "0" * 128
    with pytest.raises(InvalidInput, match="not a sha256 digest"):
        parse(json.dumps(data).encode())


def test_a_url_that_leads_elsewhere_and_a_wrong_media_type_are_refused() -> None:
    data = json.loads(render(manifest()[0]))
    data["bundle"]["url"] = "https://elsewhere.example/bundle"
    with pytest.raises(InvalidInput, match="url"):
        parse(json.dumps(data).encode())
    data = json.loads(render(manifest()[0]))
    data["bundle"]["mediaType"] = "application/zip"
    with pytest.raises(InvalidInput, match="type"):
        parse(json.dumps(data).encode())


def test_an_id_in_capitals_is_fetched_as_it_was_announced() -> None:
    """The same deployment for us, and another path for a manager that compares letter by letter."""
    (known,) = parse(with_id(ONE)).deployments
    (announced,) = parse(with_id(ONE.upper())).deployments
    assert announced.deployment_id == known.deployment_id == ONE
    assert announced.url == f"/api/v1/deployments/{ONE.upper()}/{announced.digest}"


def with_id(text: str) -> bytes:
    digest = digest_of(b"x")
    listed = {"deploymentId": text, "digest": digest, "url": f"/api/v1/deployments/{text}/{digest}"}
    bundle = {"digest": digest, "mediaType": BUNDLE_TYPE, "url": f"/api/v1/bundles/{digest}"}
    return json.dumps({"bundle": bundle, "deployments": [listed], "manifestVersion": 7}).encode()


@pytest.mark.parametrize(
    ("text", "version"), [("7.0", 7), ("7e0", 7), ("70e-1", 7), ("18446744073709551615", 2**64 - 1)]
)
def test_a_version_is_a_number_however_it_is_written(text: str, version: int) -> None:
    body = b'{"bundle":null,"deployments":[],"manifestVersion":%s}' % text.encode()
    assert parse(body).version == version


@pytest.mark.parametrize(
    "text", ["7.5", "1e30", "18446744073709551616", "1.8446744073709552e19", "true", '"7"', "0.0"]
)
def test_what_is_not_exactly_a_version_is_none(text: str) -> None:
    with pytest.raises(InvalidInput, match="manifestVersion"):
        parse(b'{"bundle":null,"deployments":[],"manifestVersion":%s}' % text.encode())


def test_a_wrong_size_is_no_failure() -> None:
    data = json.loads(render(manifest()[0]))
    data["deployments"][0]["sizeBytes"] = 1
    assert len(parse(json.dumps(data).encode()).deployments) == 2


def test_versions_begin_with_one_and_then_follow_the_clock_without_going_back() -> None:
    assert next_version(None, now_ms=1_800_000_000) == 1
    assert next_version(1, now_ms=1_800_000_000) == 1_800_000_000
    assert next_version(1_800_000_000, now_ms=1_800_000_000) == 1_800_000_001
    assert next_version(1_800_000_005, now_ms=1_700_000_000) == 1_800_000_006


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ('"a"', True),
        ('W/"a"', True),
        ('"b", "a"', True),
        ("*", True),
        ('"b"', False),
        ("a", False),
        ("", False),
    ],
)
def test_if_none_match(field: str, expected: bool) -> None:
    assert is_not_modified(field, '"a"') is expected


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ("application/vnd.margo.manifest.v1+json", True),
        ("*/*", True),
        ("application/*", True),
        ("text/html, */*;q=0.1", True),
        ("application/json", False),
        ("application/vnd.margo.manifest.v1+json;q=0, */*", False),
        ("text/*", False),
        ("text/html, image/gif, *; q=.2", True),
        ("*;q=0", False),
        ("*/*;version=0", True),
        ("", True),
        (" , ,", True),
    ],
)
def test_accept(field: str, expected: bool) -> None:
    assert accepts(field, "application/vnd.margo.manifest.v1+json") is expected


@pytest.mark.parametrize("case", load_json("formats")["deviceId"], ids=lambda case: case["value"])
def test_device_ids(case: dict[str, Any]) -> None:
    assert is_device_id(case["value"]) is (case["valid"] and not case["value"].endswith("*"))


def test_a_child_belongs_to_the_first_segment() -> None:
    assert gateway_of("gw1/path/press") == "gw1"
    assert gateway_of("press") is None


def test_every_client_is_a_site_of_its_own() -> None:
    assert site_of_client("line-7") == "line-7"
    names = {site_of_client(name) for name in ("Line_7", "line_7", "LINE.7", "a" * 100, "...", "line-7")}
    assert len(names) == 6
    assert all(len(name) <= 63 for name in names)
