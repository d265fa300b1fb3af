"""Whatever is written, however it is cut on the way and however slowly it is read: it arrives whole, in order, on its
own stream, and no more waits for a reader than its window."""

from collections import Counter
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from homeport.core.tunnel.frames import FrameKind, TunnelProtocolError, encode_frame
from homeport.core.tunnel.mux import STREAMS_MAX, WINDOW_BYTES_MAX, Mux, StreamData, StreamEnded, StreamOpened

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


FRAMES = st.builds(
    lambda kind, stream, payload, credit: encode_frame(
        cast(FrameKind, kind), stream, credit.to_bytes(4, "big") + payload if credit is not None else payload
    ),
    st.integers(0, 255),
    st.integers(0, 5) | st.integers(0, 2**32 - 1),
    st.binary(max_size=40),
    st.none() | st.integers(0, 2**32 - 1),
)


@given(is_opener=st.booleans(), said=st.lists(FRAMES | st.binary(max_size=60), max_size=40), data=st.data())
def test_whatever_a_peer_sends_its_connection_is_ended_or_goes_on_within_bounds(
    is_opener: bool, said: list[bytes], data: st.DataObject
) -> None:
    mux = Mux(is_opener)
    opened = [number for _ in range(3) if is_opener and (number := mux.open(b"somewhere")) is not None]
    received = 0
    try:
        for chunk in said:
            for event in mux.receive(chunk):
                if isinstance(event, StreamOpened):
                    answer = mux.accept if data.draw(st.booleans()) else mux.refuse
                    answer(event.stream, b"")
                elif isinstance(event, StreamData):
                    received += len(event.data)
            for number in opened:
                if mux.has(number):
                    mux.send(number, b"x" * 100)
    except TunnelProtocolError as error:
        assert str(error)
    assert len(mux) <= STREAMS_MAX
    assert received <= len(b"".join(said))
