"""What a machine lacks for an engine, each with its fix: asked before anything is fetched or stopped. Pure.

One table of rules, all of them applied: a person fixes everything at once instead of one thing per attempt.
"""

import shlex
from collections.abc import Callable, Iterator
from typing import Final

from homeport.core.inference.engines.handoff import EngineName
from homeport.core.inference.engines.machine import NVIDIA, MachineFacts
from homeport.core.inference.engines.spec import ComputeDevice, EngineSpec, Mode
from homeport.lazy_dataclass import dataclass

PACKAGE: Final = "xllamacpp"
NEEDS_CPU_PERMISSION: Final = "allow the CPU explicitly (--allow-cpu, or device: cpu)"


@dataclass(frozen=True, slots=True)
class Missing:
    """One thing that the machine lacks."""

    what: str
    problem: str
    fix: str

    def __str__(self) -> str:
        return f"{self.problem} {self.fix}"


Rule = Callable[[EngineSpec, MachineFacts], Iterator[Missing]]


def preflight(spec: EngineSpec, machine: MachineFacts) -> tuple[Missing, ...]:
    """Empty for a machine that can run the engine."""
    if spec.mode is Mode.EXTERNAL:
        return ()
    return tuple(missing for rule in RULES for missing in rule(spec, machine))


def _gpu(spec: EngineSpec, machine: MachineFacts) -> Iterator[Missing]:
    if spec.device is not ComputeDevice.GPU:
        return
    if not machine.gpus:
        why = f" ({machine.gpu_problem})" if machine.gpu_problem else ""
        yield Missing(
            "gpu",
            f"This machine has no usable GPU{why}.",
            f"Install its driver, so that nvidia-smi, amd-smi or xpu-smi lists it, or {NEEDS_CPU_PERMISSION}.",
        )
        return
    known = {str(gpu.index) for gpu in machine.gpus}
    unknown = [index for index in spec.device_mask.split(",") if index and index not in known]
    if unknown:
        yield Missing(
            "gpu",
            f"This machine has no GPU {', '.join(unknown)}.",
            f"Choose from {', '.join(sorted(known))} in device_mask.",
        )


def _package(spec: EngineSpec, machine: MachineFacts) -> Iterator[Missing]:
    if spec.mode is not Mode.PACKAGE:
        return
    if PACKAGE not in machine.packages:
        yield Missing(
            PACKAGE,
            "The package of llama.cpp is not installed for the node.",
            "Install it:  pip install 'homeport[llamacpp]'  , and restart the node.",
        )
    elif spec.device is ComputeDevice.GPU and machine.gpus and not machine.package_offloads:
        yield Missing(
            f"{PACKAGE} with CUDA",
            "The installed package of llama.cpp was built without CUDA.",
            f"Install its CUDA build, choose mode binary or container, or {NEEDS_CPU_PERMISSION}.",
        )


BINARIES: Final = {EngineName.LLAMACPP: "llama-server", EngineName.OLLAMA: "ollama"}


def _binary(spec: EngineSpec, machine: MachineFacts) -> Iterator[Missing]:
    if spec.mode is not Mode.BINARY or spec.fetches_binary:
        return
    name = spec.binary or BINARIES[spec.engine]
    if name not in machine.programs:
        yield Missing(
            name,
            f"There is no program {name} on this machine.",
            "Install it, put it on the node's PATH, or give binary: https://… with its checksum.",
        )


SOURCE_TOOLS: Final = {
    "git": "apt-get install git",
    "cmake": "apt-get install cmake",
    "make": "apt-get install make",
    "g++": "apt-get install g++",
}


def source_tools(spec: EngineSpec) -> tuple[str, ...]:
    """What the steps of its build call; a build command of its own says what it calls first."""
    fetching = () if spec.source_is_archive else ("git",)
    return (*fetching, shlex.split(spec.build)[0]) if spec.build else (*fetching, "cmake", "make", "g++")


def _source(spec: EngineSpec, machine: MachineFacts) -> Iterator[Missing]:
    if spec.mode is not Mode.SOURCE:
        return
    for tool in source_tools(spec):
        if tool not in machine.programs:
            fix = f"Install it (Debian: {SOURCE_TOOLS[tool]})." if tool in SOURCE_TOOLS else "Install it."
            yield Missing(tool, f"{tool} is missing, and building needs it.", fix)
    if spec.build:
        return
    if spec.device is ComputeDevice.GPU and "nvcc" not in machine.programs:
        yield Missing(
            "nvcc",
            "nvcc is missing, and building for the GPU needs it.",
            "Install the CUDA toolkit (Debian: apt-get install nvidia-cuda-toolkit).",
        )


def _container(spec: EngineSpec, machine: MachineFacts) -> Iterator[Missing]:
    if spec.mode is not Mode.CONTAINER:
        return
    engine = machine.container_engine
    if engine not in ("podman", "docker"):
        yield Missing(
            "podman",
            "This node has no Podman and no Docker to run the engine's image.",
            "Install Podman (Debian: apt-get install podman runc) and start the node with --runtime podman.",
        )
    elif spec.device is ComputeDevice.GPU and machine.gpus:
        yield from _gpu_container(spec, machine)


def _gpu_container(spec: EngineSpec, machine: MachineFacts) -> Iterator[Missing]:
    engine, chosen = machine.container_engine, spec.device_mask.split(",") if spec.device_mask else ()
    makers = {gpu.maker for gpu in machine.gpus if not chosen or str(gpu.index) in chosen}
    for maker in sorted(makers - {NVIDIA}):
        if not spec.image:
            yield Missing(
                "image",
                f"The image that is taken by default is built for GPUs of NVIDIA, and this machine's are of {maker}.",
                f"Name one that is built for {maker}, with image: .",
            )
    if NVIDIA in makers:
        if engine == "podman" and not machine.has_cdi:
            yield Missing(
                "nvidia-container-toolkit",
                "Podman does not know this machine's GPUs.",
                "Install nvidia-container-toolkit and run: nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
            )
        if engine == "docker" and "nvidia-ctk" not in machine.programs:
            yield Missing(
                "nvidia-container-toolkit",
                "Docker cannot pass GPUs to containers.",
                "Install nvidia-container-toolkit and run: nvidia-ctk runtime configure --runtime=docker",
            )


RULES: Final[tuple[Rule, ...]] = (_gpu, _package, _binary, _source, _container)
