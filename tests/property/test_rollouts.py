"""Whatever the sizes, the group and the answers: no site is in two waves, the order is stable, and it ends."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from homeport.catalog.rollout import parse_rollout, render_rollout, with_sites
from homeport.core.model.rollout import Intent, Member, Rollout, Size, Wave
from homeport.core.rollout.advance import RolloutMove, advance
from homeport.core.rollout.waves import check_sizes
from homeport.vocabulary import Commit, RolloutId, RolloutSiteStatus, RolloutState, SiteName
from tests.support.builders import NOW

ID = RolloutId("c0ffee00-5eed-4000-8000-00decade0000")
SIZES = st.lists(
    st.builds(Size, st.integers(1, 40)) | st.builds(Size, st.integers(1, 99), st.just(True)), max_size=5
).map(lambda sizes: [*sizes, Size(100, True)]).filter(lambda sizes: not list(check_sizes(sizes)))  # fmt: skip
ANSWERS = st.sampled_from(
    [
        RolloutSiteStatus.INSTALLED,
        RolloutSiteStatus.OFFLINE,
        RolloutSiteStatus.HELD,
        RolloutSiteStatus.FAILED,
        RolloutSiteStatus.LEFT,
    ]
)

ABSENT = {RolloutSiteStatus.OFFLINE, RolloutSiteStatus.HELD}


@settings(deadline=None)
@given(sizes=SIZES, answers=st.lists(ANSWERS, min_size=1, max_size=40), threshold=st.integers(1, 100))
def test_a_rollout_ends_and_nobody_is_in_two_waves(
    sizes: list[Size], answers: list[RolloutSiteStatus], threshold: int
) -> None:
    sites = {SiteName(f"site-{number:02}"): answer for number, answer in enumerate(answers)}
    intent = Intent(
        id=ID, name="hello", category="demo", app_name="hello", version="1.0.0", profile="compose",
        created_at=NOW, author="ann", sites=tuple(sites), waves=tuple(Wave(size) for size in sizes),
        threshold_percent=threshold,
    )  # fmt: skip
    rollout = Rollout(intent, RolloutState.RUNNING, Commit("c" * 40), 1, NOW)
    seen: list[SiteName] = []
    decision = advance(rollout, _members(rollout.intent, sites))
    for _ in range(len(sites) + len(sizes) + 2):
        if decision.move is not RolloutMove.GIVE:
            break
        assert not set(decision.sites) & set(seen)
        seen += decision.sites
        intent = rollout.intent
        for number, given_to in decision.waves:
            intent = with_sites(intent, number, given_to)
        rollout = replace(rollout, intent=intent)
        assert parse_rollout(render_rollout(intent), f"rollouts/{ID}.yaml") == intent
        decision = advance(rollout, _members(intent, sites))
    assert decision.move is not RolloutMove.GIVE, "it never ends"
    reachable = [site for site, answer in sites.items() if answer not in ABSENT]
    assert [site for site in seen if site in reachable] == reachable[: len([s for s in seen if s in reachable])]
    if decision.move is RolloutMove.FINISH:
        assert set(seen) == set(sites)
    elif decision.move is RolloutMove.WAIT:
        assert ABSENT & set(answers)


def _members(intent: Intent, sites: dict[SiteName, RolloutSiteStatus]) -> list[Member]:
    in_wave = {site: number for number, wave in enumerate(intent.waves) for site in wave.sites or ()}
    return [
        Member(
            site,
            answer if site in in_wave else RolloutSiteStatus.WAITING,
            in_wave.get(site),
            is_reachable=answer is not RolloutSiteStatus.OFFLINE,
            is_held=answer is RolloutSiteStatus.HELD,
        )
        for site, answer in sites.items()
    ]
