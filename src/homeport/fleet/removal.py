"""Takes a node out of the fleet from central: the site that owns it is asked, and its report confirms it."""

from typing import Final

import anyio

from homeport.errors import PeerUnavailable
from homeport.fleet.calls import Calls
from homeport.fleet.overview import find_node
from homeport.ports import RemoveNode, Store

CONFIRM_SECONDS_MAX: Final = 10.0


async def remove_node(text: str, store: Store, calls: Calls) -> None:
    """`text` names the node as `find_node` takes it. Returns once its site has reported it gone."""
    async with store.read() as reader:
        node = await find_node(reader, text)
        after = await reader.last_event_id()
    if not calls.ask(node.site, RemoveNode(node.id)):
        raise PeerUnavailable(
            f"Site {node.site} is not connected, and only it can remove its node {node.id}.",
            hint="Try again when the site is back, or ask the site itself with --url.",
        )
    with anyio.move_on_after(CONFIRM_SECONDS_MAX):
        while True:
            async with store.read() as reader:
                if node.id not in {known.id for known in await reader.nodes(node.site)}:
                    return
                after = await reader.last_event_id()
            await store.wait_for_event(after)
    raise PeerUnavailable(
        f"Site {node.site} was asked to remove node {node.id} and has not confirmed it yet.",
        hint="See  homeport nodes list",
    )
