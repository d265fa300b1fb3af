"""How a container gets GPUs. Those of NVIDIA have names that engines know, each in its own words; those of AMD and
Intel are device files, alike on Podman and Docker, and a variable says which of them the programs in it may use."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from homeport.adapters.runtime.docker_api.client import Json
from homeport.lazy_dataclass import dataclass

ALL: Final = "all"
AMD: Final = "AMD"
INTEL: Final = "Intel"
FILES: Final[Mapping[str, tuple[str, ...]]] = {AMD: ("/dev/kfd", "/dev/dri"), INTEL: ("/dev/dri",)}
VARIABLES: Final[Mapping[str, str]] = {AMD: "ROCR_VISIBLE_DEVICES", INTEL: "ZE_AFFINITY_MASK"}


@dataclass(frozen=True, slots=True)
class GpuAccess:
    nvidia: tuple[str, ...] = ()
    """Numbers, or "all"."""
    files: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()


def gpu_access(wanted: Sequence[str], makers: Sequence[str]) -> GpuAccess:
    """For these GPUs, by number; "all" are those of the first maker, as an image is built for one. `makers` are those
    of the machine's GPUs, by number; a GPU that is not among them is left to NVIDIA's tools, which say that it is
    missing. Programs count the GPUs of their own maker."""
    is_all = ALL in wanted
    of_makers: dict[str, list[str]] = {}
    for number in ("0",) if is_all else wanted:
        at = int(number) if number.isdecimal() and int(number) < len(makers) else None
        maker = makers[at] if at is not None and makers[at] in FILES else ""
        own = number if at is None or not maker else str(list(makers[:at]).count(maker))
        of_makers.setdefault(maker, []).append(ALL if is_all else own)
    nvidia = of_makers.pop("", [])
    return GpuAccess(
        tuple(nvidia),
        tuple(dict.fromkeys(file for maker in of_makers for file in FILES[maker])),
        () if is_all else tuple((VARIABLES[maker], ",".join(own)) for maker, own in of_makers.items()),
    )


def with_gpus(content: Json, access: GpuAccess, nvidia: Callable[[Sequence[str]], Json]) -> Json:
    """A new container that also has these. What its description says of the variables stays."""
    host: Json = dict(content["HostConfig"])
    if access.nvidia:
        host |= nvidia(access.nvidia)
    if access.files:
        host["Devices"] = [
            {"PathOnHost": file, "PathInContainer": file, "CgroupPermissions": "rwm"} for file in access.files
        ]
    known = {entry.partition("=")[0] for entry in content["Env"]}
    added = [f"{name}={value}" for name, value in access.variables if name not in known]
    return {**content, "HostConfig": host, "Env": [*content["Env"], *added]}
