"""Finding and deleting what is there: tags, referrers, manifests, blobs."""

import pytest

from tests.support.own_registry import IMAGE, INDEX, Raw, digest_of


def follow(registry: Raw, path: str, key: str) -> list[list[object]]:
    """Every page, by the links from one to the next."""
    pages = []
    while path:
        answer = registry.call("GET", path)
        assert answer.status == 200
        pages.append(answer.json[key])
        link = answer.headers.get("link", "")
        path = link[link.index("/v2/") : link.index(">")] if link else ""
    return pages


def test_tags_are_listed_in_lexical_order_page_by_page(ours: Raw, name: str) -> None:
    manifest = ours.image(name, b"layer")
    for tag in ("c", "a", "d", "b", "latest"):
        assert ours.push(name, tag, manifest).status == 201
    path = f"/v2/{name}/tags/list"
    whole = ours.call("GET", path).json
    assert whole == {"name": name, "tags": ["a", "b", "c", "d", "latest"]}
    assert ours.call("GET", f"{path}?n=2").json["tags"] == ["a", "b"]
    assert ours.call("GET", f"{path}?n=2&last=b").json["tags"] == ["c", "d"]
    assert ours.call("GET", f"{path}?last=c").json["tags"] == ["d", "latest"]
    assert [tag for page in follow(ours, f"{path}?n=2", "tags") for tag in page] == whole["tags"]


def test_a_page_of_no_tags_is_empty_and_the_last_has_no_link(ours: Raw, name: str) -> None:
    ours.push_image(name, "a")
    assert ours.call("GET", f"/v2/{name}/tags/list?n=0").json["tags"] == []
    assert "link" not in ours.call("GET", f"/v2/{name}/tags/list?n=1").headers
    assert ours.call("GET", f"/v2/{name}/tags/list?n=1&last=zzz").json["tags"] == []


@pytest.mark.parametrize("n", ["-1", "x", "1e9", "9" * 30])
def test_a_page_that_cannot_be_is_refused(ours: Raw, name: str, n: str) -> None:
    ours.push_image(name, "a")
    assert ours.call("GET", f"/v2/{name}/tags/list?n={n}").status == 400


def test_what_refers_to_a_manifest_is_listed_also_before_that_is_there(ours: Raw, name: str) -> None:
    subject = {"mediaType": "application/vnd.oci.image.manifest.v1+json", "size": 1}
    image = ours.push_image(name, "1.0.0")
    signature = ours.image(
        name, b"signature", subject={**subject, "digest": image}, artifactType="a/sig", annotations={"by": "me"}
    )
    pushed = ours.push(name, "signed", signature)
    assert (pushed.status, pushed.headers["oci-subject"]) == (201, image)
    listed = ours.call("GET", f"/v2/{name}/referrers/{image}")
    assert (listed.status, listed.headers["content-type"]) == (200, INDEX)
    [found] = listed.json["manifests"]
    assert (found["artifactType"], found["annotations"]) == ("a/sig", {"by": "me"})
    assert found["digest"] == pushed.headers["docker-content-digest"]
    early = ours.image(name, b"early", subject={**subject, "digest": digest_of(b"later")})
    assert ours.push(name, "early", early).status == 201
    assert len(ours.call("GET", f"/v2/{name}/referrers/{digest_of(b'later')}").json["manifests"]) == 1


def test_referrers_are_filtered_by_type_and_without_any_the_list_is_empty(ours: Raw, name: str) -> None:
    image = ours.push_image(name, "1.0.0")
    empty = ours.call("GET", f"/v2/{name}/referrers/{image}")
    assert (empty.status, empty.json) == (200, {"schemaVersion": 2, "mediaType": INDEX, "manifests": []})
    subject = {"mediaType": "application/vnd.oci.image.manifest.v1+json", "size": 1, "digest": image}
    for kind in ("a/sbom", "a/sig"):
        ours.push_image(name, kind[2:], kind.encode(), subject=subject, artifactType=kind)
    filtered = ours.call("GET", f"/v2/{name}/referrers/{image}?artifactType=a/sbom")
    assert filtered.headers["oci-filters-applied"] == "artifactType"
    assert [each["artifactType"] for each in filtered.json["manifests"]] == ["a/sbom"]
    pages = follow(ours, f"/v2/{name}/referrers/{image}?n=1", "manifests")
    assert [len(page) for page in pages] == [1, 1]
    refused = ours.call("GET", f"/v2/{name}/referrers/nonsense")
    assert (refused.status, refused.code) == (400, "DIGEST_INVALID")


def test_a_tag_is_deleted_and_its_manifest_stays(ours: Raw, name: str) -> None:
    digest = ours.push_image(name, "old")
    assert ours.call("DELETE", f"/v2/{name}/manifests/old").status == 202
    assert ours.call("GET", f"/v2/{name}/manifests/old").status == 404
    assert ours.call("GET", f"/v2/{name}/manifests/{digest}").status == 200
    assert ours.call("GET", f"/v2/{name}/tags/list").json["tags"] == []
    assert ours.call("DELETE", f"/v2/{name}/manifests/old").status == 404


def test_a_manifest_is_deleted_with_its_tags(registry: Raw, name: str) -> None:
    digest = registry.push_image(name, "latest")
    registry.push(name, "other", registry.image(name, b"other"))
    assert registry.call("DELETE", f"/v2/{name}/manifests/{digest}").status == 202
    assert registry.call("GET", f"/v2/{name}/manifests/{digest}").status == 404
    assert registry.call("GET", f"/v2/{name}/manifests/latest").status == 404
    assert registry.call("GET", f"/v2/{name}/manifests/other", accept=IMAGE).status == 200


def test_a_version_that_was_deleted_may_be_pushed_anew(ours: Raw, name: str) -> None:
    ours.push_image(name, "1.0.0", b"first")
    assert ours.call("DELETE", f"/v2/{name}/manifests/1.0.0").status == 202
    assert ours.push_image(name, "1.0.0", b"second")


def test_a_deleted_referrer_is_no_longer_listed(ours: Raw, name: str) -> None:
    image = ours.push_image(name, "1.0.0")
    subject = {"mediaType": "application/vnd.oci.image.manifest.v1+json", "size": 1, "digest": image}
    signature = ours.push_image(name, "signed", b"signature", subject=subject)
    assert ours.call("DELETE", f"/v2/{name}/manifests/{signature}").status == 202
    assert ours.call("GET", f"/v2/{name}/referrers/{image}").json["manifests"] == []


def test_a_blob_is_deleted_from_its_repository_alone(registry: Raw, name: str) -> None:
    for each in ("first", "second"):
        registry.push_blob(f"{name}/{each}", b"shared")
    path = f"/v2/{name}/first/blobs/{digest_of(b'shared')}"
    assert registry.call("DELETE", path).status == 202
    assert registry.call("GET", path).status == 404
    assert registry.call("GET", f"/v2/{name}/second/blobs/{digest_of(b'shared')}").status == 200
    assert registry.call("DELETE", path).status == 404


def test_a_blob_that_a_manifest_needs_is_not_deleted(ours: Raw, name: str) -> None:
    ours.push_image(name, "latest", b"needed")
    refused = ours.call("DELETE", f"/v2/{name}/blobs/{digest_of(b'needed')}")
    assert (refused.status, refused.code) == (409, "DENIED")
    assert "delete that manifest first" in refused.json["errors"][0]["message"]


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/v2/x/unknown"), ("POST", "/v2/x/tags/list"), ("PATCH", "/v2/"), ("GET", "/else")]
)
def test_what_no_specification_has_is_said_so_in_the_envelope(ours: Raw, method: str, path: str) -> None:
    refused = ours.call(method, path, b"" if method != "GET" else None)
    assert refused.status in {404, 405}
    assert refused.code in {"NAME_UNKNOWN", "UNSUPPORTED"}
    assert refused.headers["content-type"] == "application/json"
