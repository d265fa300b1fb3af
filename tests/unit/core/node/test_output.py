"""What a failed component wrote last, fit to be shown."""

from homeport.core.node.output import CHARACTERS_MAX, ended, last_lines


def test_the_last_lines_are_shown_in_one() -> None:
    text = b"".join(b"line %d\n" % number for number in range(20))
    assert last_lines(text, ()) == "line 15 | line 16 | line 17 | line 18 | line 19"


def test_control_characters_and_secrets_do_not_get_through() -> None:
    text = b"\x1b[2J\x1b]0;title\x07\x1b[31mbind\x00 failed\x1b[0m for hunter2-hunter2\r\n\xff\n"
    said = last_lines(text, ["hunter2-hunter2"])
    assert said.startswith("bind  failed for ") and said.isprintable()
    assert "hunter2" not in said


def test_it_is_bounded_and_nothing_is_nothing() -> None:
    assert len(last_lines(b"x" * 100_000, ())) == CHARACTERS_MAX
    assert last_lines(b"\n\x1b[0m\n", ()) == ""


def test_a_sentence_ends_once() -> None:
    assert (ended("no such image"), ended("It failed.")) == ("no such image.", "It failed.")
