"""What the cache decides: which content to evict, when to retry a broken download, when to serve what is known, and
whether a node may fetch by itself. Pure."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from homeport.content.registry.manifests import OciManifest
from homeport.core.values.backoff import BackoffPolicy
from homeport.errors import (
    DigestMismatch,
    HomeportError,
    InvalidInput,
    NotFound,
    PeerUnavailable,
    QuotaExceeded,
    Refused,
    TooLarge,
    TransientError,
)
from homeport.lazy_dataclass import dataclass
from homeport.ports import StoredBlob
from homeport.vocabulary import Digest

FAILURES_MAX: Final = 7
"""How often in a row a download may fail without progress: half a minute, by the waits below."""
PROGRESS_BYTES_MIN: Final = 64 * 1024
"""What an attempt must bring to count as progress, or a byte at a time would be an endless download."""
RETRY: Final = BackoffPolicy(first_seconds=0.25, max_seconds=15.0)
ASKED_SECONDS_MAX: Final = 60.0
"""How long a requested wait (Retry-After) may be; after a longer one the order of the node is retried instead."""


@dataclass(frozen=True, slots=True)
class Eviction:
    digests: tuple[Digest, ...]
    freed_bytes: int
    is_enough: bool


def choose_evictions(
    blobs: Sequence[StoredBlob], *, protected: Collection[Digest], needed_bytes: int, free_bytes: int
) -> Eviction:
    """The least recently used content that makes room for `needed_bytes`. Nothing is evicted where even all of it
    would not be enough: that would cost content and free too little."""
    missing = needed_bytes - free_bytes
    if missing <= 0:
        return Eviction((), 0, is_enough=True)
    chosen: list[Digest] = []
    freed = 0
    for blob in sorted((each for each in blobs if each.digest not in protected), key=lambda each: each.at):
        chosen.append(blob.digest)
        freed += blob.size_bytes
        if freed >= missing:
            return Eviction(tuple(chosen), freed, is_enough=True)
    return Eviction((), 0, is_enough=False)


def with_dependencies(roots: Collection[Digest], manifests: Mapping[Digest, OciManifest]) -> frozenset[Digest]:
    """The digests, and all that the manifests among them refer to."""
    found: set[Digest] = set()
    open_ends = list(roots)
    while open_ends:
        digest = open_ends.pop()
        if digest in found:
            continue
        found.add(digest)
        if digest in manifests:
            open_ends += [*manifests[digest].manifests, *manifests[digest].blobs]
    return frozenset(found)


def failures_after(failures: int, arrived_bytes: int) -> int:
    """How many attempts in a row have failed, after one more that brought so many bytes."""
    return 1 if arrived_bytes >= PROGRESS_BYTES_MIN else failures + 1


def retry_seconds(error: HomeportError, failures: int) -> float | None:
    """How long to wait before a download is resumed; None to give up. `failures` counts those since the last
    progress."""
    if not isinstance(error, PeerUnavailable) or failures >= FAILURES_MAX:
        return None
    asked = error.retry_after_seconds
    if asked != PeerUnavailable.retry_after_seconds:
        return asked if asked <= ASKED_SECONDS_MAX else None
    return RETRY.ceiling_seconds(failures)


def may_serve_known(error: HomeportError) -> bool:
    """Whether the known manifest of a tag is served instead of the error. An expired login or a registry that is down
    must not stop a rollback; a tag that was deleted is deleted."""
    return isinstance(error, TransientError | Refused)


def may_fetch_directly(error: HomeportError, *, is_known_host: bool) -> bool:
    """Whether a node should let its engine try where the site failed: it may have a login, a mirror or a route that
    the site lacks. Not after an interruption of a registry that the site does reach: then every node would download
    by itself what the site is about to have."""
    if isinstance(error, DigestMismatch | NotFound):
        return False
    if isinstance(error, Refused | QuotaExceeded | TooLarge):
        return True
    if isinstance(error, InvalidInput):
        return False
    return isinstance(error, PeerUnavailable) and not is_known_host
