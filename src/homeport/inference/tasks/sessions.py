"""The sessions of this process, in memory: metadata only, swept when they expire."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from typing import Final

from homeport.core.inference.sessions import Budgets, Session
from homeport.core.inference.task import Task
from homeport.inference.tasks.shared_limits import SharedLimits

SESSIONS_MAX: Final = 50_000
_UNLIMITED: Final = Budgets()


class Sessions:
    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._sessions: OrderedDict[tuple[str, str], Session] = OrderedDict()
        """By caller and id, so that no caller sees or uses up another's; least recently used first."""
        self.shared: SharedLimits | None = None
        """Where several centrals serve the same sessions."""

    def find(self, caller: str, session_id: str) -> Session | None:
        self._sweep()
        return self._sessions.get((caller, session_id))

    def current(self, caller: str, session_id: str, budgets: Budgets = _UNLIMITED) -> Session:
        """Created on first use, and again where it has expired. Budgets only ever get smaller."""
        found = self.find(caller, session_id) or Session(session_id, self._monotonic())
        return found if budgets == _UNLIMITED else replace(found, budgets=found.budgets.at_most(budgets))

    def judged(self, caller: str, session: Session) -> Session:
        """As admission has to see it: also what tasks at other centrals may still spend is not free."""
        elsewhere = 0 if self.shared is None else self.shared.reserved_elsewhere(caller, session.id)
        return replace(session, reserved_tokens=session.reserved_tokens + elsewhere) if elsewhere else session

    def put(self, caller: str, session: Session) -> None:
        key = (caller, session.id)
        self._sessions[key] = session
        self._sessions.move_to_end(key)
        while len(self._sessions) > SESSIONS_MAX:
            self._sessions.popitem(last=False)

    def begin(self, caller: str, session: Session, max_tokens: int) -> None:
        """One more turn, at once: another task of the session may come before this one is durable."""
        self.put(caller, session.admitted(self._monotonic(), max_tokens))
        self._tell_reserved(caller, session.id)

    def withdraw(self, caller: str, session_id: str, max_tokens: int) -> None:
        """What was begun is not admitted after all. A session without any turn is gone."""
        self.change(caller, session_id, lambda session: session.withdrawn(max_tokens))
        self._tell_reserved(caller, session_id)
        if (found := self._sessions.get((caller, session_id))) is not None and not found.turns:
            del self._sessions[caller, session_id]

    def tell(self, caller: str, session: Session) -> None:
        """The other centrals, when its task is durable."""
        if self.shared is not None:
            self.shared.admitted(caller, session.id, session.budgets)

    def spend(self, caller: str, task: Task, tokens: int, time_ms: int) -> None:
        """A task has ended: what it has not used of what was reserved for it may be used by others."""
        session_id = task.session_id
        if self.shared is not None:
            self.shared.spent(caller, session_id, tokens, time_ms)
        self.change(caller, session_id, lambda session: session.released(task.max_tokens))
        self.spent(caller, session_id, tokens, time_ms)
        self._tell_reserved(caller, session_id)

    def admitted(self, caller: str, session_id: str, budgets: Budgets) -> None:
        """At another central."""
        self.put(caller, self.current(caller, session_id, budgets).admitted(self._monotonic()))

    def known(self, caller: str, session_id: str, turns: int, budgets: Budgets) -> None:
        """At another central, when this one has just started: what is left is the least that anybody knows."""
        found = self.current(caller, session_id, budgets)
        self.put(caller, replace(found, turns=max(found.turns, turns)))

    def everything(self) -> list[tuple[str, Session]]:
        return self.newest(None, SESSIONS_MAX)

    def _tell_reserved(self, caller: str, session_id: str) -> None:
        if self.shared is None:
            return
        found = self._sessions.get((caller, session_id))
        is_limited = found is not None and (found.budgets.tokens is not None or found.budgets.cost is not None)
        self.shared.reserves(caller, session_id, found.reserved_tokens if found is not None and is_limited else 0)

    def spent(self, caller: str, session_id: str, tokens: int, time_ms: int) -> None:
        """Here, or at another central."""
        self.change(caller, session_id, lambda session: session.spent(tokens, time_ms))

    def change(self, caller: str, session_id: str, change: Callable[[Session], Session]) -> None:
        found = self._sessions.get((caller, session_id))
        if found is not None:
            self._sessions[caller, session_id] = change(found)

    def newest(self, caller: str | None, limit: int) -> list[tuple[str, Session]]:
        """With whose they are, the most recently used first; of everybody where no caller is given."""
        self._sweep()
        found = ((key[0], each) for key, each in reversed(self._sessions.items()) if caller in (None, key[0]))
        return list(islice(found, limit))

    def touch(self, caller: str, session_id: str) -> bool:
        found = self.find(caller, session_id)
        if found is not None:
            self.put(caller, replace(found, touched_at=self._monotonic()))
        return found is not None

    def delete(self, caller: str, session_id: str) -> None:
        if self.shared is not None:
            self.shared.deleted(caller, session_id)
        self.deleted(caller, session_id)
        self._tell_reserved(caller, session_id)

    def deleted(self, caller: str, session_id: str) -> None:
        """Here, or at another central."""
        self._sessions.pop((caller, session_id), None)

    def _sweep(self) -> None:
        now = self._monotonic()
        while self._sessions:
            key, oldest = next(iter(self._sessions.items()))
            if not oldest.is_expired(now):
                return
            del self._sessions[key]
