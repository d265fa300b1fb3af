"""The forms of names in Margo, and of HTTP header fields that decide about an answer."""

import hashlib
import re
from functools import lru_cache
from typing import Final

from homeport.vocabulary import SITE_NAME_PATTERN, SiteName

UUID_PATTERN: Final = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
DEVICE_ID: Final = re.compile(r"[A-Za-z0-9._~-]+(?:/[A-Za-z0-9._~-]+)*")
DEVICE_ID_LENGTH_MAX: Final = 512
DEVICE_REFERENCE_PATTERN: Final = rf"^{DEVICE_ID.pattern}(?:/\*)?$"
"""In a deployment: a device, or `gateway/*` for a child that its gateway chooses."""
_NOT_IN_NAME: Final = re.compile(r"[^a-z0-9-]+")


def is_device_id(text: str) -> bool:
    return len(text) <= DEVICE_ID_LENGTH_MAX and DEVICE_ID.fullmatch(text) is not None


def gateway_of(device_id: str) -> str | None:
    """The first segment of a child's id; None for a device that is none. Segments between need not be devices."""
    gateway, _, child = device_id.partition("/")
    return gateway if child else None


@lru_cache(maxsize=16_384)
def site_of_client(client_id: str) -> SiteName:
    """The site that a client of this name is shown as. A name that cannot be a site's gets a readable form of its
    own, with a digest in it, so that two clients never share one."""
    if re.fullmatch(SITE_NAME_PATTERN, client_id):
        return SiteName(client_id)
    readable = _NOT_IN_NAME.sub("-", client_id.lower()).strip("-")[:50]
    suffix = hashlib.sha256(client_id.encode()).hexdigest()[:8]
    return SiteName(f"{readable}-{suffix}" if readable else f"client-{suffix}")


def is_not_modified(if_none_match: str, etag: str) -> bool:
    """Whether an If-None-Match field names the current ETag (RFC 9110 compares weakly here)."""
    if if_none_match == etag:
        return True
    if if_none_match.strip() == "*":
        return True
    return any(each.strip().removeprefix("W/") == etag for each in if_none_match.split(","))


def accepts(accept: str, media_type: str) -> bool:
    """Whether an Accept field allows this type. The most specific range decides, `q=0` refuses, and an empty list
    refuses nothing."""
    ranges = [item for item in accept.split(",") if item.strip()]
    kind = media_type.partition("/")[0]
    best, allowed = -1, not ranges
    for item in ranges:
        name, *parameters = [part.strip().lower() for part in item.split(";")]
        # Java's own HTTP client writes `*` where the rule says `*/*`.
        rank = {media_type: 2, f"{kind}/*": 1, "*/*": 0, "*": 0}.get(name, -1)
        if rank > best:
            best, allowed = rank, not any(_is_zero(each) for each in parameters)
    return allowed


def _is_zero(parameter: str) -> bool:
    name, _, value = parameter.partition("=")
    return name.strip() == "q" and re.fullmatch(r"0(\.0{0,3})?", value.strip()) is not None
