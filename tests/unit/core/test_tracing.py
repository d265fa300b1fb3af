"""The context of a trace as it travels: in headers, in commit messages, or derived from a commit."""

import pytest

from homeport.core.tracing import (
    TraceContext,
    context_of_commit,
    context_of_message,
    derived_context,
    parse_context,
    with_trailer,
)
from homeport.vocabulary import Commit

TEXT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
CONTEXT = TraceContext("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331")


def test_a_context_is_read_as_it_was_written() -> None:
    assert parse_context(TEXT) == CONTEXT
    assert str(CONTEXT) == TEXT
    unsampled = parse_context(TEXT[:-2] + "00")
    assert unsampled is not None
    assert not unsampled.sampled
    assert parse_context(str(unsampled)) == unsampled


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        TEXT.upper(),
        TEXT + "-more",
        TEXT.replace("00-", "ff-", 1),
        "00-" + "0" * 32 + "-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-" + "0" * 16 + "-01",
        TEXT.replace("01", "zz"),
        "00-0af7651916cd43dd8448eb211c80319c-01",
    ],
)
def test_what_is_no_context_counts_as_none(text: str) -> None:
    assert parse_context(text) is None


def test_a_later_version_is_read_by_the_fields_that_are_known() -> None:
    assert parse_context(TEXT.replace("00-", "cc-", 1) + "-what-the-future-will-be-like") == CONTEXT


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("deploy hello to home", f"deploy hello to home\n\nTraceparent: {TEXT}"),
        ("deploy\n\nhome/abc\n\nRollout: 7\n", f"deploy\n\nhome/abc\n\nRollout: 7\nTraceparent: {TEXT}"),
        ("deploy\n\nhome/abc", f"deploy\n\nhome/abc\n\nTraceparent: {TEXT}"),
        ("fix: a title like a trailer", f"fix: a title like a trailer\n\nTraceparent: {TEXT}"),
    ],
)
def test_the_trailer_stands_where_git_looks_for_it(message: str, expected: str) -> None:
    assert with_trailer(message, CONTEXT) == expected
    assert context_of_message(expected) == CONTEXT


def test_the_last_trailer_counts_and_a_broken_one_is_none() -> None:
    other = TEXT.replace("b7ad", "aaaa")
    assert context_of_message(f"a\n\nTraceparent: {other}\ntraceparent: {TEXT}") == CONTEXT
    assert context_of_message("a\n\nTraceparent: nonsense") is None
    assert context_of_message("speaks of Traceparent: but has none") is None


def test_everybody_derives_the_same_context_from_a_commit_without_one() -> None:
    first, second = Commit("a" * 40), Commit("b" * 40)
    assert derived_context(first) == derived_context(first)
    assert derived_context(first).trace_id != derived_context(second).trace_id
    assert parse_context(str(derived_context(first))) == derived_context(first)
    assert context_of_commit(first, "by hand") == derived_context(first)
    assert context_of_commit(first, with_trailer("by central", CONTEXT)) == CONTEXT
