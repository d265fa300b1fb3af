"""What keys and sessions use at the other centrals of one database, so that limits and budgets hold for all together.

Each central says on the bus what it admitted, reserved, runs and spent: at once, and then at most every
FLUSH_SECONDS. So a limit can be passed by what arrives elsewhere within that time and the bus's own, and by no more.
A central that starts, or that has missed messages, asks the others for the sessions that they know. One that is
silent for longer than it may be reserves and runs nothing any more.
"""

import secrets
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Final

import anyio

from homeport.core.inference.sessions import Budgets, Session
from homeport.lazy_dataclass import dataclass
from homeport.ports import Bus

TOPIC: Final = "inference.limits"
FLUSH_SECONDS: Final = 0.05
REPEAT_SECONDS: Final = 5.0
"""How often a central repeats what it runs; one that was silent for three times as long runs nothing."""
CHANGES_MAX: Final = 500
"""In one message; the rest follows in the next."""
WAITING_MAX: Final = 20_000
OWNERS_MAX: Final = 100
SessionKey = tuple[str, str]
"""Whose it is, and its id."""


@dataclass(slots=True)
class _Elsewhere:
    running: Mapping[str, int]
    at: float
    reserved: dict[SessionKey, int] = field(default_factory=dict)
    """Tokens of sessions with a budget, for tasks under way there."""


@dataclass(slots=True)
class SharedLimits:
    bus: Bus
    monotonic: Callable[[], float]
    on_submitted: Callable[[str, int], None]
    """A key has submitted so often elsewhere."""
    on_admitted: Callable[[str, str, Budgets], None]
    """A session has had a turn elsewhere, with these budgets."""
    on_spent: Callable[[str, str, int, int], None]
    """A session has used tokens and milliseconds elsewhere."""
    on_deleted: Callable[[str, str], None]
    on_known: Callable[[str, str, int, Budgets], None]
    """Another central knows a session with so many turns, and with this left of its budgets."""
    on_freed: Callable[[], None]
    """Fewer tasks run elsewhere."""
    sessions: Callable[[], list[tuple[str, Session]]] = list
    """Those of this central, with whose they are: for one that asks."""
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    _submitted: Counter[str] = field(default_factory=Counter)
    _running: Counter[str] = field(default_factory=Counter)
    _sessions: deque[list[Any]] = field(default_factory=lambda: deque(maxlen=WAITING_MAX))
    _reserved: dict[SessionKey, int] = field(default_factory=dict)
    _untold: dict[SessionKey, int] = field(default_factory=dict)
    """Reservations that the others do not know yet."""
    _asked_for: deque[list[Any]] = field(default_factory=lambda: deque(maxlen=WAITING_MAX))
    """Sessions for a central that has asked."""
    _asks: bool = True
    """What the others know is not known here."""
    _elsewhere: dict[str, _Elsewhere] = field(default_factory=dict)
    _changed: anyio.Event = field(default_factory=anyio.Event)

    # --- what happens here ------------------------------------------------------------------------------------

    def submitted(self, key: str) -> None:
        self._submitted[key] += 1
        self._changed.set()

    def runs(self, key: str, count: int) -> None:
        """How many tasks of the key run here now."""
        if count:
            self._running[key] = count
        else:
            self._running.pop(key, None)
        self._changed.set()

    def admitted(self, key: str, session_id: str, budgets: Budgets) -> None:
        self._sessions.append([key, session_id, budgets.tokens, budgets.time_ms, budgets.cost])
        self._changed.set()

    def spent(self, key: str, session_id: str, tokens: int, time_ms: int) -> None:
        self._sessions.append([key, session_id, tokens, time_ms])
        self._changed.set()

    def deleted(self, key: str, session_id: str) -> None:
        self._sessions.append([key, session_id])
        self._changed.set()

    def reserves(self, key: str, session_id: str, tokens: int) -> None:
        """So many tokens of the session are kept for tasks that are under way here."""
        if self._reserved.get((key, session_id), 0) == tokens:
            return
        if tokens:
            self._reserved[key, session_id] = tokens
        else:
            self._reserved.pop((key, session_id), None)
        self._untold[key, session_id] = tokens
        self._changed.set()

    # --- what happens elsewhere -------------------------------------------------------------------------------

    def running_elsewhere(self, key: str) -> int:
        return sum(each.running.get(key, 0) for each in self._alive())

    def reserved_elsewhere(self, key: str, session_id: str) -> int:
        return sum(each.reserved.get((key, session_id), 0) for each in self._alive())

    def _alive(self) -> list[_Elsewhere]:
        oldest = self.monotonic() - 3 * REPEAT_SECONDS
        return [each for each in self._elsewhere.values() if each.at >= oldest]

    def take(self, message: Mapping[str, Any]) -> None:
        """A message of another central; one of another release that cannot be read is passed over."""
        try:
            owner, running = str(message["by"]), {str(key): int(n) for key, n in message["running"].items()}
            submitted = {str(key): int(n) for key, n in message["submitted"].items()}
            sessions = [tuple(each) for each in message["sessions"]]
            reserved = [tuple(each) for each in message.get("reserved", ())]
            known = [tuple(each) for each in message.get("known", ())]
        except (LookupError, TypeError, ValueError, AttributeError):
            return
        if owner == self.id:
            return
        for key, count in submitted.items():
            self.on_submitted(key, count)
        for change in sessions:
            self._take_session(change)
        for each in known:
            self._take_known(each)
        before = self._elsewhere.get(owner)
        if before is None and len(self._elsewhere) >= OWNERS_MAX:
            del self._elsewhere[min(self._elsewhere, key=lambda each: self._elsewhere[each].at)]
        now = self.monotonic()
        is_back = before is not None and before.at >= now - 3 * REPEAT_SECONDS
        kept = before.reserved if before is not None and is_back else {}
        self._elsewhere[owner] = _Elsewhere(running, now, _reserved_after(kept, reserved))
        if message.get("asks") is True:
            self._answer()
        if before is not None and any(running.get(key, 0) < count for key, count in before.running.items()):
            self.on_freed()

    def _take_session(self, change: tuple[Any, ...]) -> None:
        match change:
            case (str(key), str(session_id)):
                self.on_deleted(key, session_id)
            case (str(key), str(session_id), int(tokens), int(time_ms)):
                self.on_spent(key, session_id, max(0, tokens), max(0, time_ms))
            case (str(key), str(session_id), tokens, time_ms, cost) if _are_budgets(tokens, time_ms, cost):
                self.on_admitted(key, session_id, Budgets(tokens, time_ms, cost))

    def _take_known(self, session: tuple[Any, ...]) -> None:
        match session:
            case (str(key), str(session_id), int(turns), tokens, time_ms, cost) if _are_budgets(
                tokens, time_ms, cost
            ):
                self.on_known(key, session_id, turns, Budgets(tokens, time_ms, cost))

    def _answer(self) -> None:
        """Everything, for a central that has just started or has missed something."""
        self._asked_for.extend(
            [caller, each.id, each.turns, each.budgets.tokens, each.budgets.time_ms, each.budgets.cost]
            for caller, each in self.sessions()
        )
        self._untold.update(self._reserved)
        self._changed.set()

    def _missed(self) -> None:
        self._asks = True
        self._changed.set()

    # --- loop -------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        forget = self.bus.subscribe(TOPIC, self.take, on_gap=self._missed)
        self._changed.set()
        try:
            while True:
                is_alone = not (self._running or self._reserved or self._elsewhere)
                with anyio.move_on_after(None if is_alone else REPEAT_SECONDS):
                    await self._changed.wait()
                self._changed = anyio.Event()
                self._publish()
                await anyio.sleep(FLUSH_SECONDS)
        finally:
            forget()

    def _publish(self) -> None:
        submitted, self._submitted = self._submitted, Counter()
        sessions, known = _first(self._sessions), _first(self._asked_for)
        reserved = [[*each, self._untold.pop(each)] for each in list(self._untold)[:CHANGES_MAX]]
        if self._sessions or self._asked_for or self._untold:
            self._changed.set()
        running = dict(self._running)
        message: dict[str, Any] = {
            "by": self.id,
            "submitted": dict(submitted),
            "running": running,
            "sessions": sessions,
            "reserved": reserved,
            "known": known,
        }
        if self._asks:
            message["asks"], self._asks = True, False
        self.bus.publish(TOPIC, message)
        if not running and self._elsewhere:
            oldest = self.monotonic() - 3 * REPEAT_SECONDS
            gone = [owner for owner, each in self._elsewhere.items() if each.at < oldest]
            for owner in gone:
                del self._elsewhere[owner]
            if gone:
                self.on_freed()


def _are_budgets(*left: Any) -> bool:
    return all(each is None or isinstance(each, int | float) for each in left)


def _first(waiting: deque[list[Any]]) -> list[list[Any]]:
    return [waiting.popleft() for _ in range(min(len(waiting), CHANGES_MAX))]


def _reserved_after(before: dict[SessionKey, int], changes: list[tuple[Any, ...]]) -> dict[SessionKey, int]:
    """Each change says how much it is now. What cannot be read is passed over."""
    for change in changes:
        match change:
            case (str(key), str(session_id), int(tokens)) if tokens > 0 and len(before) < WAITING_MAX:
                before[key, session_id] = tokens
            case (str(key), str(session_id), int()):
                before.pop((key, session_id), None)
    return before
