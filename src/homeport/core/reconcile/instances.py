"""The instances of a site, indexed by deployment, by node, and by whether they are settled."""

from collections.abc import ItemsView, Iterator, Mapping, MutableMapping, Set, ValuesView
from typing import TypeVar

from homeport.core.model.instance import Instance
from homeport.vocabulary import DeploymentId, NodeId, State

Key = tuple[DeploymentId, NodeId]
Outer = TypeVar("Outer")
Inner = TypeVar("Inner")


class Instances(MutableMapping[Key, Instance]):
    """A dictionary with indexes, so that a lookup of one deployment or node does not scan all instances."""

    def __init__(self, items: Mapping[Key, Instance] | None = None) -> None:
        self._all: dict[Key, Instance] = {}
        self._by_deployment: dict[DeploymentId, dict[NodeId, Instance]] = {}
        self._by_node: dict[NodeId, dict[DeploymentId, Instance]] = {}
        self._unsettled: set[Key] = set()
        self.update(items or {})

    @classmethod
    def of(cls, items: Mapping[Key, Instance]) -> "Instances":
        return items if isinstance(items, Instances) else cls(items)

    def of_deployment(self, deployment_id: DeploymentId) -> Mapping[NodeId, Instance]:
        return self._by_deployment.get(deployment_id, {})

    def on_node(self, node_id: NodeId) -> Mapping[DeploymentId, Instance]:
        return self._by_node.get(node_id, {})

    @property
    def deployments(self) -> Set[DeploymentId]:
        return self._by_deployment.keys()

    @property
    def unsettled(self) -> Set[Key]:
        """Those that are not INSTALLED: only they can need action because time has passed."""
        return self._unsettled

    def __getitem__(self, key: Key) -> Instance:
        return self._all[key]

    def __setitem__(self, key: Key, item: Instance) -> None:
        self._all[key] = item
        self._by_deployment.setdefault(key[0], {})[key[1]] = item
        self._by_node.setdefault(key[1], {})[key[0]] = item
        if item.state is State.INSTALLED:
            self._unsettled.discard(key)
        else:
            self._unsettled.add(key)

    def __delitem__(self, key: Key) -> None:
        del self._all[key]
        self._unsettled.discard(key)
        _drop(self._by_deployment, key[0], key[1])
        _drop(self._by_node, key[1], key[0])

    def __iter__(self) -> Iterator[Key]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def items(self) -> ItemsView[Key, Instance]:
        return self._all.items()

    def values(self) -> ValuesView[Instance]:
        return self._all.values()


def _drop(index: dict[Outer, dict[Inner, Instance]], outer: Outer, inner: Inner) -> None:
    del index[outer][inner]
    if not index[outer]:
        del index[outer]
