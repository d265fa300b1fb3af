"""What a node may say about itself when it registers. Every text, number and list from outside is bounded here."""

import re
from collections.abc import Iterator
from typing import Final

from homeport.core.model.node import Capabilities, NodeInfo
from homeport.errors import InvalidInput, Problem
from homeport.vocabulary import NODE_ID_PATTERN

LABELS_MAX: Final = 128
LABEL_KEY_LENGTH_MAX: Final = 128
LABEL_VALUE_LENGTH_MAX: Final = 1_024
TEXT_LENGTH_MAX: Final = 253
"""The longest host name, and enough for every other text."""
GPUS_MAX: Final = 64
NUMBER_MAX: Final = 2**53
"""What JSON carries exactly."""


def require_fields(*fields: tuple[str, object, str]) -> None:
    """Each with its name, whether it is there, and what is wrong otherwise. Raises InvalidInput with every missing
    one."""
    _raise(*(Problem(name, wrong) for name, given, wrong in fields if not given))


def check_registration(info: NodeInfo) -> None:
    """Raises InvalidInput with every wrong field."""
    _raise(*_info(info), *_capabilities(info.capabilities, "node.capabilities"))


def check_capabilities(capabilities: Capabilities) -> None:
    """Raises InvalidInput with every wrong field."""
    _raise(*_capabilities(capabilities, "capabilities"))


def _raise(*problems: Problem) -> None:
    if problems:
        raise InvalidInput(problems=problems)


def _info(info: NodeInfo) -> Iterator[Problem]:
    if not info.id:
        yield Problem("node.id", "is missing")
    elif not re.fullmatch(NODE_ID_PATTERN, info.id):
        yield Problem("node.id", "may have letters, digits, dots, dashes and underscores only, up to 128")
    yield from _text("node.hostname", info.hostname)
    yield from _text("node.software_version", info.software_version)
    yield from _text("node.agent_address", info.agent_address)
    if len(info.labels) > LABELS_MAX:
        yield Problem("node.labels", f"may be {LABELS_MAX} at most, not {len(info.labels)}")
        return
    for key, value in info.labels.items():
        shown = f"node.labels[{key[:40]}]"
        if not 0 < len(key) <= LABEL_KEY_LENGTH_MAX or not key.isprintable():
            yield Problem(shown, f"is not a valid label: its key must have 1 to {LABEL_KEY_LENGTH_MAX} characters")
        yield from _text(shown, value, LABEL_VALUE_LENGTH_MAX)


def _capabilities(found: Capabilities, where: str) -> Iterator[Problem]:
    for name in ("cpu_cores", "memory_bytes", "disk_bytes", "disk_free_bytes"):
        yield from _number(f"{where}.{name}", getattr(found, name))
    for name in ("os", "architecture", "engine", "engine_version"):
        yield from _text(f"{where}.{name}", getattr(found, name))
    if len(found.gpus) > GPUS_MAX:
        yield Problem(f"{where}.gpus", f"may be {GPUS_MAX} at most, not {len(found.gpus)}")
        return
    for position, gpu in enumerate(found.gpus):
        yield from _text(f"{where}.gpus[{position}].model", gpu.model)
        yield from _text(f"{where}.gpus[{position}].manufacturer", gpu.manufacturer)
        yield from _number(f"{where}.gpus[{position}].memory_bytes", gpu.memory_bytes)


def _text(field: str, value: str, length_max: int = TEXT_LENGTH_MAX) -> Iterator[Problem]:
    if len(value) > length_max:
        yield Problem(field, f"may have {length_max} characters at most, not {len(value)}")
    elif not value.isprintable():
        yield Problem(field, "has characters that cannot be printed")


def _number(field: str, value: int) -> Iterator[Problem]:
    if not 0 <= value <= NUMBER_MAX:
        yield Problem(field, f"must be between 0 and 2^53, not {value}")
