"""A public name that resolves to a private address: an operator cannot have central connect there, an administrator
can."""

import socket
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from tests.support.running_central import Client
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio

NAME = "models.example.com"


@pytest.fixture
async def visited(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[int, list[int]]]:
    """A port at home that the name leads to, and the connections that were made to it."""
    resolve, connections = socket.getaddrinfo, []

    def at_home(host: Any, *arguments: Any, **options: Any) -> Any:
        return resolve("127.0.0.1" if host in (NAME, NAME.encode()) else host, *arguments, **options)

    async def serve(stream: anyio.abc.SocketStream) -> None:
        connections.append(1)
        await stream.aclose()

    monkeypatch.setattr(socket, "getaddrinfo", at_home)
    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(listener.serve, serve)
        yield listener.extra(anyio.abc.SocketAttribute.local_port), connections
        tasks.cancel_scope.cancel()


async def test_a_name_is_judged_by_the_address_it_leads_to(client: Client, visited: tuple[int, list[int]]) -> None:
    port, connections = visited
    made = await client.post("/api/v1/tokens", {"name": "otto", "role": "operator"})
    otto = {"Authorization": f"Bearer {made.body['token']}"}
    for repository in (f"https://{NAME}:{port}/apps.git", f"oci://{NAME}:{port}/apps", f"git@{NAME}:apps.git"):
        refused = await client.post("/api/v1/apps", {"repository": repository}, headers=otto)
        assert refused.status in {403, 409, 422}, refused.body
        assert "is at 127.0.0.1, which is not a public address" in refused.body["detail"], repository
    model = {"id": "m", "source_url": f"https://{NAME}:{port}/x.gguf"}
    assert (await client.post("/v2/catalog/models", model, headers=otto)).status < 300

    async def problem() -> Any:
        pull = (await client.get("/v2/catalog/models/m")).body["pull"]
        return pull["problem"] if pull["state"] == "failed" else None

    assert (await client.post("/v2/catalog/models/m/pull", {}, headers=otto)).status == 202
    assert "is not a public address" in await eventually(problem)
    assert not connections
    assert (await client.post("/v2/catalog/models/m/pull", {})).status == 202
    await eventually(lambda: bool(connections), what="the administrator's pull to connect")
