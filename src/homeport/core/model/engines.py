"""The runtimes that a node can have, one row each; the other tables about engines derive from it. Pure.

A node with a cluster and an engine names both, as in `podman+kubernetes`: it can run what either can.
"""

from collections.abc import Mapping
from typing import Final

from homeport.core.model.custom import CustomKind
from homeport.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class EngineKind:
    name: str
    is_oci: bool
    """Whether it runs container images; Margo's `supportedRuntimes`."""
    custom_kinds: tuple[CustomKind, ...]
    """The kinds of `custom` components it runs."""
    is_found: bool = False
    """Whether `auto` selects it where it works, in this order."""


KUBERNETES: Final = EngineKind("kubernetes", is_oci=True, custom_kinds=())
"""Runs charts in addition to another engine; never a node's only one."""
ENGINES: Final[Mapping[str, EngineKind]] = {
    kind.name: kind
    for kind in (
        # Podman before Docker, because it needs no daemon of root's; containerd last, because it runs single images.
        EngineKind("podman", is_oci=True, custom_kinds=(CustomKind.IMAGE, CustomKind.ENGINE), is_found=True),
        EngineKind("docker", is_oci=True, custom_kinds=(CustomKind.IMAGE, CustomKind.ENGINE), is_found=True),
        EngineKind("containerd", is_oci=True, custom_kinds=(CustomKind.IMAGE, CustomKind.ENGINE), is_found=True),
        EngineKind("process", is_oci=False, custom_kinds=(CustomKind.PROCESS, CustomKind.ENGINE)),
        EngineKind("null", is_oci=False, custom_kinds=(CustomKind.IMAGE, CustomKind.PROCESS, CustomKind.ENGINE)),
    )
}
AUTO: Final = "auto"
RUNTIMES: Final = (AUTO, *ENGINES)
"""The values of `--runtime`."""


def parts_of(engine: str) -> tuple[EngineKind, ...]:
    """The parts of a node's engine name; unknown ones are left out."""
    known = {**ENGINES, KUBERNETES.name: KUBERNETES}
    return tuple(known[name] for name in engine.split("+") if name in known)


def is_oci(engine: str) -> bool:
    return any(part.is_oci for part in parts_of(engine))


def custom_kinds(engine: str) -> tuple[CustomKind, ...]:
    """An unknown engine decides for itself what it runs."""
    parts = [part for part in parts_of(engine) if part is not KUBERNETES]
    return tuple(kind for kind in CustomKind if not parts or any(kind in part.custom_kinds for part in parts))


def main_engine(engine: str) -> str:
    """The engine a node is known by; a cluster is an addition."""
    return engine.partition("+")[0]
