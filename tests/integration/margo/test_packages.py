"""Central imports apps by the name of a repository in a real registry: pinned, and signed where needed."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from homeport.adapters.registry.oci import OciRegistry
from homeport.adapters.registry.signatures import PAYLOAD_TYPE, SIGNATURE, signature_tag
from homeport.adapters.runtime.component_fetch import fetch_component
from homeport.catalog.packages import APP_TYPE, DESCRIPTION_TYPE, TITLE, pull_component
from homeport.core.model.app import Component
from homeport.core.model.artifact import Artifact, Layer
from homeport.core.model.deployment import ComponentSpec
from homeport.errors import InvalidInput, WorkFailed
from homeport.vocabulary import Code, Digest, ProfileType
from tests.support.registry import RunningRegistry, running_registry
from tests.support.running_central import MARGO, running_central

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def registry() -> Iterator[RunningRegistry]:
    with running_registry() as running:
        yield running


def package(version: str, *, name: str = "hello") -> Artifact:
    content = MARGO.format(margo_id=f"acme-{name}", name=name, version=version).encode()
    return Artifact(APP_TYPE, (Layer(DESCRIPTION_TYPE, content, {TITLE: "margo.yaml"}),))


async def pushed(repository: str, *tags: str) -> dict[str, Digest]:
    client = OciRegistry()
    return {tag: await client.push(repository, tag, package(tag.replace("_", "+"))) for tag in tags}


def signature(key: ec.EllipticCurvePrivateKey, digest: str, *, claimed: str = "") -> Artifact:
    payload = json.dumps({"critical": {"image": {"docker-manifest-digest": claimed or digest}}}).encode()
    signed = base64.b64encode(key.sign(payload, ec.ECDSA(hashes.SHA256()))).decode()
    return Artifact("application/vnd.oci.image.config.v1+json", (Layer(PAYLOAD_TYPE, payload, {SIGNATURE: signed}),))


async def test_every_version_of_a_repository_is_added_pinned_by_its_digest(
    tmp_path: Path, registry: RunningRegistry
) -> None:
    repository = registry.repository("acme/hello")
    digests = await pushed(repository, "1.0.0", "1.1.0", "2.0.0-rc.1")
    await OciRegistry().push(repository, "latest", package("1.1.0"))  # a tag that is no version
    other = Artifact("application/vnd.example+json", (Layer("text/plain", b"x"),))
    await OciRegistry().push(repository, "0.1.0", other)
    assert len(await OciRegistry().tags(repository, page=2)) == 5  # in pages
    async with running_central(tmp_path) as (_, api):
        added = await api.post("/api/v1/apps", {"repository": repository})
        assert added.status == 201, added.body
        found = {app["version"]: app for app in added.body["added"]}
        assert found.keys() == {"1.0.0", "1.1.0", "2.0.0-rc.1"}
        assert {app["commit"] for app in found.values()} == set(digests.values())
        assert {(app["category"], app["app_name"]) for app in found.values()} == {("acme", "hello")}
        again = await api.post("/api/v1/apps", {"repository": repository})
        assert len(again.body["unchanged"]) == 3
        one = await api.post("/api/v1/apps", {"repository": f"{repository}@{digests['1.0.0']}"})
        assert [app["version"] for app in one.body["unchanged"]] == ["1.0.0"]
        for wrong, status, message in (
            (f"{repository}:0.1.0", 422, "not an app package"),
            (f"{repository}:latest", 422, "tag and version must be equal"),
            (f"{repository}:9.9.9", 404, "9.9.9"),
            (registry.repository("acme/none"), 404, "acme/none"),
            ("oci://", 422, "not an OCI repository"),
        ):
            refused = await api.post("/api/v1/apps", {"repository": wrong})
            assert (refused.status, message in json.dumps(refused.body)) == (status, True), refused.body


COMPONENT, ARCHIVE = (f"application/vnd.org.margo.component.compose{end}" for end in ("+json", ".tar+gzip"))
COMPOSE = Layer("application/vnd.docker.compose.file+yaml", b"services: {web: {image: busybox}}")


async def test_what_docker_compose_publish_makes_is_no_component(tmp_path: Path, registry: RunningRegistry) -> None:
    """Nor is anything else than the one layer of the one kind: not for a node, and not for a person."""
    content = b"not looked at"
    for number, (wrong, why) in enumerate(
        (
            (Artifact("application/vnd.docker.compose.project", (COMPOSE,)), "not with  docker compose publish"),
            (Artifact(COMPONENT, (COMPOSE,)), "not a compose component"),
            (Artifact(COMPONENT, (Layer(ARCHIVE, content), Layer(ARCHIVE, content))), "not a compose component"),
            (Artifact("application/vnd.example+json", (Layer(ARCHIVE, content),)), "not a compose component"),
        )
    ):
        repository = registry.repository(f"published/{number}")
        await OciRegistry().push(repository, "1.0.0", wrong)
        spec = ComponentSpec("web", ProfileType.COMPOSE, repository, "1.0.0")
        with pytest.raises(WorkFailed, match=why) as caught:
            await fetch_component(OciRegistry(), spec, tmp_path / "web")
        assert caught.value.code == Code.COMPONENT_FETCH_FAILED and not (tmp_path / "web").exists()
        component = Component("web", {"repository": repository, "revision": "1.0.0"})
        with pytest.raises(InvalidInput):
            await pull_component(component, ProfileType.COMPOSE, OciRegistry())


async def test_a_package_has_exactly_one_description(tmp_path: Path, registry: RunningRegistry) -> None:
    one = package("1.0.0").layers[0]
    async with running_central(tmp_path) as (_, api):
        for number, layers in enumerate(((), (one, one))):
            repository = registry.repository(f"described/{number}")
            await OciRegistry().push(repository, "1.0.0", Artifact(APP_TYPE, (*layers, Layer("text/plain", b"x"))))
            refused = await api.post("/api/v1/apps", {"repository": f"{repository}:1.0.0"})
            assert refused.status == 422 and "exactly one" in json.dumps(refused.body), refused.body


async def test_a_server_with_keys_takes_signed_packages_only(tmp_path: Path, registry: RunningRegistry) -> None:
    key, stranger = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    public = tmp_path / "cosign.pub"
    public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    names = ("signed", "bare", "stranger", "another")
    places = {name: registry.repository(f"trust/{name}") for name in names}
    digests = {name: (await pushed(place, "1.0.0"))["1.0.0"] for name, place in places.items()}
    client = OciRegistry()
    for name, made in (
        ("signed", signature(key, digests["signed"])),
        ("stranger", signature(stranger, digests["stranger"])),
        ("another", signature(key, digests["another"], claimed="sha256:" + "0" * 64)),
    ):
        await client.push(places[name], signature_tag(digests[name]), made)
    async with running_central(tmp_path / "central", app_keys=(public,)) as (_, api):
        assert (await api.post("/api/v1/apps", {"repository": places["signed"]})).status == 201
        for name, message in (("bare", "is not signed"), ("stranger", "no signature"), ("another", "no signature")):
            refused = await api.post("/api/v1/apps", {"repository": places[name]})
            assert refused.status in (403, 409, 422) and message in refused.body["detail"], refused.body
        listed = (await api.get("/api/v1/apps")).body["apps"]
        assert [app["app_name"] for app in listed] == ["signed"]
