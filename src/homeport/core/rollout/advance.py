"""The next step of a rollout: wait, write its file to further sites, stop, or be done; each with the reason.

A wave is judged by the sites that can answer: a site that is offline, on hold or has something else by now neither
blocks it nor counts against it. A wave of which most sites cannot answer proves too little, so other sites that can
are added to it.
Where none can, as when central itself is disconnected, it waits.
"""

from collections.abc import Sequence
from enum import StrEnum

from homeport.core.model.rollout import Intent, Member, Rollout
from homeport.core.rollout.waves import in_order, next_waves
from homeport.core.values.durations import duration_text
from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import RolloutSiteStatus, SiteName

NAMED_MAX = 5
_ANSWERS = frozenset({RolloutSiteStatus.PENDING, RolloutSiteStatus.INSTALLED, RolloutSiteStatus.FAILED})


class RolloutMove(StrEnum):
    WAIT = "wait"
    GIVE = "give"
    STOP = "stop"
    FINISH = "finish"


@dataclass(frozen=True, slots=True)
class RolloutDecision:
    move: RolloutMove
    why: str
    waves: tuple[tuple[int, tuple[SiteName, ...]], ...] = ()
    """With GIVE: the sites that each wave gets in addition, by its number from 0. An empty wave is only recorded."""
    watched_seconds: float | None = None
    """For how long the newest wave has been healthy; None while it is not."""

    @property
    def sites(self) -> tuple[SiteName, ...]:
        return tuple(site for _, sites in self.waves for site in sites)


def advance(rollout: Rollout, members: Sequence[Member]) -> RolloutDecision:
    """For a running rollout. `members` are all of its sites, given or waiting."""
    intent = rollout.intent
    stopped = _broken(intent, members)
    if stopped is not None:
        return stopped
    begun = intent.waves_begun
    if begun == 0:
        return _begin(intent, members)
    in_wave = [member for member in members if member.wave == begun - 1]
    answering = [member for member in in_wave if member.standing in _ANSWERS]
    waiting = [member for member in members if member.standing is RolloutSiteStatus.WAITING]
    lacking = len(in_wave) - 2 * len(answering)
    if lacking > 0 and waiting:
        return _stand_in(intent, waiting, in_wave, lacking)
    good = sum(member.standing is RolloutSiteStatus.INSTALLED for member in answering)
    if good * 100 < intent.threshold_percent * len(answering):
        why = f"wave {begun}: {good} of {_sites(len(answering))} installed, {intent.threshold_percent}% are needed"
        return RolloutDecision(RolloutMove.WAIT, why + _uncounted(in_wave))
    return _bake(rollout, members, waiting)


def _broken(intent: Intent, members: Sequence[Member]) -> RolloutDecision | None:
    """Every wave that has begun is watched: a late failure counts too."""
    for number in range(intent.waves_begun):
        answering = [member for member in members if member.wave == number and member.standing in _ANSWERS]
        bad = [member for member in answering if member.standing is RolloutSiteStatus.FAILED]
        if len(bad) * 100 > (100 - intent.threshold_percent) * len(answering):
            share = f"{len(bad)} of {_sites(len(answering))} failed, {100 - intent.threshold_percent}% are allowed"
            return RolloutDecision(RolloutMove.STOP, f"wave {number + 1}: {share}: {_failures(bad)}")
    return None


def _begin(intent: Intent, members: Sequence[Member]) -> RolloutDecision:
    """The next wave, and with it those that turn out to be empty."""
    first, given = intent.waves_begun, []
    for number, sites in enumerate(next_waves(intent, members), first):
        given.append((number, sites))
        if sites:
            break
    number, sites = given[-1]
    return RolloutDecision(
        RolloutMove.GIVE, f"wave {number + 1} of {len(intent.waves)}: {_sites(len(sites))}", tuple(given)
    )


def _stand_in(intent: Intent, waiting: Sequence[Member], in_wave: Sequence[Member], count: int) -> RolloutDecision:
    number = intent.waves_begun
    ready = [member for member in waiting if member.can_answer]
    left = [member.site for member in in_wave if member.standing is RolloutSiteStatus.LEFT]
    missing = " and ".join(filter(None, (_absent(in_wave), f"{_named(left)} left the rollout" if left else "")))
    if not ready:
        return RolloutDecision(RolloutMove.WAIT, f"wave {number}: {missing}, and no other site can take its place")
    sites = tuple(in_order(intent, ready)[:count])
    why = f"wave {number}: {missing}, so {_named(sites)} take its place"
    return RolloutDecision(RolloutMove.GIVE, why, ((number - 1, sites),))


def _bake(rollout: Rollout, members: Sequence[Member], waiting: Sequence[Member]) -> RolloutDecision:
    intent = rollout.intent
    begun = intent.waves_begun
    watched = rollout.watched_seconds or 0.0
    if watched < intent.bake_seconds:
        why = f"wave {begun}: healthy, watched for {duration_text(intent.bake_seconds)}"
        return RolloutDecision(RolloutMove.WAIT, why, watched_seconds=watched)
    if waiting and begun < len(intent.waves):
        return _begin(intent, members)
    if waiting:
        # The last wave has begun, and other sites have joined the group since.
        sites = tuple(in_order(intent, waiting))
        why = f"{_named(sites)} came to the group"
        return RolloutDecision(RolloutMove.GIVE, why, ((begun - 1, sites),))
    absent = _absent(members)
    if absent and not any(member.standing is RolloutSiteStatus.INSTALLED for member in members):
        return RolloutDecision(RolloutMove.WAIT, f"no site can take it now: {absent}; the files wait in Git")
    return RolloutDecision(RolloutMove.FINISH, _summary(members))


def _summary(members: Sequence[Member]) -> str:
    installed = sum(member.standing is RolloutSiteStatus.INSTALLED for member in members)
    text = f"installed at {_sites(installed)}"
    for standing, words in (
        (RolloutSiteStatus.PENDING, "still at work at"),
        (RolloutSiteStatus.FAILED, "failed at"),
        (RolloutSiteStatus.OFFLINE, "waiting for"),
        (RolloutSiteStatus.HELD, "held at"),
    ):
        found = [member.site for member in members if member.standing is standing]
        if found:
            text += f", {words} {_named(found)}"
    return text


def _uncounted(in_wave: Sequence[Member]) -> str:
    found = [
        f"{_sites(count)} {standing}"
        for standing in (RolloutSiteStatus.OFFLINE, RolloutSiteStatus.HELD)
        if (count := sum(member.standing is standing for member in in_wave))
    ]
    return f"; {' and '.join(found)}, not counted" if found else ""


def _absent(members: Sequence[Member]) -> str:
    """The sites that cannot take it now; empty where all can. `a, b cannot be reached and c is held`"""
    silent = [member.site for member in members if member.standing is RolloutSiteStatus.OFFLINE]
    held = [member.site for member in members if member.standing is RolloutSiteStatus.HELD]
    parts = [f"{_named(silent)} cannot be reached"] if silent else []
    parts += [f"{_named(held)} {'is' if len(held) == 1 else 'are'} held"] if held else []
    return " and ".join(parts)


def _failures(bad: Sequence[Member]) -> str:
    parts = "; ".join(f"{member.site}: {member.why}" for member in bad[:NAMED_MAX])
    return parts + (f"; and {len(bad) - NAMED_MAX} more" if len(bad) > NAMED_MAX else "")


def _named(sites: Sequence[SiteName]) -> str:
    more = len(sites) - NAMED_MAX
    return ", ".join(sites[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


def _sites(count: int) -> str:
    return f"{count} site" if count == 1 else f"{count} sites"
