"""What the task plane keeps in the database: tasks until they have ended (and their outcome for a while), artifacts,
and usage by key."""

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from homeport.lazy_dataclass import dataclass

TASKS_KEPT_MAX: Final = 20_000
ARTIFACTS_KEPT_MAX: Final = 20_000
ARTIFACT_BYTES_KEPT_MAX: Final = 1024**3
"""Of all keys together. Beyond either bound, the keys that have most lose their oldest."""


class TaskState(StrEnum):
    QUEUED = "queued"
    STARTED = "started"
    """Its client may have seen tokens: it is not run again."""
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTask:
    id: str
    caller: str
    """Who pays: a token's id, or the name of a local user."""
    digest: str
    """Of the request's body: the same again replays the answer, another one is a conflict."""
    state: TaskState
    body: str
    """The request, as JSON; empty once the task has ended."""
    answer: str
    outcome: str = ""
    """JSON of how it ended, and why it ran where it ran."""
    at: datetime


@dataclass(frozen=True, slots=True)
class StoredArtifact:
    id: str
    """SHA-256 of the document."""
    kind: str
    created_ms: int
    tags: tuple[str, ...]
    document: Mapping[str, Any]
    owner: str = ""
    """The key that posted it, or whose task it was; everybody may read what has none."""
    size_bytes: int = field(default=0, compare=False)
    """Of the document; 0 for one that was read from the database."""


@dataclass(frozen=True, slots=True)
class Usage:
    caller: str
    day: str
    """As 2030-01-31, in UTC."""
    model: str
    requests: int = 0
    tokens_in: int = 0
    tokens_out: int = 0

    def plus(self, other: "Usage") -> "Usage":
        return replace(
            self,
            requests=self.requests + other.requests,
            tokens_in=self.tokens_in + other.tokens_in,
            tokens_out=self.tokens_out + other.tokens_out,
        )


def fair_share(amounts: Iterable[int], most: int) -> int:
    """How much each may keep at most, so that all together keep at most `most`: who has little keeps all of it."""
    waiting = sorted(amounts)
    left = most
    for number, amount in enumerate(waiting):
        share = left // (len(waiting) - number)
        if amount > share:
            return share
        left -= amount
    return most


def kept_of(sizes: Iterable[int], *, count_share: int, bytes_share: int) -> int:
    """How many of a key's artifacts, the newest first, are within its share."""
    kept = total = 0
    for size in sizes:
        total += size
        if kept >= count_share or total > bytes_share:
            break
        kept += 1
    return kept
