"""What centrals on one database tell each other of keys and sessions."""

from dataclasses import dataclass, field

import anyio
import pytest

from homeport.adapters.bus.inprocess import InProcessBus
from homeport.core.inference.sessions import Budgets, Session
from homeport.inference.tasks.shared_limits import REPEAT_SECONDS, SharedLimits
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio


@dataclass
class Central:
    bus: InProcessBus
    told: list[tuple[object, ...]] = field(default_factory=list)
    now: float = 0.0
    sessions: list[tuple[str, Session]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.shared = SharedLimits(
            self.bus,
            lambda: self.now,
            on_submitted=lambda *what: self.told.append(("submitted", *what)),
            on_admitted=lambda *what: self.told.append(("admitted", *what)),
            on_spent=lambda *what: self.told.append(("spent", *what)),
            on_deleted=lambda *what: self.told.append(("deleted", *what)),
            on_known=lambda *what: self.told.append(("known", *what)),
            on_freed=lambda: self.told.append(("freed",)),
            sessions=lambda: self.sessions,
        )


async def test_what_one_admits_runs_and_spends_the_other_knows_and_not_itself() -> None:
    bus = InProcessBus()
    one, other = Central(bus), Central(bus)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(one.shared.run)
        tasks.start_soon(other.shared.run)
        await anyio.wait_all_tasks_blocked()
        one.shared.submitted("ada")
        one.shared.runs("ada", 2)
        one.shared.admitted("ada", "s", Budgets(tokens=10))
        one.shared.spent("ada", "s", 4, 7)
        one.shared.deleted("ada", "s")
        await eventually(lambda: len(other.told) >= 4, what="the other one to know")
        assert other.told == [
            ("submitted", "ada", 1),
            ("admitted", "ada", "s", Budgets(tokens=10)),
            ("spent", "ada", "s", 4, 7),
            ("deleted", "ada", "s"),
        ]
        assert (other.shared.running_elsewhere("ada"), one.shared.running_elsewhere("ada")) == (2, 0)
        one.shared.runs("ada", 1)
        await eventually(lambda: ("freed",) in other.told, what="the other one to know that a task has ended")
        assert other.shared.running_elsewhere("ada") == 1
        other.now = 3 * REPEAT_SECONDS + 1
        assert other.shared.running_elsewhere("ada") == 0, "a central that is gone runs nothing"
        assert one.told == []
        tasks.cancel_scope.cancel()


async def test_what_a_session_may_still_spend_elsewhere_is_known_until_it_is_spent_or_that_central_is_gone() -> None:
    bus = InProcessBus()
    one, other = Central(bus), Central(bus)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(one.shared.run)
        tasks.start_soon(other.shared.run)
        await anyio.wait_all_tasks_blocked()
        one.shared.reserves("ada", "s", 15)
        await eventually(lambda: other.shared.reserved_elsewhere("ada", "s") == 15, what="the other one to know")
        assert one.shared.reserved_elsewhere("ada", "s") == 0
        assert other.shared.reserved_elsewhere("bob", "s") == 0
        one.shared.runs("ada", 1)
        await eventually(lambda: other.shared.running_elsewhere("ada") == 1, what="a message about something else")
        assert other.shared.reserved_elsewhere("ada", "s") == 15
        one.shared.reserves("ada", "s", 0)
        await eventually(lambda: other.shared.reserved_elsewhere("ada", "s") == 0, what="the end of the task")
        one.shared.reserves("ada", "s", 7)
        await eventually(lambda: other.shared.reserved_elsewhere("ada", "s") == 7, what="another task")
        other.now = 3 * REPEAT_SECONDS + 1
        assert other.shared.reserved_elsewhere("ada", "s") == 0, "a central that is gone reserves nothing"
        tasks.cancel_scope.cancel()


async def test_a_central_that_starts_later_learns_what_the_others_know() -> None:
    bus = InProcessBus()
    one, later = Central(bus), Central(bus)
    one.sessions = [("ada", Session("s", 0.0, turns=3, budgets=Budgets(tokens=10)))]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(one.shared.run)
        one.shared.reserves("ada", "s", 4)
        await anyio.sleep(0.1)
        tasks.start_soon(later.shared.run)
        await eventually(lambda: later.shared.reserved_elsewhere("ada", "s") == 4, what="it to be told")
        await eventually(lambda: bool(later.told), what="it to be told of the session")
        assert later.told == [("known", "ada", "s", 3, Budgets(tokens=10))]
        assert one.told == []
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"by": "x", "running": [], "submitted": {}, "sessions": []},
        {"by": "x", "running": {}, "submitted": {"a": "many"}, "sessions": []},
        {"by": "x", "running": {}, "submitted": {}, "sessions": [["a", "s", "1", "2"], ["a"], [1, 2, 3, 4, 5]]},
        {"by": "x", "running": {}, "submitted": {}, "sessions": [], "reserved": 1},
        {
            "by": "x",
            "running": {},
            "submitted": {},
            "sessions": [],
            "reserved": [[1, 2, 3], ["a", "s"]],
            "known": [[]],
        },
        {"by": "x", "running": {}, "submitted": {}, "sessions": [], "known": [["a", "s", "1", 2, 3, 4]]},
    ],
)
def test_a_message_of_another_release_is_passed_over(message: dict[str, object]) -> None:
    central = Central(InProcessBus())
    central.shared.take(message)
    assert central.told == []
