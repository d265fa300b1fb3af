"""Every error says what happens next.

HomeportError
├── TransientError           try again, after .retry_after_seconds
│   ├── GitUnavailable         the deployments repository cannot be reached, or refuses the push
│   ├── PeerUnavailable        another role cannot be reached
│   │   └── PeerIncompatible     it is too many releases older or newer; a person must upgrade one of the two
│   ├── EngineUnavailable      the container engine does not answer
│   ├── LeaseLost              another process has taken over this work
│   ├── QueueFull              too much work waits already; .retry_after_seconds
│   ├── StorageFull            a disk or a quota is full; retried when there is space
│   │   └── QuotaExceeded        our own limit is reached, though the disk may have space
│   ├── StorageReadOnly        a disk refuses writes
│   └── TooManyAttempts        too many wrong tokens: .retry_after_seconds says how long to wait
├── PermanentError           a person or a new commit must change something; shown, not retried
│   ├── InvalidInput           .problems: each with field, message and, for YAML, file and line
│   │   └── DigestMismatch       content that arrived is not what its digest says
│   ├── NotFound
│   ├── Conflict               the thing exists already, or a name is ambiguous
│   │   ├── UploadBusy           another request is adding to this upload
│   │   └── OffsetMismatch       an upload continues at .expected, not where this part begins
│   ├── TooLarge
│   ├── Refused                not allowed by the configuration
│   │   ├── Unauthenticated      no token, or an invalid one
│   │   ├── NotAuthorized        the caller is authenticated, but lacks the right: .target
│   │   └── FetchDirectly        a site cannot fetch this content; its node may try by itself
│   ├── NoNodeFits             no node can run it: the message says what each of them lacks
│   ├── UnknownKind            an older role does not know this kind of message
│   ├── BadAnswer              the reply of another role cannot be read; upgrade one of the two
│   └── WorkFailed             .code: a component could not be installed or removed
└── InvariantViolated        our bug: end the role, keep the evidence
    └── IllegalTransition      no row of the lifecycle table allows it; nothing has changed
"""

import os
import socket
from collections.abc import Sequence

from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import Code


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem of an input: the field, what is wrong with it, and its file and line."""

    field: str
    message: str
    path: str | None = None
    line: int | None = None

    def __str__(self) -> str:
        place = f"{self.path}:{self.line}  " if self.path and self.line else f"{self.path}  " if self.path else ""
        return f"{place}{self.field}: {self.message}" if self.field else f"{place}{self.message}"


class HomeportError(Exception):
    """Something went wrong."""

    code = "error"
    hint: str | None = None
    """What the reader can do, as one sentence; None where the message already says so."""
    is_recorded = False
    """Whether it was already recorded in the audit trail where it was raised."""

    def __init__(self, message: str | None = None, *, hint: str | None = None) -> None:
        super().__init__(message or self.__doc__ or self.code)
        if hint is not None:
            self.hint = hint


class TransientError(HomeportError):
    """It may work when tried again."""

    code = "transient"
    retry_after_seconds: float = 5.0


class GitUnavailable(TransientError):
    """The Git repository cannot be reached."""

    code = "git-unavailable"


class PeerUnavailable(TransientError):
    """The other side cannot be reached."""

    code = "peer-unavailable"


class PeerIncompatible(PeerUnavailable):
    """The other side is too many releases older or newer."""

    code = "version-skew"
    retry_after_seconds = 60.0


class EngineUnavailable(TransientError):
    """The container engine does not answer."""

    code = "engine-unavailable"


class LeaseLost(TransientError):
    """Another process has taken over this work."""

    code = "lease-lost"


class QueueFull(TransientError):
    """Too much work waits already."""

    code = "queue-full"
    hint = "Try again when some of it is done."


class StorageFull(TransientError):
    """A disk is full."""

    code = "storage-full"
    hint = "Free some space; no restart is needed."
    retry_after_seconds = 30.0


class QuotaExceeded(StorageFull):
    """The quota is used up."""

    code = "quota-exceeded"
    hint = "Delete what is not needed any more, or raise the quota."


class StorageReadOnly(TransientError):
    """A disk is read-only."""

    code = "storage-read-only"
    hint = "Mount it for writing, or look at what its errors are; no restart is needed."
    retry_after_seconds = 30.0


class TooManyAttempts(TransientError):
    """Too many wrong access tokens came from this address."""

    code = "too-many-attempts"

    def __init__(self, message: str | None = None, *, retry_after_seconds: float, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.retry_after_seconds = retry_after_seconds


class PermanentError(HomeportError):
    """It will not work until something is changed."""

    code = "permanent"


class InvalidInput(PermanentError):
    """The input is not valid."""

    code = "invalid-input"

    def __init__(
        self, message: str | None = None, *, problems: Sequence[Problem] = (), hint: str | None = None
    ) -> None:
        self.problems = tuple(problems)
        super().__init__(message or "; ".join(str(problem) for problem in self.problems) or None, hint=hint)


class NotPlaceable(InvalidInput):
    """No device can take the deployment."""

    code = "not-placeable"


class DigestMismatch(InvalidInput):
    """The content does not match its digest."""

    code = "digest-mismatch"


class NotFound(PermanentError):
    """It does not exist."""

    code = "not-found"


class Conflict(PermanentError):
    """It conflicts with what is there."""

    code = "conflict"


class UploadBusy(Conflict):
    """Another request is adding to this upload."""

    code = "upload-busy"


class OffsetMismatch(Conflict):
    """The part does not begin where the upload ends."""

    code = "offset-mismatch"

    def __init__(self, *, given: int, expected: int) -> None:
        super().__init__(f"The upload has {expected} bytes, and the part that was sent begins at {given}.")
        self.expected = expected


class TooLarge(PermanentError):
    """It is larger than what is accepted."""

    code = "too-large"


class Refused(PermanentError):
    """It is not allowed."""

    code = "refused"


class Unauthenticated(Refused):
    """This needs an access token."""

    code = "unauthenticated"


class NotAuthorized(Refused):
    """It is not for this caller to do."""

    code = "not-authorized"

    def __init__(self, message: str | None = None, *, target: str = "", hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.target = target
        """What the caller tried to access, for the audit trail."""


class FetchDirectly(Refused):
    """The site cannot fetch this content for its nodes."""

    code = "fetch-directly"


class NoNodeFits(PermanentError):
    """No node can run it."""

    code = "no-node-fits"


class UnknownKind(PermanentError):
    """The other side does not know this kind of message."""

    code = "unknown-kind"


class BadAnswer(PermanentError):
    """Another role answered what cannot be read."""

    code = "bad-answer"
    hint = "Compare the versions in  homeport sites show  and upgrade the older side."


class WorkFailed(PermanentError):
    """Work on a node failed."""

    def __init__(self, code: Code, message: str, *, source: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.source = source
        """The component the failure belongs to; empty for the deployment as a whole."""


class InvariantViolated(HomeportError):
    """This cannot happen. It is a fault in Homeport."""

    code = "invariant-violated"


class IllegalTransition(InvariantViolated):
    """The lifecycle table has no such row."""

    code = "illegal-transition"


def system_reason(error: OSError) -> str:
    """What the operating system says, without what Python adds to it ("error while attempting to bind on …")."""
    if error.errno is None or isinstance(error, socket.gaierror):
        return error.strerror or str(error)
    return os.strerror(error.errno)
