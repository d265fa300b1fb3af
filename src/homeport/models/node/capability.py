"""The models capability of a node: the watcher of handoff files. Engines themselves are components of deployments."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Final

from homeport.capability.node import NodeCapability, NodePart, NodePlatform
from homeport.core.inference.engines.handoff import Handoff
from homeport.core.tunnel.targets import Endpoint
from homeport.errors import InvalidInput
from homeport.models.network import network_id
from homeport.models.node.handoffs import FOLDER, HandoffFiles, watch_handoffs
from homeport.ports import EngineHandoffs


def _part(node: NodePlatform) -> NodePart:
    files = HandoffFiles(node.data / FOLDER, node.node_id)
    network = network_id()

    def announce(found: Mapping[tuple[str, str], Handoff]) -> None:
        node.endpoints.offer(FOLDER, _endpoints(found.values()))
        node.replicas(EngineHandoffs(tuple(found[key] for key in sorted(found)), network))

    async def watch() -> None:
        await watch_handoffs(files, announce, in_thread=node.in_thread)

    return NodePart(loops=(watch,))


def _endpoints(handoffs: Iterable[Handoff]) -> Iterator[Endpoint]:
    """Where the site may connect to through the tunnel: what the files name."""
    for handoff in handoffs:
        if handoff.preparation:
            continue  # it has no address yet
        with suppress(InvalidInput):
            yield Endpoint.of(handoff.url)


NODE_MODELS: Final = NodeCapability("models", _part)
