"""Several rollouts of one name: which site is whose."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from homeport.core.model.event import Site
from homeport.core.model.rollout import Rollout
from homeport.core.rollout.group import latecomers, owned, superseded_by
from homeport.core.values.selectors import parse_selector
from homeport.vocabulary import RolloutId, RolloutState, SiteName
from tests.support.builders import NOW
from tests.support.rollouts import ALL, a_rollout

S = RolloutState
EU, US = "region=eu", "region=us"
SITES = [
    Site(SiteName(name), NOW, NOW, None, labels={"region": region})
    for name, region in (("a", "eu"), ("b", "eu"), ("y", "us"), ("z", "us"))
]


def rollouts(*described: tuple[str, RolloutState, str]) -> list[Rollout]:
    """Oldest first: selector, state and who it was given to."""
    made = []
    for number, (selector, state, given) in enumerate(described):
        rollout = a_rollout((ALL, given), selector=parse_selector(selector))
        created = NOW + timedelta(minutes=number)
        made.append(replace(rollout, state=state, intent=replace(
            rollout.intent, id=RolloutId(str(number)), created_at=created)))  # fmt: skip
    return made


def sites_of(found: Sequence[Rollout], number: int) -> str:
    return "".join(sorted(owned(found, SITES)[RolloutId(str(number))]))


def test_the_newest_has_a_site_and_an_older_one_the_rest() -> None:
    found = rollouts(("region", S.RUNNING, "a"), (EU, S.RUNNING, ""), (US, S.ABORTED, "y"))
    assert (sites_of(found, 1), sites_of(found, 0)) == ("ab", "yz")
    assert superseded_by(found[0], found, SITES) is None


def test_an_older_one_is_superseded_when_nothing_is_left_to_it() -> None:
    found = rollouts((EU, S.STOPPED, "a"), (EU, S.PAUSED, ""))
    assert superseded_by(found[0], found, SITES) is found[1]
    assert superseded_by(found[1], found, SITES) is None
    aborted = rollouts((EU, S.RUNNING, "a"), (EU, S.ABORTED, ""))
    assert superseded_by(aborted[0], aborted, SITES) is None


def test_one_that_is_done_gives_way_only_to_one_that_is_done_for_the_same_group() -> None:
    running = rollouts((EU, S.DONE, "ab"), (EU, S.RUNNING, "a"))
    assert superseded_by(running[0], running, SITES) is None
    done = rollouts((EU, S.DONE, "ab"), (EU, S.DONE, "ab"))
    assert superseded_by(done[0], done, SITES) is done[1]
    wider = rollouts((EU, S.DONE, "ab"), ("region", S.DONE, "abyz"))
    assert superseded_by(wider[0], wider, SITES) is None


def test_latecomers_get_the_newest_that_is_done() -> None:
    found = rollouts((EU, S.DONE, "a"), (EU, S.DONE, "a"), (EU, S.STOPPED, "a"))
    assert latecomers(found, SITES) == {"1": ["b"]}
    running = rollouts((EU, S.DONE, "a"), (EU, S.RUNNING, ""))
    assert latecomers(running, SITES) == {}
