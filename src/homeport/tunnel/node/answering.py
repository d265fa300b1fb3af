"""What a node does with a stream that its site opens: a command in a container, a connection to a port of one or to
an endpoint that the node offers."""

import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

import anyio

from homeport.capability.node import NodePlatform
from homeport.core.node.permissions import Permission
from homeport.core.tunnel.choosing import RunningContainer, choose_container
from homeport.core.tunnel.exec_messages import Channel, MessageReader, encode_message
from homeport.core.tunnel.targets import Endpoint, EngineTarget, ExecTarget, ForwardTarget, VolumesTarget
from homeport.errors import Refused
from homeport.log import get_log
from homeport.ports import ExecSession, IncomingStream, LoadsEngines, OpensContainers, container_access
from homeport.tunnel.relaying import first_error
from homeport.tunnel.sockets import connect_and_relay
from homeport.wire.tunnel import decode_size, decode_target, encode_volumes

log = get_log("homeport.tunnel")
READ_SECONDS_MAX: Final = 10.0
"""How long the other end may take to read the end of a command."""


class NodeStreams:
    def __init__(self, node: NodePlatform) -> None:
        self._node = node

    async def answer(self, stream: IncomingStream) -> None:
        match decode_target(stream.header):
            case ExecTarget() as target:
                await self._execute(stream, target)
            case ForwardTarget() as target:
                await self._forward(stream, target)
            case Endpoint() as target:
                await self._connect(stream, target)
            case EngineTarget() as target:
                await self._change_engine(stream, target)
            case VolumesTarget():
                await self._list_volumes(stream)

    async def _execute(self, stream: IncomingStream, target: ExecTarget) -> None:
        if Permission.EXEC not in self._node.permissions.allowed:
            raise Refused(
                f"Node {self._node.node_id} does not allow commands in its containers.",
                hint="Its owner starts it with  --allow exec  to permit them.",
            )
        runtime = self._runtime()
        container = choose_container(await runtime.running_containers(target.deployment_id), asked=target.component)
        async with runtime.execute_in(container.id, target) as session:
            log.info("command started", deployment=target.deployment_id, container=container.name)
            await stream.accept(self._said(container))
            await converse(stream, session)

    async def _forward(self, stream: IncomingStream, target: ForwardTarget) -> None:
        runtime = self._runtime()
        found = await runtime.running_containers(target.deployment_id)
        container = choose_container(found, asked=target.component, port=target.port)
        endpoint = await runtime.address_of(container.id, target.port)
        await connect_and_relay(stream, endpoint, self._said(container))

    async def _connect(self, stream: IncomingStream, target: Endpoint) -> None:
        endpoint = Endpoint(target.host, target.port)
        if not self._node.endpoints.has(endpoint):
            raise Refused(
                f"Node {self._node.node_id} offers nothing at {endpoint}.",
                hint="Its site reaches only ports of deployments and the engines that handoff files name.",
            )
        await connect_and_relay(stream, endpoint, {})

    async def _change_engine(self, stream: IncomingStream, target: EngineTarget) -> None:
        runtime = self._node.runtime
        if not isinstance(runtime, LoadsEngines):
            raise Refused(f"Node {self._node.node_id} runs no inference engines.")
        await stream.accept({})
        await (runtime.load if target.is_loaded else runtime.unload)(target.pool_id)
        await stream.end()

    async def _list_volumes(self, stream: IncomingStream) -> None:
        volumes = await self._runtime().data_volumes()
        await stream.accept({})
        await stream.write(encode_volumes(volumes))
        await stream.end()
        await stream.read()  # Until the other end has ended too: else what was written may be cut off.

    def _runtime(self) -> OpensContainers:
        found = container_access(self._node.runtime)
        if found is None:
            raise Refused(
                f"Node {self._node.node_id} runs {self._node.runtime.name}, which has no containers to look into.",
                hint="This works on nodes with Podman or Docker.",
            )
        return found

    def _said(self, container: RunningContainer) -> dict[str, Any]:
        return {"node": self._node.node_id, "component": container.component, "container": container.name}


async def converse(stream: IncomingStream, session: ExecSession) -> None:
    """Until the command has ended and the other end has read how. Returns early when the other end hangs up; leaving
    the session ends it."""
    is_shown = False
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_then_cancel, lambda: _feed(stream, session), tasks.cancel_scope)
            await _show(stream, session)
            is_shown = True
            # Leaving resets the stream, and a reset overtakes what was written: a short command lost its exit code.
            await anyio.sleep(READ_SECONDS_MAX)
            tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        if not is_shown:
            raise first_error(group) from group


async def _show(stream: IncomingStream, session: ExecSession) -> None:
    while (written := await session.read()) is not None:
        await stream.write(encode_message(*written))
    code = await session.exit_code()
    await stream.write(encode_message(Channel.EXIT, json.dumps({"code": code}).encode()))
    await stream.end()


async def _feed(stream: IncomingStream, session: ExecSession) -> None:
    reader = MessageReader()
    while data := await stream.read():
        for message in reader.feed(data):
            match message.channel:
                case Channel.INPUT if message.content:
                    await session.write(message.content)
                case Channel.INPUT:
                    await session.end_input()
                case Channel.RESIZE:
                    await session.resize(decode_size(_json(message.content)))
                case _:
                    pass


def _json(content: bytes) -> object:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return {}


async def _then_cancel(work: Callable[[], Awaitable[None]], scope: anyio.CancelScope) -> None:
    await work()
    scope.cancel()
