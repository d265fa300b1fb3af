"""Changes of handoffs, and which replicas can be used from where."""

from dataclasses import replace

from homeport.core.inference.engines.handoff import EngineName, Handoff, HandoffModel
from homeport.core.inference.engines.handoff_changes import by_replica, changes
from homeport.core.inference.replicas import assigned, of_site
from homeport.core.tunnel.targets import Endpoint

ONE = Handoff(
    engine=EngineName.LLAMACPP, url="http://127.0.0.1:8100", model=HandoffModel("m"), pool_id="p", replica_id="a"
)
TWO = replace(ONE, replica_id="b", url="http://127.0.0.1:8101")


def test_new_changed_and_vanished_replicas_are_told_apart() -> None:
    moved = replace(TWO, url="http://127.0.0.1:9000")
    found = changes({ONE.key: ONE, TWO.key: TWO}, {TWO.key: moved, ("q", "a"): replace(ONE, pool_id="q")})
    assert [each.key for each in found.bound] == [("q", "a")]
    assert found.rebound == (moved,)
    assert found.unbound == (("p", "a"),)


def test_what_says_the_same_changes_nothing() -> None:
    assert not changes({ONE.key: ONE}, {ONE.key: replace(ONE, slots_free=0)})


def test_of_two_files_for_one_replica_the_first_by_name_counts() -> None:
    found, repeated = by_replica({"b.json": replace(ONE, url="http://127.0.0.1:1"), "a.json": ONE})
    assert found == {ONE.key: ONE}
    assert repeated == ("b.json",)


def test_an_engine_of_another_machine_is_reached_through_its_tunnel() -> None:
    found, problems = assigned({"n1": ("net-1", [ONE]), "n2": ("net-2", [TWO])}, network="net-1")
    assert [(each.owner, each.handoff, each.is_direct) for each in found] == [("n1", ONE, True), ("n2", TWO, False)]
    assert found[1].endpoint == Endpoint("127.0.0.1", 8101)
    assert problems == ()


def test_a_machine_that_cannot_tell_where_it_is_shares_no_address() -> None:
    assert [each.is_direct for each in assigned({"n1": ("", [ONE])}, network="")[0]] == [False]


def test_a_host_that_cannot_be_read_harms_its_own_replica_alone() -> None:
    bad = replace(ONE, url="http://a_b\u00fc:1")
    found, problems = assigned({"n1": ("net", [bad, TWO])}, network="net")
    assert [each.handoff for each in found] == [TWO]
    assert problems[0].startswith("p on n1: ")


def test_two_nodes_may_use_one_name_for_their_replicas() -> None:
    found, _ = assigned(
        {"n1": ("net", [ONE]), "n2": ("net", [replace(ONE, url="http://127.0.0.1:2")])}, network="net"
    )
    assert [each.handoff.replica_id for each in found] == ["a", "n2/a"]


def test_at_central_a_replica_carries_its_site() -> None:
    found, _ = assigned({"home": ("net", [ONE])}, network="net")
    assert list(of_site("home", found)) == [("p", "home/a")]
