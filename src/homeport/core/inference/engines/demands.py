"""What an engine that runs without a container requires of its machine, for `core.node.permissions` to judge. Pure.

The owner of a machine has installed the package and the programs on the PATH, and whoever deploys only chooses the
model. A program, source code or a build command that the deployment brings is code that runs as the node's user: a
native command (ADR 0260). An engine in a container is judged as any image is.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from homeport.core.inference.engines.preflight import BINARIES
from homeport.core.inference.engines.spec import EngineSpec, Mode
from homeport.core.node.permissions import Permission, PermissionDemand

TUNING: Final = frozenset(
    {
        *(
            "--threads",
            "--threads-http",
            "--batch-size",
            "--n-gpu-layers",
            "--gpu-layers",
            "-ngl",
            "--no-cont-batching",
        ),
        *("--embeddings", "--embedding", "--reranking", "--rerank", "--pooling", "--chat-template", "--metrics"),
        "--slots",
    }
)
"""Options of llama.cpp's server that read and write no file. Others may: --log-file, --slot-save-path, --tools."""


def engine_demands(spec: EngineSpec, environment: Mapping[str, str]) -> list[PermissionDemand]:
    """`environment` is the engine's own, which could name a library to load."""
    if spec.mode in (Mode.EXTERNAL, Mode.CONTAINER):
        return []
    return [
        *(PermissionDemand(Permission.NATIVE_COMMANDS, f"engine: {where}") for where in _commands(spec)),
        *(
            PermissionDemand(Permission.NATIVE_COMMANDS, f"engine: environment: {name}")
            for name in sorted(environment)
        ),
        *(
            PermissionDemand(Permission.HOST_NETWORK, "engine: flags: --host")
            for flag in _options(spec)
            if flag == "--host"
        ),
    ]


def _commands(spec: EngineSpec) -> Iterator[str]:
    if spec.mode is Mode.SOURCE:
        yield "mode: source"
    if spec.mode is Mode.BINARY and spec.binary not in ("", BINARIES[spec.engine]):
        yield f"binary: {spec.binary}"
    if spec.mode in (Mode.PACKAGE, Mode.BINARY):
        yield from (f"flags: {option}" for option in _options(spec) if option not in TUNING)


def _options(spec: EngineSpec) -> Iterator[str]:
    """The names among the flags; a negative number is the value of one."""
    names = (flag.partition("=")[0] for flag in spec.flags if flag.startswith("-"))
    return (name for name in names if not name.lstrip("-")[:1].isdigit())
