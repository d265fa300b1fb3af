"""Whatever is written, however it is cut on the way and however slowly it is read: it arrives whole, in order, on its
own stream, and no more waits for a reader than its window."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from homeport.core.tunnel.mux import WINDOW_BYTES_MAX, Mux, StreamData, StreamEnded, StreamOpened

SIZES = st.integers(0, 3 * WINDOW_BYTES_MAX)


@given(
    sizes=st.lists(SIZES, min_size=1, max_size=4),
    turns=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 400_000), st.integers(1, 300_000)), max_size=60),
)
def test_every_stream_arrives_whole_and_waits_for_its_own_reader_alone(
    sizes: list[int], turns: list[tuple[int, int, int]]
) -> None:
    above, below = Mux(is_opener=True), Mux(is_opener=False)
    left: dict[int, int] = {}
    for size in sizes:
        number = above.open(b"")
        assert number is not None
        left[number] = size
    waiting, arrived, ended = Counter[int](), Counter[int](), set[int]()

    def carry(cut: int) -> None:
        wire = above.take_output()
        for at in range(0, len(wire), cut):
            for event in below.receive(wire[at : at + cut]):
                match event:
                    case StreamOpened():
                        below.accept(event.stream, b"")
                    case StreamData():
                        assert event.data == bytes([event.stream]) * len(event.data)
                        waiting[event.stream] += len(event.data)
                        assert waiting[event.stream] <= WINDOW_BYTES_MAX
                    case StreamEnded():
                        ended.add(event.stream)
                    case _:
                        raise AssertionError(event)
        assert all(above.receive(below.take_output()))

    def write(number: int) -> None:
        while left[number] and (count := above.send(number, bytes([number]) * min(left[number], 100_000))):
            left[number] -= count
        if not left[number]:
            above.end(number)

    def read(number: int, count: int) -> None:
        taken = min(count, waiting[number])
        waiting[number] -= taken
        arrived[number] += taken
        below.consumed(number, taken)

    carry(1000)
    for which, cut, count in turns:
        number = 1 + which % len(sizes)
        write(number)
        carry(cut)
        read(number, count)
    while sum(left.values()) or sum(waiting.values()) or len(ended) < len(sizes):
        for number in left:
            write(number)
        carry(100_000)
        for number in left:
            read(number, WINDOW_BYTES_MAX)
    assert [arrived[number] for number in left] == sizes
