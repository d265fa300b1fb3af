"""Byte ranges: `Range` of a download, `Content-Range` of an uploaded part."""

import re
from typing import Final

from homeport.content.registry.errors import RegistryProblem, SpecCode

_ONE_RANGE: Final = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")
_PART: Final = re.compile(r"(?:bytes )?(\d{1,18})-(\d{1,18})(?:/(?:\d{1,18}|\*))?")


def requested(header: str | None, size: int) -> tuple[int, int] | None:
    """Offset and count of the requested part; None for all of it, also where several parts are requested or the
    header is invalid, as RFC 9110 permits. Raises RegistryProblem (416) where there are no such bytes."""
    found = None if header is None else _ONE_RANGE.fullmatch(header.strip())
    if found is None or not (found[1] or found[2]):
        return None
    if not found[1]:
        count = min(int(found[2]), size)
        first, last = size - count, size - 1
    else:
        first, last = int(found[1]), min(int(found[2] or size), size - 1)
        if found[2] and int(found[2]) < first:
            return None
    if first > last:
        raise RegistryProblem(
            SpecCode.SIZE_INVALID,
            f"The blob has {size} bytes, and {header} are none of them.",
            status=416,
            headers={"Content-Range": f"bytes */{size}"},
        )
    return first, last - first + 1


def uploaded(header: str | None, length: int | None) -> int | None:
    """The offset of a part; None where none is given, and it continues at the end. Raises RegistryProblem."""
    if header is None:
        return None
    found = _PART.fullmatch(header.strip())
    if found is None or int(found[2]) < int(found[1]):
        raise RegistryProblem(
            SpecCode.BLOB_UPLOAD_INVALID, f"Content-Range {header[:100]!r} is not FIRST-LAST.", status=416
        )
    first, last = int(found[1]), int(found[2])
    if length is not None and last - first + 1 != length:
        raise RegistryProblem(
            SpecCode.SIZE_INVALID, f"Content-Range {header[:100]!r} and Content-Length {length} do not agree."
        )
    return first


def received(size: int) -> str:
    """The `Range` of an upload. The specification cannot express an empty one; others write 0-0 too."""
    return f"0-{max(size - 1, 0)}"
