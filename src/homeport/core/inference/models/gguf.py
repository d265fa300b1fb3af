"""Whether a GGUF file is whole, from its own header: magic, version, names and sizes of its tensors. Weights are not
looked at.

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
        alignment = reader.skip_values(values)
        needed = reader.tensor_bytes(tensors)
    except (struct.error, ValueError):
        return "is cut off, or damaged: its header cannot be read"
    whole = -(-reader.position // alignment) * alignment + needed
    if whole > len(content):
        return f"is cut off: it has {len(content):,} bytes of at least {whole:,}"
    return None


class _Reader:
    def __init__(self, content: memoryview) -> None:
        self._content = content
        self.position = len(MAGIC)

    def number(self, form: str, size: int) -> int:
        found: int = struct.unpack_from(form, self._content, self.position)[0]
        self.position += size
        return found

    def skip_values(self, count: int) -> int:
        """Returns the alignment of the tensors."""
        alignment = ALIGNMENT
        for _ in range(count):
            name, kind = self._text(), self.number("<I", 4)
            if name == b"general.alignment" and kind == 4:  # a number of 32 bits
                alignment = self.number("<I", 4) or ALIGNMENT
            else:
                self._skip_value(kind)
        return alignment

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
