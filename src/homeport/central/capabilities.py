"""The capabilities of central, one line each."""

from typing import Final

from homeport.capability.central import CentralCapability
from homeport.content.capability import CONTENT
from homeport.fleet.central.index import CommitReader
from homeport.inference.capability import INFERENCE
from homeport.jobs.central.capability import JOBS
from homeport.logs.central.capability import LOGS
from homeport.margo.capability import MARGO
from homeport.models.central.capability import MODELS
from homeport.pipelines.capability import PIPELINES
from homeport.rollouts.capability import ROLLOUTS
from homeport.telemetry.central.capability import TELEMETRY_AT_CENTRAL
from homeport.tunnel.central.capability import TUNNEL

CAPABILITIES: Final[tuple[CentralCapability, ...]] = (
    CONTENT,
    JOBS,
    MARGO,
    ROLLOUTS,
    INFERENCE,
    TUNNEL,
    MODELS,
    TELEMETRY_AT_CENTRAL,
    LOGS,
    PIPELINES,
)
COMMIT_READERS: Final[tuple[CommitReader, ...]] = tuple(
    reader for capability in CAPABILITIES for reader in capability.commit_readers
)
