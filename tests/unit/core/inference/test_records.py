"""How what is kept is shared among keys."""

from hypothesis import given
from hypothesis import strategies as st

from homeport.core.inference.records import fair_share, kept_of

AMOUNTS = st.lists(st.integers(0, 1_000), max_size=8)


@given(AMOUNTS, st.integers(0, 3_000))
def test_all_together_keep_no_more_than_there_is_and_who_has_little_keeps_all(amounts: list[int], most: int) -> None:
    share = fair_share(amounts, most)
    kept = [min(each, share) for each in amounts]
    assert sum(kept) <= most
    if sum(amounts) <= most:
        assert kept == amounts
    elif amounts:
        assert sum(kept) + len(amounts) > most, "nothing is taken that has room"


@given(AMOUNTS, st.integers(0, 10), st.integers(0, 3_000))
def test_of_one_key_the_newest_are_kept_within_both_bounds(sizes: list[int], count: int, size: int) -> None:
    kept = kept_of(sizes, count_share=count, bytes_share=size)
    assert kept <= count
    assert sum(sizes[:kept]) <= size
    if kept < len(sizes):
        assert kept == count or sum(sizes[: kept + 1]) > size
