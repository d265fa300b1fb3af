"""Plans and preflight: what is done, what is missing, what is started in the end."""

import json
from dataclasses import replace

import pytest

from homeport.core.custom import OURS, read_custom
from homeport.core.inference.engines.crashes import Crash, crash_of
from homeport.core.inference.engines.machine import GpuFact, MachineFacts
from homeport.core.inference.engines.preflight import preflight
from homeport.core.inference.engines.provisioning import (
    engine_version,
    launch_of,
    plan_engine,
    port_candidates,
    section_of,
)
from homeport.core.inference.engines.spec import EngineSpec, read_engine
from homeport.core.model.custom import CustomKind, HttpProbe

BARE = MachineFacts()
WHOLE = MachineFacts(
    gpus=(GpuFact(0, "RTX"), GpuFact(1, "RTX")),
    programs={
        name: f"/usr/bin/{name}" for name in ("git", "cmake", "make", "g++", "nvcc", "llama-server", "nvidia-ctk")
    },
    packages={"xllamacpp": "1.0"},
    package_offloads=True,
    container_engine="podman",
    has_cdi=True,
)


def engine(name: str = "llamacpp", model: str = "/models/x.gguf", **more: object) -> EngineSpec:
    return read_engine({"engine": name, "model": model, **more}, {})


def missing(spec: EngineSpec, machine: MachineFacts) -> list[str]:
    return [each.what for each in preflight(spec, machine)]


def test_one_description_on_one_machine_gives_one_plan_byte_for_byte() -> None:
    one, two = (json.dumps(plan_engine(engine(mode="source"), WHOLE), sort_keys=True) for _ in range(2))
    assert one == two
    kinds = [step["kind"] for step in plan_engine(engine(mode="source"), WHOLE)["steps"]]
    assert kinds == ["preflight-tools", "git-clone", "cmake-configure", "cmake-build", "model-fetch", "run"]
    assert "-DGGML_CUDA=ON" in plan_engine(engine(mode="source"), WHOLE)["steps"][2]["command"]


def test_a_whole_machine_lacks_nothing() -> None:
    for mode in ("package", "binary", "container", "source"):
        assert missing(engine(mode=mode), WHOLE) == []


@pytest.mark.parametrize(
    ("mode", "lacks"),
    [
        ("package", ["gpu", "xllamacpp"]),
        ("binary", ["gpu", "llama-server"]),
        ("source", ["gpu", "git", "cmake", "make", "g++", "nvcc"]),
        ("container", ["gpu", "podman"]),
    ],
)
def test_a_bare_machine_lacks_everything_at_once_each_with_its_fix(mode: str, lacks: list[str]) -> None:
    found = preflight(engine(mode=mode), BARE)
    assert [each.what for each in found] == lacks
    assert all(each.fix.endswith((".", "yaml", "docker")) and each.problem.endswith(".") for each in found)


def test_the_cpu_is_used_only_where_it_was_allowed() -> None:
    without_gpu = replace(WHOLE, gpus=(), gpu_problem="nvidia-smi is not installed")
    refused = preflight(engine(), without_gpu)
    assert "--allow-cpu" in refused[0].fix
    assert "nvidia-smi is not installed" in refused[0].problem
    assert preflight(engine(device="cpu"), without_gpu) == ()
    assert "--n-gpu-layers 0" in " ".join(launch_of(engine(device="cpu"), model_path="m", port=1, server=("s",)).args)


def test_a_package_without_cuda_is_no_silent_fallback_to_the_cpu() -> None:
    assert missing(engine(), replace(WHOLE, package_offloads=False)) == ["xllamacpp with CUDA"]


def test_a_gpu_that_is_not_there_is_named() -> None:
    assert "no GPU 7" in preflight(engine(device_mask="0,7"), WHOLE)[0].problem


def test_containers_need_the_toolkit_of_their_engine() -> None:
    assert missing(engine("vllm", "org/m"), replace(WHOLE, has_cdi=False)) == ["nvidia-container-toolkit"]
    docker = replace(WHOLE, container_engine="docker", programs={})
    assert missing(engine("vllm", "org/m"), docker) == ["nvidia-container-toolkit"]


@pytest.mark.parametrize("container_engine", ["podman", "docker"])
def test_gpus_of_amd_and_intel_need_an_image_for_them_and_nothing_of_nvidia(container_engine: str) -> None:
    gpus = (GpuFact(0, "MI300X", maker="AMD"), GpuFact(1, "Arc B60", maker="Intel"))
    machine = MachineFacts(gpus=gpus, container_engine=container_engine)
    assert missing(engine("vllm", "org/m", device_mask="0"), machine) == ["image"]
    assert missing(engine("vllm", "org/m", image="rocm/vllm:1"), machine) == []
    (lacking,) = preflight(engine("vllm", "org/m", device_mask="1"), machine)
    assert "this machine's are of Intel" in lacking.problem
    assert missing(engine("ollama", "llama3"), replace(WHOLE, container_engine="containerd")) == ["podman"]


def test_vllm_gets_its_arguments_behind_the_image() -> None:
    spec = engine("vllm", "mistralai/Mistral-7B", device_mask="0,1", context=8192)
    custom, found = read_custom(
        {OURS: section_of(launch_of(spec, model_path="", port=8001, server=()), port=8001)},
        repository="",
        revision="",
    )
    assert found == []
    assert custom is not None
    assert custom.kind is CustomKind.IMAGE
    assert custom.image == "docker.io/vllm/vllm-openai:latest"
    assert custom.command == (), "the image's own program"
    said = " ".join(custom.args)
    assert "--model mistralai/Mistral-7B" in said
    assert "--tensor-parallel-size 2 --max-model-len 8192" in said
    assert [(port.host, port.container, port.address) for port in custom.ports] == [(8001, 8000, "127.0.0.1")]
    assert custom.gpus == ("0", "1")
    assert custom.probe == HttpProbe("127.0.0.1", 8001, "/health")


def test_ollama_gets_its_volume_port_and_host() -> None:
    launch = launch_of(engine("ollama", "llama3", slots=2), model_path="", port=11434, server=())
    assert launch.mounts == (("ollama-data", "/root/.ollama", False),)
    assert launch.environment == {"OLLAMA_HOST": "0.0.0.0", "OLLAMA_NUM_PARALLEL": "2"}
    assert (launch.container_port, launch.gpus, launch.health_path) == (11434, ("all",), "/api/tags")


def test_a_model_is_mounted_read_only_beside_the_server_in_a_container() -> None:
    launch = launch_of(engine(mode="container"), model_path="/data/models/x/m.gguf", port=8100, server=())
    assert launch.mounts == (("/data/models/x", "/models", True),)
    assert launch.args[:2] == ("--model", "/models/m.gguf")


def test_one_process_sees_one_device_mask() -> None:
    launch = launch_of(engine(device_mask="1"), model_path="m", port=8100, server=("llama-server",))
    assert launch.environment == {"CUDA_VISIBLE_DEVICES": "1"}
    assert launch.command == ("llama-server",)


def test_older_spellings_of_options_are_the_new_ones() -> None:
    launch = launch_of(engine(flags=["-ngl", "20"]), model_path="m", port=8100, server=("s",))
    assert launch.args[-2:] == ("--n-gpu-layers", "20")


def test_versions_tell_mode_build_and_device_apart() -> None:
    assert engine_version(engine(device="cpu"), WHOLE) == "llamacpp-package:1.0-cpu"
    assert engine_version(engine(mode="source", revision="b4000"), WHOLE) == "llamacpp-source:b4000-cuda"


def test_ports_of_other_engines_are_passed_over() -> None:
    assert port_candidates(8100, frozenset({8100, 8102}))[:2] == [8101, 8103]
    assert port_candidates(65_535, frozenset()) == [65_535]


@pytest.mark.parametrize(
    ("exit_code", "output", "crash"),
    [
        (1, "ggml_cuda: CUDA error: out of memory", Crash.GPU_MEMORY),
        (1, "cudaMalloc failed: out of memory", Crash.GPU_MEMORY),
        (1, "CUDA error: an illegal memory access", Crash.GPU_DRIVER),
        (1, "terminate called: std::bad_alloc", Crash.HOST_MEMORY),
        (1, "E llama_model_load: error loading model", Crash.MODEL),
        (1, "bind: Address already in use", Crash.PORT),
        (-9, "", Crash.KILLED),
        (137, "", Crash.KILLED),
        (0, "bye", Crash.STOPPED),
        (3, "", Crash.FAILED),
        (None, "", Crash.FAILED),
    ],
)
def test_running_out_of_one_memory_is_told_from_the_other(exit_code: int | None, output: str, crash: Crash) -> None:
    assert crash_of(exit_code, output).crash is crash
