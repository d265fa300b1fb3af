"""What the task plane decides about each request of `/v2` and `/v1`, as log lines: admitted, placed, started, ended.
Never what was asked or answered.

A line is formatted, written and stored; two of them were a tenth of what a task costs. So a request is narrated
from beginning to end or not at all: `REQUESTS_PER_SECOND` are, those beyond are counted, and the count is logged
(ADR 0081). Requests that fail have the same number again for themselves.
"""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from homeport.core.inference.task import Refusal
from homeport.log import get_log

if TYPE_CHECKING:
    from homeport.inference.tasks.scheduler import Ticket

log = get_log("homeport.inference")

REQUESTS_PER_SECOND: Final = 10
LOCAL: Final = "local"
"""The key of the user who started the role."""
_TOKEN_ID: Final = re.compile(r"[0-9a-f]{8,32}")


class Allowance:
    """So many in each second."""

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second
        self._until = 0.0
        self._left = 0
        self.left_out = 0

    def takes(self, now: float) -> bool:
        if now >= self._until:
            self._until, self._left = now + 1.0, self._per_second
        if self._left <= 0:
            self.left_out += 1
            return False
        self._left -= 1
        return True


class Narrator:
    def __init__(self, monotonic: Callable[[], float], per_second: int = REQUESTS_PER_SECOND) -> None:
        self._monotonic = monotonic
        self._requests = Allowance(per_second)
        self._failures = Allowance(per_second)

    def admitted(self, ticket: "Ticket", route: str) -> None:
        ticket.is_narrated = self._requests.takes(self._monotonic())
        if not ticket.is_narrated:
            return
        left_out, self._requests.left_out = self._requests.left_out, 0
        if left_out:
            log.narrate(
                "requests not narrated, too many at once",
                actor="tasks",
                action="narration",
                target="tasks",
                human="Too many requests to log each of them.",
                count=left_out,
            )
        has_slot = ticket.replica is not None
        log.narrate(
            "task admitted",
            actor="tasks",
            action="admission",
            human="A task gets a slot immediately." if has_slot else "A task waits in the queue of its pool.",
            why="" if ticket.decision is None else ticket.decision.sentence,
            route=route,
            queue_position=ticket.position,
            predicted_start_ms=ticket.predicted_start_ms,
            **_about(ticket),
        )

    def placed(self, ticket: "Ticket") -> None:
        if ticket.is_narrated:
            log.narrate(
                "task placed",
                actor="tasks",
                action="placement",
                human="A replica is asked to run a task.",
                why="" if ticket.decision is None else ticket.decision.sentence,
                waited_ms=self._since(ticket),
                **_about(ticket),
            )

    def retried(self, ticket: "Ticket", why: str) -> None:
        """Always: there are few."""
        log.narrate(
            "task retried on another replica",
            actor="tasks",
            action="retry",
            human="A replica failed a task before its first token, and another one is tried.",
            why=why,
            **_about(ticket),
        )

    def started(self, ticket: "Ticket") -> None:
        if ticket.is_narrated:
            log.narrate(
                "task started",
                actor="tasks",
                action="start",
                human="The first token of a task is there.",
                first_token_ms=self._since(ticket),
                **_about(ticket),
            )

    def ended(
        self,
        ticket: "Ticket",
        *,
        tokens_in: int = 0,
        tokens_out: int = 0,
        decode_ms: int = 0,
        canceled: str = "",
        error: Refusal | None = None,
    ) -> None:
        """`canceled` is the reason."""
        if not ticket.is_narrated and (error is None or not self._failures.takes(self._monotonic())):
            return
        log.narrate(
            "task ended",
            actor="tasks",
            action="cancel" if canceled else "end",
            human=_how_it_ended(canceled, error),
            tokens_in=tokens_in,
            tokens_out=tokens_out,
            decode_time_ms=decode_ms,
            canceled=bool(canceled),
            code=None if error is None else error.code.value,
            took_ms=self._since(ticket),
            **_about(ticket),
        )

    def _since(self, ticket: "Ticket") -> int:
        return int(1000 * (self._monotonic() - ticket.since))


def _about(ticket: "Ticket") -> dict[str, Any]:
    """Which task, whose, and where: the fields that every line has."""
    task = ticket.task
    engine, version, pool_id, replica_id = ticket.where or ("", "", ticket.pool_id, "")
    found = {
        "target": f"{pool_id}/{replica_id}" if replica_id else pool_id,
        "job_id": task.task_id,
        "session_id": task.session_id,
        "identity": identity_of(ticket.caller),
        "x_correlation_id": ticket.correlation_id,
        "engine": engine,
        "engine_version": version,
        "pool_id": pool_id,
        "replica_id": replica_id,
    }
    return {name: value for name, value in found.items() if value}


def identity_of(caller: str) -> str:
    """As log lines name a caller: by the beginning of a token's id, which is not part of its secret."""
    if caller == LOCAL:
        return "localhost"
    return f"token:{caller[:6]}" if _TOKEN_ID.fullmatch(caller) else caller


def _how_it_ended(canceled: str, error: Refusal | None) -> str:
    if canceled:
        return "A task is cancelled, and its slot is free."
    return "A task has ended." if error is None else "A task has ended with an error."
