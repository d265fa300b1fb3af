"""Central's repository as a loopback URL for `git`: each request is forwarded over the link to central.

So git needs none of our certificates, and what it reads is verified to come from this site's own central. The
URL contains a secret, because any user of this machine can connect to it.
"""

import secrets
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Protocol

import aiohttp
from starlette.types import ASGIApp, Receive, Scope, Send

from homeport.adapters.network.lost_connection import LOST
from homeport.errors import PeerUnavailable

REPOSITORY: Final = "deployments.git"
SERVICES: Final = frozenset({"info/refs", "git-upload-pack"})
CHUNK_BYTES: Final = 64 * 1024
_PASSED_ON: Final = frozenset({"content-type", "content-encoding", "content-length", "git-protocol", "accept"})
_BACK: Final = frozenset({"content-type", "cache-control", "expires", "pragma"})


class CentralGit(Protocol):
    def git(self, method: str, path: str, **options: Any) -> AbstractAsyncContextManager[aiohttp.ClientResponse]: ...


class CentralForward:
    """An ASGI application for a loopback port."""

    def __init__(self, central: CentralGit) -> None:
        self._central = central
        self._secret = secrets.token_urlsafe(24)

    def url(self, port: int) -> str:
        return f"http://127.0.0.1:{port}/{self._secret}/{REPOSITORY}"

    @property
    def app(self) -> ASGIApp:
        return self._serve

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        service = str(scope["path"]).removeprefix(f"/{self._secret}/{REPOSITORY}/")
        if service not in SERVICES:
            await _answer(send, 404, b"There is nothing here.\n")
            return
        headers = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in scope["headers"]
            if name.decode("latin-1").lower() in _PASSED_ON
        }
        query = scope.get("query_string", b"").decode("latin-1")
        body = _body(receive) if scope["method"] == "POST" else None
        try:
            async with self._central.git(
                scope["method"], f"{service}?{query}" if query else service, headers=headers, data=body
            ) as answer:
                await _pass_back(answer, send)
        except (*LOST, PeerUnavailable) as error:
            await _answer(send, 502, f"Central cannot be reached: {error}\n".encode())


async def _body(receive: Receive) -> AsyncIterator[bytes]:
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ConnectionResetError("git has left")
        more = message.get("more_body", False)
        yield message.get("body", b"")


async def _pass_back(answer: aiohttp.ClientResponse, send: Send) -> None:
    kept = [
        (name.lower().encode("latin-1"), value.encode("latin-1"))
        for name, value in answer.headers.items()
        if name.lower() in _BACK
    ]
    await send({"type": "http.response.start", "status": answer.status, "headers": kept})
    async for chunk in answer.content.iter_chunked(CHUNK_BYTES):
        await send({"type": "http.response.body", "body": chunk, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _answer(send: Send, status: int, text: bytes) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text, "more_body": False})
