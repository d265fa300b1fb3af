"""What a GGUF file says of itself in its header: whether the file is whole, from the names and sizes of its tensors,
and how large its cache is for each token. Weights are not looked at.

An engine that cannot read its model takes seconds to say so, in its own words, and is started again; this takes
milliseconds, and says what to do.
"""

import struct
from collections.abc import Mapping
from typing import Final

MAGIC: Final = b"GGUF"
VERSIONS: Final = (2, 3)
ALIGNMENT: Final = 32
TENSORS_MAX: Final = 1_000_000
DIMENSIONS_MAX: Final = 8
NAME_BYTES_MAX: Final = 64 * 1024
_NESTED_MAX: Final = 4
_STRING: Final = 8
_ARRAY: Final = 9
_BYTES: Final[Mapping[int, int]] = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
"""Of a value, by the number of its type."""
_BLOCKS: Final[Mapping[int, tuple[int, int]]] = {
    # Weights of a block and its bytes, by the number of a tensor's type. Of others only the beginning is known.
    0: (1, 4),
    1: (1, 2),
    2: (32, 18),
    3: (32, 20),
    6: (32, 22),
    7: (32, 24),
    8: (32, 34),
    10: (256, 84),
    11: (256, 110),
    12: (256, 144),
    13: (256, 176),
    14: (256, 210),
    30: (1, 2),
}
_NUMBERS: Final[Mapping[int, str]] = {4: "<I", 5: "<i", 10: "<Q", 11: "<q"}
_ARCHITECTURE: Final = b"general.architecture"
_CACHE_KEYS: Final = (
    "block_count",
    "embedding_length",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
)
_EVERY_TOKEN: Final = frozenset({"llama", "qwen2", "qwen2moe", "qwen3", "qwen3moe", "gemma", "phi2", "starcoder2"})
"""Architectures of which every block keeps a key and a value of every token. Others keep a window of them, a state
instead of them, or a compressed form."""
F16_BYTES: Final = 2
LAYERS_MAX: Final = 4_096


def damage_of(content: memoryview) -> str | None:
    """What is wrong with the file, as the end of a sentence that begins with its name; None where nothing is."""
    if bytes(content[:4]) != MAGIC:
        return "is not a GGUF model: it does not begin with the letters GGUF"
    reader = _Reader(content)
    try:
        version = reader.number("<I", 4)
        if version not in VERSIONS:
            return f"is a GGUF file of version {version}, and versions {VERSIONS[0]} and {VERSIONS[1]} are known"
        tensors, values = reader.number("<Q", 8), reader.number("<Q", 8)
        if max(tensors, values) > TENSORS_MAX:
            return "is damaged: its header cannot be read"
        reader.read_values(values)
        needed = reader.tensor_bytes(tensors)
    except (struct.error, ValueError):
        return "is cut off, or damaged: its header cannot be read"
    alignment = _one(reader.numbers.get("general.alignment")) or ALIGNMENT
    whole = -(-reader.position // alignment) * alignment + needed
    if whole > len(content):
        return f"is cut off: it has {len(content):,} bytes of at least {whole:,}"
    return None


def kv_token_bytes(content: memoryview) -> int | None:
    """How many bytes of an engine's cache one token takes, where keys and values are kept as 16-bit floats, which is
    llama.cpp's default. None where the file does not say enough."""
    reader = _Reader(content)
    try:
        if bytes(content[:4]) != MAGIC or reader.number("<I", 4) not in VERSIONS:
            return None
        _, values = reader.number("<Q", 8), reader.number("<Q", 8)
        if values > TENSORS_MAX:
            return None
        reader.read_values(values)
    except (struct.error, ValueError):
        return None
    if reader.architecture not in _EVERY_TOKEN or f"{reader.architecture}.attention.sliding_window" in reader.names:
        return None
    blocks, width, heads, heads_kv, key, value = (
        reader.numbers.get(f"{reader.architecture}.{name}") for name in _CACHE_KEYS
    )
    count, queries = _one(blocks), _one(heads)
    if not count or not queries or count > LAYERS_MAX:
        return None
    size = (_one(width) or 0) // queries
    per_block = heads_kv or heads or ()
    kept = sum(per_block) if len(per_block) == count else count * (_one(per_block) or 0)
    return kept * ((_one(key) or size) + (_one(value) or size)) * F16_BYTES or None


def _one(numbers: tuple[int, ...] | None) -> int | None:
    return numbers[0] if numbers is not None and len(numbers) == 1 and numbers[0] >= 0 else None


class _Reader:
    def __init__(self, content: memoryview) -> None:
        self._content = content
        self.position = len(MAGIC)
        self.architecture = ""
        self.names: set[str] = set()
        self.numbers: dict[str, tuple[int, ...]] = {}
        """Whole numbers, and short lists of them, by name."""

    def number(self, form: str, size: int) -> int:
        found: int = struct.unpack_from(form, self._content, self.position)[0]
        self.position += size
        return found

    def read_values(self, count: int) -> None:
        for _ in range(count):
            name, kind = self._text(), self.number("<I", 4)
            shown = name.decode("utf-8", "replace")
            self.names.add(shown)
            begin = self.position
            if name == _ARCHITECTURE and kind == _STRING:
                self.architecture = self._text().decode("utf-8", "replace")
            else:
                self._skip_value(kind)
                found = self._numbers_at(begin, kind)
                if found is not None:
                    self.numbers[shown] = found

    def _numbers_at(self, position: int, kind: int) -> tuple[int, ...] | None:
        """The value that begins there and was found whole; None for anything but whole numbers."""
        count = 1
        if kind == _ARRAY:
            kind, count = struct.unpack_from("<IQ", self._content, position)
            position += 12
        if kind not in _NUMBERS or count > LAYERS_MAX:
            return None
        form = _NUMBERS[kind]
        return struct.unpack_from(f"<{count}{form[1]}", self._content, position)

    def tensor_bytes(self, count: int) -> int:
        """How many bytes follow the header, as far as the types are known."""
        end = 0
        for _ in range(count):
            self._text()
            dimensions = self.number("<I", 4)
            if dimensions > DIMENSIONS_MAX:
                raise ValueError(dimensions)
            weights = 1
            for _ in range(dimensions):
                weights *= self.number("<Q", 8)
            kind, offset = self.number("<I", 4), self.number("<Q", 8)
            block, size = _BLOCKS.get(kind, (1, 0))
            end = max(end, offset + weights // block * size)
        return end

    def _text(self) -> bytes:
        size = self.number("<Q", 8)
        if size > NAME_BYTES_MAX:
            raise ValueError(size)
        self._skip(size)
        return bytes(self._content[self.position - size : self.position])

    def _skip_value(self, kind: int, depth: int = 0) -> None:
        if kind == _STRING:
            self._skip(self.number("<Q", 8))
        elif kind == _ARRAY and depth < _NESTED_MAX:
            inner, count = self.number("<I", 4), self.number("<Q", 8)
            if inner in _BYTES:
                self._skip(count * _BYTES[inner])
            else:
                for _ in range(count):  # each is at least a length: a wrong count ends at the end of the file
                    self._skip_value(inner, depth + 1)
        elif kind in _BYTES:
            self._skip(_BYTES[kind])
        else:
            raise ValueError(kind)

    def _skip(self, size: int) -> None:
        self.position += size
        if self.position > len(self._content):
            raise ValueError(size)
