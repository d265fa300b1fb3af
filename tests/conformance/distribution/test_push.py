"""Pushing, as the OCI Distribution specification 1.1 has it: whole blobs, parts, mounts, manifests, and what is
refused."""

import json
import socket
from typing import Any

import pytest

from tests.support.own_registry import IMAGE, INDEX, OwnRegistry, Raw, Reply, digest_of
from tests.support.waiting import wait_for

LAYER = bytes(range(256)) * 40
OCTETS = "application/octet-stream"


def begin(registry: Raw, name: str) -> str:
    begun = registry.call("POST", f"/v2/{name}/blobs/uploads/", b"")
    assert begun.status == 202, begun
    return path_of(begun)


def path_of(answer: Reply) -> str:
    location = answer.headers["location"]
    return location[location.index("/v2/") :]


def with_digest(path: str, digest: str) -> str:
    return f"{path}{'&' if '?' in path else '?'}digest={digest}"


def send_part(registry: Raw, path: str, content: bytes, offset: int) -> Reply:
    where = f"{offset}-{offset + len(content) - 1}"
    return registry.call("PATCH", path, content, content_type=OCTETS, content_range=where)


def has_blob(registry: Raw, name: str, content: bytes) -> bool:
    answer = registry.call("GET", f"/v2/{name}/blobs/{digest_of(content)}")
    return answer.status == 200 and answer.body == content


# --- blobs ----------------------------------------------------------------------------------------------------


def test_a_blob_is_pushed_by_post_and_put(registry: Raw, name: str) -> None:
    done = registry.call("PUT", with_digest(begin(registry, name), digest_of(LAYER)), LAYER, content_type=OCTETS)
    assert done.status == 201
    assert done.headers["docker-content-digest"] == digest_of(LAYER)
    assert registry.call("GET", path_of(done)).body == LAYER


def test_a_blob_is_pushed_by_one_post(ours: Raw, name: str) -> None:
    """Debian's answers 202, which the specification permits."""
    path = f"/v2/{name}/blobs/uploads/?digest={digest_of(LAYER)}"
    done = ours.call("POST", path, LAYER, content_type=OCTETS)
    assert (done.status, path_of(done)) == (201, f"/v2/{name}/blobs/{digest_of(LAYER)}")
    assert has_blob(ours, name, LAYER)


def test_a_blob_is_pushed_in_parts_and_each_answer_says_how_far_it_is(registry: Raw, name: str) -> None:
    path = begin(registry, name)
    for offset in range(0, len(LAYER), 4096):
        part = LAYER[offset : offset + 4096]
        answer = send_part(registry, path, part, offset)
        assert (answer.status, answer.headers["range"]) == (202, f"0-{offset + len(part) - 1}")
        path = path_of(answer)
        shown = registry.call("GET", path)
        assert (shown.status, shown.headers["range"]) == (204, f"0-{offset + len(part) - 1}")
        path = path_of(shown)
    assert registry.call("PUT", with_digest(path, digest_of(LAYER)), b"").status == 201
    assert has_blob(registry, name, LAYER)


def test_the_last_part_may_come_with_the_end(registry: Raw, name: str) -> None:
    first = send_part(registry, begin(registry, name), LAYER[:100], 0)
    path = with_digest(path_of(first), digest_of(LAYER))
    rest = registry.call("PUT", path, LAYER[100:], content_type=OCTETS, content_range=f"100-{len(LAYER) - 1}")
    assert rest.status == 201
    assert has_blob(registry, name, LAYER)


def test_one_stream_without_a_range_is_a_part_too(registry: Raw, name: str) -> None:
    answer = registry.call("PATCH", begin(registry, name), LAYER, content_type=OCTETS)
    assert answer.status == 202
    assert registry.call("PUT", with_digest(path_of(answer), digest_of(LAYER)), b"").status == 201
    assert has_blob(registry, name, LAYER)


@pytest.mark.parametrize("offset", [0, 50, 200])
def test_a_part_out_of_order_is_416_and_changes_nothing(ours: Raw, name: str, offset: int) -> None:
    first = send_part(ours, begin(ours, name), LAYER[:100], 0)
    wrong = send_part(ours, path_of(first), b"x" * 10, offset)
    assert (wrong.status, wrong.code, wrong.headers["range"]) == (416, "BLOB_UPLOAD_INVALID", "0-99")
    rest = send_part(ours, path_of(wrong), LAYER[100:], 100)
    assert ours.call("PUT", with_digest(path_of(rest), digest_of(LAYER)), b"").status == 201


@pytest.mark.parametrize("header", ["bytes", "9-0", "a-b", "0-", "0-10"])
def test_a_range_that_cannot_be_is_refused(ours: Raw, name: str, header: str) -> None:
    answer = ours.call("PATCH", begin(ours, name), b"12345", content_range=header)
    assert answer.status in {400, 416}
    assert answer.code in {"BLOB_UPLOAD_INVALID", "SIZE_INVALID"}


def test_a_blob_with_another_digest_is_refused_and_leaves_nothing(registry: Raw, name: str) -> None:
    path = begin(registry, name)
    refused = registry.call("PUT", with_digest(path, digest_of(b"something else")), LAYER, content_type=OCTETS)
    assert (refused.status, refused.code) == (400, "DIGEST_INVALID")
    assert not has_blob(registry, name, LAYER)
    assert not has_blob(registry, name, b"something else")


def test_a_wrong_upload_is_gone_and_its_bytes_with_it(own: OwnRegistry, ours: Raw, name: str) -> None:
    path = begin(ours, name)
    assert ours.call("PUT", with_digest(path, digest_of(b"other")), LAYER).status == 400
    assert ours.call("GET", path).code == "BLOB_UPLOAD_UNKNOWN"
    assert not (own.folder / "uploads" / path.rpartition("/")[2]).exists()


@pytest.mark.parametrize("digest", ["sha256:123", "md5:" + "0" * 32, "sha256:" + "G" * 64, "nonsense"])
def test_what_is_not_a_digest_is_refused(ours: Raw, name: str, digest: str) -> None:
    refused = ours.call("PUT", with_digest(begin(ours, name), digest), LAYER)
    assert (refused.status, refused.code) == (400, "DIGEST_INVALID")


def test_an_upload_without_a_digest_at_its_end_is_refused(registry: Raw, name: str) -> None:
    refused = registry.call("PUT", begin(registry, name), LAYER)
    assert (refused.status, refused.code) == (400, "DIGEST_INVALID")


def test_an_upload_that_nobody_began_is_404(ours: Raw, name: str) -> None:
    unknown = f"/v2/{name}/blobs/uploads/{'0' * 32}"
    assert ours.call("GET", unknown).status == 404
    assert ours.call("PATCH", unknown, b"x", content_type=OCTETS).status == 404
    assert ours.call("PUT", with_digest(unknown, digest_of(b"x")), b"x").status == 404
    assert ours.call("DELETE", unknown).code == "BLOB_UPLOAD_UNKNOWN"


def test_an_upload_is_cancelled(registry: Raw, name: str) -> None:
    path = path_of(send_part(registry, begin(registry, name), LAYER, 0))
    assert registry.call("DELETE", path).status == 204
    assert registry.call("GET", path).status == 404


def test_a_truncated_upload_is_no_blob_and_goes_on_where_it_stopped(own: OwnRegistry, ours: Raw, name: str) -> None:
    path = with_digest(begin(ours, name), digest_of(LAYER))
    host, _, port = ours.host.partition(":")
    with socket.create_connection((host, int(port))) as line:
        head = f"PUT {path} HTTP/1.1\r\nHost: {ours.host}\r\nContent-Length: {len(LAYER)}\r\nExpect: 100-continue\r\n"
        line.sendall(f"{head}Authorization: {ours.headers['Authorization']}\r\n\r\n".encode())
        assert b"100 Continue" in line.recv(1000)
        line.sendall(LAYER[:5000])
        line.shutdown(socket.SHUT_WR)
        line.recv(1)
    file = own.folder / "uploads" / path.partition("?")[0].rpartition("/")[2]
    wait_for(lambda: file.read_bytes() == LAYER[:5000], what="what has come to be kept")
    assert not has_blob(ours, name, LAYER)
    seen = ours.call("GET", path.partition("?")[0])
    assert seen.headers["range"] == "0-4999"
    assert ours.call("PUT", path, LAYER[5000:], content_range=f"5000-{len(LAYER) - 1}").status == 201
    assert has_blob(ours, name, LAYER)


def test_a_blob_of_another_repository_is_mounted_without_being_sent(registry: Raw, name: str) -> None:
    digest = registry.push_blob(f"{name}/first", LAYER)
    mounted = registry.call("POST", f"/v2/{name}/second/blobs/uploads/?mount={digest}&from={name}/first", b"")
    assert (mounted.status, path_of(mounted)) == (201, f"/v2/{name}/second/blobs/{digest}")
    assert has_blob(registry, f"{name}/second", LAYER)


def test_a_mount_of_what_is_not_there_begins_an_upload(registry: Raw, name: str) -> None:
    answer = registry.call("POST", f"/v2/{name}/blobs/uploads/?mount={digest_of(LAYER * 2)}&from={name}/other", b"")
    assert answer.status == 202
    done = registry.call("PUT", with_digest(path_of(answer), digest_of(LAYER)), LAYER, content_type=OCTETS)
    assert done.status == 201


def test_a_blob_may_have_a_sha512_digest(ours: Raw, name: str) -> None:
    import hashlib

    digest = "sha512:" + hashlib.sha512(LAYER).hexdigest()
    assert ours.call("PUT", with_digest(begin(ours, name), digest), LAYER).status == 201
    assert ours.call("GET", f"/v2/{name}/blobs/{digest}").body == LAYER


# --- manifests ------------------------------------------------------------------------------------------------


def test_a_manifest_is_pushed_by_tag_and_the_answer_names_its_digest(registry: Raw, name: str) -> None:
    manifest = registry.image(name, LAYER)
    pushed = registry.push(name, "latest", manifest)
    digest = digest_of(json.dumps(manifest).encode())
    assert (pushed.status, pushed.headers["docker-content-digest"]) == (201, digest)
    assert path_of(pushed) == f"/v2/{name}/manifests/{digest}"


def test_a_manifest_is_pushed_by_digest_and_by_no_other(registry: Raw, name: str) -> None:
    manifest = registry.image(name, LAYER)
    assert registry.push(name, digest_of(json.dumps(manifest).encode()), manifest).status == 201
    refused = registry.push(name, digest_of(b"other"), manifest)
    assert (refused.status, refused.code) == (400, "DIGEST_INVALID")


def test_a_manifest_is_stored_byte_for_byte(registry: Raw, name: str) -> None:
    content = json.dumps(registry.image(name, LAYER), indent=7).encode() + b"\n\n"
    path = f"/v2/{name}/manifests/latest"
    assert registry.call("PUT", path, content, content_type=IMAGE).status == 201
    assert registry.call("GET", path, accept=IMAGE).body == content


def test_a_manifest_whose_blobs_are_missing_is_refused(registry: Raw, name: str) -> None:
    manifest = registry.image(name, LAYER)
    manifest["layers"][0]["digest"] = digest_of(b"nobody has pushed this")
    refused = registry.push(name, "latest", manifest)
    assert refused.status in {400, 404}
    assert {error["code"] for error in refused.json["errors"]} <= {"MANIFEST_BLOB_UNKNOWN", "BLOB_UNKNOWN"}
    assert registry.call("GET", f"/v2/{name}/manifests/latest").status == 404


def test_an_index_is_pushed_after_what_it_names(registry: Raw, name: str) -> None:
    child = registry.push_image(name, "amd64", LAYER)
    entry = {"mediaType": IMAGE, "digest": child, "size": 1, "platform": {"os": "linux", "architecture": "amd64"}}
    index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry]}
    assert registry.push(name, "latest", index).status == 201
    assert registry.call("GET", f"/v2/{name}/manifests/latest", accept=INDEX).headers["content-type"] == INDEX
    missing: dict[str, Any] = {**index, "manifests": [{**entry, "digest": digest_of(b"missing")}]}
    assert registry.push(name, "other", missing).status in {400, 404}


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b'{"schemaVersion": 1}', b'{"schemaVersion": 2}', b"[" * 100_000, b"\xff\xfe"],
)
def test_what_is_not_a_manifest_is_refused(ours: Raw, name: str, content: bytes) -> None:
    refused = ours.call("PUT", f"/v2/{name}/manifests/latest", content, content_type=IMAGE)
    assert (refused.status, refused.code) == (400, "MANIFEST_INVALID")


@pytest.mark.parametrize("media_type", ["", "text/plain", "application/vnd.docker.distribution.manifest.v1+json"])
def test_a_manifest_of_an_unknown_type_is_refused(ours: Raw, name: str, media_type: str) -> None:
    content = json.dumps({"schemaVersion": 2, "config": {}, "layers": []}).encode()
    refused = ours.call("PUT", f"/v2/{name}/manifests/latest", content, content_type=media_type)
    assert (refused.status, refused.code) == (400, "MANIFEST_INVALID")


def test_a_manifest_that_is_too_large_is_refused(ours: Raw, name: str) -> None:
    manifest = ours.image(name, LAYER, annotations={"a": "x" * 4 * 2**20})
    assert (ours.push(name, "latest", manifest).status) == 413


@pytest.mark.parametrize("tag", [".a", "-a", "a" * 129, "a%20b"])
def test_a_tag_that_cannot_be_is_refused(ours: Raw, name: str, tag: str) -> None:
    refused = ours.push(name, tag, ours.image(name, LAYER))
    assert (refused.status, refused.code) == (400, "MANIFEST_INVALID")


@pytest.mark.parametrize("version", ["1.0", "v1.2.3", "1.2.3-rc.1", "2.0.0_build.7"])
def test_a_version_never_gets_other_content(ours: Raw, name: str, version: str) -> None:
    first = ours.push_image(name, version, b"first")
    assert ours.push_image(name, version, b"first") == first
    refused = ours.push(name, version, ours.image(name, b"second"))
    assert (refused.status, refused.code) == (409, "DENIED"), "clients do not try again then"
    assert refused.json["errors"][0]["detail"]["reason"] == "TAG_IMMUTABLE"
    assert "a version never changes" in refused.json["errors"][0]["message"]
    assert ours.call("GET", f"/v2/{name}/manifests/{version}").headers["docker-content-digest"] == first


@pytest.mark.parametrize("tag", ["latest", "main", "7", "stable"])
def test_other_tags_move(registry: Raw, name: str, tag: str) -> None:
    registry.push_image(name, tag, b"first")
    second = registry.push_image(name, tag, b"second")
    found = registry.call("GET", f"/v2/{name}/manifests/{tag}", accept=IMAGE)
    assert found.headers["docker-content-digest"] == second


def test_a_push_over_the_quota_is_refused_and_leaves_nothing(own: OwnRegistry, ours: Raw, name: str) -> None:
    """The suite's registry has 64 MiB. Neither what announces its size nor what does not gets further."""
    before = own.portal.call(own.central.parts.registry.usage)
    content = b"x" * 65 * 2**20
    refused = ours.call("POST", f"/v2/{name}/blobs/uploads/?digest={digest_of(content)}", content)
    assert refused.status == 413
    path = begin(ours, name)
    half = b"y" * 40 * 2**20
    path = path_of(ours.call("PATCH", path, half))
    refused = ours.call("PATCH", path, half)
    assert (refused.status, refused.code) == (413, "DENIED")
    assert refused.json["errors"][0]["message"].startswith("The quota of 64 MiB is used up")
    assert ours.call("GET", path).status == 404
    assert own.portal.call(own.central.parts.registry.usage) == before
    assert ours.push_blob(name, LAYER)
