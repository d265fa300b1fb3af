"""Which releases work together, and what is said where they do not."""

import pytest

from homeport.core.model.protocol import (
    FEATURES_MAX,
    FIRST,
    OWN,
    UNSAID,
    VERSION,
    VERSION_MAX,
    PeerProtocol,
    skew,
)
from homeport.vocabulary import Feature


@pytest.mark.parametrize("theirs", [VERSION - 1, VERSION, VERSION + 1])
def test_neighbours_may_be_one_release_apart_in_either_direction(theirs: int) -> None:
    assert skew("site north", PeerProtocol(theirs), us="central") is None


def test_the_release_before_says_nothing_and_is_let_in() -> None:
    assert UNSAID.version == VERSION - 1, "two releases from now it is refused: remove it from the window then"
    assert skew("site north", UNSAID, us="central") is None


@pytest.mark.parametrize(
    ("theirs", "ours", "sentence"),
    [
        (4, 2, "Site north speaks protocol 4 and central speaks 2: they are more than one release apart."
               " Upgrade central, one release at a time."),
        (1, 3, "Site north speaks protocol 1 and central speaks 3: they are more than one release apart."
               " Upgrade site north, one release at a time."),
    ],
)  # fmt: skip
def test_the_older_of_the_two_is_to_be_upgraded(theirs: int, ours: int, sentence: str) -> None:
    assert skew("site north", PeerProtocol(theirs), us="central", ours=ours) == sentence


@pytest.mark.parametrize("version", [None, 0, -3, "2", 2.5, VERSION_MAX + 1, [], {}])
def test_a_number_that_cannot_be_one_counts_as_not_said(version: object) -> None:
    assert PeerProtocol.said(version).version == FIRST


def test_features_of_a_peer_are_bounded_and_sorted() -> None:
    many = [f"feature-{number:03}" for number in range(1000)]
    assert PeerProtocol.said(2, [*many, 5, None, "", "x" * 1000, "a"]).features == ("a", *many[: FEATURES_MAX - 1])
    assert OWN.has(Feature.NOTICE)
    assert not UNSAID.has(Feature.NOTICE)
