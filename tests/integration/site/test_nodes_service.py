"""`homeport.v1.Nodes` over a real socket, as a program in another language would use it."""

from typing import Any

import grpc
import grpc.aio
import pytest

from homeport.site.app import SiteApp
from homeport.wire.v1 import nodes_pb2 as pb
from tests.integration.site.conftest import OpenSite
from tests.support.git import Person
from tests.support.local import local_channel, machine_key
from tests.support.stubs import nodes_pb2_grpc as pb_grpc
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio

NODE = pb.Node(id="pi", hostname="raspberry", capabilities=pb.Capabilities(cpu_cores=4, memory_bytes=8))


def stub(channel: grpc.aio.Channel) -> Any:
    return pb_grpc.NodesStub(channel)  # type: ignore[no-untyped-call]


def channel_to(site: SiteApp) -> grpc.aio.Channel:
    return local_channel(site)


async def test_a_node_registers_beats_changes_and_leaves(person: Person, start: OpenSite) -> None:
    async with start() as site, channel_to(site) as channel:
        nodes = stub(channel)
        answer = await nodes.RegisterNode(pb.RegisterNodeRequest(node=NODE))
        assert (answer.site, answer.heartbeat_seconds) == ("home", 5.0)
        before = (await nodes.ListNodes(pb.ListNodesRequest())).nodes[0]
        assert (before.id, before.hostname, before.capabilities.cpu_cores) == ("pi", "raspberry", 4)
        assert (before.liveness, before.site) == ("live", "home")
        await nodes.Heartbeat(pb.HeartbeatRequest(node_id="pi"))
        after = (await nodes.ListNodes(pb.ListNodesRequest())).nodes[0]
        assert after.last_seen_ms >= before.last_seen_ms
        await nodes.UpdateNode(pb.UpdateNodeRequest(node_id="pi", capabilities=pb.Capabilities(cpu_cores=8)))
        assert (await nodes.ListNodes(pb.ListNodesRequest())).nodes[0].capabilities.cpu_cores == 8
        await nodes.UnregisterNode(pb.UnregisterNodeRequest(node_id="pi"))
        assert not (await nodes.ListNodes(pb.ListNodesRequest())).nodes


@pytest.mark.parametrize(
    ("call", "request_", "code"),
    [
        ("RegisterNode", pb.RegisterNodeRequest(), "INVALID_ARGUMENT"),
        ("RegisterNode", pb.RegisterNodeRequest(node=pb.Node(hostname="x")), "INVALID_ARGUMENT"),
        ("RegisterNode", pb.RegisterNodeRequest(node=pb.Node(id="x")), "INVALID_ARGUMENT"),
        (
            "RegisterNode",
            pb.RegisterNodeRequest(node=pb.Node(id="a/../b", capabilities=pb.Capabilities())),
            "INVALID_ARGUMENT",
        ),
        ("Heartbeat", pb.HeartbeatRequest(), "INVALID_ARGUMENT"),
        ("Heartbeat", pb.HeartbeatRequest(node_id="nobody"), "NOT_FOUND"),
        ("UpdateNode", pb.UpdateNodeRequest(capabilities=pb.Capabilities()), "INVALID_ARGUMENT"),
        ("UpdateNode", pb.UpdateNodeRequest(node_id="nobody"), "INVALID_ARGUMENT"),
        ("UpdateNode", pb.UpdateNodeRequest(node_id="nobody", capabilities=pb.Capabilities()), "NOT_FOUND"),
        ("UnregisterNode", pb.UnregisterNodeRequest(), "INVALID_ARGUMENT"),
        ("UnregisterNode", pb.UnregisterNodeRequest(node_id="nobody"), "NOT_FOUND"),
    ],
)
async def test_a_mistake_gets_its_own_status_and_changes_nothing(
    person: Person, start: OpenSite, call: str, request_: Any, code: str
) -> None:
    async with start() as site, channel_to(site) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await getattr(stub(channel), call)(request_)
        assert caught.value.code().name == code
        assert caught.value.details()
        assert not site.parts.conductor.memory.nodes


async def test_a_stream_that_does_not_begin_with_hello_is_refused(person: Person, start: OpenSite) -> None:
    async with start() as site, channel_to(site) as channel:
        stream = stub(channel).Connect(metadata=machine_key(site))
        await stream.write(pb.FromNode(beat=pb.Beat()))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stream.read()
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_the_registry_survives_a_restart_of_the_site(person: Person, start: OpenSite) -> None:
    async with start() as site, channel_to(site) as channel:
        await stub(channel).RegisterNode(pb.RegisterNodeRequest(node=NODE))
    async with start() as site, channel_to(site) as channel:
        await eventually(lambda: site.parts.conductor.memory.nodes)
        await stub(channel).Heartbeat(pb.HeartbeatRequest(node_id="pi"))


async def test_a_fault_of_the_site_is_internal_and_not_unknown(
    person: Person, start: OpenSite, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(peer: object = None) -> None:
        raise ZeroDivisionError("secret detail")

    async with start() as site, channel_to(site) as channel:
        monkeypatch.setattr(site.parts.reception, "list_nodes", fail)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub(channel).ListNodes(pb.ListNodesRequest())
        assert refused.value.code() is grpc.StatusCode.INTERNAL
        assert "secret detail" not in str(refused.value.details()), "what is inside stays inside"
        assert "call failed with an internal error" in caplog.messages
