"""What every registry adapter promises."""

import pytest

from homeport.errors import Conflict, InvalidInput, NotFound, PeerUnavailable
from homeport.ports import Artifact, Layer
from tests.conformance.registry.conftest import Subject
from tests.support.fake_registry import FakeRegistry

pytestmark = pytest.mark.anyio

ARTIFACT = Artifact(
    "application/vnd.example.thing+json",
    (
        Layer("text/plain", b"first", {"org.opencontainers.image.title": "a.txt"}),
        Layer("application/octet-stream", bytes(range(256)) * 40),
    ),
    {"org.example.note": "grüße"},
)


async def test_what_was_pushed_is_pulled_unchanged(subject: Subject) -> None:
    await subject.registry.push(subject.repository, "1.0.0", ARTIFACT)
    assert await subject.registry.pull(subject.repository, "1.0.0") == ARTIFACT


async def test_an_artifact_can_be_pulled_by_its_digest(subject: Subject) -> None:
    digest = await subject.registry.push(subject.repository, "1.0.0", ARTIFACT)
    assert await subject.registry.pull(subject.repository, digest) == ARTIFACT


async def test_pushing_again_gives_the_same_digest(subject: Subject) -> None:
    first = await subject.registry.push(subject.repository, "1.0.0", ARTIFACT)
    second = await subject.registry.push(subject.repository, "again", ARTIFACT)
    assert first == second
    assert first.startswith("sha256:")


async def test_a_version_never_changes(subject: Subject) -> None:
    first = await subject.registry.push(subject.repository, "1.0.0", ARTIFACT)
    assert await subject.registry.push(subject.repository, "1.0.0", ARTIFACT) == first
    other = Artifact("application/vnd.example.other+json", (Layer("text/plain", b"second"),))
    with pytest.raises(Conflict, match=r":1\.0\.0 already exists with other content"):
        await subject.registry.push(subject.repository, "1.0.0", other)
    assert await subject.registry.pull(subject.repository, "1.0.0") == ARTIFACT


async def test_equal_layers_and_an_empty_one_survive(subject: Subject) -> None:
    artifact = Artifact("application/x", (Layer("a/a", b"same"), Layer("b/b", b"same"), Layer("c/c", b"")))
    await subject.registry.push(subject.repository, "1.0.0_build.1", artifact)
    assert await subject.registry.pull(subject.repository, "1.0.0_build.1") == artifact


async def test_an_unknown_tag_is_not_found(subject: Subject) -> None:
    await subject.registry.push(subject.repository, "1.0.0", ARTIFACT)
    with pytest.raises(NotFound, match=r"has no suite/.*:2\.0\.0"):
        await subject.registry.pull(subject.repository, "2.0.0")


async def test_an_unknown_repository_is_not_found(subject: Subject) -> None:
    with pytest.raises(NotFound):
        await subject.registry.pull(subject.repository + "-nowhere", "1.0.0")


@pytest.mark.parametrize(
    ("repository", "tag"),
    [
        ("https://registry.test/x", "1"),
        ("oci://", "1"),
        ("oci://registry.test", "1"),
        ("oci://registry.test/Upper", "1"),
        ("oci://registry.test/a/../b", "1"),
        ("oci://user@registry.test/a", "1"),
        ("oci://registry.test:99999/a", "1"),
        ("oci://registry.test/a", ""),
        ("oci://registry.test/a", "../../x"),
        ("oci://registry.test/a", "sha256:short"),
    ],
)
async def test_a_malformed_reference_is_refused_before_anything_is_sent(
    subject: Subject, repository: str, tag: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        await subject.registry.pull(repository, tag)
    assert caught.value.hint
    with pytest.raises(InvalidInput):
        await subject.registry.push(repository, tag, ARTIFACT)


async def test_a_registry_that_is_away_is_unavailable(subject: Subject) -> None:
    if isinstance(subject.registry, FakeRegistry):
        subject.registry.is_reachable = False
    repository = subject.unreachable or subject.repository
    with pytest.raises(PeerUnavailable, match=r"cannot be reached \(connection refused\)"):
        await subject.registry.pull(repository, "1.0.0")
    with pytest.raises(PeerUnavailable):
        await subject.registry.push(repository, "1.0.0", ARTIFACT)
