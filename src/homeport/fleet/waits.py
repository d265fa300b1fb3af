"""Says of what has just failed and is to be tried again, when that will be."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from homeport.core.model.instance import Instance, Transition
from homeport.core.model.order import Progress
from homeport.core.model.report import Progressed
from homeport.core.reconcile.plan import can_go_back
from homeport.core.reconcile.recovery import after_failure
from homeport.fleet.memory import Memory
from homeport.vocabulary import State, Step


def waiting(memory: Memory, transitions: Sequence[Transition], now: datetime) -> list[Progressed]:
    """News of the instances that these transitions left waiting for another attempt."""
    return [
        Progressed(
            instance.node_id,
            Progress(instance.deployment_id, instance.generation, Step.WAITING, "", message, now),
        )
        for instance, message in _waits(memory, transitions)
    ]


def _waits(memory: Memory, transitions: Sequence[Transition]) -> Iterator[tuple[Instance, str]]:
    for transition in transitions:
        instance = memory.instances.get((transition.deployment_id, transition.node_id))
        if instance is None or instance.state is not State.FAILED or instance.next_at is None:
            continue
        wanted = memory.wanted_of(instance)
        if wanted is None or instance.failure is None:
            continue
        back = can_go_back(instance, memory.past)
        spent = memory.patience.spent.get(instance.key, 0.0)
        following = after_failure(instance, instance.failure, wanted.policy, can_go_back=back, spent_seconds=spent)
        if following is not None:
            yield instance, f"{following.why} in {following.delay_seconds:.0f} s"
