"""Central's node registry over gRPC, as somebody else's program uses it from another machine: mutual TLS, a
certificate that is on the list, and its own site's nodes only."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from homeport.adapters.identity.keys import key_pem, make_csr, new_key
from homeport.cli.local.issuing import anchors_pem
from homeport.core.identity.spiffe import SERVER_NAME
from homeport.core.model.caller import INTERNAL
from homeport.wire.v1 import nodes_pb2 as pb
from tests.support.joining import Fleet, running_fleet
from tests.support.running_central import FakeSite, node_changed
from tests.support.stubs import nodes_pb2_grpc as pb_grpc

pytestmark = pytest.mark.anyio

PATIENT: dict[str, Any] = {"wait_for_ready": True, "timeout": 30}
"""A handshake that a busy machine was too slow for is tried again."""


@asynccontextmanager
async def stub_of(fleet: Fleet, name: str | None) -> AsyncIterator[Any]:
    """A program with the certificate of a client, or with none."""
    anchors = anchors_pem(fleet.central.parts.identity.authority.bundle())
    key, chain = None, None
    if name is not None:
        made = new_key()
        grant = await fleet.central.parts.registrar.issue(name, make_csr(made, name), INTERNAL)
        key, chain = key_pem(made), grant.svid.chain
    credentials = grpc.ssl_channel_credentials(anchors, key, chain)
    options = [("grpc.ssl_target_name_override", SERVER_NAME)]
    port = fleet.central.grpc_port
    async with grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials, options) as channel:
        yield pb_grpc.NodesStub(channel)  # type: ignore[no-untyped-call]


async def test_a_client_with_an_accepted_certificate_sees_its_own_nodes(tmp_path: Path) -> None:
    async with running_fleet(tmp_path, grpc_address="0.0.0.0:0") as fleet:
        for site, node in (("north", "n1"), ("south", "s1")):
            fake = FakeSite(fleet.client, site)
            await fake.join()
            await fake.say(node_changed(node, site))
        async with stub_of(fleet, "north") as nodes:
            listed = (await nodes.ListNodes(pb.ListNodesRequest(), **PATIENT)).nodes
            assert [node.id for node in listed] == ["n1"]
            with pytest.raises(grpc.aio.AioRpcError, match="Nodes join a site, not central"):
                await nodes.Heartbeat(pb.HeartbeatRequest(node_id="n1"), **PATIENT)
            await fleet.client.delete("/api/v1/identities/north")
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await nodes.ListNodes(pb.ListNodesRequest(), **PATIENT)
            assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
            assert "is not accepted here" in str(refused.value.details())


async def test_nobody_gets_in_without_a_certificate_or_a_token(tmp_path: Path) -> None:
    async with running_fleet(tmp_path, grpc_address="0.0.0.0:0") as fleet:
        async with stub_of(fleet, None) as nodes:
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await nodes.ListNodes(pb.ListNodesRequest(), timeout=60)
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
        async with grpc.aio.insecure_channel(f"127.0.0.1:{fleet.central.grpc_port}") as channel:
            with pytest.raises(grpc.aio.AioRpcError):
                await pb_grpc.NodesStub(channel).ListNodes(pb.ListNodesRequest(), timeout=60)  # type: ignore[no-untyped-call]


async def test_the_nodes_of_many_sites_are_listed_in_pages(tmp_path: Path) -> None:
    async with running_fleet(tmp_path, grpc_address="0.0.0.0:0") as fleet:
        fake = FakeSite(fleet.client, "north")
        await fake.join()
        await fake.say(*(node_changed(f"n{number}", "north") for number in range(5)))
        async with stub_of(fleet, "north") as nodes:
            seen: list[str] = []
            sizes: list[int] = []
            token = ""
            while token or not seen:
                page = await nodes.ListNodes(pb.ListNodesRequest(page_size=2, page_token=token), **PATIENT)
                seen += [node.id for node in page.nodes]
                sizes.append(len(page.nodes))
                token = page.next_page_token
            assert (seen, sizes) == ([f"n{number}" for number in range(5)], [2, 2, 1])
            assert len((await nodes.ListNodes(pb.ListNodesRequest(page_size=-7), **PATIENT)).nodes) == 5
            for bad in ("nonsense", "WyJzaXRlcyIsIm5hbWUiLCJhIl0", "x" * 10_000):
                with pytest.raises(grpc.aio.AioRpcError, match="next_page_token") as refused:
                    await nodes.ListNodes(pb.ListNodesRequest(page_token=bad), **PATIENT)
                assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
