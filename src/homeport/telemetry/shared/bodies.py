"""API bodies of telemetry."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from pydantic import Field

from homeport.serving.bodies.body import Body


class SeriesBody(Body):
    node: str
    metric: str
    unit: str = Field(description="Empty for a metric that only a newer version knows.")
    labels: Mapping[str, str]
    minimum: Sequence[float | None] = Field(description="For each of `times`; null where nothing was measured.")
    average: Sequence[float | None]
    maximum: Sequence[float | None]


class TelemetryBody(Body):
    site: str
    start: datetime
    end: datetime
    step_seconds: float = Field(description="At least what is kept of a range that old.")
    resolution_seconds: int = Field(description="What it was made from: 0 is every point as measured.")
    is_stored: bool = Field(
        description="Whether the site could not be asked, so that this is what it had sent before: minutes at best."
    )
    times: Sequence[float] = Field(description="The beginning of each step, in seconds since 1970.")
    series: Sequence[SeriesBody]
    series_left_out: int = Field(description="How many more series there are; ask for fewer metrics to see them.")


class NodeUseBody(Body):
    node: str
    site: str
    hostname: str
    liveness: str
    measured_at: datetime | None = Field(description="Null where nothing was measured lately.")
    cpu_percent: float | None = None
    load_1m: float | None = None
    memory_used_bytes: float | None = None
    memory_bytes: int
    disk_used_bytes: float | None = None
    disk_bytes: int
    disk_read_bytes_per_second: float | None = None
    disk_write_bytes_per_second: float | None = None
    network_receive_bytes_per_second: float | None = None
    network_send_bytes_per_second: float | None = None
    temperature_celsius: float | None = Field(default=None, description="The highest of all sensors.")
    gpu_percent: float | None = Field(default=None, description="The average of all GPUs.")
    gpu_memory_used_bytes: float | None = Field(default=None, description="Of all GPUs together.")
    gpu_temperature_celsius: float | None = Field(default=None, description="The highest of all GPUs.")
    gpu_power_watts: float | None = Field(default=None, description="Of all GPUs together.")


class ContainerUseBody(Body):
    deployment_id: str
    deployment: str = Field(description="Its name; empty where it is not known any more.")
    site: str
    node: str
    component: str
    container: str
    measured_at: datetime
    cpu_percent: float | None = Field(default=None, description="100 is one core in full use.")
    memory_bytes: float | None = None


class UseBody(Body):
    """What nodes and containers use now."""

    nodes: Sequence[NodeUseBody]
    containers: Sequence[ContainerUseBody]
    unreachable_sites: Sequence[str] = Field(description="Sites that did not answer; what they sent last is shown.")
    next: str | None = Field(default=None, description="Give it as `cursor` to get the next nodes.")


class HeartbeatIntervalBody(Body):
    state: str = Field(description="live, stale, lost, or unknown while its site did not run or is not reachable.")
    start: datetime
    end: datetime


class HeartbeatsBody(Body):
    node: str
    site: str
    start: datetime
    end: datetime
    last_seen: datetime
    intervals: Sequence[HeartbeatIntervalBody] = Field(description="Oldest first, without holes.")
