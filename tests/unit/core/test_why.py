"""What is told of a deployment or a node, and above all what happens next."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from homeport.core.model.deployment import Hold, Pin
from homeport.core.model.event import HistoryEntry, Site
from homeport.core.model.instance import Failure, Unhealthy
from homeport.core.why import Facts, why_deployment, why_node
from homeport.vocabulary import UNPLACED, Actor, Code, Commit, Incarnation, Liveness, Trigger
from homeport.vocabulary import State as S
from tests.support.builders import HOME, NOW, a_deployment, a_desired, a_node, an_instance, deployment_id, revision

SITE = Site(HOME, NOW, NOW, Commit("d" * 40))
OFFLINE = Failure(Code.NODE_OFFLINE, "one has not been heard")
NOWHERE = Failure(Code.NO_ELIGIBLE_NODE, "no node can take 1.0.0")
PULL = Failure(Code.IMAGE_PULL_FAILED, "no such image", "web")
HOLD = Hold(HOME, None, "a shift is running", "anna", NOW, NOW + timedelta(hours=8))


def facts(**changes: Any) -> Facts:
    known: dict[str, Any] = {
        "deployment": a_deployment(state=S.INSTALLED),
        "desired": a_desired(),
        "author": "anna",
        "committed_at": NOW,
        "site": SITE,
        "reachable": True,
        "nodes": [a_node()],
        "instances": [an_instance()],
        "around": [],
        "hold": None,
        "pin": None,
        "secrets": {},
    }
    return Facts(**{**known, **changes})


def said(of: Facts, step: str) -> list[str]:
    return [
        f"{each.what}: {each.why}" if each.why else each.what for each in why_deployment(of, NOW) if each.step == step
    ]


FAILED = an_instance(state=S.FAILED, failure=PULL)
NEXT = [
    ("all is well", {}, "nothing: it is as wanted"),
    ("nothing can be reached", {"reachable": False}, "waits for site home to call"),
    ("a broken file", {"deployment": a_deployment(problem="line 3")}, "waits for a commit that fixes its file"),
    ("a plan set aside", {"deployment": a_deployment(set_aside="it divides by zero")},
     "waits until site home can plan it: it tries again every minute"),
    ("no node yet", {"nodes": [], "instances": []}, "waits for a node to join site home"),
    ("being started", {"instances": []}, "is started on one"),
    ("unhealthy", {"instances": [replace(an_instance(), unhealthy=Unhealthy(NOW, "web: 500"))]},
     "one watches its health and restarts it"),
    ("an older release runs", {"instances": [replace(an_instance(), running_revision=revision("older"))]},
     "one runs another release than Git asks for; its site follows"),
    ("under way", {"instances": [an_instance(state=S.INSTALLING)]}, "one works on it"),
    ("only lost nodes", {"nodes": [a_node(liveness=Liveness.LOST)], "instances": []},
     "waits for node one to send a heartbeat"),
    ("its node is lost", {"instances": [an_instance(state=S.FAILED, failure=OFFLINE)]},
     "waits for node one to send a heartbeat"),
    ("a retry", {"instances": [replace(FAILED, next_at=NOW + timedelta(seconds=7))]},
     "attempt 2 of 4 on one at 12:00:07 UTC"),
    ("no more retries", {"instances": [FAILED]},
     "nothing by itself: try again with  homeport deployments retry app-1@home , or push a new commit"),
    ("nobody can take it", {"desired": a_desired(selector="gpu"), "instances": []},
     "waits for a node that can take it"),
    ("nobody can take the update", {"desired": a_desired(selector="gpu"),
                                    "instances": [an_instance(state=S.FAILED, failure=NOWHERE)]},
     "waits for a node that can take it; what runs stays until then"),
    ("rolled back", {"instances": [replace(an_instance(at="before"), rejected_revision=revision("first"))]},
     "1.0.0 was rolled back; it is tried again with a new commit, or with  homeport deployments retry app-1@home"),
    ("held", {"hold": HOLD, "instances": []},
     "waits until 2026-03-01 20:00 UTC, or for  homeport sites release home"),
    ("held, with nothing to do", {"hold": HOLD}, "nothing: it is as wanted"),
    ("gone", {"deployment": a_deployment(wanted=False, archived_at=NOW), "instances": []}, "nothing: it is gone"),
    ("a move", {"desired": a_desired(count=1), "nodes": [a_node("one", drain="x"), a_node("b")],
                "instances": [an_instance(), an_instance(node="b", state=S.INSTALLING)]}, "b works on it"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "expected"), [row[1:] for row in NEXT], ids=[row[0] for row in NEXT])
def test_the_last_word_is_what_happens_next(changes: dict[str, Any], expected: str) -> None:
    assert said(facts(**changes), "next") == [expected]


def test_a_missing_secret_is_named_with_the_command_that_sets_it() -> None:
    desired = a_desired()
    (part,) = desired.release.components
    part = replace(part, environment={"PASSWORD": "secret://DB"})
    wants = replace(desired, release=replace(desired.release, components=(part,)))
    assert said(facts(desired=wants, instances=[]), "next") == ["waits for secret DB:  homeport secrets set home DB"]
    assert said(facts(desired=wants, secrets={"DB": 1}), "next") == ["nothing: it is as wanted"]


def test_the_chain_begins_with_commit_author_and_file() -> None:
    chain = why_deployment(facts(desired=a_desired(count=1, selector="zone=a")), NOW)
    assert [each.step for each in chain[:3]] == ["commit", "file", "site"]
    assert chain[0].what == "commit cccccccc by anna"
    assert chain[1].why == "it asks for app 1.0.0 at site home, on one node with zone=a"
    assert chain[2].what == "site home follows commit dddddddd"


def test_every_node_is_chosen_or_refused_with_the_reason() -> None:
    nodes = [a_node("one"), a_node("b", drain="new disk"), a_node("c", types=()), a_node("d", types=())]
    assert said(facts(nodes=nodes), "placement") == [
        "one is chosen: it was chosen before",
        "c, d not chosen: cannot run compose apps: with podman it runs nothing",
        "b not chosen: is drained: new disk",
    ]


def test_holds_pins_and_rollbacks_are_told() -> None:
    current = a_deployment().revision
    pin = Pin(deployment_id(), revision("older"), b"", current, "it was slow", "bert", NOW)
    back = replace(an_instance(at="older"), rejected_revision=current)
    told = facts(hold=HOLD, pin=pin, instances=[back])
    assert said(told, "hold") == ["the site is held until 2026-03-01 20:00 UTC by anna: a shift is running"]
    assert said(told, "pin")[0].endswith("it was slow")
    assert "not applied again until Git has another one" in said(told, "rollback")[0]


def test_what_could_not_be_placed_says_so() -> None:
    refused = an_instance(
        node=UNPLACED, state=S.FAILED, runs=False, failure=Failure(Code.NO_ELIGIBLE_NODE, "no node")
    )
    assert said(facts(instances=[refused], nodes=[a_node(types=())]), "instance")[0].endswith(
        "no node (NO_ELIGIBLE_NODE)"
    )


@pytest.mark.parametrize(
    ("node", "carries", "expected"),
    [
        (a_node(), True, "takes work"),
        (a_node(drain="new disk"), True, "1 instance still has to leave it"),
        (a_node(drain="new disk"), False, "nothing: it is empty"),
        (
            a_node(liveness=Liveness.LOST),
            True,
            "waits for its next heartbeat; its instances stay assigned for a while",
        ),
    ],
)
def test_a_node_tells_what_it_carries_and_what_is_next(node: Any, carries: bool, expected: str) -> None:
    chain = why_node(node, [an_instance()] if carries else [], {deployment_id(): "hello"})
    assert chain[-1].what == expected
    assert ("hello: INSTALLED" in [each.what for each in chain]) is carries


def test_what_runs_on_a_node_that_may_not_have_it_is_said_to_stay() -> None:
    drained = facts(nodes=[a_node(drain="new disk")])
    assert "one keeps what runs there: no other node can take its place" in said(drained, "placement")
    assert said(drained, "next") == ["waits for a node that can take it"]


def test_a_failure_of_a_release_that_is_no_longer_wanted_is_not_the_status_of_the_one_that_runs() -> None:
    """Somebody went back by hand: the file asks for what runs."""
    back = replace(an_instance(failure=PULL), step="running and healthy", rejected_revision=revision("second"))
    (instance,) = (each for each in why_deployment(facts(instances=[back]), NOW) if each.step == "instance")
    assert instance.why == "running and healthy"


def an_entry(before: S, after: S, trigger: Trigger, reason: str, seconds: int, node: str = "one") -> HistoryEntry:
    item = an_instance(node=node)
    at = NOW + timedelta(seconds=seconds)
    return HistoryEntry(
        item.deployment_id, item.node_id, item.incarnation, before, after, trigger, Actor.SITE, reason, at, None
    )


def test_the_steps_of_the_last_change_are_told_with_their_time_and_reason() -> None:
    history = [
        an_entry(S.PENDING, S.INSTALLING, Trigger.SCHEDULED, "hello 1.0.0 is wanted here", 0),
        an_entry(S.INSTALLING, S.INSTALLED, Trigger.HEALTHY, "running and healthy", 1),
        an_entry(S.INSTALLED, S.UPDATING, Trigger.CHANGED, "its file changed", 10),
        an_entry(S.UPDATING, S.FAILED, Trigger.GAVE_UP, "GET /healthz answered 500", 19),
        an_entry(S.FAILED, S.ROLLINGBACK, Trigger.ROLLED_BACK, "1.0.0 comes back", 20),
        an_entry(S.ROLLINGBACK, S.INSTALLED, Trigger.HEALTHY, "running and healthy", 21),
    ]
    known = facts(history=history)
    assert said(known, "history") == [
        "one: INSTALLED → UPDATING: its file changed",
        "one: UPDATING → FAILED: GET /healthz answered 500",
        "one: FAILED → ROLLINGBACK: 1.0.0 comes back",
        "one: ROLLINGBACK → INSTALLED: running and healthy",
    ]
    steps = [each for each in why_deployment(known, NOW) if each.step == "history"]
    assert [each.at for each in steps] == [NOW + timedelta(seconds=seconds) for seconds in (10, 19, 20, 21)]


def test_steps_of_other_nodes_and_of_an_earlier_incarnation_are_not_told_and_many_are_cut() -> None:
    flapping = [an_entry(S.FAILED, S.UPDATING, Trigger.RETRIED_UPDATE, f"attempt {n}", n) for n in range(100)]
    earlier = replace(flapping[0], incarnation=Incarnation(1), reason="an earlier life")
    elsewhere = an_entry(S.PENDING, S.INSTALLING, Trigger.SCHEDULED, "it suits", 0, node="b")
    told = said(facts(history=[earlier, elsewhere, *flapping]), "history")
    assert len(told) == 12
    assert told[-1].endswith("attempt 99")
