"""Messages of engines, wherever their chunks are cut and however their lines end."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homeport.core.inference.engines.messages import LINES, MessageBuffer, data_of

EVENTS = b"event: a\ndata: 1\n\ndata: 2\n\n: comment\n\ndata: 3\ndata: 4\n\n"


@given(line_end=st.sampled_from([b"\n", b"\r\n", b"\r"]), cuts=st.lists(st.integers(0, 100), max_size=20))
def test_however_lines_end_and_chunks_are_cut_the_events_are_the_same(line_end: bytes, cuts: list[int]) -> None:
    sent = EVENTS.replace(b"\n", line_end)
    ends = sorted({min(cut, len(sent)) for cut in cuts} | {0, len(sent)})
    buffer = MessageBuffer()
    found = [buffer.feed(sent[begin:end]) for begin, end in itertools.pairwise(ends)]
    assert b"".join(found) == EVENTS
    assert all(each.endswith(b"\n\n") for each in found if each)
    assert (buffer.size, buffer.rest()) == (0, b"")


def test_what_is_incomplete_waits_and_is_counted() -> None:
    buffer = MessageBuffer(LINES)
    assert buffer.feed(b'{"a": 1}\n{"b"') == b'{"a": 1}\n'
    assert (buffer.size, buffer.rest()) == (4, b'{"b"')
    assert buffer.feed(b": 2}\n") == b'{"b": 2}\n'
    assert buffer.size == 0


@pytest.mark.parametrize("piece", [b"x", b"x\n"])
def test_a_message_may_come_byte_by_byte(piece: bytes) -> None:
    buffer = MessageBuffer()
    assert not any(buffer.feed(piece) for _ in range(10_000))
    assert buffer.size == 10_000 * len(piece)
    assert buffer.feed(b"\n\n") == piece * 10_000 + b"\n\n"


def test_the_data_of_an_event_is_what_its_data_lines_say() -> None:
    assert data_of(b"event: x\ndata: {\ndata:}\nid: 1") == b"{\n}"
    assert data_of(b": a comment") == b""
