"""Mutual TLS between nodes and their site, over real sockets: who is believed, for what, and for how long.

The foreign program is grpcio; our own node dials with its own link.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import grpc
import grpc.aio
import pytest

from homeport.adapters.identity.tls import Credentials
from homeport.adapters.link.grpc_node import GrpcSiteLink
from homeport.adapters.link.grpc_server import CONNECTIONS_PER_PEER_MAX
from homeport.adapters.link.grpc_services import serve_services
from homeport.adapters.link.grpc_site import nodes_service
from homeport.core.model.access import AuditResult, NewAudit
from homeport.errors import PeerUnavailable, Refused
from homeport.ports import Beat, Hello, Stream, Welcome
from homeport.vocabulary import NodeId
from homeport.wire.v1 import nodes_pb2 as pb
from tests.support.builders import a_node
from tests.support.identities import SiteStand, TestRealm, link_of
from tests.support.receptions import FrontDesk, front_desk
from tests.support.stubs import nodes_pb2_grpc as pb_grpc
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio

SHORT_SECONDS = 3.0


@dataclass
class Stand:
    """A site that serves its nodes with TLS, and all who may come to it."""

    realm: TestRealm
    site: SiteStand
    desk: FrontDesk
    port: int = 0
    noted: list[NewAudit] = field(default_factory=list)

    async def note(self, entry: NewAudit) -> None:
        self.noted.append(entry)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        async with serve_services(
            [nodes_service(self.desk.reception)],
            "127.0.0.1:0",
            tls=self.site.server_context(),
            verify=self.site.verify,
            on_refused=self.note,
        ) as self.port:
            yield

    def foreign(self, node: Credentials | None) -> grpc.aio.Channel:
        """What a program in another language does with the files of a node."""
        roots = (self.realm.folder / "authority").glob("*.pem")
        pem = b"".join(path.read_bytes() for path in roots if b"CERTIFICATE" in path.read_bytes())
        key = None if node is None else (node.folder / "key.pem").read_bytes()
        chain = None if node is None else (node.folder / "chain.pem").read_bytes()
        return grpc.aio.secure_channel(f"localhost:{self.port}", grpc.ssl_channel_credentials(pem, key, chain))

    @asynccontextmanager
    async def connected(self, node: Credentials, name: str = "one") -> AsyncIterator[Stream]:
        async with link_of(node, self.port).connect() as stream:
            await stream.send(Hello(a_node(name).info, ()))
            with anyio.fail_after(60):
                assert isinstance(await anext(aiter(stream)), Welcome)
            yield stream


@pytest.fixture
async def stand(tmp_path: Path) -> AsyncIterator[Stand]:
    realm = TestRealm(tmp_path / "realm")
    async with front_desk(tmp_path) as desk:
        stand = Stand(realm, realm.site(), desk)
        async with stand.serving():
            yield stand


def stub(channel: grpc.aio.Channel) -> Any:
    return pb_grpc.NodesStub(channel)  # type: ignore[no-untyped-call]


async def refusal_of(link: GrpcSiteLink, name: str = "one") -> str:
    """What a node hears that is not let in."""
    with pytest.raises(PeerUnavailable) as caught, anyio.fail_after(60):
        async with link.connect() as stream:
            await stream.send(Hello(a_node(name).info, ()))
            async for message in stream:
                assert not isinstance(message, Welcome), "it was let in"
            raise PeerUnavailable("the stream ended without a word")
    return str(caught.value)


async def ending_of(stream: Stream) -> str:
    with pytest.raises(PeerUnavailable) as caught, anyio.fail_after(60):
        async for _ in stream:
            pass
        raise PeerUnavailable("the stream ended without a word")
    return str(caught.value)


# --- who is believed ------------------------------------------------------------------------------------


async def test_a_foreign_program_with_a_node_certificate_registers_that_node(stand: Stand) -> None:
    async with stand.foreign(stand.site.node("pi")) as channel:
        node = pb.Node(id="pi", hostname="raspberry", capabilities=pb.Capabilities(cpu_cores=4))
        answer = await stub(channel).RegisterNode(pb.RegisterNodeRequest(node=node), timeout=60)
        assert answer.site == "home"
        await stub(channel).Heartbeat(pb.HeartbeatRequest(node_id="pi"), timeout=60)
        listed = await stub(channel).ListNodes(pb.ListNodesRequest(), timeout=60)
        assert [each.id for each in listed.nodes] == ["pi"]


NEIGHBOUR = pb.Node(id="neighbour", hostname="x", capabilities=pb.Capabilities(cpu_cores=99))


@pytest.mark.parametrize(
    ("call", "request_"),
    [
        ("RegisterNode", pb.RegisterNodeRequest(node=NEIGHBOUR)),
        ("Heartbeat", pb.HeartbeatRequest(node_id="neighbour")),
        ("UpdateNode", pb.UpdateNodeRequest(node_id="neighbour", capabilities=pb.Capabilities(cpu_cores=99))),
        ("UnregisterNode", pb.UnregisterNodeRequest(node_id="neighbour")),
    ],
)
async def test_a_node_cannot_speak_for_its_neighbour(stand: Stand, call: str, request_: Any) -> None:
    await stand.desk.reception.register(a_node("neighbour").info)
    before = [node.info for node in await stand.desk.reception.list_nodes()]
    async with stand.foreign(stand.site.node("pi")) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await getattr(stub(channel), call)(request_, timeout=60)
    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
    assert "Node pi cannot speak for node neighbour" in str(caught.value.details())
    assert [node.info for node in await stand.desk.reception.list_nodes()] == before
    (entry,) = stand.noted
    assert (entry.actor, entry.target, entry.result) == (stand.site.node_id("pi"), "neighbour", AuditResult.REFUSED)
    assert entry.address in ("127.0.0.1", "::1")


async def test_a_node_cannot_say_hello_as_its_neighbour(stand: Stand) -> None:
    async with stand.connected(stand.site.node("neighbour"), "neighbour"):
        said = await refusal_of(link_of(stand.site.node("pi"), stand.port), "neighbour")
        assert "Node pi cannot speak for node neighbour" in said
        assert stand.desk.sessions.connected == {NodeId("neighbour")}, "the real one keeps its stream"
    assert [entry.action for entry in stand.noted] == ["nodes.connect"]


async def test_a_program_without_a_certificate_reaches_no_call(stand: Stand) -> None:
    async with stand.foreign(None) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub(channel).ListNodes(pb.ListNodesRequest(), timeout=60)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_plain_connection_to_a_tls_port_is_let_go(stand: Stand) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{stand.port}") as channel:
        with pytest.raises(grpc.aio.AioRpcError):
            await stub(channel).ListNodes(pb.ListNodesRequest(), timeout=60)


async def test_a_node_of_another_site_is_refused(stand: Stand) -> None:
    other = stand.realm.site("line-7").node("pi")
    async with stand.foreign(other) as channel:
        with pytest.raises(grpc.aio.AioRpcError):
            await stub(channel).ListNodes(pb.ListNodesRequest(), timeout=60)
    assert not stand.desk.conductor.memory.nodes


async def test_a_certificate_of_a_strangers_authority_is_refused(stand: Stand, tmp_path: Path) -> None:
    """The same names, signed by somebody else; the stranger even trusts our site."""
    stranger = TestRealm(tmp_path / "stranger").site().node("pi")
    stranger.install_bundle(stand.realm.authority.bundle())
    said = await refusal_of(link_of(stranger, stand.port), "pi")
    assert "TLS" in said or "broke" in said
    assert not stand.desk.conductor.memory.nodes


async def test_a_site_is_no_node_of_itself(stand: Stand) -> None:
    async with stand.foreign(stand.site.credentials) as channel:
        with pytest.raises(grpc.aio.AioRpcError):
            await stub(channel).ListNodes(pb.ListNodesRequest(), timeout=60)


async def test_an_expired_certificate_is_refused_and_a_renewed_one_is_let_in(stand: Stand) -> None:
    node = stand.site.node("one", seconds=1.0)
    link = link_of(node, stand.port)
    await anyio.sleep(1.2)
    assert "expired" in await refusal_of(link)
    assert not stand.desk.sessions.connected
    stand.site.renew_node(node)
    async with link.connect() as stream:
        await stream.send(Hello(a_node("one").info, ()))
        assert isinstance(await anext(aiter(stream)), Welcome)


# --- for how long ---------------------------------------------------------------------------------------


async def test_a_removed_identity_is_refused_at_its_next_message(stand: Stand) -> None:
    node = stand.site.node("one")
    async with stand.connected(node) as stream:
        stand.desk.policy.removed.add(node.spiffe_id)
        await stream.send(Beat())
        assert "not on the list of the accepted" in await ending_of(stream)
    assert "not on the list" in await refusal_of(link_of(node, stand.port))
    async with stand.foreign(node) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub(channel).Heartbeat(pb.HeartbeatRequest(node_id="one"), timeout=60)
    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED


async def test_a_silent_stream_ends_at_once_when_its_identity_is_removed(stand: Stand) -> None:
    node = stand.site.node("one")
    async with stand.connected(node) as stream, stand.connected(stand.site.node("two"), "two"):
        stand.desk.policy.removed.add(node.spiffe_id)
        stand.desk.sessions.evict(NodeId("one"), "its identity was removed")
        with anyio.fail_after(60):
            assert "its identity was removed" in await ending_of(stream)
        assert stand.desk.sessions.connected == {NodeId("two")}


async def test_a_stream_ends_soon_after_its_certificate(stand: Stand) -> None:
    node = stand.site.node("one", seconds=SHORT_SECONDS)
    link = link_of(node, stand.port)
    async with link.connect() as stream:
        await stream.send(Hello(a_node("one").info, ()))
        assert isinstance(await anext(aiter(stream)), Welcome)
        stand.site.renew_node(node)
        with anyio.fail_after(60):
            await ending_of(stream)
    async with link.connect() as stream:
        await stream.send(Hello(a_node("one").info, ()))
        assert isinstance(await anext(aiter(stream)), Welcome), "the renewed certificate is used by itself"


async def test_only_the_newest_connections_of_one_node_are_kept(stand: Stand) -> None:
    link = link_of(stand.site.node("one"), stand.port)
    async with AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(link.connect()) for _ in range(CONNECTIONS_PER_PEER_MAX + 3)]
        for stream in streams[:3]:
            assert "broke" in await ending_of(stream)
        await streams[-1].send(Hello(a_node("one").info, ()))
        assert isinstance(await anext(aiter(streams[-1])), Welcome)


# --- the node knows its own site ------------------------------------------------------------------------


async def test_a_node_says_nothing_to_another_site(stand: Stand) -> None:
    stray = stand.realm.site("line-7").node("one")
    said = await refusal_of(link_of(stray, stand.port))
    assert "is not trusted" in said
    assert "client/home" in said
    assert not stand.desk.sessions.connected


async def test_a_node_says_nothing_to_a_site_of_a_strangers_authority(stand: Stand, tmp_path: Path) -> None:
    node = TestRealm(tmp_path / "stranger").site().node("one")
    assert "its certificate is not trusted" in await refusal_of(link_of(node, stand.port))


async def test_a_node_says_nothing_to_a_neighbour_that_plays_its_site(stand: Stand) -> None:
    """A node's certificate comes from the same authorities; it is still no site."""
    impostor = stand.site.node("neighbour")
    context = impostor.server_context("optional")
    async with serve_services(
        [nodes_service(stand.desk.reception)], "127.0.0.1:0", tls=context, verify=stand.site.verify
    ) as port:
        assert "is not trusted" in await refusal_of(link_of(stand.site.node("one"), port))


def test_a_node_dials_other_machines_with_tls_only() -> None:
    with pytest.raises(Refused, match="without TLS"):
        GrpcSiteLink("192.0.2.7", 50052)


# --- the rest -------------------------------------------------------------------------------------------


async def test_a_site_listens_to_other_machines_with_tls_only(stand: Stand) -> None:
    with pytest.raises(Refused, match="without TLS"):
        async with serve_services([nodes_service(stand.desk.reception)], "0.0.0.0:0"):
            pass


async def test_a_busy_port_is_refused_with_a_sentence(stand: Stand) -> None:
    with pytest.raises(Refused, match="in use or not ours"):
        async with serve_services([nodes_service(stand.desk.reception)], f"127.0.0.1:{stand.port}"):
            pass


async def test_a_site_that_stops_does_not_wait_for_its_nodes(tmp_path: Path) -> None:
    realm = TestRealm(tmp_path / "realm")
    async with front_desk(tmp_path) as desk:
        stand = Stand(realm, realm.site(), desk)
        async with anyio.create_task_group() as tasks:
            async with stand.serving():
                welcomed: list[str] = []
                for name in ("one", "two"):
                    tasks.start_soon(_stay, stand, name, welcomed)
                await eventually(lambda: len(welcomed) == 2)
                began = anyio.current_time()
            assert anyio.current_time() - began < 30, "nodes do not leave by themselves: it waited for them"
            assert not desk.sessions.connected


async def _stay(stand: Stand, name: str, welcomed: list[str]) -> None:
    async with stand.connected(stand.site.node(name), name) as stream:
        welcomed.append(name)
        await ending_of(stream)
