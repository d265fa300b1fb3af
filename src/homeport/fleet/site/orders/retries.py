"""Reports when the next attempt of a failed instance will be."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from homeport.core.model.instance import Instance, Transition
from homeport.core.model.order import Progress
from homeport.core.model.report import Progressed
from homeport.core.reconcile.plan import can_roll_back
from homeport.core.reconcile.recovery import after_failure
from homeport.fleet.site.state import SiteState
from homeport.vocabulary import State, Step


def waiting(memory: SiteState, transitions: Sequence[Transition], now: datetime) -> list[Progressed]:
    """Progress of the instances that these transitions left waiting for a retry."""
    return [
        Progressed(
            instance.node_id,
            Progress(instance.deployment_id, instance.generation, Step.WAITING, "", message, now),
        )
        for instance, message in _waits(memory, transitions)
    ]


def _waits(memory: SiteState, transitions: Sequence[Transition]) -> Iterator[tuple[Instance, str]]:
    for transition in transitions:
        instance = memory.instances.get((transition.deployment_id, transition.node_id))
        if instance is None or instance.state is not State.FAILED or instance.next_at is None:
            continue
        wanted = memory.wanted_of(instance)
        if wanted is None or instance.failure is None:
            continue
        back = can_roll_back(instance, memory.past)
        spent = memory.order_timers.spent.get(instance.key, 0.0)
        following = after_failure(instance, instance.failure, wanted.policy, can_roll_back=back, spent_seconds=spent)
        if following is not None:
            yield instance, f"{following.why} in {following.delay_seconds:.0f} s"
