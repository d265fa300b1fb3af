"""The texts in which Orchion's agents describe a machine ("8 cores", "15.52 GB", "linux/amd64"), to and from numbers.

Agents write them for people, and some only approximately ("~8 GB"): what cannot be read
counts as unknown, which is 0.
"""

import re
from typing import Final

from homeport.core.inference.engines.gpus import GpusOfNode, free_bytes
from homeport.core.model.node import Capabilities, Gpu
from homeport.lazy_dataclass import dataclass
from homeport.ports import Sample

NO_GPU: Final = "No GPU detected"
NUMBER_MAX: Final = 2**50
TEXT_LENGTH_MAX: Final = 100
_NUMBER: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z%°]*)")
_UNITS: Final = {"": 1, "b": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_MANUFACTURERS: Final = (
    ("NVIDIA", ("nvidia", "geforce", "quadro", "tesla", "rtx", "gtx")),
    ("AMD", ("amd", "radeon", "instinct")),
    ("Intel", ("intel", "arc", "iris", "uhd")),
    ("Apple", ("apple",)),
)


@dataclass(frozen=True, slots=True)
class Texts:
    """The fields of `orchion.v1.Capabilities` that do not change by the minute."""

    cpu: str
    memory: str
    os: str
    gpu_type: str
    gpu_vram_total: str


@dataclass(frozen=True, slots=True)
class Measured:
    """Those that do, of all GPUs of a machine together; the temperature is that of the warmest. Empty where nothing
    was measured."""

    vram_used: str = ""
    vram_available: str = ""
    temperature: str = ""
    power: str = ""


def measured_of(gpus: GpusOfNode) -> Measured:
    used = [each.memory_used_bytes for each in gpus.values() if each.memory_used_bytes is not None]
    warm = [each.temperature_celsius for each in gpus.values() if each.temperature_celsius is not None]
    power = [each.power_watts for each in gpus.values() if each.power_watts is not None]
    free = free_bytes(gpus)
    return Measured(
        vram_used=gigabytes(sum(used)) if used else "",
        vram_available="" if free is None else gigabytes(free),
        temperature=f"{max(warm):.0f} C" if warm else "",
        power=f"{sum(power):.1f} W" if power else "",
    )


def samples_of(texts: Measured, *, total: str) -> tuple[Sample, ...]:
    """As a node's own measurements of its first GPU; of what an agent does not say there is none."""
    used: float | None = bytes_in(texts.vram_used) if _has_number(texts.vram_used) else None
    if used is None and _has_number(texts.vram_available) and _has_number(total):
        used = max(0, bytes_in(total) - bytes_in(texts.vram_available))
    values = (
        ("gpu_memory_used_bytes", used),
        ("gpu_memory_total_bytes", bytes_in(total) if used is not None and _has_number(total) else None),
        ("gpu_temperature_celsius", number_in(texts.temperature) if _has_number(texts.temperature) else None),
        ("gpu_power_watts", number_in(texts.power) if _has_number(texts.power) else None),
    )
    return tuple(Sample(name, float(value), {"gpu": "0"}) for name, value in values if value is not None)


def texts_of(found: Capabilities) -> Texts:
    return Texts(
        cpu=f"{found.cpu_cores} cores",
        memory=gigabytes(found.memory_bytes),
        os=f"{found.os}/{found.architecture}",
        gpu_type=", ".join(gpu.model for gpu in found.gpus) or NO_GPU,
        gpu_vram_total=gigabytes(sum(gpu.memory_bytes for gpu in found.gpus)) if found.gpus else "",
    )


def capabilities_of(texts: Texts) -> Capabilities:
    name, _, architecture = texts.os.partition("/")
    return Capabilities(
        cpu_cores=int(number_in(texts.cpu)),
        memory_bytes=bytes_in(texts.memory),
        disk_bytes=0,
        disk_free_bytes=0,
        os=name,
        architecture=architecture,
        gpus=_gpus(texts.gpu_type, bytes_in(texts.gpu_vram_total)),
    )


def gigabytes(count: float) -> str:
    return f"{count / 2**30:.2f} GB"


def number_in(text: str) -> float:
    """The first number of a text; 0 where there is none."""
    match = _NUMBER.search(text[:TEXT_LENGTH_MAX])
    return 0.0 if match is None else min(float(match[1]), float(NUMBER_MAX))


def bytes_in(text: str) -> int:
    """ "15.52 GB" in bytes; units are powers of 1024, as the agents compute them."""
    match = _NUMBER.search(text[:TEXT_LENGTH_MAX])
    if match is None:
        return 0
    return min(int(float(match[1]) * _UNITS.get(match[2][:1].lower(), 1)), NUMBER_MAX)


def _has_number(text: str) -> bool:
    return _NUMBER.search(text[:TEXT_LENGTH_MAX]) is not None


def _gpus(model: str, memory_bytes: int) -> tuple[Gpu, ...]:
    if not model or model == NO_GPU:
        return ()
    lower = model.lower()
    found = (maker for maker, words in _MANUFACTURERS if any(word in lower for word in words))
    return (Gpu(model, next(found, ""), memory_bytes),)
