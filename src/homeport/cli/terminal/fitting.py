"""Column widths of a table, so that it fits the terminal and its first column is not truncated.

The widest columns shrink first, down to a useful minimum; then whole columns are dropped, from the right, those that
matter most at last. The first one identifies the item and the last one, a note, may wrap: both stay. A note that
would be wrapped into a tower of words goes below its row instead.
"""

from collections.abc import Collection, Sequence
from typing import Final

GAP: Final = 3
FIRST_MIN: Final = 32
OTHERS_MIN: Final = 11
"""Enough for the longest state."""
LAST_MIN: Final = 16
TOWER_WIDTH: Final = 40
TOWER_LINES: Final = 3


def fit(
    naturals: Sequence[int], titles: Sequence[int], available: int, *, vital: Collection[int] = ()
) -> dict[int, int]:
    """The visible columns, by position, with their widths. `naturals` are the widths of their content; `vital` are
    the positions of columns that go last."""
    shown = list(range(len(naturals)))
    least = [_least(position, naturals, titles) for position in shown]
    while len(shown) > 2 and _total([least[each] for each in shown]) > available:
        shown.remove(next((each for each in reversed(shown[1:-1]) if each not in vital), shown[-2]))
    widths = {each: naturals[each] for each in shown}
    while _total(list(widths.values())) > available:
        widest = max(widths, key=lambda each: widths[each] - least[each])
        if widths[widest] <= least[widest]:
            break
        widths[widest] -= 1
    return widths


def is_tower(natural: int, width: int, columns: int) -> bool:
    """Whether a note of this width would be wrapped into many short lines beside the other columns."""
    return columns > 2 and width < TOWER_WIDTH and natural > TOWER_LINES * width


def _least(position: int, naturals: Sequence[int], titles: Sequence[int]) -> int:
    bound = LAST_MIN if position == len(naturals) - 1 else FIRST_MIN if position == 0 else OTHERS_MIN
    return min(naturals[position], max(bound, titles[position]))


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * max(0, len(widths) - 1)
