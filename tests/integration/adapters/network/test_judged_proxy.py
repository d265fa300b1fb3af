"""Where only public addresses may be reached, that holds through a proxy as well: it may reach private ones."""

import socket
import ssl
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import anyio
import anyio.abc
import pytest

from homeport.adapters.network.http_client import ExchangeFailed, ask, route_to
from homeport.adapters.network.reach import public_addresses_only
from homeport.errors import Refused

pytestmark = pytest.mark.anyio

NAME = "models.judged.invalid"


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_proxy_is_not_asked_for_a_private_address(monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    resolve, connections = socket.getaddrinfo, []

    def at_home(host: Any, *arguments: Any, **options: Any) -> Any:
        return resolve("127.0.0.1" if host in (NAME, NAME.encode()) else host, *arguments, **options)

    async def serve(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            connections.append(await stream.receive())
            await stream.send(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")

    monkeypatch.setattr(socket, "getaddrinfo", at_home)
    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(listener.serve, serve)
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        monkeypatch.setenv(f"{scheme}_proxy", f"http://127.0.0.1:{port}")
        monkeypatch.setenv("no_proxy", "")
        address = route_to(urlsplit(f"{scheme}://{NAME}/x"), ssl.create_default_context)
        with public_addresses_only(), pytest.raises(Refused, match=r"127\.0\.0\.1, which is not a public address"):
            await ask(address, "GET", "/x")
        assert not connections
        with suppress(ExchangeFailed):
            await ask(address, "GET", "/x")
        assert connections, "everybody else's requests go through it"
        tasks.cancel_scope.cancel()
