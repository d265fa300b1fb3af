"""Ranges of downloads and of uploaded parts."""

import pytest

from homeport.content.registry.errors import RegistryProblem
from homeport.content.registry.ranges import requested, uploaded


@pytest.mark.parametrize(
    ("header", "part"),
    [
        (None, None),
        ("bytes=0-0", (0, 1)),
        ("bytes=5-", (5, 95)),
        ("bytes=90-1000", (90, 10)),
        ("bytes=-10", (90, 10)),
        ("bytes=-1000", (0, 100)),
        ("bytes=0-1,5-6", None),
        ("bytes=9-5", None),
        ("bytes=-", None),
        ("lines=1-2", None),
        ("bytes=" + "9" * 30 + "-", None),
    ],
)
def test_a_part_that_is_asked_for(header: str | None, part: tuple[int, int] | None) -> None:
    assert requested(header, 100) == part


@pytest.mark.parametrize("header", ["bytes=100-", "bytes=100-200", "bytes=-0"])
def test_bytes_that_are_not_there(header: str) -> None:
    with pytest.raises(RegistryProblem) as refused:
        requested(header, 100)
    assert (refused.value.status, refused.value.headers) == (416, {"Content-Range": "bytes */100"})


def test_a_part_says_where_it_begins() -> None:
    assert uploaded(None, 10) is None
    assert uploaded("0-9", 10) == 0
    assert uploaded("bytes 10-19/100", 10) == 10
    assert uploaded("10-19", None) == 10
    for wrong in ("0-8", "x", "9-0", "-5", "5-"):
        with pytest.raises(RegistryProblem):
            uploaded(wrong, 10)
