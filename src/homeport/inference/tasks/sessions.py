"""The sessions of this process, in memory: metadata only, swept when they expire."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from typing import Final

from homeport.core.inference.sessions import Budgets, Session
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

    def put(self, caller: str, session: Session) -> None:
        key = (caller, session.id)
        self._sessions[key] = session
        self._sessions.move_to_end(key)
        while len(self._sessions) > SESSIONS_MAX:
            self._sessions.popitem(last=False)

    def admit(self, caller: str, session: Session) -> None:
        """One more turn."""
        if self.shared is not None:
            self.shared.admitted(caller, session.id, session.budgets)
        self.put(caller, session.admitted(self._monotonic()))

    def spend(self, caller: str, session_id: str, tokens: int, time_ms: int) -> None:
        if self.shared is not None:
            self.shared.spent(caller, session_id, tokens, time_ms)
        self.spent(caller, session_id, tokens, time_ms)

    def admitted(self, caller: str, session_id: str, budgets: Budgets) -> None:
        """At another central."""
        self.put(caller, self.current(caller, session_id, budgets).admitted(self._monotonic()))

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
