"""Sessions: how long they live, how many turns they take, and their budgets. Metadata only: no text is kept."""

from dataclasses import replace
from typing import Any, Final, TypeVar

from homeport.core.inference.task import Refusal, Task, TaskCode
from homeport.lazy_dataclass import dataclass

N = TypeVar("N", int, float)
TTL_MS: Final = 600_000
TURNS_MAX: Final = 8
COST_PER_TOKEN: Final = 0.000002


@dataclass(frozen=True, slots=True)
class Budgets:
    """None: unlimited."""

    tokens: int | None = None
    time_ms: int | None = None
    cost: float | None = None

    def at_most(self, other: "Budgets") -> "Budgets":
        """The smaller of each."""
        return Budgets(
            _smaller(self.tokens, other.tokens),
            _smaller(self.time_ms, other.time_ms),
            _smaller(self.cost, other.cost),
        )


@dataclass(frozen=True, slots=True)
class Session:
    id: str
    touched_at: float
    """Seconds of a monotonic clock."""
    turns: int = 0
    kv_warmth: bool = False
    replica: tuple[str, str] | None = None
    budgets: Budgets = Budgets()
    reserved_tokens: int = 0
    """Of tasks under way, which may still spend them."""

    def ttl_ms_remaining(self, now: float) -> int:
        return max(0, TTL_MS - int((now - self.touched_at) * 1000))

    def is_expired(self, now: float) -> bool:
        return now - self.touched_at >= TTL_MS / 1000

    def admitted(self, now: float, max_tokens: int = 0) -> "Session":
        # For every task: `replace` takes four times as long.
        return Session(
            self.id,
            now,
            self.turns + 1,
            self.kv_warmth,
            self.replica,
            self.budgets,
            self.reserved_tokens + max_tokens,
        )

    def withdrawn(self, max_tokens: int) -> "Session":
        """As if the task had never been admitted."""
        return replace(self.released(max_tokens), turns=max(0, self.turns - 1))

    def released(self, max_tokens: int) -> "Session":
        return replace(self, reserved_tokens=max(0, self.reserved_tokens - max_tokens))

    def first_token(self, replica: tuple[str, str]) -> "Session":
        return replace(self, kv_warmth=True, replica=replica)

    def failed_over(self) -> "Session":
        """The cache does not move with it."""
        return replace(self, kv_warmth=False, replica=None)

    def spent(self, tokens: int, time_ms: int) -> "Session":
        left = self.budgets
        return replace(
            self,
            budgets=Budgets(
                None if left.tokens is None else max(0, left.tokens - tokens),
                None if left.time_ms is None else max(0, left.time_ms - time_ms),
                None if left.cost is None else max(0.0, left.cost - tokens * COST_PER_TOKEN),
            ),
        )

    def to_data(self, now: float, *, kv_bytes: int | None) -> dict[str, Any]:
        """`kv_bytes` is what its engine keeps for it; None where the engine does not say."""
        known = {"ttl_ms_remaining": self.ttl_ms_remaining(now), "turns": self.turns, "kv_bytes": kv_bytes}
        return {**known, **self.signals()}

    def signals(self) -> dict[str, Any]:
        """What a stream of metrics says of it."""
        left = self.budgets
        return {
            "kv_warmth": self.kv_warmth,
            "tokens_budget_remaining": left.tokens,
            "time_budget_remaining_ms": left.time_ms,
            "cost_budget_remaining": left.cost,
        }


def _smaller(one: N | None, other: N | None) -> N | None:
    given = [each for each in (one, other) if each is not None]
    return min(given) if given else None


def refusal(session: Session, task: Task) -> Refusal | None:
    """Turns, then budgets. An expired session is not refused: it starts again."""
    if session.turns >= TURNS_MAX:
        return _invalid(
            f"The session has had its {TURNS_MAX} turns. Begin a new one, or delete this one.", "session_id"
        )
    left, reserved = session.budgets, session.reserved_tokens
    if left.tokens is not None and task.max_tokens > left.tokens - reserved:
        kept = f", {reserved} of them for tasks under way" if reserved else ""
        return _invalid(f"The session has a budget of {left.tokens} tokens left{kept}. Ask for fewer.", "max_tokens")
    if left.time_ms is not None and left.time_ms <= 0:
        return _invalid("The session's time budget is used up. Begin a new session.", "session_id")
    if left.cost is not None and (task.max_tokens + reserved) * COST_PER_TOKEN > left.cost:
        return _invalid("The session's cost budget does not cover max_tokens. Ask for fewer.", "max_tokens")
    return None


def _invalid(message: str, field: str) -> Refusal:
    return Refusal(TaskCode.INVALID_PARAMS, message, field=field)
