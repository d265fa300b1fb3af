"""The graph of a pipeline's steps: their order, and what is wrong with it."""

from collections.abc import Mapping, Sequence


def order(needs: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """The steps, each after those it needs, otherwise as they were given. All that is needed must be there, and there
    must be no cycle."""
    found: list[str] = []
    left = dict(needs)
    while left:
        ready = [name for name, before in left.items() if not any(each in left for each in before)]
        assert ready, "there is a cycle"
        found += ready
        for name in ready:
            del left[name]
    return tuple(found)


def cycle(needs: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """The steps of one cycle, in the order in which they wait for each other; empty where there is none."""
    left = {name: {each for each in before if each in needs} for name, before in needs.items()}
    while ready := [name for name, before in left.items() if not before]:
        for name in ready:
            del left[name]
        for before in left.values():
            before.difference_update(ready)
    if not left:
        return ()
    path = [min(left)]
    while (following := min(left[path[-1]])) not in path:
        path.append(following)
    return tuple(path[path.index(following) :])
