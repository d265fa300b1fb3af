"""Pulling, as the OCI Distribution specification 1.1 has it. Each test is one of its MUSTs, or a SHOULD that clients
count on."""

import pytest

from tests.support.own_registry import IMAGE, Raw, digest_of

UNKNOWN = digest_of(b"nobody has pushed this")
LAYER = bytes(range(256)) * 40


def test_a_registry_answers_at_its_root(registry: Raw) -> None:
    assert registry.call("GET", "/v2/").status == 200


def test_a_manifest_is_pulled_by_tag_and_by_digest_with_its_type_and_digest(registry: Raw, name: str) -> None:
    digest = registry.push_image(name, "latest", LAYER)
    for reference in ("latest", digest):
        found = registry.call("GET", f"/v2/{name}/manifests/{reference}", accept=IMAGE)
        assert (found.status, found.headers["content-type"]) == (200, IMAGE)
        assert found.headers["docker-content-digest"] == digest == digest_of(found.body)


def test_head_of_a_manifest_tells_what_get_would_without_a_body(registry: Raw, name: str) -> None:
    digest = registry.push_image(name, "latest", LAYER)
    whole = registry.call("GET", f"/v2/{name}/manifests/latest", accept=IMAGE)
    head = registry.call("HEAD", f"/v2/{name}/manifests/latest", accept=IMAGE)
    assert (head.status, head.body, head.headers["docker-content-digest"]) == (200, b"", digest)
    assert head.headers["content-length"] == str(len(whole.body))


@pytest.mark.parametrize("reference", ["missing", UNKNOWN])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_manifest_that_is_not_there_is_404(registry: Raw, name: str, method: str, reference: str) -> None:
    registry.push_image(name, "latest")
    answer = registry.call(method, f"/v2/{name}/manifests/{reference}")
    assert answer.status == 404
    if method == "GET":
        assert answer.code == "MANIFEST_UNKNOWN"


def test_a_known_manifest_is_not_sent_again(ours: Raw, name: str) -> None:
    ours.push_image(name, "latest")
    etag = ours.call("GET", f"/v2/{name}/manifests/latest").headers["etag"]
    again = ours.call("GET", f"/v2/{name}/manifests/latest", if_none_match=etag)
    assert (again.status, again.body, again.headers["etag"]) == (304, b"", etag)
    assert ours.call("GET", f"/v2/{name}/manifests/latest", if_none_match='"sha256:0"').status == 200


def test_a_blob_is_pulled_and_its_head_tells_its_size(registry: Raw, name: str) -> None:
    digest = registry.push_blob(name, LAYER)
    found = registry.call("GET", f"/v2/{name}/blobs/{digest}")
    assert (found.status, found.body) == (200, LAYER)
    assert found.headers["docker-content-digest"] == digest
    head = registry.call("HEAD", f"/v2/{name}/blobs/{digest}")
    assert (head.status, head.body, head.headers["content-length"]) == (200, b"", str(len(LAYER)))
    assert head.headers["docker-content-digest"] == digest


def test_a_blob_of_no_bytes_is_a_blob(registry: Raw, name: str) -> None:
    digest = registry.push_blob(name, b"")
    found = registry.call("GET", f"/v2/{name}/blobs/{digest}")
    assert (found.status, found.body) == (200, b"")


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_blob_that_is_not_there_is_404(registry: Raw, name: str, method: str) -> None:
    registry.push_blob(name, b"another")
    answer = registry.call(method, f"/v2/{name}/blobs/{UNKNOWN}")
    assert answer.status == 404
    if method == "GET":
        assert answer.code == "BLOB_UNKNOWN"


def test_a_blob_of_another_repository_is_404(registry: Raw, name: str) -> None:
    digest = registry.push_blob(f"{name}/first", b"only there")
    registry.push_blob(f"{name}/second", b"something")
    assert registry.call("GET", f"/v2/{name}/second/blobs/{digest}").status == 404


@pytest.mark.parametrize(
    ("asked", "offset", "count"), [("bytes=0-9", 0, 10), ("bytes=100-", 100, 10_140), ("bytes=-5", 10_235, 5)]
)
def test_a_part_of_a_blob_is_pulled(registry: Raw, name: str, asked: str, offset: int, count: int) -> None:
    digest = registry.push_blob(name, LAYER)
    found = registry.call("GET", f"/v2/{name}/blobs/{digest}", range=asked)
    assert (found.status, found.body) == (206, LAYER[offset : offset + count])
    assert found.headers["content-range"] == f"bytes {offset}-{offset + count - 1}/{len(LAYER)}"


def test_a_part_behind_the_end_of_a_blob_is_416(ours: Raw, name: str) -> None:
    """Debian's announces the length of the blob then, and sends less."""
    digest = ours.push_blob(name, LAYER)
    answer = ours.call("GET", f"/v2/{name}/blobs/{digest}", range="bytes=20000-")
    assert (answer.status, answer.headers["content-range"]) == (416, f"bytes */{len(LAYER)}")


def test_a_known_blob_is_not_sent_again(ours: Raw, name: str) -> None:
    digest = ours.push_blob(name, LAYER)
    assert ours.call("GET", f"/v2/{name}/blobs/{digest}", if_none_match=f'"{digest}"').status == 304
    changed = ours.call("GET", f"/v2/{name}/blobs/{digest}", range="bytes=0-3", if_range='"sha256:other"')
    assert (changed.status, changed.body) == (200, LAYER)


def test_nothing_of_an_unknown_repository_is_there(registry: Raw, name: str) -> None:
    assert registry.call("GET", f"/v2/{name}/manifests/latest").status == 404
    assert registry.call("GET", f"/v2/{name}/blobs/{UNKNOWN}").status == 404
    assert registry.call("GET", f"/v2/{name}/tags/list").code == "NAME_UNKNOWN"


@pytest.mark.parametrize("bad", ["UPPER", "a//b", "-a", "a_", "a" * 256, "a.", "%20", "..", "a/../b"])
def test_a_name_that_cannot_be_is_refused(ours: Raw, bad: str) -> None:
    answer = ours.call("GET", f"/v2/{bad}/manifests/latest")
    assert answer.status in {400, 404}
    assert answer.code in {"NAME_INVALID", "NAME_UNKNOWN"}
    pushed = ours.call("POST", f"/v2/{bad}/blobs/uploads/", b"")
    assert (pushed.status, pushed.code) == (400, "NAME_INVALID")
