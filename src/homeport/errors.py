"""Every error says what happens next.

HomeportError
├── TransientError           try again, after .retry_after_seconds
│   ├── GitUnavailable         the deployments repository cannot be reached, or refuses the push
│   ├── PeerUnavailable        another role cannot be reached
│   ├── EngineUnavailable      the container engine does not answer
│   └── TooManyAttempts        too many wrong tokens: .retry_after_seconds says how long to wait
├── PermanentError           a person or a new commit must change something; shown, not retried
│   ├── InvalidInput           .problems: each with field, message and, for YAML, file and line
│   ├── NotFound
│   ├── Conflict               the thing exists already, or a name means two things
│   ├── TooLarge
│   ├── Refused                not allowed as things are configured
│   │   ├── Unauthenticated      nobody knows who asks: no token, or one that is not valid
│   │   └── NotAuthorized        it is known who asks, and it is not theirs to ask: .target
│   └── WorkFailed             .code: a component could not be installed or removed
└── InvariantViolated        our bug: end the role, keep the evidence
    └── IllegalTransition      no row of the lifecycle table allows it; nothing has changed
"""

from collections.abc import Sequence
from dataclasses import dataclass

from homeport.vocabulary import Code


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with an input: which field, what is wrong with it, and where it stands."""

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
    """What the reader can do about it, as one sentence; None where the message already says so."""
    is_recorded = False
    """Whether the audit trail has it already, from whoever raised it."""

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


class EngineUnavailable(TransientError):
    """The container engine does not answer."""

    code = "engine-unavailable"


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


class NotFound(PermanentError):
    """There is no such thing."""

    code = "not-found"


class Conflict(PermanentError):
    """It conflicts with what is there."""

    code = "conflict"


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
        """What they wanted to touch, for the audit trail."""


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
