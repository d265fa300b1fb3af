"""Reading which images a component runs, and how large they are, from a registry that may misbehave."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from homeport.adapters.registry.image_inspection import KEPT_SECONDS, ImageInspection, located_image
from homeport.adapters.registry.oci import OciRegistry
from homeport.adapters.registry.upstream import RegistryUpstream
from homeport.core.archive import pack_archive
from homeport.core.custom import OURS
from homeport.core.model.deployment import ComponentSpec
from homeport.vocabulary import ProfileType
from tests.support.clock import ManualClock
from tests.support.scripted_registry import Fault, ScriptedRegistry, digest_of, scripted_registry

pytestmark = pytest.mark.anyio

COMPOSE = b"services: {web: {image: 'team/web:${TAG:-1.0}'}, cache: {image: redis}}"


@pytest.fixture
async def registry() -> AsyncIterator[ScriptedRegistry]:
    async with scripted_registry() as registry:
        yield registry


def inspection(clock: ManualClock | None = None) -> ImageInspection:
    monotonic = (clock or ManualClock()).monotonic
    return ImageInspection(OciRegistry(timeout_seconds=5), RegistryUpstream(timeout_seconds=5), monotonic=monotonic)


def component(registry: ScriptedRegistry, tag: str, **environment: str) -> ComponentSpec:
    return ComponentSpec("web", ProfileType.COMPOSE, registry.repository, tag, environment)


def image_of(registry: ScriptedRegistry, tag: str) -> str:
    return f"{registry.repository.removeprefix('oci://')}:{tag}"


async def test_a_component_is_read_once_and_its_variables_count(registry: ScriptedRegistry) -> None:
    registry.push("1", pack_archive("web", {"compose.yaml": COMPOSE}))
    found = inspection()
    assert await found.named(component(registry, "1")) == {"web": "team/web:1.0", "cache": "redis"}
    asked = len(registry.requests)
    assert await found.named(component(registry, "1", TAG="2")) == {"web": "team/web:2", "cache": "redis"}
    assert len(registry.requests) == asked


async def test_a_file_that_no_registry_has_is_given(registry: ScriptedRegistry) -> None:
    found = inspection()
    assert await found.named(component(registry, "1", TAG="3"), compose=COMPOSE.decode()) == {
        "web": "team/web:3",
        "cache": "redis",
    }
    assert await found.named(component(registry, "1"), compose="[" * 5_000) is None
    assert not registry.requests


@pytest.mark.parametrize(
    "files",
    [
        {"compose.yaml": COMPOSE, ".env": b"TAG=7"},
        {"compose.yaml": b"services: [oops"},
        {"compose.yaml": b"a: 1\n---\nb: 2"},
        {"compose.yaml": b"[" * 5_000},
        {"other.yaml": COMPOSE},
    ],
    ids=["variables-in-a-file", "no-yaml", "two-documents", "deep", "no-compose-file"],
)
async def test_a_component_that_is_odd_has_unknown_images(
    registry: ScriptedRegistry, files: dict[str, bytes]
) -> None:
    registry.push("1", pack_archive("web", files))
    assert await inspection().named(component(registry, "1")) is None


async def test_a_component_that_is_not_there_has_unknown_images(registry: ScriptedRegistry, tmp_path: Path) -> None:
    found = inspection()
    assert await found.named(component(registry, "1")) is None
    registry.push("2", b"not an archive")
    assert await found.named(component(registry, "2")) is None
    registry.push("3", b"two", b"layers")
    assert await found.named(component(registry, "3")) is None
    single = ComponentSpec("web", ProfileType.CUSTOM, "oci://a.example/web", "1", extensions={OURS: {"image": {}}})
    assert await found.named(single) == {"web": "a.example/web:1"}
    assert await found.named(ComponentSpec("web", ProfileType.HELM, registry.repository, "1")) is None


async def test_the_size_of_an_image_is_read_through_its_index_and_kept_for_a_while(
    registry: ScriptedRegistry,
) -> None:
    digest = registry.push("1", b"x" * 50, b"y" * 7)
    entry = {"digest": digest, "size": 1, "platform": {"os": "linux", "architecture": "amd64"}}
    registry.manifests["all"] = json.dumps({"schemaVersion": 2, "manifests": [entry]}).encode()
    clock = ManualClock()
    found = inspection(clock)
    blobs = await found.blobs(image_of(registry, "all"), "amd64")
    assert blobs is not None
    assert {blobs[digest_of(b"x" * 50)], blobs[digest_of(b"y" * 7)]} == {50, 7}
    asked = len(registry.requests)
    assert await found.blobs(image_of(registry, "all"), "amd64") == blobs
    assert len(registry.requests) == asked
    clock.passed += KEPT_SECONDS + 1
    assert await found.blobs(image_of(registry, "all"), "amd64") == blobs
    assert len(registry.requests) > asked
    assert await found.blobs(image_of(registry, "all"), "arm64") is None


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"manifests": 1}', b'{"layers": [{"digest": 1}]}', b"[" * 50_000])
async def test_a_manifest_that_is_odd_has_an_unknown_size(registry: ScriptedRegistry, body: bytes) -> None:
    registry.manifests["1"] = body
    assert await inspection().blobs(image_of(registry, "1"), "amd64") is None


async def test_an_index_that_leads_to_itself_ends(registry: ScriptedRegistry) -> None:
    entry = {"digest": "sha256:" + "1" * 64, "platform": {"os": "linux", "architecture": "amd64"}}
    registry.manifests["1"] = registry.manifests["sha256:" + "1" * 64] = json.dumps({"manifests": [entry]}).encode()
    assert await inspection().blobs(image_of(registry, "1"), "amd64") is None


async def test_a_registry_that_refuses_or_a_name_that_is_none_is_unknown(registry: ScriptedRegistry) -> None:
    registry.push("1", b"x")
    registry.always = Fault(status=500)
    found = inspection()
    assert await found.blobs(image_of(registry, "1"), "amd64") is None
    for image in ("", ":", "a b", "UPPER/case", "host:99999/x", "a/../b", "x@sha256:1"):
        assert await found.blobs(image, "amd64") is None


@pytest.mark.parametrize(
    ("image", "repository", "reference"),
    [
        ("redis", "oci://docker.io/library/redis", "latest"),
        ("redis:7", "oci://docker.io/library/redis", "7"),
        ("team/web:1", "oci://docker.io/team/web", "1"),
        ("host:5000/web", "oci://host:5000/web", "latest"),
        ("localhost/web:2", "oci://localhost/web", "2"),
        ("host.example/a/b@sha256:0f", "oci://host.example/a/b", "sha256:0f"),
        ("host.example/a/b:1@sha256:0f", "oci://host.example/a/b", "sha256:0f"),
    ],
)
def test_an_image_is_found_where_engines_find_it(image: str, repository: str, reference: str) -> None:
    assert located_image(image) == (repository, reference)
