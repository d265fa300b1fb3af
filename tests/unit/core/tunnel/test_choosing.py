"""Which node and which container a person means."""

import pytest

from homeport.core.tunnel.choosing import RunningContainer, RunsOn, choose_container, choose_node
from homeport.errors import Conflict, NotFound
from homeport.vocabulary import NodeId

WEB = RunningContainer("1", "shop-web-1", "main", "web", frozenset({80}))
DATA = RunningContainer("2", "shop-data-1", "main", "data", frozenset({5432}))


def on(name: str, *, running: bool = True, reachable: bool = True) -> RunsOn:
    return RunsOn(NodeId(name), running, reachable)


def test_the_first_node_that_runs_it_and_can_be_reached_is_taken() -> None:
    assert choose_node("x@y", [on("a", reachable=False), on("c"), on("b"), on("0", running=False)]) == "b"
    assert choose_node("x@y", [on("a", reachable=False)]) == "a", "the site may know better"
    assert choose_node("x@y", [on("a"), on("b", running=False)], "b") == "b"


def test_a_node_that_does_not_run_it_and_no_node_at_all_are_said() -> None:
    with pytest.raises(NotFound, match="x@y does not run on node z") as refused:
        choose_node("x@y", [on("a"), on("b")], "z")
    assert refused.value.hint == "Available:  a, b ."
    with pytest.raises(Conflict, match="x@y runs on no node now"):
        choose_node("x@y", [on("a", running=False)])


def test_a_container_is_chosen_by_component_service_name_or_port() -> None:
    assert choose_container([WEB, DATA]) == DATA, "the first by name"
    for name in ("web", "shop-web-1"):
        assert choose_container([WEB, DATA], asked=name) == WEB
    assert choose_container([WEB, DATA], port=80) == WEB
    assert choose_container([WEB], port=9999) == WEB, "an image need not say which ports it has"


def test_what_cannot_be_chosen_names_what_there_is() -> None:
    with pytest.raises(NotFound, match='no component "cache"') as unknown:
        choose_container([WEB, DATA], asked="cache")
    assert unknown.value.hint == "Available:  data, web ."
    with pytest.raises(NotFound, match="exposes port 81") as closed:
        choose_container([WEB, DATA], port=81)
    assert closed.value.hint == "Available:  80, 5432 . Or choose with --component."
    with pytest.raises(Conflict, match="No container of it runs"):
        choose_container([])
