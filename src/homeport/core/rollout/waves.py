"""Which sites are in which wave. Sizes are cumulative: `1, 25%, 100%` is one site, then a quarter of all, then all.

The order is that of the operator's list, then by name; sites that are unreachable or on hold go to the back, so that
the first wave is one that can answer. A site is in one wave only, recorded when that wave begins.
"""

from collections.abc import Iterator, Sequence

from homeport.core.model.rollout import Intent, Member, Size
from homeport.errors import Problem
from homeport.vocabulary import RolloutSiteStatus, SiteName

WAVES_MAX = 100


def in_order(intent: Intent, waiting: Sequence[Member]) -> list[SiteName]:
    """The waiting sites, in the order in which they get the release."""
    listed = {site: position for position, site in enumerate(intent.sites)}
    return [
        member.site
        for member in sorted(
            waiting,
            key=lambda member: (not member.can_answer, listed.get(member.site, len(listed)), member.site),
        )
    ]


def next_waves(intent: Intent, members: Sequence[Member]) -> list[tuple[SiteName, ...]]:
    """The sites of each wave that has not begun, as of now."""
    waiting = in_order(intent, [member for member in members if member.standing is RolloutSiteStatus.WAITING])
    has = sum(member.wave is not None and member.standing is not RolloutSiteStatus.LEFT for member in members)
    total = has + len(waiting)
    waves = []
    for wave in intent.waves[intent.waves_begun :]:
        count = max(0, wave.size.of(total) - has)
        waves.append(tuple(waiting[:count]))
        waiting, has = waiting[count:], has + count
    return waves


def check_sizes(sizes: Sequence[Size]) -> Iterator[Problem]:
    """The problems of a rollout's wave sizes, each by its field."""
    if len(sizes) > WAVES_MAX:
        yield Problem("waves", f"There are {len(sizes)} waves, and {WAVES_MAX} are the most.")
    for position, size in enumerate(sizes):
        field = f"waves[{position}].size"
        if size.number < 1:
            yield Problem(
                field, f"A wave of {size} reaches no site: give a count from 1, or a share from 1% to 100%."
            )
        elif size.is_percent and size.number > 100:
            yield Problem(field, f"{size} is more than all sites: give at most 100%.")
        elif any(_covers(before, size) for before in sizes[:position]):
            yield Problem(
                field, f"Sizes add up, so {size} adds no site to the waves before it: make each wave larger."
            )
    if sizes and not sizes[-1].is_everybody and not (sizes[-1].is_percent and sizes[-1].number > 100):
        yield Problem(
            f"waves[{len(sizes) - 1}].size",
            f"The last wave is {sizes[-1]} and must be 100%, or some would never get it; pause a rollout to stay "
            "at a part.",
        )


def _covers(before: Size, after: Size) -> bool:
    return before.is_everybody or (before.is_percent == after.is_percent and before.number >= after.number)
