"""The texts in which Orchion's agents describe a machine ("8 cores", "15.52 GB", "linux/amd64"), to and from numbers.

Agents write them for people, and some only approximately ("~8 GB"): what cannot be read
counts as unknown, which is 0.
"""

import re
from dataclasses import dataclass
from typing import Final

from homeport.core.model.node import Capabilities, Gpu

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


def _gpus(model: str, memory_bytes: int) -> tuple[Gpu, ...]:
    if not model or model == NO_GPU:
        return ()
    lower = model.lower()
    found = (maker for maker, words in _MANUFACTURERS if any(word in lower for word in words))
    return (Gpu(model, next(found, ""), memory_bytes),)
