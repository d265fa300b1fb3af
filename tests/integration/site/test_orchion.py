"""`orchion.v1` over a real socket, with the plain client that its .proto file gives, without credentials where the
operator has opted in."""

from typing import Any

import aiohttp
import grpc
import grpc.aio
import pytest

from homeport.core.model.access import AuditResult
from homeport.errors import InvalidInput, Refused
from homeport.jobs.site.capability import JOBS
from homeport.logs.site.capability import LOGS
from homeport.site.app import SiteApp
from homeport.telemetry.site.capability import TELEMETRY_AT_SITE
from homeport.vocabulary import NodeId
from homeport.wire.orchion.v1 import orchestrator_pb2 as pb
from homeport.wire.v1 import nodes_pb2 as ours
from tests.integration.site.conftest import OpenSite
from tests.support.git import Person
from tests.support.local import local_channel, local_key
from tests.support.stubs import nodes_pb2_grpc as our_grpc
from tests.support.stubs import orchestrator_pb2_grpc as pb_grpc

pytestmark = pytest.mark.anyio

OPENED: dict[str, Any] = {"orchion_address": "127.0.0.1:0", "orchion_anonymous": True}

AGENT = pb.Node(
    id="5c1d2a9e-0b5b-4a7b-9d57-3f3f6f1f2c11",
    hostname="gaming-pc",
    capabilities=pb.Capabilities(
        cpu="16 cores",
        memory="31.25 GB",
        os="linux/amd64",
        gpu_type="NVIDIA GeForce RTX 3080",
        gpu_vram_total="10.00 GB",
    ),
    agent_address="gaming-pc:50052",
)


def agent_of(channel: grpc.aio.Channel) -> Any:
    return pb_grpc.OrchestratorStub(channel)  # type: ignore[no-untyped-call]


def open_channel(site: SiteApp) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(f"127.0.0.1:{site.orchion_port}")


async def status_of(call: Any) -> tuple[str, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code().name, str(caught.value.details())


async def test_an_agent_registers_beats_updates_and_leaves(person: Person, start: OpenSite) -> None:
    async with start(**OPENED) as site, open_channel(site) as channel:
        agent = agent_of(channel)
        await agent.RegisterNode(pb.RegisterNodeRequest(node=AGENT))
        (listed,) = (await agent.ListNodes(pb.ListNodesRequest())).nodes
        assert listed.last_seen_unix > 1_700_000_000
        listed.last_seen_unix = 0
        assert listed == AGENT, "every field comes back as the agent wrote it"
        found = site.parts.conductor.memory.nodes[NodeId(AGENT.id)]
        assert (found.info.capabilities.cpu_cores, found.info.capabilities.memory_bytes) == (16, int(31.25 * 2**30))
        assert (found.info.capabilities.gpus[0].manufacturer, found.info.agent_address) == (
            "NVIDIA",
            "gaming-pc:50052",
        )
        await agent.Heartbeat(pb.HeartbeatRequest(node_id=AGENT.id))
        await agent.UpdateNode(
            pb.UpdateNodeRequest(node_id=AGENT.id, capabilities=pb.Capabilities(cpu="8 cores", os="linux/arm64"))
        )
        (listed,) = (await agent.ListNodes(pb.ListNodesRequest())).nodes
        assert (listed.capabilities.cpu, listed.capabilities.gpu_type) == ("8 cores", "No GPU detected")
        assert listed.agent_address == "gaming-pc:50052", "an update keeps what it does not say"
        await agent.UnregisterNode(pb.UnregisterNodeRequest(node_id=AGENT.id))
        assert not (await agent.ListNodes(pb.ListNodesRequest())).nodes
        code, _ = await status_of(agent.Heartbeat(pb.HeartbeatRequest(node_id=AGENT.id)))
        assert code == "NOT_FOUND", "so that the agent registers again"


async def test_what_an_agent_measures_of_its_gpu_is_listed_and_kept(person: Person, start: OpenSite) -> None:
    measured = pb.Capabilities(
        cpu="16 cores", memory="31.25 GB", os="linux/amd64", gpu_type="NVIDIA GeForce RTX 3080",
        gpu_vram_total="10.00 GB", gpu_vram_used="2.50 GB", gpu_vram_available="7.50 GB",
        gpu_temperature="61 C", gpu_power_usage="221.5 W", power_usage="221.5 W",
    )  # fmt: skip
    async with start(**OPENED, capabilities=[TELEMETRY_AT_SITE]) as site, open_channel(site) as channel:
        agent = agent_of(channel)
        await agent.RegisterNode(pb.RegisterNodeRequest(node=AGENT))
        (listed,) = (await agent.ListNodes(pb.ListNodesRequest())).nodes
        assert listed.capabilities.gpu_vram_used == "", "nothing was measured yet"
        await agent.UpdateNode(pb.UpdateNodeRequest(node_id=AGENT.id, capabilities=measured))
        (listed,) = (await agent.ListNodes(pb.ListNodesRequest())).nodes
        assert listed.capabilities == measured, "every field comes back as the agent wrote it"
        url = f"http://127.0.0.1:{site.http_port}/api/v1/telemetry"
        async with aiohttp.ClientSession(headers=local_key(site)) as session, session.get(url) as answer:
            (node,) = (await answer.json())["nodes"]
        assert (node["gpu_memory_used_bytes"], node["gpu_temperature_celsius"]) == (2.5 * 2**30, 61.0)
        assert node["gpu_power_watts"] == 221.5


async def test_bad_input_gets_its_status_and_names_the_field(person: Person, start: OpenSite) -> None:
    long_id = pb.Node(id="x" * 129, capabilities=pb.Capabilities())
    table: list[tuple[str, Any, str, str]] = [
        ("RegisterNode", pb.RegisterNodeRequest(), "INVALID_ARGUMENT", "node"),
        ("RegisterNode", pb.RegisterNodeRequest(node=pb.Node()), "INVALID_ARGUMENT", "node.capabilities"),
        (
            "RegisterNode",
            pb.RegisterNodeRequest(node=pb.Node(capabilities=pb.Capabilities())),
            "INVALID_ARGUMENT",
            "node.id",
        ),
        ("RegisterNode", pb.RegisterNodeRequest(node=long_id), "INVALID_ARGUMENT", "node.id"),
        ("Heartbeat", pb.HeartbeatRequest(), "INVALID_ARGUMENT", "node_id"),
        ("Heartbeat", pb.HeartbeatRequest(node_id="nobody"), "NOT_FOUND", "nobody"),
        ("UpdateNode", pb.UpdateNodeRequest(node_id="nobody"), "INVALID_ARGUMENT", "capabilities"),
        ("UpdateNode", pb.UpdateNodeRequest(capabilities=pb.Capabilities()), "INVALID_ARGUMENT", "node_id"),
        ("UpdateNode", pb.UpdateNodeRequest(node_id="no", capabilities=pb.Capabilities()), "NOT_FOUND", "no"),
        ("UnregisterNode", pb.UnregisterNodeRequest(), "INVALID_ARGUMENT", "node_id"),
        ("UnregisterNode", pb.UnregisterNodeRequest(node_id="nobody"), "NOT_FOUND", "nobody"),
    ]
    async with start(**OPENED) as site, open_channel(site) as channel:
        for call, request, code, field in table:
            found, details = await status_of(getattr(agent_of(channel), call)(request))
            assert (found, field in details) == (code, True), (call, request, details)
        assert not site.parts.conductor.memory.nodes


async def test_an_agent_without_credentials_cannot_touch_homeports_own_nodes(person: Person, start: OpenSite) -> None:
    own = ours.Node(id="pi", hostname="pi", capabilities=ours.Capabilities(cpu_cores=4))
    async with (
        start(**OPENED) as site,
        open_channel(site) as channel,
        local_channel(site) as ours_channel,
    ):
        nodes: Any = our_grpc.NodesStub(ours_channel)  # type: ignore[no-untyped-call]
        await nodes.RegisterNode(ours.RegisterNodeRequest(node=own))
        agent = agent_of(channel)
        clash = pb.Node(id="pi", capabilities=pb.Capabilities())
        assert (await status_of(agent.RegisterNode(pb.RegisterNodeRequest(node=clash))))[0] == "FAILED_PRECONDITION"
        assert (await status_of(agent.Heartbeat(pb.HeartbeatRequest(node_id="pi"))))[0] == "NOT_FOUND"
        assert (await status_of(agent.UnregisterNode(pb.UnregisterNodeRequest(node_id="pi"))))[0] == "NOT_FOUND"
        assert [
            (node.id, node.capabilities.cpu) for node in (await agent.ListNodes(pb.ListNodesRequest())).nodes
        ] == [("pi", "4 cores")]
        refused = await status_of(
            agent_of(grpc.aio.insecure_channel(f"127.0.0.1:{site.grpc_port}")).ListNodes(pb.ListNodesRequest())
        )
        assert refused[0] == "PERMISSION_DENIED", "the authenticated port stays so"
        assert len((await agent_of(ours_channel).ListNodes(pb.ListNodesRequest())).nodes) == 1


async def test_the_open_port_is_for_this_machine_alone(person: Person, start: OpenSite) -> None:
    with pytest.raises(Refused, match="no TLS"):
        async with start(**OPENED | {"orchion_address": "0.0.0.0:0"}):
            pass


async def test_the_port_for_agents_asks_for_the_local_key_unless_the_operator_opts_in(
    person: Person, start: OpenSite
) -> None:
    """By default a program that merely runs on this machine may do nothing there, and each attempt is recorded."""
    chat = pb.SubmitJobRequest(job_id="a", job_type=pb.JOB_TYPE_CHAT_COMPLETION)
    table: list[tuple[str, Any, str]] = [
        ("RegisterNode", pb.RegisterNodeRequest(node=AGENT), "PERMISSION_DENIED"),
        ("Heartbeat", pb.HeartbeatRequest(node_id=AGENT.id), "PERMISSION_DENIED"),
        ("ListNodes", pb.ListNodesRequest(), "PERMISSION_DENIED"),
        ("UnregisterNode", pb.UnregisterNodeRequest(node_id=AGENT.id), "PERMISSION_DENIED"),
        ("SubmitJob", chat, "UNAUTHENTICATED"),
        ("GetJobStatus", pb.GetJobStatusRequest(job_id="a"), "UNAUTHENTICATED"),
    ]
    async with (
        start(orchion_address="127.0.0.1:0", capabilities=[JOBS]) as site,
        open_channel(site) as keyless,
        local_channel(site, port=site.orchion_port) as channel,
    ):
        for call, request, code in table:
            found, details = await status_of(getattr(agent_of(keyless), call)(request))
            assert (found, "key" in details) == (code, True), (call, details)
        assert not site.parts.conductor.memory.nodes
        agent = agent_of(channel)
        await agent.RegisterNode(pb.RegisterNodeRequest(node=AGENT))
        assert [node.id for node in (await agent.ListNodes(pb.ListNodesRequest())).nodes] == [AGENT.id]
        async with site.parts.store.read() as reader:
            entries = [each.entry for each in await reader.audit(after=0, limit=100)]
        refused = {entry.action for entry in entries if entry.result is AuditResult.REFUSED}
        assert refused >= {"orchion.register", "orchion.list", "tasks.submit", "jobs.read"}


async def test_opting_in_without_an_address_is_refused(person: Person, start: OpenSite) -> None:
    with pytest.raises(InvalidInput, match="orchion_anonymous"):
        async with start(orchion_anonymous=True):
            pass


async def test_a_dashboard_of_orchion_follows_the_logs_of_a_site(person: Person, start: OpenSite) -> None:
    async with start(capabilities=[LOGS]) as site:
        url = f"http://127.0.0.1:{site.http_port}/api/logs"
        async with aiohttp.ClientSession(headers=local_key(site)) as session, session.get(url) as answer:
            while not (line := await answer.content.readline()).startswith(b"data: "):
                assert line, "the stream has ended"
            assert line == b'data: {"type":"connected"}\n'
