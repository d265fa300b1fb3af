"""What a component of a `custom` profile runs, parsed: one image, one program of the machine, or an
inference engine, of which the node makes one of these two."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from homeport.core.model.health import CheckRules
from homeport.lazy_dataclass import dataclass


class CustomKind(StrEnum):
    IMAGE = "image"
    PROCESS = "process"
    ENGINE = "engine"
    """An inference engine: the node makes one of the other two of it (`core.inference`)."""


CUSTOM_RULES: Final = CheckRules(interval_seconds=10.0, timeout_seconds=5.0)


@dataclass(frozen=True, slots=True)
class HttpProbe:
    host: str
    port: int
    target: str


@dataclass(frozen=True, slots=True)
class TcpProbe:
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class CommandProbe:
    """Runs where the workload runs: inside the container, or on the machine."""

    command: tuple[str, ...]


Probe = HttpProbe | TcpProbe | CommandProbe


@dataclass(frozen=True, slots=True)
class Port:
    host: int
    container: int
    address: str = ""
    """Empty means every address of the machine."""
    protocol: str = "tcp"


@dataclass(frozen=True, slots=True)
class Mount:
    source: str
    """A folder of the machine, or the name of a volume that outlives the component."""
    target: str
    read_only: bool = False

    @property
    def is_volume(self) -> bool:
        return not self.source.startswith("/")


@dataclass(frozen=True, slots=True)
class CustomSpec:
    """Empty `command` and `args` mean the image's defaults."""

    kind: CustomKind
    image: str
    command: tuple[str, ...]
    args: tuple[str, ...]
    environment: Mapping[str, str]
    workdir: str | None
    probe: Probe | None
    rules: CheckRules
    ports: tuple[Port, ...] = ()
    mounts: tuple[Mount, ...] = ()
    host_network: bool = False
    gpus: tuple[str, ...] = ()
    """Numbers of the machine's GPUs that the container may use, or "all"."""
