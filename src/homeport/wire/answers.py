"""A site's reply to a request of central: what it answers, or the error with which it refuses."""

from collections.abc import Mapping
from typing import Any, Final

from homeport.errors import Conflict, HomeportError, InvalidInput, NotFound, PeerUnavailable, Refused, UnknownKind

Answer = Mapping[str, Any]

_ERRORS: Final[Mapping[str, type[HomeportError]]] = {
    kind.code: kind for kind in (NotFound, Refused, Conflict, InvalidInput, UnknownKind)
}


def encode_error(error: HomeportError) -> Answer:
    return {"problem": {"code": error.code, "detail": str(error), "hint": error.hint}}


def raise_error(answer: Answer) -> Answer:
    """The answer; raises the site's error if it is one."""
    problem = answer.get("problem")
    if problem is None:
        return answer
    fields = problem if isinstance(problem, dict) else {}
    kind, hint = _ERRORS.get(str(fields.get("code")), PeerUnavailable), fields.get("hint")
    raise kind(str(fields.get("detail") or "The site could not do it."), hint=None if hint is None else str(hint))
