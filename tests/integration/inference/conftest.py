"""One llama.cpp with a tiny model for all tests, and a running central whose pool it is."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from homeport.central.app import CentralApp
from homeport.core.inference.engines.handoff import EngineName, Handoff, HandoffModel
from tests.support.contract import CheckedClient
from tests.support.llama_server import llama_server
from tests.support.running_central import Client, running_central
from tests.support.tiny_model import write_tiny_model
from tests.support.waiting import eventually

TASK: dict[str, Any] = {
    "task_id": "6b1f0f6e-30c1-4d4f-9d0c-000000000001",
    "session_id": "6b1f0f6e-30c1-4d4f-9d0c-0000000000aa",
    "workload": "completion",
    "model_ref": "tiny",
    "engine": "llamacpp",
    "ctx": 512,
    "priority": "interactive",
    "max_tokens": 8,
    "deadline_ms": 60_000,
    "prompt": "Once upon a time",
    "seed": 7,
}


@pytest.fixture(scope="session")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model") / "tiny.gguf")


@pytest.fixture(scope="session")
def llama(model_file: Path) -> Iterator[str]:
    with llama_server(model_file, slots=2) as (address, _):
        yield address


def handoff(url: str, **changes: Any) -> Handoff:
    return Handoff(
        **{"engine": EngineName.LLAMACPP, "url": url, "model": HandoffModel("tiny"), "slots_total": 2, **changes}
    )


async def bind(client: Client, central: CentralApp, *handoffs: Handoff) -> None:
    """Binds them, and waits until each is ready."""
    pools = central.parts.inference.pools
    assert pools is not None
    for each in handoffs:
        pools.bind(each)

    async def all_ready() -> bool:
        answers = [await client.get(f"/v2/pools/{each.pool_id}") for each in handoffs]
        return all(replica["ready"] for answer in answers for replica in answer.body["replicas"])

    await eventually(all_ready, what="the replicas to be ready")


@pytest.fixture
async def empty(tmp_path: Path) -> AsyncIterator[tuple[CentralApp, Client]]:
    async with running_central(tmp_path / "central") as (central, client):
        yield central, CheckedClient(client.url, client.session)


@pytest.fixture
async def client(empty: tuple[CentralApp, Client], llama: str) -> Client:
    """A central with the real engine as its pool `default`."""
    central, client = empty
    await bind(client, central, handoff(llama))
    return client
