"""Takes a node out of the fleet from central: the site that owns it is asked, and its report confirms it."""

from homeport.fleet.asking import ask
from homeport.fleet.calls import Calls
from homeport.fleet.overview import find_node
from homeport.ports import Reader, RemoveNode, Store


async def remove_node(text: str, store: Store, calls: Calls) -> None:
    """`text` names the node as `find_node` takes it. Returns once its site has reported it gone."""
    async with store.read() as reader:
        node = await find_node(reader, text)

    async def is_gone(reader: Reader) -> bool:
        return node.id not in {known.id for known in await reader.nodes(node.site)}

    await ask(node.site, RemoveNode(node.id), is_gone, store, calls, what=f"remove its node {node.id}")
