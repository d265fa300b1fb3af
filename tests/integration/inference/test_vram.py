"""The memory of GPUs, from what their tools print to where tasks are placed."""

import json
import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from homeport.adapters.hardware.gpu.amd import read_amd
from homeport.adapters.hardware.gpu.nvidia import read_nvidia
from homeport.adapters.hardware.gpu.reading import GpuReading
from homeport.core.inference.engines.handoff import Handoff, HandoffModel, Loading, parse, to_data
from homeport.core.inference.task import TaskCode, TaskRefused
from homeport.inference.plane import TaskPlane
from homeport.ports import InferencePorts
from homeport.telemetry.node.collector import gpu_samples
from homeport.telemetry.shared.gpus import gpus_of
from homeport.telemetry.shared.latest import Latest, values_of
from homeport.vocabulary import NodeId, SiteName
from tests.integration.inference.test_plane import replica, running, said, submit
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio
MIB = 2**20
Tool = Callable[[str, str], Sequence[GpuReading]]


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tool:
    """Puts a program of this name and output on the path, and reads it as a node does."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def read(name: str, output: str) -> Sequence[GpuReading]:
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\ncat <<'END'\n{output}\nEND\n")
        path.chmod(0o755)
        return read_amd() if name == "rocm-smi" else read_nvidia(lambda module: import_module("no_such_module"))

    return read


def ports_with(**nodes: Sequence[GpuReading]) -> InferencePorts:
    """What a site has heard of its nodes."""
    latest = [
        Latest(
            SiteName(""),
            NodeId(name),
            datetime.now(UTC),
            values_of(sample for gpu in gpus for sample in gpu_samples(gpu)),
        )
        for name, gpus in nodes.items()
    ]
    return InferencePorts(gpus=lambda wanted: gpus_of(latest, wanted))


def on(node: str, **changes: Any) -> Handoff:
    return replica(
        node, node_id=node, provisioning_mode="package", engine_version="llamacpp-package:1-cuda", **changes
    )


def free_of(plane: TaskPlane) -> dict[str, int | None]:
    return {each.handoff.replica_id: each.vram_free_bytes for each in plane.registry.replicas()}


async def test_of_two_equal_replicas_the_one_with_more_free_memory_of_its_gpu_is_taken(tool: Tool) -> None:
    full = tool("nvidia-smi", "0, NVIDIA RTX, 10240, 9216, 37, 61, 221.50")
    card = {"Card Series": "Radeon", "VRAM Total Memory (B)": f"{8192 * MIB}"}
    roomy = tool("rocm-smi", json.dumps({"card0": {**card, "VRAM Total Used Memory (B)": f"{1024 * MIB}"}}))
    unknown = tool("nvidia-smi", "0, NVIDIA RTX, 10240, [N/A], 37, 61, 221.50")
    ports = ports_with(a=full, b=roomy, c=unknown)
    async with running(on("a"), on("b"), on("c"), ports=ports) as plane:
        assert free_of(plane) == {"a": 1024 * MIB, "b": 7168 * MIB, "c": None}
        run = await submit(plane)
        assert (await said(run))[-1][0] == "end"
        assert run.replica_key == ("default", "b")
        assert "by free VRAM" in plane.explain(run)["placement"]


async def test_only_the_devices_of_its_mask_count_for_a_replica(tool: Tool) -> None:
    both = tool("nvidia-smi", "0, RTX, 10240, 1024, 1, 61, 100\n1, RTX, 10240, 4096, 1, 61, 100")
    one, all_of_them = on("a", device_mask="1"), on("a", replica_id="whole", url="http://whole")
    async with running(one, all_of_them, on("b"), ports=ports_with(a=both)) as plane:
        assert free_of(plane) == {"a": 6144 * MIB, "whole": (9216 + 6144) * MIB, "b": None}


async def test_a_model_that_does_not_fit_the_gpu_is_never_placed_there_before_it_is_loaded(tool: Tool) -> None:
    gpu = tool("nvidia-smi", "0, NVIDIA RTX, 10240, 8192, 37, 61, 221.50")
    waits: dict[str, Any] = {"loading": Loading.UNLOADED, "idle_seconds": 60}
    large = on("a", pool_id="a", model=HandoffModel("large", size_bytes=4096 * MIB), **waits)
    fits = on("b", pool_id="b", model=HandoffModel("small", size_bytes=1024 * MIB), **waits)
    partly = on("c", pool_id="c", model=HandoffModel("split", size_bytes=4096 * MIB), flags=("-ngl", "10"), **waits)
    ready = on("d", pool_id="d", model=HandoffModel("there", size_bytes=8192 * MIB))
    async with running(ready, ports=ports_with(a=gpu, b=gpu, c=gpu, d=gpu)) as plane:
        for each in (large, fits, partly):
            plane.registry.bind(parse(to_data(each)))
        await eventually(lambda: set(free_of(plane).values()) == {2048 * MIB}, what="the memory of each GPU")
        with pytest.raises(TaskRefused) as refused:
            await submit(plane, model_ref="large")
        assert refused.value.refusal.code is TaskCode.POOL_UNAVAILABLE
        assert refused.value.refusal.is_retriable
        assert "1 INSUFFICIENT_VRAM" in refused.value.refusal.message
        assert "larger than the free memory of its GPU" in refused.value.refusal.message
        for model in ("small", "split"):
            assert (await submit(plane, model_ref=model)).ticket.preparation, model
        assert (await said(await submit(plane, model_ref="there")))[-1][0] == "end", "it is loaded already"
