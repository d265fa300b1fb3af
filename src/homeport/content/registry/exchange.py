"""One request to the registry and its response, over plain ASGI: a framework would copy every byte of a blob."""

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import field
from typing import Any, BinaryIO, Final
from urllib.parse import parse_qsl

import anyio
from starlette.types import Receive, Scope, Send

from homeport.content.registry.errors import RegistryProblem, SpecCode
from homeport.errors import TransientError
from homeport.lazy_dataclass import dataclass
from homeport.serving.server.connections import SEND_FILE, SendFile

SILENCE_SECONDS: Final = 60.0
"""Idle timeout of an upload."""
JSON: Final = "application/json"


class Interrupted(TransientError):
    """The other end went away in the middle of its request."""

    code = "interrupted"


@dataclass(slots=True)
class RegistryExchange:
    scope: Scope
    receive: Receive
    send: Send
    params: Mapping[str, str]
    headers: Mapping[str, str] = field(init=False)
    query: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in self.scope["headers"]}
        raw = self.scope.get("query_string", b"").decode("latin-1")
        self.query = dict(parse_qsl(raw, keep_blank_values=True, max_num_fields=20))

    @property
    def name(self) -> str:
        return self.params["name"]

    @property
    def length(self) -> int | None:
        given = self.headers.get("content-length", "")
        return int(given) if given.isascii() and given.isdigit() and len(given) < 19 else None

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it arrives. Raises Interrupted where it ends early, or after the idle timeout."""
        while True:
            message: Mapping[str, Any] = {"type": "http.disconnect"}
            with anyio.move_on_after(SILENCE_SECONDS):
                message = await self.receive()
            if message["type"] == "http.disconnect":
                raise Interrupted
            if message.get("body"):
                yield message["body"]
            if not message.get("more_body"):
                return

    async def body(self, size_max: int) -> bytes:
        content = bytearray()
        async for chunk in self.chunks():
            content += chunk
            if len(content) > size_max:
                raise RegistryProblem(
                    SpecCode.SIZE_INVALID, f"The manifest is larger than {size_max // 2**20} MiB.", status=413
                )
        return bytes(content)

    async def answer(self, status: int, headers: Mapping[str, str] | None = None, body: bytes = b"") -> None:
        lengths = {} if status in {204, 304} else {"Content-Length": str(len(body))}
        await self.start(status, {**lengths, **(headers or {})})
        await self.send({"type": "http.response.body", "body": body})

    async def answer_json(self, document: Any, headers: Mapping[str, str] | None = None) -> None:
        await self.answer(200, {"Content-Type": JSON, **(headers or {})}, json.dumps(document).encode())

    async def answer_file(
        self, status: int, headers: Mapping[str, str], file: BinaryIO, part: tuple[int, int]
    ) -> None:
        offset, count = part
        await self.start(status, {**headers, "Content-Length": str(count)})
        if self.scope["method"] != "HEAD" and count:
            send_file: SendFile = self.scope["extensions"][SEND_FILE]
            await send_file(file, offset, count)
        await self.send({"type": "http.response.body", "body": b""})

    async def answer_chunks(
        self, status: int, headers: Mapping[str, str], count: int, chunks: AsyncIterator[bytes]
    ) -> None:
        """A body that is still being made. Where `chunks` raises, the response ends early."""
        await self.start(status, {**headers, "Content-Length": str(count)})
        if self.scope["method"] != "HEAD":
            async for chunk in chunks:
                await self.send({"type": "http.response.body", "body": chunk, "more_body": True})
        await self.send({"type": "http.response.body", "body": b""})

    async def start(self, status: int, headers: Mapping[str, str]) -> None:
        listed = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        await self.send({"type": "http.response.start", "status": status, "headers": listed})

    async def send_part(self, content: bytes) -> None:
        await self.send({"type": "http.response.body", "body": content, "more_body": True})

    async def end(self) -> None:
        await self.send({"type": "http.response.body", "body": b""})
