"""Measures the machine, its GPUs and its containers, and sends the samples.

What is cheap is read every time; asking the engine which containers there are, and running the tools of GPUs, happens
less often.
"""

from collections.abc import Sequence
from functools import partial

import anyio

from homeport.adapters.hardware.gpu.machine import installed_gpus, read_gpus
from homeport.adapters.hardware.gpu.reading import GpuReading
from homeport.adapters.hardware.machine import MachineReadings
from homeport.adapters.hardware.processes import ProcessMeter, meter
from homeport.capability.node import NodePlatform
from homeport.errors import EngineUnavailable, HomeportError
from homeport.log import get_log
from homeport.ports import HasProcesses, Sample, Telemetry, WorkloadProcess

log = get_log("homeport.node")

GLANCE_SECONDS = 5.0
"""An interval that was changed applies within this time."""
CONTAINERS_SECONDS = 10.0
"""How often the engine is asked which containers run."""
GPU_SECONDS = 15.0
CONTAINERS_MAX = 200
"""Of one node; the rest is not measured."""


class MeasurementCollector:
    def __init__(self, node: NodePlatform) -> None:
        self._node = node
        self._machine = MachineReadings(node.data)
        self._containers = ContainerReadings()
        self._gpus: Sequence[GpuReading] = ()
        self._listed_at = self._gpus_at = float("-inf")
        self._is_told = False
        """Whether the log already says that the engine was not asked."""

    async def run(self) -> None:
        clock = self._node.clock
        while True:
            began = clock.monotonic()
            await self.measure()
            while (left := began + self._interval() - clock.monotonic()) > 0:  # noqa: ASYNC110 - it may change
                await anyio.sleep(min(left, GLANCE_SECONDS))

    def _interval(self) -> float:
        return self._node.tunable().telemetry_seconds or self._node.telemetry_seconds

    async def measure(self) -> None:
        now = self._node.clock.monotonic()
        await self._list_containers(now)
        if installed_gpus() and now >= self._gpus_at + GPU_SECONDS:
            self._gpus_at = now
            self._gpus = await self._node.in_thread(partial(read_gpus, with_use=True))
        try:
            machine = self._machine.read(now)
        except OSError as error:  # A file system that is gone; the containers can still be measured.
            log.warning("machine not measured", error=str(error))
            machine = {}
        samples = [
            Sample(name, value, {"sensor": sensor} if sensor else {}) for (name, sensor), value in machine.items()
        ]
        samples += [sample for gpu in self._gpus for sample in gpu_samples(gpu)]
        samples += self._containers.read(now)
        if samples:
            self._node.telemetry(Telemetry(self._node.clock.now(), tuple(samples)))

    async def _list_containers(self, now: float) -> None:
        runtime = self._node.runtime
        if not isinstance(runtime, HasProcesses):
            return
        if now < self._listed_at + CONTAINERS_SECONDS and not self._containers.has_lost:
            return
        self._listed_at = now
        try:
            self._containers.replace(await runtime.processes(self._containers.known))
            self._is_told = False
        except HomeportError as error:
            if not self._is_told and not isinstance(error, EngineUnavailable):
                log.warning("containers not listed for telemetry", error=str(error))
            self._is_told = True


class ContainerReadings:
    """CPU and memory of the containers, by their control groups."""

    def __init__(self) -> None:
        self._meters: dict[str, tuple[WorkloadProcess, ProcessMeter]] = {}
        self._before: dict[str, tuple[float, float]] = {}
        """Time and CPU seconds of the last reading, by container."""
        self.has_lost = False
        """Whether a container has ended since the engine was asked: it may have been replaced."""

    @property
    def known(self) -> dict[str, WorkloadProcess]:
        return {name: process for name, (process, _) in self._meters.items()}

    def replace(self, processes: Sequence[WorkloadProcess]) -> None:
        before, self._meters, self.has_lost = self._meters, {}, False
        for process in processes[:CONTAINERS_MAX]:
            known = before.get(process.id)
            if known is not None and known[0] == process:
                self._meters[process.id] = known
            elif (found := meter(process.pid)) is not None:
                self._meters[process.id] = process, found
        self._before = {name: each for name, each in self._before.items() if name in self._meters}

    def read(self, at: float) -> list[Sample]:
        samples: list[Sample] = []
        for name, (process, found) in list(self._meters.items()):
            usage = found.read()
            if usage is None:
                del self._meters[name]
                self._before.pop(name, None)
                self.has_lost = True
                continue
            labels = {
                "deployment": str(process.deployment_id),
                "component": process.component,
                "container": process.container,
            }
            samples.append(Sample("container_memory_bytes", float(usage.memory_bytes), labels))
            before = self._before.get(name)
            self._before[name] = at, usage.cpu_seconds
            if before is not None and at > before[0] and usage.cpu_seconds >= before[1]:
                percent = 100.0 * (usage.cpu_seconds - before[1]) / (at - before[0])
                samples.append(Sample("container_cpu_percent", percent, labels))
        return samples


def gpu_samples(gpu: GpuReading) -> list[Sample]:
    labels = {"gpu": gpu.index}
    values = (
        ("gpu_percent", gpu.percent),
        ("gpu_memory_used_bytes", gpu.memory_used_bytes),
        ("gpu_memory_total_bytes", float(gpu.memory_bytes) if gpu.memory_bytes else None),
        ("gpu_temperature_celsius", gpu.temperature_celsius),
        ("gpu_power_watts", gpu.power_watts),
    )
    return [Sample(name, value, labels) for name, value in values if value is not None]
