"""Images of the site for this machine's own engine, without a change of its configuration: while the engine pulls
one, it is offered on loopback, under a name that only the engine knows.

The listener exists for one pull, knows one repository, and serves manifests and blobs of it to be read. The
name has a secret part, because any user of this machine can connect to it.
"""

import re
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import field
from typing import Final

import anyio
import h11
from anyio.abc import SocketAttribute, SocketStream

from homeport.adapters.registry.reference import nested_name
from homeport.core.values.addresses import host_of, is_loopback
from homeport.errors import FetchDirectly, HomeportError
from homeport.lazy_dataclass import dataclass
from homeport.log import get_log
from homeport.ports import ContentSource
from homeport.vocabulary import Digest
from homeport.wire.content import refusal_body, status_of

HEAD_BYTES_MAX: Final = 32 * 1024
CONNECTIONS_MAX: Final = 64
REQUEST_SECONDS: Final = 60.0
"""Idle time of a connection between requests, and of a client that does not read."""
DOCKER_HUB: Final = "docker.io"
_IMAGE: Final = re.compile(r"(?P<name>[^@]+?)(?::(?P<tag>[\w][\w.-]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?")
_PATH: Final = re.compile(r"/v2/(?P<name>.+)/(?P<kind>manifests|blobs)/(?P<reference>[^/?]+)")
_RANGE: Final = re.compile(r"bytes=(\d{1,18})-")

log = get_log("homeport.node")


@dataclass(frozen=True, slots=True)
class ImageName:
    host: str
    name: str
    tag: str
    """Empty where a digest alone is given."""
    digest: str

    @property
    def repository(self) -> str:
        return f"oci://{self.host}/{self.name}"


def parse_image(image: str) -> ImageName | None:
    """With the defaults of container engines: Docker Hub, `library`, `latest`. None for what is not a name."""
    found = _IMAGE.fullmatch(image)
    if found is None:
        return None
    host, slash, rest = found["name"].partition("/")
    if not slash or not ("." in host or ":" in host or host == "localhost"):
        host, rest = DOCKER_HUB, found["name"]
        rest = rest if "/" in rest else f"library/{rest}"
    digest = found["digest"] or ""
    return ImageName(host, rest, found["tag"] or ("" if digest else "latest"), digest)


@dataclass(slots=True)
class MirroredImage:
    """An image on loopback."""

    reference: str
    """What the engine pulls."""
    image: ImageName
    user: str
    content: ContentSource
    prefix: str
    """The repository's name here, with the secret."""
    was_asked: bool = False
    problem: HomeportError | None = None
    """The last one that ended a request."""

    @property
    def may_pull_directly(self) -> bool:
        """After a failed pull: the site cannot help, or the engine does not reach this process."""
        return not self.was_asked or isinstance(self.problem, FetchDirectly)


@dataclass(frozen=True, slots=True)
class ImageMirror:
    content: ContentSource

    @asynccontextmanager
    async def offer(self, image: str, user: str) -> AsyncIterator[MirroredImage | None]:
        """None where the engine should pull the image by itself. Raises what the site refuses with."""
        parsed = parse_image(image)
        if parsed is None or is_loopback(host_of(parsed.host)):
            yield None
            return
        try:
            found = await self.content.manifest(parsed.repository, parsed.digest or parsed.tag, user=user)
        except FetchDirectly as error:
            log.debug("image not fetched through the site", image=image, why=str(error))
            yield None
            return
        prefix = f"{secrets.token_hex(12)}/{nested_name(f'{parsed.host}/{parsed.name}')}"
        failure: Exception | None = None
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
        async with listener, anyio.create_task_group() as tasks:
            port = listener.extra(SocketAttribute.local_port)
            offer = MirroredImage(f"127.0.0.1:{port}/{prefix}@{found.digest}", parsed, user, self.content, prefix)
            server = _Server(offer, anyio.Semaphore(CONNECTIONS_MAX))
            tasks.start_soon(listener.serve, server.handle)
            try:
                yield offer
            except Exception as error:  # noqa: BLE001 - raised below
                failure = error
            tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure  # outside of the task group, which would wrap it


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    target: str
    range_from: int
    host: str


@dataclass(slots=True)
class _Server:
    offer: MirroredImage
    slots: anyio.Semaphore = field(default_factory=lambda: anyio.Semaphore(CONNECTIONS_MAX))

    async def handle(self, stream: SocketStream) -> None:
        async with stream, self.slots:
            # The engine disconnected, or what connected does not speak HTTP.
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError, h11.ProtocolError):
                await self._converse(stream)

    async def _converse(self, stream: SocketStream) -> None:
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
        while True:
            with anyio.fail_after(REQUEST_SECONDS):
                request = await _next_request(connection, stream)
            if request is None:
                return
            await self._answer(_Response(connection, stream, request.method), request)
            if connection.our_state is not h11.DONE or connection.their_state is not h11.DONE:
                return
            connection.start_next_cycle()

    async def _answer(self, response: "_Response", request: _Request) -> None:
        found = _PATH.fullmatch(request.target)
        if request.method not in ("GET", "HEAD") or not is_loopback(host_of(request.host)):
            await response.send(405, {}, b"")
            return
        if request.target in ("/v2/", "/v2"):
            await response.send(200, {"content-type": "application/json"}, b"{}")
            return
        if found is None or not secrets.compare_digest(found["name"].encode(), self.offer.prefix.encode()):
            await response.send(404, {}, b"")
            return
        self.offer.was_asked = True
        try:
            if found["kind"] == "manifests":
                await self._manifest(response, found["reference"])
            else:
                await self._blob(response, found["reference"], request.range_from)
        except HomeportError as error:
            self.offer.problem = error
            log.warning("image not fetched through the site", image=str(self.offer.image.name), why=str(error))
            await response.refuse(error)

    async def _manifest(self, response: "_Response", reference: str) -> None:
        offer = self.offer
        found = await offer.content.manifest(offer.image.repository, reference, user=offer.user)
        headers = {"content-type": found.media_type, "docker-content-digest": found.digest}
        await response.send(200, headers, found.content)

    async def _blob(self, response: "_Response", digest: str, offset: int) -> None:
        offer = self.offer
        async with offer.content.open(offer.image.repository, Digest(digest)) as content:
            size = content.size_bytes
            headers = {"content-type": "application/octet-stream", "accept-ranges": "bytes"}
            if offset >= size > 0:
                await response.send(416, {"content-range": f"bytes */{size}"}, b"")
                return
            if offset:
                headers["content-range"] = f"bytes {offset}-{size - 1}/{size}"
            await response.begin(206 if offset else 200, headers, size - offset)
            if response.has_body:
                async for chunk in content.chunks(offset):
                    await response.data(chunk)
            await response.end()


@dataclass(slots=True)
class _Response:
    connection: h11.Connection
    stream: SocketStream
    method: str
    has_begun: bool = False

    @property
    def has_body(self) -> bool:
        return self.method != "HEAD"

    async def send(self, status: int, headers: dict[str, str], body: bytes) -> None:
        await self.begin(status, headers, len(body))
        if self.has_body and body:
            await self.data(body)
        await self.end()

    async def refuse(self, error: HomeportError) -> None:
        """After the response has begun it ends early, which the engine notices."""
        if not self.has_begun:
            body = refusal_body("UNAVAILABLE", error)
            await self.send(status_of(error), {"content-type": "application/json"}, body)

    async def begin(self, status: int, headers: dict[str, str], length: int) -> None:
        self.has_begun = True
        listed = [*headers.items(), ("content-length", str(length))]
        await self._write(h11.Response(status_code=status, headers=listed))

    async def data(self, content: bytes) -> None:
        await self._write(h11.Data(data=content))

    async def end(self) -> None:
        await self._write(h11.EndOfMessage())

    async def _write(self, event: h11.Response | h11.Data | h11.EndOfMessage) -> None:
        content = self.connection.send(event)
        if content:
            with anyio.fail_after(REQUEST_SECONDS):
                await self.stream.send(content)


async def _next_request(connection: h11.Connection, stream: SocketStream) -> _Request | None:
    """None when the client has closed."""
    found: h11.Request | None = None
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            try:
                connection.receive_data(await stream.receive(16_384))
            except anyio.EndOfStream:
                connection.receive_data(b"")
        elif isinstance(event, h11.Request):
            found = event
        elif isinstance(event, h11.EndOfMessage):
            break
        elif not isinstance(event, h11.Data):
            return None
    assert found is not None, "a message ends after it has begun"
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in found.headers}
    ranged = _RANGE.fullmatch(headers.get("range", ""))
    start = int(ranged[1]) if ranged else 0
    return _Request(found.method.decode(), found.target.decode("latin-1"), start, headers.get("host", ""))
