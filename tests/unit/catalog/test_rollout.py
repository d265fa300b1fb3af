"""A rollout's file: what is written is read back, and a mistake is named with its line."""

from dataclasses import replace

import pytest

from homeport.catalog.marker import read_labels, render_marker
from homeport.catalog.rollout import parse_rollout, render_rollout
from homeport.core.model.deployment import PlacementOverrides, PolicyOverrides
from homeport.core.model.rollout import Intent
from homeport.core.values.selectors import parse_selector
from homeport.errors import InvalidInput
from homeport.vocabulary import PlacementMode, RolloutCommand, RolloutId, SiteName
from tests.support.rollouts import ALL, ONE, QUARTER, a_rollout

ID = RolloutId("c0ffee00-5eed-4000-8000-00decade0000")
PATH = f"rollouts/{ID}.yaml"


def an_intent() -> Intent:
    rollout = a_rollout(
        (ONE, "a"),
        (QUARTER, None),
        (ALL, None),
        parameters={"greeting": "Hi", "count": 3, "names": ("x", "y")},
        placement=PlacementOverrides(mode=PlacementMode.COUNT, count=2, selector=parse_selector("gpu")),
        policy=PolicyOverrides(retries_max=0, rollback=False),
        remove_images=True,
        keep_values=True,
        sites=(SiteName("a"),),
        selector=parse_selector("region=eu,tier!=test"),
        bake_seconds=300.0,
        threshold_percent=90,
        word=RolloutCommand.PAUSED,
        joined=(SiteName("z"),),
    )
    return replace(rollout.intent, id=ID)


def test_what_is_written_is_read_back() -> None:
    assert parse_rollout(render_rollout(an_intent()), PATH) == an_intent()


@pytest.mark.parametrize(
    ("before", "after", "field", "words"),
    [
        ("threshold: 90%", "threshold: 0%", "threshold", "from 1% to 100%"),
        ("bake: 5m", "bake: soon", "bake", "such as 30s"),
        ("state: paused", "state: maybe", "state", "must be one of"),
        ("size: 25%", "size: 250%", "waves[1].size", "more than all sites"),
        ("size: 25%", "size: most", "waves[1].size", "not a valid wave size"),
        ("selector: region=eu,tier!=test", "selector: =", "targets.selector", "cannot be read"),
        (f"rollout: {ID}", "rollout: other", "rollout", "the two must be the same"),
        ("name: hello\napp", "name: Hello!\napp", "name", "not a valid deployment name"),
        ("joined:\n- z", "joined:\n- a", "joined[0]", "is in another wave already"),
        ("author: ann", "autor: ann", "autor", "author"),
    ],
)
def test_a_mistake_is_named_with_its_field_and_line(before: str, after: str, field: str, words: str) -> None:
    text = render_rollout(an_intent()).decode()
    assert before in text
    broken = text.replace(before, after)
    with pytest.raises(InvalidInput) as caught:
        parse_rollout(broken.encode(), PATH)
    found = next(problem for problem in caught.value.problems if problem.field == field)
    assert words in found.message
    assert found.path == PATH and found.line is not None


def test_labels_stand_in_the_marker() -> None:
    content = render_marker(SiteName("a"), {"tier": "1", "region": "eu"})
    assert content == b"site: a\nlabels:\n  region: eu\n  tier: '1'\n"
    assert read_labels(content, "site.yaml") == {"region": "eu", "tier": "1"}
    assert read_labels(render_marker(SiteName("a")), "site.yaml") == {}
    for broken, line in ((b"site: a\nlabels: eu\n", 2), (b"site: a\nlabels:\n  a b: c\n", 3)):
        with pytest.raises(InvalidInput) as caught:
            read_labels(broken, "site.yaml")
        assert caught.value.problems[0].line == line
