"""What central allows pipelines to do, and how long it keeps their runs."""

from collections.abc import Mapping
from dataclasses import field

from homeport.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class PipelineSettings:
    http_allow: tuple[str, ...] = ()
    """Host names, addresses and networks (10.0.0.0/8) that HTTP steps may call though they are private. Without them
    only public addresses: central is in a network where much trusts every peer inside."""
    runs_max: int = 10_000
    """How many ended runs are kept."""
    runs_days: int = 90
    """How long ended runs are kept."""
    step_plugins: Mapping[str, str] = field(default_factory=dict)
    """Kinds of steps of the user's own: the name that pipelines use, and the class as package.module:Class. They run
    inside central, with its rights."""
