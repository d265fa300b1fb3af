"""How long central has known each failure, on its monotonic clock: the clocks of sites may be wrong, and its own may
be set. After a restart counting starts again."""

from collections.abc import Iterable
from dataclasses import field
from typing import Final

from homeport.core.model.instance import Instance
from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import DeploymentId, Generation, Incarnation, NodeId, State

KNOWN_MAX: Final = 100_000
"""Beyond this the records are cleared: failures then count as new."""


@dataclass(slots=True)
class Sightings:
    _first: dict[tuple[DeploymentId, NodeId], tuple[Incarnation, Generation, float]] = field(default_factory=dict)

    def failing_seconds(self, instances: Iterable[Instance], moment: float) -> dict[NodeId, float]:
        """Of one deployment's instances, those that have failed."""
        found: dict[NodeId, float] = {}
        for item in instances:
            if item.state is not State.FAILED:
                self._first.pop(item.key, None)
                continue
            seen = self._first.get(item.key)
            if seen is None or seen[:2] != (item.incarnation, item.generation):
                if len(self._first) >= KNOWN_MAX:
                    self._first.clear()
                seen = self._first[item.key] = item.incarnation, item.generation, moment
            found[item.node_id] = moment - seen[2]
        return found
