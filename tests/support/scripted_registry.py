"""A registry on loopback that counts what it sends and misbehaves as told: refuses, stalls, breaks off, lies."""

import asyncio
import contextlib
import hashlib
import json
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from homeport.vocabulary import Digest

IMAGE = "application/vnd.oci.image.manifest.v1+json"
HTML = b"<html><body>Please log in to the guest network.</body></html>"


def digest_of(content: bytes) -> Digest:
    return Digest("sha256:" + hashlib.sha256(content).hexdigest())


@dataclass(frozen=True)
class Fault:
    """The answer to one request instead of the true one."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    break_after: int | None = None
    """Sends so many bytes of the true body, then closes the connection."""


@dataclass
class ScriptedRegistry:
    blobs: dict[str, bytes] = field(default_factory=dict)
    manifests: dict[str, bytes] = field(default_factory=dict)
    """By tag and by digest."""
    faults: list[Fault] = field(default_factory=list)
    """Each answers one GET, the first first."""
    always: Fault | None = None
    sent: Counter[str] = field(default_factory=Counter)
    """Bytes of bodies by path."""
    requests: list[str] = field(default_factory=list)
    gate: asyncio.Event | None = None
    """While it is not set, bodies stop after half."""
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by the first request."""
    host: str = ""

    @property
    def repository(self) -> str:
        return f"oci://{self.host}/team/app"

    @property
    def bytes_sent(self) -> int:
        return sum(self.sent.values())

    def push(self, tag: str, *layers: bytes) -> Digest:
        config = b'{"architecture":"amd64","os":"linux"}'
        listed = [("application/vnd.oci.image.config.v1+json", config)]
        listed += [("application/vnd.oci.image.layer.v1.tar", layer) for layer in layers]
        described = []
        for media_type, content in listed:
            self.blobs[digest_of(content)] = content
            described.append({"mediaType": media_type, "digest": digest_of(content), "size": len(content)})
        manifest = {"schemaVersion": 2, "mediaType": IMAGE, "config": described[0], "layers": described[1:]}
        content = json.dumps(manifest).encode()
        self.manifests[tag] = self.manifests[digest_of(content)] = content
        return digest_of(content)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            first, *lines = head.split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            method, path, _ = first.split(" ")
            self.requests.append(f"{method} {path}")
            self.asked.set()
            await self._answer(method, path, headers, writer)
        writer.close()

    async def _answer(self, method: str, path: str, headers: dict[str, str], writer: asyncio.StreamWriter) -> None:
        _, _, rest = path.partition("/v2/team/app/")
        kind, _, name = rest.partition("/")
        body = {"blobs": self.blobs, "manifests": self.manifests}.get(kind, {}).get(name)
        if body is None:
            await self._send(writer, method, path, 404, {}, b"{}")
            return
        given: dict[str, str] = {"Docker-Content-Digest": digest_of(body)} if kind == "manifests" else {}
        given["Content-Type"] = IMAGE if kind == "manifests" else "application/octet-stream"
        fault = self.always or (self.faults.pop(0) if method == "GET" and self.faults else None)
        if fault is not None and fault.break_after is None:
            await self._send(writer, method, path, fault.status, fault.headers, fault.body)
            return
        status, start = 200, int(headers.get("range", "bytes=0-").removeprefix("bytes=").partition("-")[0])
        if start:
            status, given["Content-Range"] = 206, f"bytes {start}-{len(body) - 1}/{len(body)}"
        await self._send(
            writer, method, path, status, given, body[start:], stop=None if fault is None else fault.break_after
        )

    async def _send(
        self,
        writer: asyncio.StreamWriter,
        method: str,
        path: str,
        status: int,
        headers: dict[str, str],
        body: bytes,
        *,
        stop: int | None = None,
    ) -> None:
        lines = {"Content-Length": str(len(body)), "Connection": "close", **headers}
        head = f"HTTP/1.1 {status} X\r\n" + "".join(f"{name}: {value}\r\n" for name, value in lines.items()) + "\r\n"
        writer.write(head.encode())
        if method == "HEAD":
            return
        body = body if stop is None else body[:stop]
        half = len(body) // 2 if self.gate is not None else len(body)
        for part in (body[:half], body[half:]):
            self.sent[path] += len(part)
            writer.write(part)
            await writer.drain()
            if self.gate is not None:
                await self.gate.wait()


@contextlib.asynccontextmanager
async def scripted_registry() -> AsyncIterator[ScriptedRegistry]:
    registry = ScriptedRegistry()
    server = await asyncio.start_server(registry.serve, "127.0.0.1", 0)
    registry.host = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield registry
    finally:
        server.close()
