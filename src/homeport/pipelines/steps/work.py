"""What a kind of step is given, and what it must do."""

import uuid
from collections.abc import Mapping
from typing import Any, Final, Protocol

from homeport.core.pipelines.advance import Outcome
from homeport.core.pipelines.model import ItemRun, Pipeline, PipelineStep, Run
from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import SiteName

_SPACE: Final = uuid.UUID("5a3c1f0e-7f0b-4d7c-9c8e-2f1f6a2b9d51")


@dataclass(frozen=True, slots=True)
class Work:
    """One attempt of one item of a step."""

    run: Run
    pipeline: Pipeline
    step: PipelineStep
    number: int
    """Of the item."""
    item: ItemRun
    action: Mapping[str, Any]
    """The fields of the step's kind, with the values of their expressions."""
    is_resumed: bool
    """Whether central was stopped while this attempt was under way: it may have been carried out already."""

    @property
    def site(self) -> SiteName | None:
        return self.step.site or self.run.site

    @property
    def key(self) -> str:
        """The same for each try of this attempt, and for no other: what is begun under it is found again."""
        return f"{self.run.id}-{self.step.name}-{self.number}-{self.item.attempt}"

    @property
    def uuid(self) -> str:
        return str(uuid.uuid5(_SPACE, self.key))


class StepKindExecutor(Protocol):
    def reference(self, work: Work) -> str:
        """The id of what will carry it out, recorded before it begins; empty where there is none."""
        ...

    async def carry_out(self, work: Work) -> Outcome:
        """Until it has ended. Called again with the same work after a restart of central, and must then find what it
        has begun, or say that it begins again. Raises HomeportError, and cancellation, which leaves it running."""
        ...

    async def stop(self, work: Work) -> None:
        """Its run was cancelled, or its time is over: ends what `carry_out` has begun. May raise HomeportError."""
        ...
