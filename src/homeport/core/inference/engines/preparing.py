"""What has to be done before an engine can serve, in the contract's words: its program and its model are brought to
the node, and then the model is loaded. Pure.

Numbers that were not measured are 0, and are left out of what is shown.
"""

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Any, Final

from homeport.lazy_dataclass import dataclass


class PreparingStep(StrEnum):
    """In the contract's order; a step begins whenever its turn has come."""

    ENGINE = "engine_provision"
    MODEL = "model_fetch"
    POOL = "pool_warmup"


class StepStatus(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"


_GROUPS: Final = {PreparingStep.ENGINE: "engine", PreparingStep.MODEL: "model", PreparingStep.POOL: "pool"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparationStep:
    id: str
    kind: PreparingStep
    description: str
    status: StepStatus = StepStatus.PENDING
    bytes_total: int = 0
    bytes_done: int = 0
    estimated_ms: int = 0

    @property
    def group(self) -> str:
        return _GROUPS[self.kind]

    def to_data(self) -> dict[str, Any]:
        """As clients see it."""
        found: dict[str, Any] = {
            "id": self.id,
            "kind": self.kind.value,
            "group": self.group,
            "description": self.description,
            "status": self.status.value,
        }
        measured = ("estimated_ms", "bytes_total", "bytes_done")
        return found | {name: getattr(self, name) for name in measured if getattr(self, name)}


Steps = tuple[PreparationStep, ...]


def steps_of(
    *, engine: str, model: str, pool_id: str, provisions: bool, fetches: bool, model_bytes: int = 0
) -> Steps:
    """Of an engine that was never started on its node. `model` is its reference."""
    found = []
    if provisions:
        text = f"The program of {engine} is brought to the node."
        found.append(PreparationStep(id=f"engine:{engine}", kind=PreparingStep.ENGINE, description=text))
    if fetches:
        text = f"The model {model} is fetched and checked."[:512]
        found.append(
            PreparationStep(
                id=f"model:{model}"[:512], kind=PreparingStep.MODEL, description=text, bytes_total=model_bytes
            )
        )
    return (*found, warmup_of(pool_id, model_bytes=model_bytes))


def warmup_of(
    pool_id: str, *, model_bytes: int = 0, estimated_ms: int = 0, is_begun: bool = False
) -> PreparationStep:
    return PreparationStep(
        id=f"pool:{pool_id}",
        kind=PreparingStep.POOL,
        description=f"The model of pool {pool_id} is loaded.",
        status=StepStatus.RUNNING if is_begun else StepStatus.PENDING,
        bytes_total=model_bytes,
        estimated_ms=estimated_ms,
    )


def begun(steps: Steps, kind: PreparingStep) -> Steps:
    """That step runs: what ran before is done."""

    def after(step: PreparationStep) -> PreparationStep:
        if step.kind is kind:
            return replace(step, status=StepStatus.RUNNING)
        return _done(step) if step.status is StepStatus.RUNNING else step

    return tuple(map(after, steps))


def moved(steps: Steps, done: int, total: int) -> Steps:
    """How far the step is that runs."""
    return tuple(
        replace(step, bytes_done=max(done, 0), bytes_total=max(total, 0) or step.bytes_total)
        if step.status is StepStatus.RUNNING
        else step
        for step in steps
    )


def failed(steps: Steps) -> Steps:
    """At the step that runs, or at the next one."""
    at = next((step for step in steps if step.status is StepStatus.RUNNING), None)
    at = at or next((step for step in steps if step.status is StepStatus.PENDING), None)
    return tuple(replace(step, status=StepStatus.FAILED) if step is at else step for step in steps)


def left(steps: Sequence[PreparationStep]) -> Steps:
    return tuple(step for step in steps if step.status is not StepStatus.COMPLETED)


def _done(step: PreparationStep) -> PreparationStep:
    return replace(step, status=StepStatus.COMPLETED, bytes_done=step.bytes_total)
