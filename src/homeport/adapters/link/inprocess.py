"""The node's link to a site in the same process: two bounded queues instead of a network."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from homeport.errors import HomeportError, NotFound, PeerUnavailable
from homeport.ports import FromNode, NodeReception, Stream, ToNode
from homeport.vocabulary import NodeId

BUFFER_MAX: Final = 256


class _SiteEnd:
    """The site's end: a NodeSession."""

    def __init__(
        self, incoming: MemoryObjectReceiveStream[FromNode], outgoing: MemoryObjectSendStream[ToNode]
    ) -> None:
        self._incoming = incoming
        self._outgoing = outgoing

    async def send(self, message: ToNode) -> None:
        try:
            await self._outgoing.send(message)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise PeerUnavailable("the node has closed the stream") from error

    async def __aiter__(self) -> AsyncIterator[FromNode]:
        async for message in self._incoming:
            yield message


class _NodeEnd:
    """The node's end: a Stream."""

    def __init__(
        self, incoming: MemoryObjectReceiveStream[ToNode], outgoing: MemoryObjectSendStream[FromNode]
    ) -> None:
        self._incoming = incoming
        self._outgoing = outgoing
        self.problem: HomeportError | None = None
        """The site's error when it ended the stream."""

    async def send(self, message: FromNode) -> None:
        try:
            await self._outgoing.send(message)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise PeerUnavailable(f"the site has closed the stream: {self.problem or 'no reason given'}") from error

    async def __aiter__(self) -> AsyncIterator[ToNode]:
        async for message in self._incoming:
            yield message
        if self.problem is not None:
            raise PeerUnavailable(f"the site has closed the stream: {self.problem}") from self.problem


class InProcessLink:
    """`ports.SiteLink` directly on the site's reception."""

    def __init__(self, reception: NodeReception) -> None:
        self._reception = reception

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Stream]:
        to_site, from_node = anyio.create_memory_object_stream[FromNode](BUFFER_MAX)
        to_node, from_site = anyio.create_memory_object_stream[ToNode](BUFFER_MAX)
        node_end = _NodeEnd(from_site, to_site)
        lost: PeerUnavailable | None = None
        async with anyio.create_task_group() as tasks, to_site, from_node, to_node, from_site:

            async def converse() -> None:
                async with to_node, from_node:
                    try:
                        await self._reception.converse(_SiteEnd(from_node, to_node))
                    except HomeportError as error:
                        node_end.problem = error

            tasks.start_soon(converse)
            try:
                yield node_end
            except PeerUnavailable as error:
                lost = error  # Raised below: the task group would put it into an exception group.
            finally:
                tasks.cancel_scope.cancel()
        if lost is not None:
            raise lost

    async def unregister(self, node_id: NodeId) -> None:
        try:
            await self._reception.unregister(node_id)
        except NotFound:
            return
