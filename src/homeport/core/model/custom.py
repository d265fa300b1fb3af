"""What a component of a `custom` profile runs, once it has been read: one image, or one program of the machine."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Kind(StrEnum):
    IMAGE = "image"
    PROCESS = "process"


KINDS_BY_ENGINE: Final[Mapping[str, tuple[Kind, ...]]] = {
    "podman": (Kind.IMAGE,),
    "docker": (Kind.IMAGE,),
    "containerd": (Kind.IMAGE,),
    "process": (Kind.PROCESS,),
    "null": (Kind.IMAGE, Kind.PROCESS),
}
"""What of `custom` each engine runs. An engine of another name is asked and answers for itself."""


@dataclass(frozen=True, slots=True)
class CheckRules:
    """How often a health check runs and when it counts; the defaults are those of the compose specification."""

    interval_seconds: float = 30.0
    timeout_seconds: float = 30.0
    retries: int = 3
    start_period_seconds: float = 0.0


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
    """A folder of the machine, or the name of a volume that stays when the component goes."""
    target: str
    read_only: bool = False

    @property
    def is_volume(self) -> bool:
        return not self.source.startswith("/")


@dataclass(frozen=True, slots=True)
class CustomSpec:
    """Empty `command` and `args` mean what the image says."""

    kind: Kind
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
