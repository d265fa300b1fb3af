"""How an engine is brought up on a machine: the plan, and the command or container that it ends in. Pure.

The same description on the same machine gives the same plan, byte for byte, so that it can be kept as an artifact,
compared and reviewed. Execution has no choices left but the port, which is the first free one from the preferred.
"""

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Final

from homeport.core.inference.engines.handoff import EngineName
from homeport.core.inference.engines.machine import MachineFacts
from homeport.core.inference.engines.preflight import BINARIES, PACKAGE, preflight
from homeport.core.inference.engines.spec import BY_NAME, ComputeDevice, EngineSpec, Mode
from homeport.lazy_dataclass import dataclass

PLAN_SCHEMA: Final = 1
REPOSITORY: Final = "https://github.com/ggml-org/llama.cpp"
ALL_LAYERS: Final = "999"
MODELS_TARGET: Final = "/models"
LOOPBACK: Final = "127.0.0.1"
PORT_ATTEMPTS: Final = 200
COMMIT: Final = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class PlanStep:
    kind: str
    """preflight-tools, git-clone, git-checkout, source-fetch, cmake-configure, cmake-build, build, binary-fetch,
    image-pull, model-fetch, run"""
    description: str
    command: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Launch:
    """What is started in the end; empty `command` and `image` for an engine that runs already."""

    command: tuple[str, ...] = ()
    image: str = ""
    args: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[tuple[str, str, bool], ...] = ()
    """Source, target, and whether it is read-only."""
    container_port: int = 0
    gpus: tuple[str, ...] = ()
    health_path: str = "/health"


def plan_engine(spec: EngineSpec, machine: MachineFacts) -> dict[str, Any]:
    """The plan as plain data, ready for JSON. What the machine lacks is part of it."""
    return {
        "schema": PLAN_SCHEMA,
        "engine": spec.engine.value,
        "engine_version": engine_version(spec, machine),
        "mode": spec.mode.value,
        "device": spec.device.value,
        "device_mask": spec.device_mask,
        "model": {"ref": spec.model, "id": spec.served_model_id, "digest": spec.digest},
        "context": spec.context,
        "slots": spec.slots,
        "preferred_port": spec.preferred_port,
        "missing": [
            {"what": each.what, "problem": each.problem, "fix": each.fix} for each in preflight(spec, machine)
        ],
        "steps": [
            {"number": number, "kind": step.kind, "description": step.description, "command": list(step.command)}
            for number, step in enumerate(plan_steps(spec, machine), 1)
        ],
    }


def plan_steps(spec: EngineSpec, machine: MachineFacts) -> tuple[PlanStep, ...]:
    if spec.mode is Mode.EXTERNAL:
        return (PlanStep("attach", f"wait until {spec.url} answers, then hand it over"),)
    steps = [PlanStep("preflight-tools", "check the GPU, programs and packages that the engine needs")]
    if spec.mode is Mode.SOURCE:
        steps += source_steps(spec)
    if spec.fetches_binary:
        steps.append(PlanStep("binary-fetch", f"fetch {spec.binary} and check it against {spec.checksum}"))
    if spec.mode is Mode.CONTAINER:
        steps.append(PlanStep("image-pull", f"pull {image_of(spec)} with {machine.container_engine or 'podman'}"))
    if spec.engine in BY_NAME:
        steps.append(PlanStep("model-fetch", f"the engine fetches {spec.model} itself, into its volume"))
    else:
        checked = f" and check it against {spec.digest}" if spec.digest else ""
        steps.append(PlanStep("model-fetch", f"fetch {spec.model} into the node's model store{checked}"))
    launch = launch_of(spec, model_path="MODEL", port=spec.preferred_port, server=("SERVER",))
    steps.append(PlanStep("run", _run_text(spec), (*launch.command, *launch.args)))
    return tuple(steps)


def source_steps(spec: EngineSpec) -> list[PlanStep]:
    """Run in the build's own folder, one after the other; the source code is in `source` then."""
    return [*_source_code(spec), *_build(spec)]


def _source_code(spec: EngineSpec) -> list[PlanStep]:
    if spec.source_is_archive:
        return [PlanStep("source-fetch", f"fetch {spec.repository} and check it against {spec.checksum}")]
    repository, revision = spec.repository or REPOSITORY, spec.revision or "master"
    if COMMIT.fullmatch(revision):
        # A clone of one revision takes branches and tags, but no commits.
        whole = ("git", "clone", "--quiet", "--", repository, "source")
        checkout = ("git", "-C", "source", "checkout", "--quiet", revision)
        return [
            PlanStep("git-clone", f"clone {repository}", whole),
            PlanStep("git-checkout", f"check out {revision}", checkout),
        ]
    clone = ("git", "clone", "--quiet", "--depth", "1", "--branch", revision, "--", repository, "source")
    return [PlanStep("git-clone", f"clone {repository} at {revision}", clone)]


def _build(spec: EngineSpec) -> list[PlanStep]:
    if spec.build:
        return [PlanStep("build", "build the server", tuple(shlex.split(spec.build)))]
    cuda = "ON" if spec.device is ComputeDevice.GPU else "OFF"
    configure = ("cmake", "-S", "source", "-B", "build", f"-DGGML_CUDA={cuda}", "-DCMAKE_BUILD_TYPE=Release")
    build = ("cmake", "--build", "build", "--target", BINARIES[EngineName.LLAMACPP], "--parallel", "2")
    return [
        PlanStep("cmake-configure", f"configure the build, CUDA {cuda.lower()}", configure),
        PlanStep("cmake-build", "build the server", build),
    ]


def engine_version(spec: EngineSpec, machine: MachineFacts) -> str:
    """Such as llamacpp-package:0.4.1-cpu: replicas of one version give the same answers. Empty for one that runs
    already: it says its own."""
    if spec.mode is Mode.EXTERNAL:
        return ""
    device = "cuda" if spec.device is ComputeDevice.GPU else "cpu"
    detail = {
        Mode.PACKAGE: machine.packages.get(PACKAGE, "unknown"),
        Mode.BINARY: spec.checksum.removeprefix("sha256:")[:12] or "local",
        Mode.CONTAINER: image_of(spec).rpartition("/")[2],
        Mode.SOURCE: spec.revision or spec.checksum.removeprefix("sha256:")[:12] or "master",
    }[spec.mode]
    return f"{spec.engine.value}-{spec.mode.value}:{detail}-{device}"


def port_candidates(preferred: int, taken: frozenset[int]) -> list[int]:
    """The preferred port and those above it that no other engine here has."""
    ports = range(preferred, min(preferred + PORT_ATTEMPTS, 65_536))
    return [port for port in ports if port not in taken]


def image_of(spec: EngineSpec) -> str:
    if spec.image:
        return spec.image
    gpu = spec.device is ComputeDevice.GPU
    return {
        EngineName.LLAMACPP: f"ghcr.io/ggml-org/llama.cpp:server{'-cuda' if gpu else ''}",
        EngineName.VLLM: "docker.io/vllm/vllm-openai:latest",
        EngineName.TGI: "ghcr.io/huggingface/text-generation-inference:latest",
        EngineName.OLLAMA: "docker.io/ollama/ollama:latest",
    }.get(spec.engine, "")


def launch_of(spec: EngineSpec, *, model_path: str, port: int, server: Sequence[str], host: str = LOOPBACK) -> Launch:
    """`server` is the program for modes that run one: the package's server, or the binary that was found or built."""
    if spec.mode is Mode.EXTERNAL:
        return Launch()
    if spec.mode is Mode.CONTAINER:
        return _CONTAINERS[spec.engine](spec, model_path)
    environment = _device_environment(spec)
    if spec.engine is EngineName.OLLAMA:
        environment |= {"OLLAMA_HOST": f"{host}:{port}"}
        return Launch(tuple(server), args=("serve",), environment=environment, health_path="/api/tags")
    args = llama_arguments(spec, model_path=model_path, host=host, port=port)
    return Launch(tuple(server), args=args, environment=environment)


def llama_arguments(spec: EngineSpec, *, model_path: str, host: str, port: int) -> tuple[str, ...]:
    """Of llama.cpp's server. The context is for all slots together there; here it is for each."""
    layers = ALL_LAYERS if spec.device is ComputeDevice.GPU else "0"
    return (
        *("--model", model_path, "--alias", spec.served_model_id, "--host", host, "--port", str(port)),
        *("--ctx-size", str(spec.context * spec.slots), "--parallel", str(spec.slots), "--n-gpu-layers", layers),
        *("--metrics", "--slots", *(modern_flag(flag) for flag in spec.flags)),
    )


_LEGACY: Final = {"-ngl": "--n-gpu-layers", "--gpu-layers": "--n-gpu-layers", "-c": "--ctx-size", "-np": "--parallel"}


def modern_flag(flag: str) -> str:
    """Older spellings of llama.cpp's options."""
    return _LEGACY.get(flag, flag)


def section_of(launch: Launch, *, port: int, host: str = LOOPBACK) -> dict[str, Any]:
    """As the section of a plain custom component, which the node's runtimes start and supervise."""
    health = {
        "http": f"http://{host}:{port}{launch.health_path}",
        "interval_seconds": 2,
        "timeout_seconds": 5,
        "retries": 3,
        "start_period_seconds": 600,
    }
    shared = {"args": list(launch.args), "environment": dict(launch.environment), "health": health}
    if not launch.image:
        return {"process": {"command": list(launch.command), **shared}}
    mounts = [{"source": source, "target": target, "read_only": fixed} for source, target, fixed in launch.mounts]
    image: dict[str, Any] = {"reference": launch.image, "ports": [f"{host}:{port}:{launch.container_port}"], **shared}
    if mounts:
        image["mounts"] = mounts
    if launch.gpus:
        image["gpus"] = list(launch.gpus)
    return {"image": image}


def _run_text(spec: EngineSpec) -> str:
    where = "on the GPU" if spec.device is ComputeDevice.GPU else "on the CPU, as allowed"
    return f"start it {where}, wait until it is healthy, then hand it over"


def _device_environment(spec: EngineSpec) -> dict[str, str]:
    """One process sees its own devices and no others."""
    if spec.device is ComputeDevice.CPU:
        return {"CUDA_VISIBLE_DEVICES": ""}
    return {"CUDA_VISIBLE_DEVICES": spec.device_mask} if spec.device_mask else {}


def _gpus(spec: EngineSpec) -> tuple[str, ...]:
    if spec.device is ComputeDevice.CPU:
        return ()
    return tuple(spec.device_mask.split(",")) if spec.device_mask else ("all",)


def _llamacpp_container(spec: EngineSpec, model_path: str) -> Launch:
    folder, _, name = model_path.rpartition("/")
    args = llama_arguments(spec, model_path=f"{MODELS_TARGET}/{name}", host="0.0.0.0", port=8080)
    mounts = ((folder or ".", MODELS_TARGET, True),)
    return Launch((), image_of(spec), args, {}, mounts, 8080, _gpus(spec))


def _vllm_container(spec: EngineSpec, model_path: str) -> Launch:
    parallel = len(spec.device_mask.split(",")) if spec.device_mask else 1
    args = (
        *("--model", spec.model, "--served-model-name", spec.served_model_id, "--host", "0.0.0.0", "--port", "8000"),
        *("--tensor-parallel-size", str(parallel), "--max-model-len", str(spec.context), *spec.flags),
    )
    mounts = (("vllm-cache", "/root/.cache/huggingface", False),)
    return Launch((), image_of(spec), args, {}, mounts, 8000, _gpus(spec))


def _tgi_container(spec: EngineSpec, model_path: str) -> Launch:
    args = ("--model-id", spec.model, "--port", "8080", "--max-total-tokens", str(spec.context), *spec.flags)
    return Launch((), image_of(spec), args, {}, (("tgi-data", "/data", False),), 8080, _gpus(spec))


def _ollama_container(spec: EngineSpec, model_path: str) -> Launch:
    environment = {"OLLAMA_HOST": "0.0.0.0", "OLLAMA_NUM_PARALLEL": str(spec.slots)}
    mounts = (("ollama-data", "/root/.ollama", False),)
    return Launch((), image_of(spec), (), environment, mounts, 11434, _gpus(spec), "/api/tags")


_CONTAINERS: Final[Mapping[EngineName, Callable[[EngineSpec, str], Launch]]] = {
    EngineName.LLAMACPP: _llamacpp_container,
    EngineName.VLLM: _vllm_container,
    EngineName.TGI: _tgi_container,
    EngineName.OLLAMA: _ollama_container,
}
