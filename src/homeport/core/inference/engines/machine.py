"""What a machine offers to inference engines, as probed: GPUs, programs, packages, a container engine."""

from collections.abc import Mapping
from dataclasses import field
from typing import Final

from homeport.lazy_dataclass import dataclass

NVIDIA: Final = "NVIDIA"


@dataclass(frozen=True, slots=True)
class GpuFact:
    index: int
    name: str
    memory_bytes: int = 0
    maker: str = NVIDIA


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFacts:
    gpus: tuple[GpuFact, ...] = ()
    gpu_problem: str = ""
    """Why none were found, where the driver says so."""
    programs: Mapping[str, str] = field(default_factory=dict)
    """Name -> path, of those that were found."""
    packages: Mapping[str, str] = field(default_factory=dict)
    """Python packages that were found, with their versions."""
    package_offloads: bool = False
    """Whether the installed llama.cpp package can use a GPU."""
    container_engine: str = ""
    """podman, docker or containerd; empty where there is none."""
    has_cdi: bool = False
    """Whether Podman knows the NVIDIA devices (a CDI specification)."""
