"""What the task plane decides about each request of `/v2` and `/v1`, as log lines: admitted, placed, started, ended.
Never what was asked or answered.

A line is formatted, written and stored; two of them were a tenth of what a task costs. So a request is narrated
from beginning to end or not at all: `REQUESTS_PER_SECOND` are, those beyond are counted, and the count is logged
(ADR 0081). Requests that fail have the same number again for themselves.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from homeport.core.inference.task import Refusal
from homeport.log import get_log

if TYPE_CHECKING:
    from homeport.inference.tasks.scheduler import Ticket

log = get_log("homeport.inference")

REQUESTS_PER_SECOND: Final = 10


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
            log.info("requests not narrated, too many at once", count=left_out, actor="tasks", action="narration")
        has_slot = ticket.replica is not None
        log.info(
            "task admitted",
            actor="tasks",
            action="admission",
            human="A task has a slot at once." if has_slot else "A task waits in the queue of its pool.",
            why="" if ticket.decision is None else ticket.decision.sentence,
            route=route,
            queue_position=ticket.position,
            predicted_start_ms=ticket.predicted_start_ms,
            pool_id=ticket.pool_id,
            **_ids(ticket),
        )

    def placed(self, ticket: "Ticket") -> None:
        if ticket.is_narrated and ticket.replica is not None:
            log.info(
                "task placed",
                actor="tasks",
                action="placement",
                human="A replica is asked to run a task.",
                why="" if ticket.decision is None else ticket.decision.sentence,
                waited_ms=self._since(ticket),
                **_where(ticket.replica.key),
                **_ids(ticket),
            )

    def started(self, ticket: "Ticket") -> None:
        if ticket.is_narrated:
            log.info(
                "task started",
                actor="tasks",
                action="start",
                human="The first token of a task is there.",
                first_token_ms=self._since(ticket),
                **_ids(ticket),
            )

    def ended(
        self,
        ticket: "Ticket",
        replica_key: tuple[str, str] | None,
        *,
        tokens_in: int = 0,
        tokens_out: int = 0,
        canceled: str = "",
        error: Refusal | None = None,
    ) -> None:
        """`canceled` is the reason."""
        if not ticket.is_narrated and (error is None or not self._failures.takes(self._monotonic())):
            return
        log.info(
            "task ended",
            actor="tasks",
            action="cancel" if canceled else "end",
            human=_how_it_ended(canceled, error),
            tokens_in=tokens_in,
            tokens_out=tokens_out,
            canceled=bool(canceled),
            code=None if error is None else error.code.value,
            took_ms=self._since(ticket),
            **_where(replica_key),
            **_ids(ticket),
        )

    def _since(self, ticket: "Ticket") -> int:
        return int(1000 * (self._monotonic() - ticket.since))


def _ids(ticket: "Ticket") -> dict[str, str]:
    task = ticket.task
    return {"job_id": task.task_id, **({"session_id": task.session_id} if task.session_id else {})}


def _where(replica_key: tuple[str, str] | None) -> dict[str, str]:
    return {} if replica_key is None else {"pool_id": replica_key[0], "replica_id": replica_key[1]}


def _how_it_ended(canceled: str, error: Refusal | None) -> str:
    if canceled:
        return "A task is cancelled, and its slot is free."
    return "A task has ended." if error is None else "A task has ended with an error."
