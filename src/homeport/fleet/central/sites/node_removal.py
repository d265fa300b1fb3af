"""Removes a node from the fleet, from central: its site is asked to, and its report confirms it."""

from homeport.fleet.central.sites.commands import ask
from homeport.fleet.central.sites.queries import SiteQueries
from homeport.fleet.shared.overview import find_node
from homeport.ports import Reader, RemoveNode, Store


async def remove_node(text: str, store: Store, queries: SiteQueries) -> None:
    """`text` is a node reference as for `find_node`. Returns once its site has reported the removal."""
    async with store.read() as reader:
        node = await find_node(reader, text)

    async def is_gone(reader: Reader) -> bool:
        return node.id not in {known.id for known in await reader.nodes(node.site)}

    await ask(node.site, RemoveNode(node.id), is_gone, store, queries, what=f"remove its node {node.id}")
