"""What a node and its site agree on for pulling content over HTTP, beyond the Distribution specification; and what
central announces its registry to a site."""

import json
from typing import Final

from homeport.errors import FetchDirectly, HomeportError, NotFound, Refused, TransientError
from homeport.lazy_dataclass import dataclass
from homeport.ports import ContentFile
from homeport.vocabulary import Digest

FOLDER: Final = "/content"
"""Where a site serves content, as a registry for reading: /content/v2/…"""
FILES: Final = "/content/files"
"""Which content a file of the web is (?source=): lines of JSON with how far its download is, the last with the
outcome. The content itself is at /content/files/blobs/DIGEST?source=."""
DIRECT: Final = "homeport-direct"
"""A response header: the node may fetch this by itself."""
USER: Final = "homeport-user"
"""A request header: what needs the content."""
RETRY_SECONDS_MAX: Final = 300.0
REGISTRY_TOPIC: Final = "content.registry"
USAGE_TOPIC: Final = "content.usage"


@dataclass(frozen=True, slots=True)
class RegistryLocation:
    host: str
    """`host:port`; empty where central serves none."""
    is_tls: bool


def encode_registry(registry: RegistryLocation) -> bytes:
    return json.dumps({"host": registry.host, "tls": registry.is_tls}).encode()


def decode_registry(content: bytes) -> RegistryLocation:
    """Raises ValueError."""
    match json.loads(content):
        case {"host": str(host), "tls": bool(is_tls)}:
            return RegistryLocation(host, is_tls)
    raise ValueError("it names no host")


@dataclass(frozen=True, slots=True)
class FileProgress:
    done_bytes: int
    total_bytes: int
    """0 while unknown."""


@dataclass(frozen=True, slots=True)
class FileRefusal:
    status: int
    message: str
    is_direct: bool
    retry_after_seconds: float


def encode_progress(progress: FileProgress) -> bytes:
    return json.dumps({"done": progress.done_bytes, "total": progress.total_bytes}).encode() + b"\n"


def encode_file(file: ContentFile) -> bytes:
    document = {"name": file.name, "digest": file.digest, "size_bytes": file.size_bytes}
    return json.dumps(document).encode() + b"\n"


def encode_refusal(error: HomeportError) -> bytes:
    document = {
        "status": status_of(error),
        "message": f"{error} {error.hint or ''}".strip(),
        "direct": isinstance(error, FetchDirectly),
        "retry_after": error.retry_after_seconds if isinstance(error, TransientError) else 0.0,
    }
    return json.dumps(document).encode() + b"\n"


def decode_file_line(line: bytes) -> FileProgress | ContentFile | FileRefusal:
    """Raises ValueError."""
    match json.loads(line):
        case {"done": int(done), "total": int(total)}:
            return FileProgress(done, total)
        case {"name": str(name), "digest": str(digest), "size_bytes": int(size)}:
            return ContentFile(name, Digest(digest), size)
        case {"status": int(status), "message": str(message), "direct": bool(direct), "retry_after": float(seconds)}:
            return FileRefusal(status, message[:500], direct, min(max(seconds, 0.0), RETRY_SECONDS_MAX))
    raise ValueError("it is none of the lines about a file")


def status_of(error: HomeportError) -> int:
    """The status by which a site, and a node to its engine, refuses a request for content."""
    if isinstance(error, NotFound):
        return 404
    if isinstance(error, Refused):
        return 403
    return 503 if isinstance(error, TransientError) else 502


def refusal_body(code: str, error: HomeportError) -> bytes:
    """In the format of registries; container engines show the message."""
    message = f"{error} {error.hint or ''}".strip()
    return json.dumps({"errors": [{"code": code, "message": message, "detail": {}}]}).encode()
