"""A site names its starts, so that central can tell a restored copy and a twin from a restart."""

from homeport.fleet.central.sites.site_starts import RETURNS_MAX, Starts, dump_starts, load_starts
from homeport.ports import Lineage


def test_a_restarted_site_knows_the_start_before_it() -> None:
    heard = Starts().joined_by("a")
    assert not heard.are_ahead_of(Lineage(("a", "b"), given=7), 7)
    assert not heard.joined_by("b").are_ahead_of(Lineage(("a", "b"), given=7), 20), "it has reported since it started"
    assert not Starts().are_ahead_of(Lineage(("a",), given=0), 0)
    assert not heard.are_ahead_of(None, 7), "a site of an earlier version does not tell"


def test_a_restored_site_does_not_know_the_start_that_came_after_the_copy() -> None:
    assert Starts().joined_by("a").joined_by("b").are_ahead_of(Lineage(("a", "c"), given=30), 20)


def test_a_site_restored_from_a_copy_of_the_same_start_has_given_out_fewer_reports() -> None:
    assert Starts().joined_by("a").are_ahead_of(Lineage(("a", "b"), given=3), 8)


def test_two_that_displace_each_other_again_and_again_are_twins() -> None:
    heard = Starts().joined_by("a")
    for _ in range(RETURNS_MAX + 1):
        assert not heard.are_duplicates
        heard = heard.joined_by("b" if heard.current == "a" else "a")
    assert heard.are_duplicates
    assert load_starts(dump_starts(heard)) == heard
    assert not heard.joined_by("c").are_duplicates, "one of them was restarted: look again"


def test_a_packet_that_arrives_late_makes_no_twin() -> None:
    heard = Starts().joined_by("a").joined_by("b").joined_by("a").joined_by("b")
    assert not heard.are_duplicates
