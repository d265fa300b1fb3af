"""`/v2/catalog/models` over HTTP: the contract's statuses and error codes, and what a restart remembers."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from homeport.adapters.bus.inprocess import InProcessBus
from homeport.adapters.registry.oci import OciRegistry
from homeport.adapters.system import SystemClock
from homeport.core.inference.models.entries import ModelEntry
from homeport.core.inference.models.lifecycle import ModelLifecycle
from homeport.models.central.catalog import Catalog
from homeport.models.central.trust import ModelTrust
from homeport.models.store.index import ModelIndex
from tests.simulation.store import Disk, MemoryStore
from tests.support.running_central import Client, running_central
from tests.support.waiting import eventually
from tests.support.web_files import WebServer, web_server

pytestmark = pytest.mark.anyio

DIGEST = "sha256:" + "a" * 64
CONTENT = bytes(range(256)) * 64
CONTENT_DIGEST = "sha256:" + hashlib.sha256(CONTENT).hexdigest()
MODEL = {"id": "m", "digest": DIGEST, "source_url": "hf:org/repo/x.gguf", "tags": ["small"]}


@pytest.fixture
def web() -> Iterator[WebServer]:
    with web_server() as server:
        yield server


async def test_a_model_is_added_shown_retired_and_removed(client: Client) -> None:
    added = await client.post("/v2/catalog/models", MODEL)
    assert (added.status, added.body["state"]) == (201, "Active")
    assert (await client.get("/v2/catalog/models/m")).body["digest"] == DIGEST
    assert [each["id"] for each in (await client.get("/v2/catalog/models")).body["models"]] == ["m"]
    retired = await client.post("/v2/catalog/models/m/state", {"state": "Retired", "deadline_ms": 1000})
    assert (retired.status, retired.body["state"]) == (202, "Retired")
    again = await client.post("/v2/catalog/models", MODEL)
    assert again.body["state"] == "Retired", "describing a model again does not bring it back"
    assert (await client.delete("/v2/catalog/models/m")).status == 204
    assert (await client.delete("/v2/catalog/models/m")).status == 404
    assert (await client.get("/v2/catalog/models/m")).body["code"] == "NOT_FOUND"


async def test_a_wrong_field_is_400_below_v2_and_documented_as_that(client: Client) -> None:
    wrong = await client.post("/v2/catalog/models", {"id": ["m"]})
    assert (wrong.status, wrong.body["code"]) == (400, "INVALID_PARAMS")
    paths = (await client.get("/openapi.json")).body["paths"]
    operations = [each for path, methods in paths.items() if path.startswith("/v2/") for each in methods.values()]
    assert operations
    assert not [each["operationId"] for each in operations if "422" in each["responses"]]
    assert not [each["operationId"] for each in operations if "400" not in each["responses"]]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"digest": DIGEST}, "id required"),
        ({"id": "m"}, "digest or source_url required"),
        ({"id": "../m", "digest": DIGEST}, "id:"),
        ({"id": "m", "digest": "md5:x"}, "digest:"),
        ({"id": "m", "source_url": "ftp://x"}, "source_url:"),
        ({"id": "m", "source_url": "hf:org/repo/../../x"}, "source_url:"),
    ],
)
async def test_a_wrong_field_is_named_and_nothing_changes(client: Client, body: dict[str, str], words: str) -> None:
    refused = await client.post("/v2/catalog/models", body)
    assert (refused.status, refused.body["code"]) == (400, "INVALID_PARAMS")
    assert words in refused.body["message"]
    assert (await client.get("/v2/catalog/models")).body["models"] == []


async def test_a_policy_refuses_what_it_does_not_allow_whatever_the_caller_says(client: Client) -> None:
    strict = {"X-Trust-Policy": "strict"}
    claimed = {**MODEL, "signatures": [{"signer": "us", "algo": "ed25519", "verified": True, "timestamp_ms": 1}]}
    for body in (MODEL, claimed):
        refused = await client.post("/v2/catalog/models", body, headers=strict)
        assert (refused.status, refused.body["code"]) == (400, "UNTRUSTED_ARTIFACT")
    added = await client.post("/v2/catalog/models", claimed)
    assert [each["verified"] for each in added.body["signatures"]] == [False], "nothing has verified it"
    elsewhere = {**MODEL, "trust_policy": {"allowed_registries": ["registry.example"]}}
    assert (await client.post("/v2/catalog/models", elsewhere)).body["code"] == "UNTRUSTED_ARTIFACT"
    roots = {**MODEL, "trust_policy": {"ca_roots": ["x"]}}
    assert "ca_roots" in (await client.post("/v2/catalog/models", roots)).body["message"]


async def test_a_state_that_does_not_exist_is_refused(client: Client) -> None:
    await client.post("/v2/catalog/models", MODEL)
    assert (await client.post("/v2/catalog/models/m/state", {"state": "Maybe"})).status == 400
    for path, body, words in (
        ("/v2/catalog/models", {"id": 5}, "id: Must be a text."),
        ("/v2/catalog/models", [], "body: Must be an object."),
        ("/v2/catalog/models/m/state", {}, "state: Is missing."),
    ):
        wrong = await client.post(path, body)
        assert (wrong.status, wrong.body["code"], wrong.body["message"]) == (400, "INVALID_PARAMS", words)
    assert (await client.post("/v2/catalog/models/none/state", {"state": "Active"})).status == 404


async def test_a_file_that_changed_fails_its_verification(client: Client, tmp_path: Path) -> None:
    model = tmp_path / "x.gguf"
    model.write_bytes(b"weights")
    digest = "sha256:9b5be4f1f3d7b3e1b0a4fd9e0d7b7cb3a90e4ff9ff6db4d68a01a5a4b3e91c15"
    await client.post("/v2/catalog/models", {"id": "m", "digest": digest, "source_url": f"file:{model}"})
    verified = await client.post("/v2/catalog/models/m/verify", {})
    assert (verified.status, verified.body["verification"]) == (202, "failed")
    await client.post("/v2/catalog/models", {"id": "n", "source_url": f"file:{model}"})
    assert (await client.post("/v2/catalog/models/n/verify", {})).body["verification"] == "unchecked"
    await client.delete("/v2/catalog/models/m")
    assert model.exists(), "a person's own file stays"
    assert (await client.post("/v2/catalog/models/none/verify", {})).status == 404


async def test_a_restart_remembers_models(tmp_path: Path) -> None:
    async with running_central(tmp_path) as (_, client):
        await client.post("/v2/catalog/models", MODEL)
    async with running_central(tmp_path) as (_, client):
        assert (await client.get("/v2/catalog/models/m")).body["source_url"] == MODEL["source_url"]


async def test_a_catalog_that_was_a_file_is_taken_over_once(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    stored = folder / "blobs" / "x" / "x.gguf"
    stored.parent.mkdir(parents=True)
    stored.write_bytes(CONTENT)
    index = ModelIndex(folder)
    index.put(ModelEntry(id="here", source="hf:org/repo/x.gguf", digest=DIGEST, local_path="blobs/x/x.gguf"))
    index.put(ModelEntry(id="old", source="hf:org/repo/y.gguf", state=ModelLifecycle.RETIRED))
    async with running_central(tmp_path) as (_, client):

        async def listed() -> bool:
            models = (await client.get("/v2/catalog/models")).body["models"]
            return [(each["id"], each["state"]) for each in models] == [("here", "Active"), ("old", "Retired")]

        await eventually(listed, what="the models of the file to be rows")
        verified = await client.post("/v2/catalog/models/here/verify", {})
        assert verified.body["verification"] == "failed", "its file is found: it has another digest"
        assert (await client.delete("/v2/catalog/models/old")).status == 204
        assert (await client.delete("/v2/catalog/models/here")).status == 204
        assert not stored.exists(), "its files go with it"
    async with running_central(tmp_path) as (_, client):
        assert (await client.get("/v2/catalog/models")).body["models"] == [], "they do not come back"


async def test_before_the_catalog_was_read_a_task_is_told_to_try_again(tmp_path: Path) -> None:
    trust = ModelTrust(OciRegistry())
    store, bus, clock = MemoryStore(Disk()), InProcessBus(), SystemClock()
    catalog = Catalog(store, bus, clock, trust, ModelIndex(tmp_path))
    found = catalog.find("m")
    assert found is not None and not found.is_read
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(catalog.run)
        await catalog.load()
        assert catalog.find("m") is None
        await catalog.put(ModelEntry(id="m", source="hf:org/repo/x.gguf"))
        assert catalog.find("m") == catalog.find("hf:org/repo/x.gguf") is not None
        tasks.cancel_scope.cancel()


async def test_a_model_is_pulled_to_central_and_says_how_far_it_is(client: Client, web: WebServer) -> None:
    web.files["/x.gguf"] = CONTENT
    await client.post("/v2/catalog/models", {"id": "m", "digest": CONTENT_DIGEST, "source_url": f"{web.url}/x.gguf"})
    asked = await client.post("/v2/catalog/models/m/pull", {})
    assert asked.status == 202, asked.body
    assert asked.body["pull"]["state"] == "waiting"
    assert await _pulled(client, "m") == {
        "state": "done",
        "done_bytes": len(CONTENT),
        "total_bytes": len(CONTENT),
        "problem": "",
    }
    assert (await client.get("/v2/catalog/models/m")).body["verification"] == "passed"


async def test_a_pull_that_fails_says_why_and_what_has_no_source_is_refused(client: Client, web: WebServer) -> None:
    await client.post("/v2/catalog/models", {"id": "gone", "source_url": f"{web.url}/none.gguf"})
    await client.post("/v2/catalog/models/gone/pull", {})
    failed = await _pulled(client, "gone")
    assert failed["state"] == "failed"
    assert failed["problem"]
    await client.post("/v2/catalog/models", {"id": "digest-only", "digest": DIGEST})
    await client.post("/v2/catalog/models", {"id": "mine", "source_url": "file:/models/x.gguf"})
    for model, words in (("digest-only", "no source"), ("mine", "nothing to pull")):
        refused = await client.post(f"/v2/catalog/models/{model}/pull", {})
        assert (refused.status, refused.body["code"]) == (400, "INVALID_PARAMS")
        assert words in refused.body["message"]
    assert (await client.post("/v2/catalog/models/none/pull", {})).status == 404


async def _pulled(client: Client, model: str) -> dict[str, Any]:
    """How the pull has ended."""

    async def ended() -> Any:
        pull = (await client.get(f"/v2/catalog/models/{model}")).body["pull"]
        return pull if pull["state"] in {"done", "failed"} else None

    found: dict[str, Any] = await eventually(ended, what="the pull to end")
    return found


async def test_an_operator_cannot_have_central_read_its_own_disk_or_network(client: Client, tmp_path: Path) -> None:
    made = await client.post("/api/v1/tokens", {"name": "o", "role": "operator"})
    operator = Client(client.url, client.session, {"Authorization": f"Bearer {made.body['token']}"})
    secret = tmp_path / "secret"
    secret.write_bytes(CONTENT)
    sources = {"file": f"file:{secret}", "web": "https://169.254.169.254/x", "oci": "oci://10.0.0.1:5000/x:1"}
    for name, source in sources.items():
        added = await client.post("/v2/catalog/models", {"id": name, "digest": DIGEST, "source_url": source})
        assert added.status == 201, added.body
    asked = [operator.post("/v2/catalog/models/file/verify", {})]
    asked += [operator.post(f"/v2/catalog/models/{name}/pull", {}) for name in ("web", "oci")]
    for answer in [await each for each in asked]:
        assert (answer.status, answer.body["code"]) == (403, "40302 NOT_AUTHORIZED"), answer.body
    mine = await client.post("/v2/catalog/models/file/verify", {})
    assert (mine.status, mine.body["verification"]) == (202, "failed"), "an administrator may"


async def test_a_pull_that_cannot_be_harms_itself_alone(client: Client, web: WebServer) -> None:
    web.files["/x.gguf"] = CONTENT
    web.redirects["/away.gguf"] = "https://[bad"
    sources = {"bad": "https://[bad/x", "long": f"{web.url}/{'x' * 300}", "away": f"{web.url}/away.gguf"}
    for name, source in {**sources, "good": f"{web.url}/x.gguf"}.items():
        await client.post("/v2/catalog/models", {"id": name, "source_url": source})
        assert (await client.post(f"/v2/catalog/models/{name}/pull", {})).status == 202

    async def state(name: str) -> str:
        return str((await client.get(f"/v2/catalog/models/{name}")).body["pull"]["state"])

    async def is_done() -> bool:
        return await state("good") == "done"

    await eventually(is_done, what="the good model to be pulled")
    assert {await state(name) for name in sources} == {"failed"}


async def test_files_of_models_survive_the_loss_of_the_database(tmp_path: Path, web: WebServer) -> None:
    """Tens of gigabytes, which only a person may remove."""
    web.files["/tiny.gguf"] = b"GGUF" + bytes(1000)
    data = tmp_path / "central"
    async with running_central(data) as (_, client):
        added = await client.post("/v2/catalog/models", {"id": "tiny", "source_url": f"{web.url}/tiny.gguf"})
        assert added.status == 201, added.body
        assert (await client.post("/v2/catalog/models/tiny/pull", {})).status == 202
        assert (await _pulled(client, "tiny"))["state"] == "done"
    (file,) = data.rglob("tiny.gguf")
    for path in data.glob("central.db*"):
        path.unlink()
    async with running_central(data) as (_, client):
        assert (await client.get("/v2/catalog/models")).body["models"] == []
        assert file.exists()
        await client.post("/v2/catalog/models", {"id": "tiny", "source_url": f"{web.url}/tiny.gguf"})
        assert (await client.delete("/v2/catalog/models/tiny")).status == 204
        assert not file.exists(), "removed by a person"
