"""What this machine offers to engines, asked of the operating system and of the tools themselves."""

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from homeport.adapters.hardware.gpu.machine import installed_gpus
from homeport.core.inference.engines.machine import NVIDIA, GpuFact, MachineFacts
from homeport.core.inference.engines.preflight import BINARIES, PACKAGE, SOURCE_TOOLS, source_tools
from homeport.core.inference.engines.spec import EngineSpec, Mode
from homeport.core.model.node import Gpu
from homeport.models.node import llamacpp_server

PROBE_SECONDS: Final = 20.0
CDI_FOLDERS: Final = (Path("/etc/cdi"), Path("/var/run/cdi"))
CDI_KIND: Final = b"nvidia.com/gpu"
CDI_HEAD_BYTES: Final = 64 * 1024
SERVER: Final = (sys.executable, str(llamacpp_server.__file__))
"""The package's server as a command."""
_QUERY: Final = ("--query-gpu=index,name,memory.total", "--format=csv,noheader,nounits")


def probe_machine(spec: EngineSpec, environment: Mapping[str, str], container_engine: str) -> MachineFacts:
    """Synchronous, some tens of milliseconds; seconds where a GPU's driver is slow."""
    path = environment.get("PATH")
    wanted = {*SOURCE_TOOLS, *BINARIES.values(), "nvcc", "nvidia-ctk", "nvidia-smi"}
    if spec.binary and not spec.fetches_binary:
        wanted.add(spec.binary)
    if spec.mode is Mode.SOURCE:
        wanted |= set(source_tools(spec))
    programs = {name: found for name in sorted(wanted) if (found := shutil.which(name, path=path))}
    gpus, problem = nvidia_gpus(programs.get("nvidia-smi"))
    if not gpus and spec.mode is Mode.CONTAINER:  # Other makers' are passed to containers.
        gpus = other_gpus(installed_gpus())
    packages = {name: version for name in (PACKAGE,) if (version := _version(name))}
    return MachineFacts(
        gpus=gpus,
        gpu_problem=problem,
        programs=programs,
        packages=packages,
        package_offloads=spec.mode is Mode.PACKAGE and bool(gpus and packages) and _package_offloads(),
        container_engine=container_engine,
        has_cdi=any(_is_cdi(file) for folder in CDI_FOLDERS for file in folder.glob("*")),
    )


def nvidia_gpus(program: str | None) -> tuple[tuple[GpuFact, ...], str]:
    """Through the driver's own tool, which is there wherever the driver is. Else why there are none."""
    if program is None:
        return (), "nvidia-smi is not installed"
    try:
        done = subprocess.run([program, *_QUERY], capture_output=True, text=True, timeout=PROBE_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return (), "nvidia-smi does not answer"
    if done.returncode != 0:
        said = (done.stdout or done.stderr).strip().splitlines()
        return (), f"nvidia-smi: {said[-1][:200]}" if said else "nvidia-smi failed"
    return parse_gpus(done.stdout), ""


def other_gpus(found: Sequence[Gpu]) -> tuple[GpuFact, ...]:
    """Numbered as containers are given them."""
    return tuple(
        GpuFact(number, gpu.model, gpu.memory_bytes, gpu.manufacturer)
        for number, gpu in enumerate(found)
        if gpu.manufacturer != NVIDIA
    )


def parse_gpus(text: str) -> tuple[GpuFact, ...]:
    """Lines that cannot be read are left out: a driver may say `[N/A]`."""
    found = []
    for line in text.splitlines()[:64]:
        index, _, rest = line.partition(",")
        name, _, megabytes = rest.rpartition(",")
        if index.strip().isdecimal():
            size = int(megabytes) * 2**20 if megabytes.strip().isdecimal() else 0
            found.append(GpuFact(int(index), name.strip()[:100], size))
    return tuple(found)


def _version(package: str) -> str:
    from importlib import metadata  # noqa: PLC0415 - rarely used, and a node stays small

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _package_offloads() -> bool:
    """Asked in a process of its own: loading llama.cpp costs memory for as long as the process lives."""
    try:
        done = subprocess.run([*SERVER, "--probe"], capture_output=True, timeout=PROBE_SECONDS, check=False)
        return bool(json.loads(done.stdout)["devices"])
    except (OSError, subprocess.TimeoutExpired, RecursionError, ValueError, LookupError, TypeError):
        return False


def _is_cdi(file: Path) -> bool:
    """Whether a file describes GPUs to container engines, whatever its name is. The kind is at its beginning."""
    if file.suffix not in (".yaml", ".json"):
        return False
    try:
        with file.open("rb") as opened:
            return CDI_KIND in opened.read(CDI_HEAD_BYTES)
    except OSError:
        return False
