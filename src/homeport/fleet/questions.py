"""Asks a site something and waits for its answer. Central never dials a site: the question goes down the stream that
the site keeps open, the answer comes back as a call of the site.

Only the site that was asked may answer, once, while somebody still waits.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import anyio

from homeport.errors import Conflict, HomeportError, InvalidInput, NotFound, PeerUnavailable, Refused
from homeport.fleet.calls import Calls
from homeport.ports import Ids, NodeIdentities
from homeport.vocabulary import SiteName

ANSWER_SECONDS_MAX: Final = 10.0
Answer = Mapping[str, Any]


@dataclass(slots=True)
class _Waiting:
    site: SiteName
    done: anyio.Event = field(default_factory=anyio.Event)
    answer: Answer | None = None


class Questions:
    def __init__(self, calls: Calls, ids: Ids) -> None:
        self._calls = calls
        self._ids = ids
        self._waiting: dict[str, _Waiting] = {}

    async def node_identities(self, site: SiteName, step: str, name: str, by: str) -> Answer:
        """Lists, approves or removes the nodes' identities of a site. Raises what the site raised."""
        question, waiting = self._ids.new(), _Waiting(site)
        self._waiting[question] = waiting
        try:
            if not self._calls.ask(site, NodeIdentities(question, step, name, by)):
                raise PeerUnavailable(
                    f"Site {site} is not connected, and only it decides about its nodes.",
                    hint="Try again when it is back, or ask the site itself with --url.",
                )
            with anyio.move_on_after(ANSWER_SECONDS_MAX):
                await waiting.done.wait()
        finally:
            del self._waiting[question]
        if waiting.answer is None:
            raise PeerUnavailable(f"Site {site} was asked and has not answered in time.", hint="Look, and try again.")
        return understood(waiting.answer)

    def answered(self, site: SiteName, question: str, answer: Answer) -> None:
        waiting = self._waiting.get(question)
        if waiting is None or waiting.site != site:
            raise NotFound("Nobody waits for this answer.")
        waiting.answer = answer
        waiting.done.set()


_KINDS: Final[Mapping[str, type[HomeportError]]] = {
    kind.code: kind for kind in (NotFound, Refused, Conflict, InvalidInput)
}


def refusal(error: HomeportError) -> Answer:
    """How a site says what went wrong."""
    return {"problem": {"code": error.code, "detail": str(error), "hint": error.hint}}


def understood(answer: Answer) -> Answer:
    problem = answer.get("problem")
    if problem is None:
        return answer
    said = problem if isinstance(problem, dict) else {}
    kind, hint = _KINDS.get(str(said.get("code")), PeerUnavailable), said.get("hint")
    raise kind(str(said.get("detail") or "The site could not do it."), hint=None if hint is None else str(hint))
