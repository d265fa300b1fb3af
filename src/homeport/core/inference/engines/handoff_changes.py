"""What to do when the handoff files of a node have changed: bind, rebind, unbind. Pure.

Two files that claim one replica harm neither: the first by name counts, and the other is said to be a duplicate. A
file that cannot be read any more keeps what it said before: an editor may be in the middle of writing it.
"""

from collections.abc import Mapping

from homeport.core.inference.engines.handoff import Handoff
from homeport.lazy_dataclass import dataclass

Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class HandoffChanges:
    bound: tuple[Handoff, ...] = ()
    rebound: tuple[Handoff, ...] = ()
    unbound: tuple[Key, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.bound or self.rebound or self.unbound)


def by_replica(files: Mapping[str, Handoff]) -> tuple[dict[Key, Handoff], tuple[str, ...]]:
    """The replicas, and the names of files that repeat one."""
    found: dict[Key, Handoff] = {}
    repeated = []
    for name in sorted(files):
        if files[name].key in found:
            repeated.append(name)
        else:
            found[files[name].key] = files[name]
    return found, tuple(repeated)


def changes(before: Mapping[Key, Handoff], after: Mapping[Key, Handoff]) -> HandoffChanges:
    return HandoffChanges(
        bound=tuple(after[key] for key in sorted(after.keys() - before.keys())),
        rebound=tuple(
            after[key] for key in sorted(after.keys() & before.keys()) if not after[key].is_same_engine(before[key])
        ),
        unbound=tuple(sorted(before.keys() - after.keys())),
    )
