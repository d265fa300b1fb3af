"""Sites that reach central with mutual TLS: each is believed for itself alone, and for as long as it is accepted."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import anyio
import anyio.abc
import anyio.streams.tls
import pytest

from homeport.adapters.identity.tls import Credentials
from homeport.adapters.link.central_http import HttpCentralLink, open_central_link
from homeport.central.app import CentralApp, open_central
from homeport.central.settings import CentralSettings
from homeport.core.identity.spiffe import client_id
from homeport.core.model.identity import IdentityKind, IdentityRecord, IdentityStatus
from homeport.errors import PeerUnavailable, Refused
from homeport.ports import Moved
from homeport.vocabulary import SiteName
from tests.support.identities import TestRealm
from tests.support.listening import outliving
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio

HOME, LINE_7 = SiteName("home"), SiteName("line-7")


@dataclass
class Stand:
    app: CentralApp
    folder: Path

    @property
    def url(self) -> str:
        return f"https://localhost:{self.app.http_port}"

    async def member(self, name: str = "home", *, seconds: float = 3600.0) -> Credentials:
        """A site that has joined."""
        identity = self.app.parts.identity
        credentials = Credentials(self.folder / name, domain=identity.authority.domain, wfm="central")
        self.renew(credentials, name, seconds)
        now = datetime.now(UTC)
        record = IdentityRecord(
            credentials.spiffe_id, IdentityKind.CLIENT, name, SiteName(name), credentials.spki,
            IdentityStatus.ACCEPTED, None, credentials.not_after, "127.0.0.1", now, now, "test",
        )  # fmt: skip
        await self.put(record)
        return credentials

    def renew(self, credentials: Credentials, name: str, seconds: float = 3600.0) -> None:
        authority = self.app.parts.identity.authority
        issued = authority.issue(
            credentials.request(),
            spiffe_id=client_id(authority.domain, "central", name),
            lifetime_seconds=seconds,
            now=datetime.now(UTC),
        )
        credentials.install(issued.chain, authority.bundle())

    async def put(self, record: IdentityRecord) -> None:
        await self.app.parts.store.write(lambda tx: tx.put_identity(record))
        self.app.parts.registrar.policy.learn(record)

    async def remove(self, credentials: Credentials) -> None:
        async with self.app.parts.store.read() as reader:
            record = await reader.identity(credentials.spiffe_id)
        assert record is not None
        await self.put(replace(record, standing=IdentityStatus.REMOVED))
        self.app.parts.authenticator.end(credentials.spiffe_id)

    def link(self, credentials: Credentials) -> AbstractAsyncContextManager[HttpCentralLink]:
        return open_central_link(
            self.url,
            tls=credentials.client_context,
            verify=lambda ssl_object: credentials.verify_server(ssl_object, datetime.now(UTC)),
        )


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Stand]:
    settings = CentralSettings(data=folder / "central", http_address=("127.0.0.1", 0), grpc_address=None, tls=True)
    async with open_central(settings) as app:
        yield Stand(app, folder)


@pytest.fixture
async def stand(tmp_path: Path) -> AsyncIterator[Stand]:
    async with running(tmp_path) as stand:
        yield stand


async def join(link: HttpCentralLink, site: SiteName) -> int:
    return (await link.join(site, epoch="1", software_version="1")).sequence


async def test_a_site_joins_reports_and_listens_with_its_certificate(stand: Stand) -> None:
    async with stand.link(await stand.member()) as link:
        assert await join(link, HOME) == 0
        assert await link.report(HOME, [], epoch="1", seen={}) == 0
        with anyio.fail_after(60):
            assert isinstance(await anext(link.watch(HOME)), Moved)


async def test_a_site_cannot_act_as_another(stand: Stand) -> None:
    credentials = await stand.member()
    async with stand.link(credentials) as link:
        await join(link, HOME)
        with pytest.raises(PeerUnavailable, match="403"):
            await join(link, LINE_7)
        with pytest.raises(PeerUnavailable, match="403"):
            await link.report(LINE_7, [], epoch="1", seen={})
        with pytest.raises(PeerUnavailable, match="403"):
            await anext(link.watch(LINE_7))
        async with stand.app.parts.store.read() as reader:
            assert [site.name for site in await reader.sites()] == ["home"]


async def test_the_refusal_is_a_problem_document_of_margo(stand: Stand) -> None:
    context = (await stand.member()).client_context()
    async with aiohttp.ClientSession() as session:
        body = {"epoch": "1", "software_version": "1"}
        async with session.put(f"{stand.url}/api/v1/sites/line-7", json=body, ssl=context) as answer:
            problem = await answer.json(content_type=None)
    assert (answer.status, answer.content_type) == (403, "application/problem+json")
    assert problem["type"] == "https://docs.margo.org/specification/problem-types#not-authorized"


async def test_nobody_reports_without_a_certificate_or_a_token(stand: Stand) -> None:
    context = (await stand.member()).client_context(present=False)
    forged = {"Client-Cert": ":forged:", "X-Forwarded-Client-Cert": "URI=spiffe://homeport.internal/x"}
    async with aiohttp.ClientSession() as session:
        body = {"epoch": "1", "software_version": "1"}
        async with session.put(f"{stand.url}/api/v1/sites/home", json=body, ssl=context, headers=forged) as answer:
            assert answer.status == 401


async def test_a_removed_site_loses_its_open_stream_at_once(stand: Stand) -> None:
    credentials, other = await stand.member(), await stand.member("line-7")
    async with stand.link(credentials) as link, stand.link(other) as neighbour:
        await join(link, HOME)
        await join(neighbour, LINE_7)
        calls = link.watch(HOME)
        await anext(calls)
        await stand.remove(credentials)
        with anyio.fail_after(60):
            async for _ in calls:
                pass
        with pytest.raises(PeerUnavailable, match="not accepted"):
            await link.report(HOME, [], epoch="1", seen={})
        assert await neighbour.report(LINE_7, [], epoch="1", seen={}) == 0


async def test_a_certificate_alone_admits_nobody(stand: Stand) -> None:
    credentials = Credentials(stand.folder / "new", domain="homeport.internal", wfm="central")
    stand.renew(credentials, "new")
    async with stand.link(credentials) as link:
        with pytest.raises(PeerUnavailable, match="not accepted"):
            await join(link, SiteName("new"))


async def test_a_refused_site_is_let_in_again_with_its_renewed_certificate(stand: Stand) -> None:
    """Without a restart, and without anybody telling the link: what is refused opens a new connection."""
    credentials = await stand.member()
    async with stand.link(credentials) as link:
        await join(link, HOME)
        await stand.remove(credentials)
        with pytest.raises(PeerUnavailable):
            await link.report(HOME, [], epoch="1", seen={})
        stand.renew(credentials, "home")
        await stand.member()

        async def works() -> bool:
            try:
                return await link.report(HOME, [], epoch="1", seen={}) == 0
            except PeerUnavailable:
                return False

        await eventually(works)


async def test_a_site_says_nothing_to_a_central_of_another_domain(stand: Stand, tmp_path: Path) -> None:
    stray = TestRealm(tmp_path / "stranger").client("home")
    async with stand.link(stray) as link:
        with pytest.raises(PeerUnavailable, match="cannot be reached"):
            await join(link, HOME)


async def test_a_site_says_nothing_to_a_neighbour_that_plays_central(stand: Stand) -> None:
    """Its certificate comes from the same authority, but it is no central."""
    credentials, impostor = await stand.member(), await stand.member("line-7")
    server = await anyio.create_tcp_listener(local_host="127.0.0.1")
    heard: list[bytes] = []

    async def serve(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            tls = await anyio.streams.tls.TLSStream.wrap(
                stream, server_side=True, ssl_context=impostor.server_context("optional"), standard_compatible=False
            )
            try:
                heard.append(await tls.receive())
            except (anyio.EndOfStream, anyio.BrokenResourceError, OSError):
                heard.append(b"")

    async with server, anyio.create_task_group() as tasks:
        tasks.start_soon(server.serve, outliving(serve))
        port = server.extra(anyio.abc.SocketAttribute.local_port)
        async with open_central_link(
            f"https://localhost:{port}",
            tls=credentials.client_context,
            verify=lambda ssl_object: credentials.verify_server(ssl_object, datetime.now(UTC)),
        ) as link:
            with pytest.raises(PeerUnavailable, match="not trusted"):
                await join(link, HOME)
        await eventually(lambda: heard)
        assert heard == [b""], "not a byte was said to it"
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("url", "reason"),
    [("http://192.0.2.7:8080", "without TLS"), ("https://192.0.2.7:8080", "only accepts sites that have joined it")],
)
async def test_a_site_without_an_identity_speaks_to_its_own_machine_only(url: str, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        async with open_central_link(url):
            pass
