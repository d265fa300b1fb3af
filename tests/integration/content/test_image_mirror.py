"""What the listener on loopback gives, and to whom: the one repository, under a name with a secret, to be read."""

import http.client
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import BinaryIO

import anyio
import pytest
from anyio.to_thread import run_sync

from homeport.adapters.registry.image_mirror import ImageMirror, MirroredImage
from homeport.core.model.deployment import digest_of_bytes
from homeport.errors import FetchDirectly, PeerUnavailable
from homeport.ports import ContentManifest, OpenContent
from homeport.vocabulary import Digest

pytestmark = pytest.mark.anyio

MANIFEST = b'{"schemaVersion": 2, "layers": []}'
BLOB = bytes(range(256)) * 1000


@dataclass(frozen=True)
class Whole:
    digest: Digest
    size_bytes: int = len(BLOB)

    @property
    def file(self) -> BinaryIO | None:
        return None

    async def chunks(self, offset: int = 0, count: int | None = None) -> AsyncIterator[bytes]:
        yield BLOB[offset:]


@dataclass
class Site:
    """A site with one image."""

    users: set[str] = field(default_factory=set)
    problem: Exception | None = None

    async def manifest(self, repository: str, reference: str, *, user: str = "") -> ContentManifest:
        assert repository == "oci://quay.io/team/app"
        self.users.add(user)
        return ContentManifest(digest_of_bytes(MANIFEST), "application/vnd.oci.image.manifest.v1+json", MANIFEST)

    @asynccontextmanager
    async def open(self, source: str, digest: Digest, *, user: str = "") -> AsyncIterator[OpenContent]:
        if self.problem is not None:
            raise self.problem
        yield Whole(digest)


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes


async def ask(offer: MirroredImage, path: str, method: str = "GET", **headers: str) -> Answer:
    def call() -> Answer:
        connection = http.client.HTTPConnection(offer.reference.partition("/")[0], timeout=10)
        try:
            given = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, headers=given)
            answer = connection.getresponse()
            return Answer(answer.status, answer.read())
        finally:
            connection.close()

    return await run_sync(call)


def path_of(offer: MirroredImage, rest: str) -> str:
    return f"/v2/{offer.reference.partition('/')[2].partition('@')[0]}/{rest}"


async def test_the_engine_reads_the_image_and_nobody_else_reads_anything() -> None:
    site = Site()
    blob = f"blobs/{digest_of_bytes(BLOB)}"
    async with ImageMirror(site).offer("quay.io/team/app:1", "component/x") as offer:
        assert offer is not None
        assert (await ask(offer, "/v2/")).status == 200
        assert await ask(offer, path_of(offer, f"manifests/{digest_of_bytes(MANIFEST)}")) == Answer(200, MANIFEST)
        assert await ask(offer, path_of(offer, blob)) == Answer(200, BLOB)
        assert await ask(offer, path_of(offer, blob), Range="bytes=1000-") == Answer(206, BLOB[1000:])
        assert await ask(offer, path_of(offer, blob), "HEAD") == Answer(200, b"")
        assert (await ask(offer, path_of(offer, blob), Range=f"bytes={len(BLOB)}-")).status == 416
        for path in ("/", "/v2/_catalog", f"/v2/quay.io/team/app/{blob}", f"/v2/{'0' * 24}/quay.io/team/app/{blob}"):
            assert (await ask(offer, path)).status == 404
        assert (await ask(offer, path_of(offer, "../other/manifests/1"))).status == 404
        assert (await ask(offer, path_of(offer, "blobs/uploads/"), "POST")).status == 405
        assert (await ask(offer, path_of(offer, blob), Host="page.example")).status == 405
    assert site.users == {"component/x"}
    with pytest.raises(ConnectionRefusedError):
        await ask(offer, "/v2/")


async def test_what_does_not_speak_http_harms_nothing() -> None:
    async with ImageMirror(Site()).offer("quay.io/team/app:1", "") as offer:
        assert offer is not None
        host, _, port = offer.reference.partition("/")[0].partition(":")
        async with await anyio.connect_tcp(host, int(port)) as stream:
            await stream.send(b"\x16\x03\x01\x02\x00\x01\x00")
            await stream.send_eof()
            with pytest.raises(anyio.EndOfStream):
                await stream.receive()
        assert (await ask(offer, "/v2/")).status == 200


@pytest.mark.parametrize(
    ("problem", "status", "directly"),
    [(PeerUnavailable("The registry is away."), 503, False), (FetchDirectly("No room."), 403, True)],
)
async def test_a_refusal_of_the_site_reaches_the_engine_and_the_node(
    problem: Exception, status: int, directly: bool
) -> None:
    async with ImageMirror(Site(problem=problem)).offer("quay.io/team/app:1", "") as offer:
        assert offer is not None
        assert offer.may_pull_directly, "an engine that never asked does not reach this process"
        answer = await ask(offer, path_of(offer, f"blobs/{digest_of_bytes(BLOB)}"))
        assert answer.status == status
        assert str(problem).encode() in answer.body
        assert offer.may_pull_directly is directly


@pytest.mark.parametrize("image", ["127.0.0.1:5000/app:1", "localhost/app:1", "[::1]:5000/app:1", "not an image@x"])
async def test_an_image_of_this_machine_is_left_to_the_engine(image: str) -> None:
    async with ImageMirror(Site()).offer(image, "") as offer:
        assert offer is None
