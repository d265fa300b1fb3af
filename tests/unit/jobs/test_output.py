"""What a node makes of the bytes that an attempt prints: lines with their positions, and the end of it all."""

from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from homeport.core.jobs.rules import OUTPUT_BYTES_MAX
from homeport.jobs.node.output import FIELD_CUT, FIELD_OFFSET, LINE_CHARACTERS_MAX, OutputReader, position_of
from homeport.ports import LogLine, Logs
from tests.support.clock import ManualClock


class Buffer:
    def __init__(self) -> None:
        self.lines: list[LogLine] = []
        self.positions: dict[str, str] = {}

    def put_logs(self, logs: Logs, positions: Mapping[str, str] | None = None) -> None:
        self.lines.extend(logs.lines)
        self.positions.update(positions or {})

    async def position(self, of: str) -> str:
        return self.positions.get(of, "")

    async def forget_positions(self, of: Sequence[str]) -> None:
        for each in of:
            self.positions.pop(each, None)


def printed(chunks: list[bytes], *, secrets: tuple[str, ...] = ()) -> tuple[list[LogLine], str, int]:
    buffer = Buffer()
    output = OutputReader("job/one", 1, secrets, ManualClock(), buffer.put_logs)
    for chunk in chunks:
        output.feed(chunk)
    ended = output.end()
    return buffer.lines, ended.text, ended.bytes_total


def whole(lines: list[LogLine]) -> str:
    return "".join(line.text + ("" if FIELD_CUT in line.fields else "\n") for line in lines)


@given(st.lists(st.text(alphabet="aé\n€😀", max_size=60), max_size=30), st.integers(1, 7))
def test_lines_and_positions_do_not_depend_on_how_output_is_cut_into_chunks(texts: list[str], size: int) -> None:
    content = "".join(texts).encode()
    chunks = [content[start : start + size] for start in range(0, len(content), size)]
    lines, text, total = printed(chunks)
    assert whole(lines).encode() == content
    assert (text.encode(), total) == (content, len(content))
    for line in lines:
        begin = int(line.fields[FIELD_OFFSET])
        assert content[begin:].startswith(line.text.encode())


@given(st.integers(1, 5 * OUTPUT_BYTES_MAX), st.sampled_from(["x", "é", "€", "😀"]), st.integers(1, 200))
def test_the_end_of_a_long_output_is_kept_without_half_a_character(size: int, letter: str, width: int) -> None:
    line = (letter * width + "\n").encode()
    content = line * (size // len(line) + 1)
    _, text, total = printed([content[start : start + 65_536] for start in range(0, len(content), 65_536)])
    assert total == len(content)
    assert text == content[-OUTPUT_BYTES_MAX:].decode(errors="ignore")


def test_a_megabyte_without_a_line_break_becomes_lines_that_say_so() -> None:
    lines, text, total = printed([b"y" * 1_000_000])
    assert {len(line.text) for line in lines[:-1]} == {LINE_CHARACTERS_MAX}
    assert all(line.fields[FIELD_CUT] == "yes" for line in lines)
    assert (whole(lines), total, len(text)) == ("y" * 1_000_000, 1_000_000, OUTPUT_BYTES_MAX)


def test_output_that_is_read_again_is_sent_once_and_kept_whole() -> None:
    buffer = Buffer()
    output = OutputReader("job/one", 1, (), ManualClock(), buffer.put_logs)
    output.feed(b"one\ntwo\nthr")
    output.restart()
    output.feed(b"one\ntwo\nthree\n")
    ended = output.end()
    assert [line.text for line in buffer.lines] == ["one", "two", "three"]
    assert (ended.text, ended.bytes_total) == ("one\ntwo\nthree\n", 14)


def test_secrets_are_masked_in_lines_and_in_the_end_that_is_kept() -> None:
    lines, text, _ = printed([b"the key is hunt", b"er22, really\n"], secrets=("hunter22",))
    assert "hunter22" not in text + whole(lines)
    assert whole(lines) == text


@given(st.lists(st.text(alphabet="aé\n€", max_size=12), max_size=20), st.data())
def test_a_node_that_is_killed_anywhere_sends_no_line_twice(texts: list[str], data: st.DataObject) -> None:
    """It reads the output from its beginning; what has become durable is where it goes on."""
    content = "".join(texts).encode()
    buffer = Buffer()
    for _ in range(data.draw(st.integers(0, 3))):
        killed = OutputReader("job/one", 1, (), ManualClock(), buffer.put_logs, sent=_sent(buffer))
        killed.feed(content[: data.draw(st.integers(0, len(content)))])
    last = OutputReader("job/one", 1, (), ManualClock(), buffer.put_logs, sent=_sent(buffer))
    last.feed(content)
    ended = last.end()
    assert whole(buffer.lines).encode() == content
    assert (ended.text.encode(), ended.bytes_total) == (content, len(content))


def _sent(buffer: Buffer) -> int:
    return int(buffer.positions.get(position_of("job/one", 1), "0"))
