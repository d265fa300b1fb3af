"""Whatever is put into the lanes of a stream, and in whatever order: bounds, priorities and counted gaps hold."""

from hypothesis import given
from hypothesis import strategies as st

from homeport.core.node.lanes import BOUNDS, Bound, Lane, Lanes

SMALL = {
    Lane.CONTROL: Bound(3),
    Lane.ORDERS: Bound(4),
    Lane.TELEMETRY: Bound(2, may_drop=True),
    Lane.LOGS: Bound(3, may_drop=True),
}
STEPS = st.lists(st.sampled_from([*Lane, None]), max_size=80)
"""A lane that something is put into, or None to take what goes next."""


@given(steps=STEPS)
def test_bounds_hold_nothing_is_reordered_and_every_loss_is_counted(steps: list[Lane | None]) -> None:
    lanes = Lanes[int](SMALL)
    put: dict[Lane, list[int]] = {lane: [] for lane in Lane}
    seen: dict[Lane, list[int | None]] = {lane: [] for lane in Lane}
    for number, lane in enumerate([*steps, *[None] * 20]):
        if lane is not None:
            if lanes.put(lane, number):
                put[lane].append(number)
            else:
                assert not SMALL[lane].may_drop
                assert lanes.size(lane) == SMALL[lane].messages_max
            assert lanes.size(lane) <= SMALL[lane].messages_max
        else:
            earlier = [each for each in Lane if lanes.size(each)]
            taken = lanes.take()
            assert (taken is None) == (not earlier)
            if taken is not None:
                assert taken.lane is earlier[0], "an earlier lane goes first"
                seen[taken.lane] += [*[None] * taken.dropped, taken.message]
    for lane in Lane:
        pairs = list(zip(seen[lane], put[lane], strict=True))
        assert all(was is None or was == number for was, number in pairs), "each is in its place, or a gap is"
        assert seen[lane].count(None) == lanes.dropped[lane]


def test_a_flood_of_logs_costs_only_logs_and_never_delays_what_comes_before() -> None:
    lanes = Lanes[str]()
    for number in range(100_000):
        assert lanes.put(Lane.LOGS, f"line {number}")
    assert lanes.put(Lane.CONTROL, "beat")
    assert lanes.put(Lane.ORDERS, "result")
    taken = [lanes.take() for _ in range(3)]
    assert [each.message for each in taken[:2] if each is not None] == ["beat", "result"]
    first = taken[2]
    assert first is not None
    kept = BOUNDS[Lane.LOGS].messages_max
    assert (first.message, first.dropped) == (f"line {100_000 - kept}", 100_000 - kept)


def test_orders_are_refused_and_not_dropped_when_there_is_no_room() -> None:
    lanes = Lanes[int](SMALL)
    assert [lanes.put(Lane.ORDERS, number) for number in range(5)] == [True] * 4 + [False]
    assert lanes.dropped[Lane.ORDERS] == 0
