"""The multiplexer: what it lets through, and what ends a connection."""

import pytest

from homeport.core.tunnel.frames import CREDIT, PAYLOAD_BYTES_MAX, FrameKind, TunnelProtocolError, encode_frame
from homeport.core.tunnel.mux import (
    BUDGET_BYTES,
    STREAMS_MAX,
    WINDOW_BYTES_MAX,
    WINDOW_BYTES_MIN,
    Mux,
    PeerLeft,
    StreamAccepted,
    StreamCredited,
    StreamData,
    StreamEnded,
    StreamOpened,
    StreamRefused,
    StreamReset,
)


def pair() -> tuple[Mux, Mux]:
    return Mux(is_opener=True), Mux(is_opener=False)


def exchanged(source: Mux, target: Mux) -> list[object]:
    return [*target.receive(source.take_output())]


def opened() -> tuple[Mux, Mux, int]:
    above, below = pair()
    number = above.open(b"where")
    assert number is not None
    assert exchanged(above, below) == [StreamOpened(number, b"where")]
    below.accept(number, b"here")
    assert exchanged(below, above) == [StreamAccepted(number, b"here")]
    return above, below, number


def test_bytes_arrive_in_order_and_each_direction_ends_by_itself() -> None:
    above, below, number = opened()
    assert above.send(number, b"one") == 3
    above.end(number)
    assert exchanged(above, below) == [StreamData(number, b"one"), StreamEnded(number)]
    assert below.send(number, b"two") == 3
    below.end(number)
    assert exchanged(below, above) == [StreamData(number, b"two"), StreamEnded(number)]
    assert (len(above), len(below)) == (0, 0)


def test_a_sender_stops_at_its_credit_until_the_reader_has_read() -> None:
    above, below, number = opened()
    sent = 0
    while count := above.send(number, bytes(WINDOW_BYTES_MAX)):
        sent += count
    assert sent == WINDOW_BYTES_MAX
    exchanged(above, below)
    below.consumed(number, WINDOW_BYTES_MAX // 2 - 1)
    assert exchanged(below, above) == [], "a frame for each read would double the frames"
    below.consumed(number, 1)
    assert exchanged(below, above) == [StreamCredited(number)]
    assert above.send(number, bytes(10)) == 10


def test_one_stream_without_credit_holds_back_no_other() -> None:
    above, below, slow = opened()
    while above.send(slow, bytes(WINDOW_BYTES_MAX)):
        pass
    quick = above.open(b"")
    assert quick is not None
    exchanged(above, below)
    below.accept(quick, b"")
    exchanged(below, above)
    assert above.send(quick, b"quick") == 5
    assert exchanged(above, below) == [StreamData(quick, b"quick")]


def test_windows_shrink_as_streams_become_many_so_that_memory_is_bounded() -> None:
    above, below = pair()
    granted = 0
    for _ in range(STREAMS_MAX):
        number = above.open(b"")
        assert number is not None
        frame = above.take_output()
        credit = CREDIT.unpack(frame[9:13])[0]
        assert WINDOW_BYTES_MIN <= credit <= WINDOW_BYTES_MAX
        granted += credit
        assert [*below.receive(frame)]
    assert above.open(b"") is None
    assert granted <= BUDGET_BYTES + STREAMS_MAX * WINDOW_BYTES_MIN


def test_a_refusal_and_a_reset_carry_their_reason_and_frames_that_cross_them_are_harmless() -> None:
    above, below = pair()
    number = above.open(b"")
    assert number is not None
    exchanged(above, below)
    below.refuse(number, b"no")
    assert exchanged(below, above) == [StreamRefused(number, b"no")]
    above, below, number = opened()
    above.send(number, b"late")
    below.reset(number, b"gone")
    assert exchanged(above, below) == []
    assert exchanged(below, above) == [StreamReset(number, b"gone")]


def test_leaving_and_pings_and_frames_of_a_later_release() -> None:
    above, below = pair()
    above.leave("stopping")
    assert exchanged(above, below) == [PeerLeft("stopping")]
    above.ping()
    assert exchanged(above, below) == []
    assert below.take_output() == encode_frame(FrameKind.PONG)
    assert [*below.receive(b"\x63" + bytes(8))] == []
    assert below.unknown_frames == 1


@pytest.mark.parametrize(
    ("frames", "why"),
    [
        (encode_frame(FrameKind.DATA, 7, b"x"), "never opened"),
        (encode_frame(FrameKind.OPEN, 5, CREDIT.pack(1)), "stream 5 after"),
        (encode_frame(FrameKind.OPEN, 1, b"x"), "credit that cannot be read"),
        (encode_frame(FrameKind.OPEN, 1, CREDIT.pack(2**31)), "too much credit"),
        (encode_frame(FrameKind.OPEN, 1, CREDIT.pack(1)) + encode_frame(FrameKind.DATA, 1, b"x"), "not open"),
        (
            encode_frame(FrameKind.DATA, 1, bytes(PAYLOAD_BYTES_MAX))[:9].replace(b"\0\2\0\0", b"\0\2\0\1"),
            "a frame of",
        ),
    ],
)
def test_what_no_correct_end_sends_ends_the_connection(frames: bytes, why: str) -> None:
    with pytest.raises(TunnelProtocolError, match=why):
        [*Mux(is_opener=False).receive(frames)]


def test_the_end_that_answers_may_not_open_streams() -> None:
    with pytest.raises(TunnelProtocolError, match="may not open"):
        [*Mux(is_opener=True).receive(encode_frame(FrameKind.OPEN, 1, CREDIT.pack(1)))]


def test_a_peer_that_sends_beyond_its_credit_is_disconnected() -> None:
    above, below, number = opened()
    too_much = b"".join(
        encode_frame(FrameKind.DATA, number, bytes(64 * 1024)) for _ in range(WINDOW_BYTES_MAX // (64 * 1024) + 1)
    )
    with pytest.raises(TunnelProtocolError, match="than its credit"):
        [*below.receive(too_much)]
    assert above.has(number)
