"""What a node makes of the bytes that an attempt prints: lines with their positions, and the end of it all."""

from hypothesis import given
from hypothesis import strategies as st

from homeport.core.jobs.rules import OUTPUT_BYTES_MAX
from homeport.jobs.node.output import FIELD_CUT, FIELD_OFFSET, LINE_CHARACTERS_MAX, Output
from homeport.ports import LogLine, Logs
from tests.support.clock import ManualClock


def printed(chunks: list[bytes], *, secrets: tuple[str, ...] = ()) -> tuple[list[LogLine], str, int]:
    lines: list[LogLine] = []

    def put(logs: Logs) -> None:
        lines.extend(logs.lines)

    output = Output("job/one", 1, secrets, ManualClock(), put)
    for chunk in chunks:
        output.feed(chunk)
    ended = output.end()
    return lines, ended.text, ended.bytes_total


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
    lines: list[LogLine] = []
    output = Output("job/one", 1, (), ManualClock(), lambda logs: lines.extend(logs.lines))
    output.feed(b"one\ntwo\nthr")
    output.restart()
    output.feed(b"one\ntwo\nthree\n")
    ended = output.end()
    assert [line.text for line in lines] == ["one", "two", "three"]
    assert (ended.text, ended.bytes_total) == ("one\ntwo\nthree\n", 14)


def test_secrets_are_masked_in_lines_and_in_the_end_that_is_kept() -> None:
    lines, text, _ = printed([b"the key is hunt", b"er22, really\n"], secrets=("hunter22",))
    assert "hunter22" not in text + whole(lines)
    assert whole(lines) == text


@given(st.lists(st.sampled_from(["a", "b", "c"]), max_size=40), st.integers(0, 40), st.integers(0, 40), st.data())
def test_lines_that_the_engine_left_out_are_sent_later_and_no_line_twice(
    words: list[str], begin: int, size: int, data: st.DataObject
) -> None:
    """The engine leaves out a stretch while the output is followed; then it is read again, also more than once."""
    lines: list[LogLine] = []
    output = Output("job/one", 1, (), ManualClock(), lambda logs: lines.extend(logs.lines))
    for word in words[:begin] + words[begin + size :]:
        output.feed(f"{word}\n".encode())
    for _ in range(data.draw(st.integers(1, 3))):
        output.restart()
        for word in words[: data.draw(st.integers(0, len(words)))]:
            output.feed(f"{word}\n".encode())
    output.restart()
    output.feed("".join(f"{word}\n" for word in words).encode())
    ended = output.end()
    assert sorted(line.text for line in lines) == sorted(words)
    assert ended.text == "".join(f"{word}\n" for word in words)
