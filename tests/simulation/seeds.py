"""Seeds that found something once. A change of the simulation changes what a seed tells, so they prove less than the
tests in docs/bugs-found.md; but they cost little, and every run of `make test` replays them."""

from typing import Final

from tests.simulation.world import Sabotage

KEPT: Final = (
    46, 100033, 100142, 100184, 100252, 100704, 100707, 100804, 101005, 101057,
    200233, 200355, 200466, 200584, 200607, 300006, 2000574, 2000725, 5000599, 5000608,
    5000914, 5001091, 5001363, 5001498, 5001745, 5002004, 5002155, 7000014, 7000337, 1794874181,
    1794874200, 700000186, 910000255, 910000283, 910000896, 910001003, 910001125,
    910001737, 910002051, 920000241, 58389022, 995000483, 998000464, 998000872, 96332025,
    998002084, 998025559, 998021057, 998035609, 998032773,
    998030720, 998035702, 1795017451, 998052026, 998054069,
    998060025, 998103079, 999000650, 999001721, 999002207,
    999002876, 999011498, 999011666, 999011986,
    999020035, 999020084, 999032317, 999032670, 903002029,
)  # fmt: skip

SHOWN: Final = {
    Sabotage.ORPHAN: 1,
    Sabotage.RESTART: 0,
    Sabotage.FORGETFUL_SITE: 1,
    Sabotage.FORGETFUL_CENTRAL: 0,
    Sabotage.HASTY_ROLLOUT: 0,
    Sabotage.CLOSED_GROUP: 1,
    Sabotage.TWINS: 0,
    Sabotage.STALE_SECRETS: 0,
    Sabotage.UNWRITTEN_PINS: 1,
    Sabotage.DEAF_TO_DRAINS: 6,
    Sabotage.DEAF_TO_HOLDS: 3,
    Sabotage.FOREIGN_MARKER: 4,
    Sabotage.RENAMED_IS_GONE: 4,
    Sabotage.BLIND_TO_HEALTH: 5,
    Sabotage.SILENT_REPAIRS: 4,
    Sabotage.STUCK_GENERATION: 0,
    Sabotage.UNSENT_JOBS: 27,
    Sabotage.UNNOTICED_MOVES: 0,
    Sabotage.UNNOTICED_LOSS: 0,
    Sabotage.UNASKED_RESTATEMENTS: 12,
    Sabotage.IGNORED_POLICIES: 1,
    Sabotage.UNWRITTEN_NEWS: 8,
    Sabotage.UNNOTICED_COPIES: 13,
}
"""A seed that shows each bug which is put in on purpose, so that nobody has to look for one."""
