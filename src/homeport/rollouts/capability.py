"""The rollouts capability."""

from typing import Final

from homeport.capability.central import CentralCapability, CentralPart, Loop, ReplicaChoice
from homeport.fleet.central.platform import CentralPlatform
from homeport.fleet.shared.periodic import every
from homeport.rollouts.files import read_rollout_files
from homeport.rollouts.loop import PAUSE_SECONDS, RolloutLoop
from homeport.rollouts.routes import rollouts_routes


async def advance_rollouts(central: CentralPlatform) -> None:
    loop = RolloutLoop(central, central.sweep_seconds)
    await every("rollouts", PAUSE_SECONDS, loop.round, needed=loop.due)


def _part(central: CentralPlatform) -> CentralPart:
    return CentralPart(
        routes=(rollouts_routes(central),), loops=(Loop("rollouts", advance_rollouts, ReplicaChoice.ONE),)
    )


ROLLOUTS: Final = CentralCapability("rollouts", _part, commit_readers=(read_rollout_files,))
