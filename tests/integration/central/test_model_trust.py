"""Signatures of models are verified by keys of the server; what none of them covers is not added, pulled or used."""

import base64
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from homeport.adapters.registry.large_files import push_file
from homeport.adapters.registry.oci import OciRegistry
from homeport.adapters.registry.signatures import PAYLOAD_TYPE, SIGNATURE, signature_tag
from homeport.core.inference.models.entries import UntrustedArtifact, new_entry
from homeport.core.model.artifact import Artifact, Layer
from homeport.errors import DigestMismatch
from homeport.models.central.trust import ModelTrust, read_model_key
from homeport.vocabulary import Digest
from tests.support.registry import running_registry
from tests.support.running_central import running_central
from tests.support.web_files import WebServer, web_server

pytestmark = pytest.mark.anyio

CONTENT = bytes(range(256)) * 64
DIGEST = Digest("sha256:" + hashlib.sha256(CONTENT).hexdigest())
OTHER_DIGEST = Digest("sha256:" + "a" * 64)
PrivateKey = ec.EllipticCurvePrivateKey


@pytest.fixture
def web() -> Iterator[WebServer]:
    with web_server() as server:
        server.files["/x.gguf"] = CONTENT
        yield server


def new_key() -> PrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def public_file(key: PrivateKey, path: Path) -> Path:
    path.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return path


def sign(key: PrivateKey, content: bytes) -> str:
    """As  cosign sign-blob  does."""
    return base64.b64encode(key.sign(content, ec.ECDSA(hashes.SHA256()))).decode()


def task(model: str) -> dict[str, Any]:
    return {
        "task_id": str(uuid4()), "session_id": str(uuid4()), "workload": "completion", "model_ref": model,
        "engine": "llamacpp", "ctx": 10, "priority": "batch", "max_tokens": 1, "deadline_ms": 1000,
    }  # fmt: skip


async def test_only_models_that_a_key_of_the_server_signed_are_added_pulled_and_used(
    tmp_path: Path, web: WebServer
) -> None:
    key, stranger = new_key(), new_key()
    bare = {"id": "m", "digest": DIGEST, "source_url": f"{web.url}/x.gguf"}
    signed = {**bare, "signatures": [{"signature": sign(key, CONTENT)}]}
    forged = {**bare, "signatures": [{"signature": sign(stranger, CONTENT), "verified": True, "signer": "plant"}]}
    public = public_file(key, tmp_path / "plant.pub")
    async with running_central(tmp_path / "central", model_keys=(public,)) as (_, client):
        for wrong in (bare, forged, {**signed, "digest": OTHER_DIGEST}):
            refused = await client.post("/v2/catalog/models", wrong)
            assert (refused.status, refused.body["code"]) == (400, "UNTRUSTED_ARTIFACT"), refused.body
        added = await client.post("/v2/catalog/models", signed, headers={"X-Trust-Policy": "strict"})
        assert (added.status, added.body["trust_policy"]["mode"]) == (201, "strict"), added.body
        (signature,) = added.body["signatures"]
        assert (signature["verified"], signature["algo"]) == (True, "ecdsa-sha256")
        assert signature["signer"].startswith("plant:")
        assert (await client.post("/v2/catalog/models/m/pull", {})).status == 202
        for model, code in (("m", "POOL_UNREADY"), ("hf:org/unsigned/x.gguf", "UNTRUSTED_ARTIFACT")):
            assert (await client.post("/v2/tasks", task(model))).body["code"] == code

    another = public_file(stranger, tmp_path / "plant2.pub")
    async with running_central(tmp_path / "central", model_keys=(another,)) as (_, client):
        assert (await client.post("/v2/catalog/models/m/pull", {})).body["code"] == "UNTRUSTED_ARTIFACT"
        assert (await client.post("/v2/tasks", task("m"))).body["code"] == "UNTRUSTED_ARTIFACT"


async def test_a_signature_beside_an_artifact_in_a_registry_covers_its_model(tmp_path: Path) -> None:
    key, client = new_key(), OciRegistry()
    (tmp_path / "x.gguf").write_bytes(CONTENT)
    trust = ModelTrust(client, [read_model_key(public_file(key, tmp_path / "k.pub"))])
    with running_registry() as registry:
        repository = registry.repository("models/x")
        manifest = await push_file(
            client, repository, "1", tmp_path / "x.gguf", digest=DIGEST, size=len(CONTENT), on_bytes=lambda *_: None
        )
        entry = new_entry(model_id="m", source=f"{repository}:1", digest="")
        with pytest.raises(UntrustedArtifact, match="no signature"):
            await trust.judged(entry)
        payload = json.dumps({"critical": {"image": {"docker-manifest-digest": manifest}}}).encode()
        layer = Layer(PAYLOAD_TYPE, payload, {SIGNATURE: sign(key, payload)})
        made = Artifact("application/vnd.oci.image.config.v1+json", (layer,))
        await client.push(repository, signature_tag(manifest), made)
        judged = await trust.judged(entry)
        assert (judged.digest, trust.allows(judged)) == (DIGEST, True)
        with pytest.raises(DigestMismatch):
            await trust.judged(new_entry(model_id="m", source=f"{repository}:1", digest=OTHER_DIGEST))
