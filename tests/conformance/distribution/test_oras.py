"""The requests that `oras` makes, in its order: it logs in by the challenge of whatever it asks first, uploads each
blob with a POST and a PUT, and reads digests, types and sizes from headers."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.support.own_registry import IMAGE, INDEX, OwnRegistry, Raw, Reply, basic, digest_of, fresh_name

EMPTY = b"{}"
EMPTY_TYPE = "application/vnd.oci.empty.v1+json"
MANIFESTS = ", ".join(
    [
        "application/vnd.docker.distribution.manifest.v2+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        IMAGE,
        INDEX,
        "application/vnd.oci.artifact.manifest.v1+json",
    ]
)
NOTHING_HAS_IT = "sha256:" + "0" * 64


@dataclass
class Oras:
    """Asks without credentials until a challenge has said how to send them."""

    host: str
    password: str
    made: list[tuple[str, str, int]] = field(default_factory=list)
    """Method, path and status of each request."""
    headers: Mapping[str, str] = field(default_factory=dict)

    def call(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Reply:
        answer = Raw(self.host, self.headers).call(method, path, body, **headers)
        self.made.append((method, path.partition("?")[0], answer.status))
        if answer.status == 401 and not self.headers:
            scheme, _, parameters = answer.headers["www-authenticate"].partition(" ")
            assert (scheme.lower(), parameters.partition("=")[0]) == ("basic", "realm")
            self.headers = basic(self.password)
            return self.call(method, path, body, **headers)
        return answer

    def resolve(self, name: str, reference: str) -> dict[str, Any]:
        """The descriptor of a manifest, from the headers of HEAD alone."""
        answer = self.call("HEAD", f"/v2/{name}/manifests/{reference}", accept=MANIFESTS)
        assert (answer.status, answer.body) == (200, b""), answer
        return {
            "mediaType": answer.headers["content-type"],
            "digest": answer.headers["docker-content-digest"],
            "size": int(answer.headers["content-length"]),
        }

    def push_blob(self, name: str, content: bytes, media_type: str) -> dict[str, Any]:
        digest = digest_of(content)
        descriptor = {"mediaType": media_type, "digest": digest, "size": len(content)}
        there = self.call("HEAD", f"/v2/{name}/blobs/{digest}")
        if there.status == 200:
            assert (there.headers["content-length"], there.headers["docker-content-digest"]) == (
                str(len(content)),
                digest,
            )
            return descriptor
        assert there.status == 404
        begun = self.call("POST", f"/v2/{name}/blobs/uploads/", b"")
        assert begun.status == 202
        place = begun.headers["location"]
        assert place.startswith("/v2/") or place.startswith(f"http://{self.host}/v2/"), "credentials stay here"
        path = place[place.index("/v2/") :]
        path += f"{'&' if '?' in path else '?'}digest={digest.replace(':', '%3A')}"
        assert self.call("PUT", path, content, content_type="application/octet-stream").status == 201
        return descriptor

    def push_manifest(self, name: str, manifest: Mapping[str, Any], tag: str = "") -> Reply:
        content = json.dumps(manifest).encode()
        digest = digest_of(content)
        assert self.call("HEAD", f"/v2/{name}/manifests/{digest}", accept=manifest["mediaType"]).status == 404
        pushed = self.call(
            "PUT", f"/v2/{name}/manifests/{tag or digest}", content, content_type=manifest["mediaType"]
        )
        assert (pushed.status, pushed.headers["docker-content-digest"]) == (201, digest), pushed
        return pushed

    def push(self, name: str, tag: str, files: Mapping[str, bytes], artifact_type: str, **more: Any) -> Reply:
        """`oras push --artifact-type`, or with a subject `oras attach`, which has no tag."""
        layers = [
            {
                **self.push_blob(name, content, "text/plain"),
                "annotations": {"org.opencontainers.image.title": title},
            }
            for title, content in files.items()
        ]
        manifest = {
            "schemaVersion": 2,
            "mediaType": IMAGE,
            "artifactType": artifact_type,
            "config": {**self.push_blob(name, EMPTY, EMPTY_TYPE), "data": "e30="},
            "layers": layers,
            **more,
            "annotations": {"org.opencontainers.image.created": "2030-01-01T00:00:00Z"},
        }
        return self.push_manifest(name, manifest, tag)

    def attach(self, name: str, tag: str, files: Mapping[str, bytes], artifact_type: str) -> str:
        subject = self.resolve(name, tag)
        attached = self.push(name, "", files, artifact_type, subject=subject)
        # Without this header it would write the list of referrers itself, under a tag.
        assert attached.headers["oci-subject"] == subject["digest"]
        return attached.headers["docker-content-digest"]

    def discover(self, name: str, digest: str, artifact_type: str = "") -> list[dict[str, Any]]:
        query = f"?artifactType={artifact_type.replace('/', '%2F')}" if artifact_type else ""
        answer = self.call("GET", f"/v2/{name}/referrers/{digest}{query}")
        assert (answer.status, answer.headers["content-type"]) == (200, INDEX)
        if artifact_type:
            assert answer.headers["oci-filters-applied"] == "artifactType"
        found: list[dict[str, Any]] = answer.json["manifests"]
        return found

    def pull(self, name: str, reference: str) -> dict[str, bytes]:
        answer = self.call("GET", f"/v2/{name}/manifests/{reference}", accept=MANIFESTS)
        assert (answer.status, answer.headers["docker-content-digest"]) == (200, digest_of(answer.body))
        files = {}
        for layer in answer.json["layers"]:
            blob = self.call("GET", f"/v2/{name}/blobs/{layer['digest']}")
            assert (blob.headers["content-length"], blob.headers["accept-ranges"]) == (str(layer["size"]), "bytes")
            assert digest_of(blob.body) == layer["digest"]
            files[layer["annotations"]["org.opencontainers.image.title"]] = blob.body
        return files


@pytest.fixture
def oras(own: OwnRegistry) -> Oras:
    return Oras(own.host, own.local_key)


def test_login_asks_the_root_and_then_sends_what_the_challenge_asks_for(oras: Oras) -> None:
    assert oras.call("GET", "/v2/").status == 200
    assert oras.made == [("GET", "/v2/", 401), ("GET", "/v2/", 200)]


def test_a_push_without_an_earlier_question_learns_how_to_log_in_from_its_first_answer(oras: Oras, name: str) -> None:
    oras.push(name, "1.0.0", {"a.txt": b"hello"}, "text/example")
    (first, *others) = oras.made
    assert first == ("HEAD", f"/v2/{name}/blobs/{digest_of(b'hello')}", 401)
    assert [status for _, _, status in others] == [404, 202, 201, 404, 202, 201, 404, 201]


def test_what_is_pushed_is_pulled_by_tag_and_by_digest(oras: Oras, name: str) -> None:
    pushed = oras.push(name, "1.0.0", {"a.txt": b"hello", "b.txt": b"there"}, "text/example")
    digest = pushed.headers["docker-content-digest"]
    assert oras.pull(name, "1.0.0") == oras.pull(name, digest) == {"a.txt": b"hello", "b.txt": b"there"}
    assert oras.resolve(name, "1.0.0")["digest"] == digest


def test_a_blob_that_is_there_is_not_sent_again(oras: Oras, name: str) -> None:
    oras.push(name, "1.0.0", {"a.txt": b"hello"}, "text/example")
    oras.made.clear()
    oras.push(name, "1.1.0", {"a.txt": b"hello", "b.txt": b"more"}, "text/example")
    assert [method for method, _, _ in oras.made] == ["HEAD", "HEAD", "POST", "PUT", "HEAD", "HEAD", "PUT"]


def test_what_is_attached_is_discovered_by_its_type_and_what_is_attached_to_that_too(oras: Oras, name: str) -> None:
    image = oras.push(name, "1.0.0", {"a.txt": b"hello"}, "text/example").headers["docker-content-digest"]
    assert oras.discover(name, NOTHING_HAS_IT) == [], "how it asks whether there are referrers at all"
    assert oras.discover(name, image) == []
    bill = oras.attach(name, "1.0.0", {"sbom.json": b"{...}"}, "example/sbom")
    signature = oras.attach(name, "1.0.0", {"sig": b"signed"}, "example/signature")
    of_bill = oras.attach(name, bill, {"sig": b"signed too"}, "example/signature")
    assert {each["digest"] for each in oras.discover(name, image)} == {bill, signature}
    (found,) = oras.discover(name, image, "example/sbom")
    assert (found["digest"], found["artifactType"], found["mediaType"]) == (bill, "example/sbom", IMAGE)
    assert found["annotations"] == {"org.opencontainers.image.created": "2030-01-01T00:00:00Z"}
    assert [each["digest"] for each in oras.discover(name, bill)] == [of_bill]
    assert oras.pull(name, bill) == {"sbom.json": b"{...}"}


def test_a_copy_mounts_the_blobs_and_pushes_the_same_manifest(oras: Oras, name: str) -> None:
    oras.push(name, "1.0.0", {"a.txt": b"hello"}, "text/example")
    manifest = oras.call("GET", f"/v2/{name}/manifests/1.0.0", accept=MANIFESTS)
    for each in (*manifest.json["layers"], manifest.json["config"]):
        mounted = oras.call("POST", f"/v2/{name}/copy/blobs/uploads/?mount={each['digest']}&from={name}", b"")
        assert (mounted.status, mounted.headers["docker-content-digest"]) == (201, each["digest"])
    copied = oras.call("PUT", f"/v2/{name}/copy/manifests/1.0.0", manifest.body, content_type=IMAGE)
    assert copied.headers["docker-content-digest"] == digest_of(manifest.body)
    assert oras.pull(f"{name}/copy", "1.0.0") == {"a.txt": b"hello"}


def test_repositories_and_tags_are_listed_page_by_page(oras: Oras) -> None:
    """`oras repo ls` and `oras repo tags`, which follow the links."""
    base = fresh_name()
    for each in ("a", "b", "c"):
        oras.push(f"{base}/{each}", "1.0.0", {"a.txt": each.encode()}, "text/example")
    oras.push(f"{base}/a", "2.0.0", {"a.txt": b"second"}, "text/example")
    path, listed = f"/v2/_catalog?n=2&last={base}", list[str]()
    while path:
        answer = oras.call("GET", path)
        assert answer.status == 200 and len(answer.json["repositories"]) <= 2
        listed += answer.json["repositories"]
        link = answer.headers.get("link", "")
        path = link[link.index("/v2/") : link.index(">")] if link else ""
    assert [each for each in listed if each.startswith(f"{base}/")] == [f"{base}/{each}" for each in "abc"]
    assert oras.call("GET", f"/v2/{base}/a/tags/list").json["tags"] == ["1.0.0", "2.0.0"]


def test_what_is_deleted_is_neither_there_nor_discovered(oras: Oras, name: str) -> None:
    image = oras.push(name, "1.0.0", {"a.txt": b"hello"}, "text/example").headers["docker-content-digest"]
    bill = oras.attach(name, "1.0.0", {"sbom.json": b"{...}"}, "example/sbom")
    assert oras.call("DELETE", f"/v2/{name}/manifests/{bill}").status == 202
    assert oras.discover(name, image) == []
    assert oras.call("HEAD", f"/v2/{name}/manifests/{bill}", accept=MANIFESTS).status == 404
