"""An inference engine as an app, one for every model: the model is a parameter. Pure."""

from collections.abc import Mapping
from typing import Final

from homeport.content.importing.description import Imported
from homeport.content.importing.parameters import Offered
from homeport.core.inference.engines.handoff import EngineName
from homeport.core.inference.engines.spec import VARIABLES
from homeport.vocabulary import ProfileType

APP_NAMES: Final[Mapping[EngineName, str]] = {
    EngineName.LLAMACPP: "llama-cpp",
    EngineName.VLLM: "vllm",
    EngineName.TGI: "tgi",
    EngineName.OLLAMA: "ollama",
    EngineName.TRITON: "triton",
    EngineName.OPENAI: "openai-compatible",
}
_HOMES: Final[Mapping[EngineName, tuple[str, str]]] = {
    EngineName.LLAMACPP: ("oci://ghcr.io/ggml-org/llama.cpp", "0.0.0"),
    EngineName.VLLM: ("oci://docker.io/vllm/vllm-openai", "0.0.0"),
    EngineName.TGI: ("oci://ghcr.io/huggingface/text-generation-inference", "0.0.0"),
    EngineName.OLLAMA: ("oci://docker.io/ollama/ollama", "0.0.0"),
    EngineName.TRITON: ("oci://nvcr.io/nvidia/tritonserver", "0.0.0"),
    # It is only ever attached; a component has to name a repository.
    EngineName.OPENAI: ("oci://localhost/openai-compatible", "0.0.0"),
}
_DESCRIPTIONS: Final[Mapping[str, str]] = {
    "model": "hf:org/repo/file.gguf, file:/path, https://…, s3://…, oci://…; for vllm, tgi and ollama the hub's name",
    "digest": "sha256:… of the model's file, checked before it is served",
    "model_id": "The name that requests call the model by",
    "pool": "The pool's id; the deployment's name when empty",
    "device": "gpu, or cpu where that is meant",
    "device_mask": "The GPUs to use, as in 0 or 0,1",
    "context": "Tokens of context for each slot",
    "slots": "How many requests it works on at a time",
    "port": "The preferred port; the next free one is taken",
    "min_replicas": "How many replicas stay loaded; 0 unless said",
    "idle_seconds": "Unload a replica that was not needed for so long; 0 or nothing: never",
    "mode": "package, binary, container, source or external",
    "flags": "Further options of the engine, with spaces between them",
    "image": "Another image than the engine's own",
    "binary": "A program of the machine, or the https:// address of one or of a release archive (mode binary)",
    "checksum": "sha256:… of what binary or repository fetches",
    "repository": "A Git repository, or the https:// address of an archive of source code (mode source)",
    "revision": "A branch, tag or commit of the repository",
    "build": "The command that builds it; CMake when empty",
    "url": "The address of an engine that runs already (mode external)",
    "api_key": "secret://NAME of the key that such an engine asks for",
}


def import_engine(engine: EngineName) -> Imported:
    name = APP_NAMES[engine]
    offered = tuple(
        Offered(key, variable, "string", "", is_required=False, description=_DESCRIPTIONS[key])
        for variable, key in VARIABLES.items()
    )
    return Imported(
        name=name,
        type=ProfileType.CUSTOM,
        summary=f"The inference engine {name}: serves the model of its parameter to /v1 and /v2.",
        offered=offered,
        place=_HOMES[engine],
        extension={"engine": {"engine": engine.value}},
    )
