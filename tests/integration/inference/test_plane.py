"""The task plane with engines that fail on command: floods, retries, reloads, restarts. No sockets."""

import gc
import hashlib
import json
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

from homeport.adapters.engine.fake import FakeEngine, Faults
from homeport.adapters.store.open import open_store
from homeport.adapters.system import SystemClock
from homeport.core.inference.engines.handoff import EngineName, Handoff, HandoffModel
from homeport.core.inference.queue import FullPolicy
from homeport.core.inference.records import StoredArtifact, StoredTask, TaskState
from homeport.core.inference.sessions import Budgets
from homeport.core.inference.settings import InferenceSettings
from homeport.core.inference.task import Priority, Task, TaskCode, TaskRefused
from homeport.core.model.caller import Caller, Role
from homeport.errors import PermanentError, TransientError
from homeport.inference.http.listing import show_queue
from homeport.inference.plane import Submitter, TaskPlane
from homeport.inference.pools.operations import drain_pool, purge_pool, reload_pool
from homeport.inference.pools.replica import Replica
from homeport.inference.tasks.bodies import PurgeBody, read_task
from homeport.inference.tasks.inside import RESTARTS_MAX, InsideTasks
from homeport.inference.tasks.narration import Narrator, identity_of
from homeport.inference.tasks.running import TaskRun
from homeport.ports import InferencePorts, OpenStream, Reader, Store
from homeport.ports.engine import Finished, Generation, Props, TokenTexts
from tests.simulation.store import Disk, MemoryStore
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio
ME = Submitter("me")


@dataclass
class Engines:
    """The engines behind the pools, by address."""

    by_url: dict[str, FakeEngine] = field(default_factory=dict)

    def connect(self, handoff: Handoff, opens: OpenStream | None = None) -> FakeEngine:
        return self.by_url.setdefault(handoff.url, FakeEngine())


def replica(name: str = "r0", **changes: Any) -> Handoff:
    fields = {"engine": EngineName.FAKE, "url": f"http://{name}", "model": HandoffModel("m"), "replica_id": name}
    return Handoff(**{**fields, **changes})


def body_of(**changes: Any) -> bytes:
    task = {
        "task_id": str(uuid.uuid4()),
        "session_id": str(uuid.uuid4()),
        "workload": "completion",
        "model_ref": "m",
        "engine": "fake",
        "ctx": 0,
        "priority": "interactive",
        "max_tokens": 3,
        "deadline_ms": 60_000,
        "prompt": "a b c",
    }
    return json.dumps({**task, **changes}).encode()


@asynccontextmanager
async def running(
    *handoffs: Handoff,
    engines: Engines | None = None,
    disk: Disk | None = None,
    ports: InferencePorts | None = None,
    settings: InferenceSettings | None = None,
    store: Store | None = None,
    site_of: Callable[[Handoff], str] = lambda handoff: "",
) -> AsyncIterator[TaskPlane]:
    plane = TaskPlane(
        store=store or MemoryStore(disk or Disk()),
        clock=SystemClock(),
        ports=ports or InferencePorts(),
        connect=(engines or Engines()).connect,
        settings=settings,
        site_of=site_of,
    )
    for handoff in handoffs:
        plane.registry.bind(handoff)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(plane.run)
        await eventually(lambda: all(each.ready for each in plane.registry.replicas()))
        yield plane
        tasks.cancel_scope.cancel()


async def submit(plane: TaskPlane, submitter: Submitter = ME, **changes: Any) -> TaskRun:
    body = body_of(**changes)
    task = read_task(body)
    await plane.submit(task, body, submitter)
    return plane.find(task.task_id, submitter)


async def said(run: TaskRun) -> list[tuple[str, Any]]:
    """Everything, as kinds and data."""
    text = b"".join([chunk async for chunk in run.stream.frames()]).decode()
    found = []
    for block in text.strip().split("\n\n"):
        kind, _, data = block.partition("\n")
        found.append((kind.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found


async def test_a_replica_that_fails_before_the_first_token_is_replaced_by_another_once() -> None:
    engines = Engines({"http://a": FakeEngine(Faults(dies_after=0)), "http://b": FakeEngine()})
    async with running(replica("a"), replica("b"), engines=engines) as plane:
        run = await submit(plane)
        events = await said(run)
        assert [kind for kind, _ in events if kind != "metrics"] == ["started", "token", "token", "token", "end"]
        assert run.retried
        assert (await plane_error(plane, Faults(dies_after=0), engines))[0] == "error"


async def plane_error(plane: TaskPlane, faults: Faults, engines: Engines) -> tuple[str, Any]:
    """How a task ends when every engine fails so."""
    for engine in engines.by_url.values():
        engine.faults = faults
    return (await said(await submit(plane)))[-1]


async def test_an_engine_that_dies_in_the_middle_ends_with_an_error_and_nothing_after_it() -> None:
    engines = Engines({"http://r0": FakeEngine(Faults(dies_after=1))})
    async with running(replica(), engines=engines) as plane:
        events = await said(await submit(plane))
        assert [kind for kind, _ in events if kind != "metrics"] == ["started", "token", "error"]
        assert events[-1][1]["code"] == "WORKER_RESET"
        assert events[-1][1]["retriable"] is True
        assert plane.registry.replicas()[0].leases == 0


class BrokenEngine(FakeEngine):
    async def generate(self, request: Generation) -> AsyncIterator[TokenTexts | Finished]:
        if request.prompt:
            raise RuntimeError("a fault of ours")
        yield TokenTexts([""])


async def test_a_fault_of_our_own_is_an_internal_error_and_the_pool_serves_on() -> None:
    engines = Engines({"http://a": BrokenEngine()})
    async with running(replica("a"), engines=engines) as plane:
        for _ in range(2):
            events = await said(await submit(plane))
            assert [kind for kind, _ in events if kind != "metrics"][-1] == "error"
            assert events[-1][1]["code"] == "INTERNAL"
            assert "a fault of ours" not in json.dumps(events), "details are in the log"
        assert plane.registry.replicas()[0].leases == 0


async def test_a_stalled_engine_is_a_typed_timeout() -> None:
    engines = Engines({"http://r0": FakeEngine(Faults(hangs_before_first=True))})
    async with running(replica(), engines=engines, settings=InferenceSettings(idle_seconds=0.05)) as plane:
        events = await said(await submit(plane))
        assert events[-1][0] == "error"
        assert events[-1][1]["code"] == "DECODE_TIMEOUT"
        assert engines.by_url["http://r0"].running == 0


async def test_a_task_that_waits_is_few_objects_for_garbage_collection() -> None:
    """A flood of them would be looked at again and again: with a timer, a context and two events each it was a third
    of what an admission costs, and pauses of half a second."""
    engines = Engines({"http://r0": FakeEngine(Faults(hangs_before_first=True))})
    settings = InferenceSettings(queue_capacity=2_000, key_waiting_max=2_000)
    async with running(replica(), engines=engines, settings=settings) as plane:
        for _ in range(20):
            await submit(plane)
        gc.collect()
        before = len(gc.get_objects())
        for _ in range(500):
            await submit(plane)
        gc.collect()
        assert (len(gc.get_objects()) - before) / 500 < 12


async def test_a_task_that_waits_past_its_deadline_says_so() -> None:
    engines = Engines({"http://r0": FakeEngine(Faults(hangs_before_first=True))})
    async with running(replica(), engines=engines) as plane:
        first = await submit(plane)
        second = await submit(plane, deadline_ms=150)
        assert (await said(second))[-1][1]["code"] == "DEADLINE_UNMET"
        first.cancel("client")
        assert (await said(first))[-1] == (
            "end",
            {"tokens_out": 0, "decode_time_ms": 0, "decode_ms": 0, "canceled": True},
        )


async def test_a_task_that_is_late_when_a_slot_becomes_free_is_not_begun() -> None:
    engines = Engines({"http://r0": FakeEngine(Faults(hangs_before_first=True))})
    async with running(replica(), engines=engines, settings=InferenceSettings(idle_seconds=0.3)) as plane:
        first = await submit(plane)
        late = [await submit(plane, deadline_ms=250) for _ in range(2)]
        for run in late:
            run.ticket.since -= 1.0  # their time is over, and no timer has said so yet
        first.cancel("client")
        for run in late:
            assert [(kind, data["code"]) for kind, data in await said(run)] == [("error", "DEADLINE_UNMET")]


async def test_an_engine_that_is_gone_fails_one_task_and_the_others_wait_for_it() -> None:
    engine = FakeEngine(Faults(hangs_before_first=True))
    settings = InferenceSettings(health_seconds=0.05)
    async with running(replica(), engines=Engines({"http://r0": engine}), settings=settings) as plane:
        first = await submit(plane)
        waiting = [await submit(plane) for _ in range(8)]
        engine.faults = Faults(is_down=True)
        first.cancel("client")
        assert (await said(waiting[0]))[-1][1]["code"] == "WORKER_RESET"
        await eventually(lambda: not plane.registry.replicas()[0].live, what="the engine to be known as gone")
        engine.faults = Faults()
        assert [(await said(run))[-1][0] for run in waiting[1:]] == ["end"] * 7


async def test_a_cancelled_task_has_used_what_its_engine_was_given() -> None:
    engines = Engines({"http://r0": FakeEngine(Faults(hangs_before_first=True))})
    async with running(replica(), engines=engines) as plane:
        run = await submit(plane, prompt="x" * 40)
        await eventually(lambda: engines.by_url["http://r0"].running == 1)
        run.cancel("client")
        assert (await said(run))[-1][1]["canceled"] is True
        assert run.tokens_in == 10
        labels = dict(zip(("engine", "engine_version", "pool_id", "replica_id"), run.ticket.where or (), strict=True))
        assert plane.metrics.registry.get_sample_value("tokens_in_total", labels) == 10


async def test_a_dead_replica_gets_no_tasks_and_delays_nobody() -> None:
    engines = Engines({"http://a": FakeEngine(Faults(is_down=True)), "http://b": FakeEngine()})
    async with running(replica("b"), engines=engines) as plane:
        plane.registry.bind(replica("a"))
        for _ in range(8):
            assert (await said(await submit(plane)))[-1][0] == "end"


async def test_a_flood_is_bounded_typed_and_fair() -> None:
    """Ten thousand tasks of five keys for one slot: the queue is full, nobody waits behind one key's thousands."""
    settings = InferenceSettings(queue_capacity=100, key_waiting_max=40)
    engines = Engines({"http://r0": FakeEngine(Faults(hangs_before_first=True))})
    async with running(replica(), engines=engines, settings=settings) as plane:
        template = read_task(body_of())
        codes, tickets = set(), []
        for number in range(10_000):
            key = f"key{number % 5}" if number % 10 else "greedy"
            priority = Priority.INTERACTIVE if number % 3 else Priority.BATCH
            task: Task = replace(template, task_id=str(number), priority=priority)
            try:
                tickets.append(plane.scheduler.admit(task, caller=key, sites=()))
            except TaskRefused as refused:
                codes.add(refused.refusal.code)
                assert refused.refusal.retry_after_ms
            assert plane.scheduler.depth("default") <= 100
        assert codes == {TaskCode.ADMISSION_REJECT}
        served = [ticket.caller for ticket in _drained(plane, tickets)]
        assert len(served) == len(tickets) == 101
        assert {*served[1:7]} == {"greedy", "key0", "key1", "key2", "key3", "key4"} & {*served}


async def test_ten_thousand_tasks_of_five_keys_are_answered_in_turns_and_leave_nothing_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the real database. Every answer is a place or a typed refusal, no key gets less than a quarter of what
    another gets, and once what is kept has its full size, further tasks need no more memory."""
    monkeypatch.setattr("homeport.inference.plane.ENDED_KEPT", 20)
    keys = [Submitter(f"key{number}") for number in range(5)]
    settings = InferenceSettings(queue_capacity=200, key_waiting_max=40, transcripts=False)
    async with (
        open_store(str(tmp_path / "store.db")) as store,
        running(replica(slots_total=4), store=store, settings=settings) as plane,
    ):
        alive = []
        for count in (6_000, 2_000, 2_000):
            served = await _flood(plane, keys, count=count)
            assert min(served[key.key] for key in keys) >= 0.25 * max(served.values()) > 0, served
            await eventually(lambda: not plane._runs and not plane._stored, what="everything to end")
            assert not plane.scheduler.depth("default")
            assert plane.registry.replicas()[0].leases == 0
            await plane.journal.settle()
            gc.collect()
            alive.append(Counter(type(each).__name__ for each in gc.get_objects()))
        more = alive[-1] - alive[-2]
        assert sum(more.values()) < 500, f"more objects after 2,000 more tasks: {more.most_common(10)}"


async def _flood(plane: TaskPlane, keys: list[Submitter], *, count: int) -> Counter[str]:
    """Which key's tasks were accepted, how often. The first key sends five times as fast as the others."""
    served, refused, sent = Counter[str](), Counter[TaskCode](), Counter[str]()
    session = {key.key: str(uuid.uuid4()) for key in keys}

    async def send(key: Submitter, each: int, together: int) -> None:
        for _ in range(each // together):
            async with anyio.create_task_group() as tasks:
                for _ in range(together):
                    tasks.start_soon(submit_one, key)

    async def submit_one(key: Submitter) -> None:
        # A deadline that no forecast on a busy machine exceeds.
        sent[key.key] += 1
        priority = "batch" if sent[key.key] % 3 else "interactive"
        body = body_of(max_tokens=1, session_id=session[key.key], priority=priority, deadline_ms=600_000)
        try:
            await plane.submit(read_task(body), body, key)
        except TaskRefused as error:
            if error.refusal.field == "session_id":  # its turns are used up
                sent[key.key] -= 1
                session[key.key] = str(uuid.uuid4())
                await submit_one(key)
                return
            refused[error.refusal.code] += 1
            assert error.refusal.retry_after_ms
        else:
            served[key.key] += 1
        assert plane.scheduler.depth("default") <= plane.settings.queue_capacity

    async with anyio.create_task_group() as tasks:
        for number, key in enumerate(keys):
            tasks.start_soon(send, key, count // 5, 50 if number == 0 else 10)
    assert sum(served.values()) + sum(refused.values()) == count
    assert set(refused) <= {TaskCode.ADMISSION_REJECT}
    return served


def _drained(plane: TaskPlane, tickets: list[Any]) -> list[Any]:
    """All tickets in the order of their slots, each given back at once."""
    order: list[Any] = []
    while True:
        holder = next((each for each in tickets if each.replica is not None), None)
        if holder is None:
            return order
        order.append(holder)
        plane.scheduler.release(holder)


async def test_each_decision_is_narrated_without_what_was_asked(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", logger="homeport")
    async with running(replica()) as plane:
        await said(await submit(plane, prompt="my-secret-prompt"))
        cancelled = await submit(plane, prompt="my-secret-prompt", max_tokens=1_000)
        cancelled.cancel("client")
        await said(cancelled)
    shown = json.dumps([record.__dict__ for record in caplog.records], default=str)
    assert "my-secret-prompt" not in shown
    assert "replica bound" in shown
    told = [(each.getMessage(), each.__dict__["fields"]) for each in caplog.records if "task " in each.getMessage()]
    assert [message for message, _ in told[:4]] == ["task admitted", "task placed", "task started", "task ended"]
    for message, fields in told:
        has_slot = message != "task admitted"
        assert {"actor", "action", "target", "human", "job_id", "session_id", "identity", "pool_id"} <= {*fields}
        assert {"engine", "engine_version", "replica_id"} <= {*fields} or not has_slot
        assert len(fields["human"]) <= 100
    assert {"queue_position", "predicted_start_ms"} <= {*told[0][1]}
    assert {"tokens_in", "tokens_out", "decode_time_ms"} <= {*told[3][1]}
    assert {fields["action"] for _, fields in told} == {"admission", "placement", "start", "end", "cancel"}


async def test_a_line_names_its_caller_and_the_clients_own_correlation_id(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="homeport")
    async with running(replica()) as plane:
        body = body_of()
        task = read_task(body)
        await plane.submit(task, body, Submitter("0123456789abcdef"), correlation_id="my-own")
        await said(plane.find(task.task_id, Submitter("0123456789abcdef")))
    found = [each.__dict__["fields"] for each in caplog.records if each.getMessage().startswith("task ")]
    assert {(each["identity"], each["x_correlation_id"]) for each in found} == {("token:012345", "my-own")}
    assert identity_of("local") == "localhost"
    assert identity_of("spiffe://fleet/site/kitchen") == "spiffe://fleet/site/kitchen"


async def test_metrics_follow_the_first_token_and_say_how_likely_it_ends_in_time() -> None:
    engines = Engines({"http://r0": FakeEngine(Faults(token_seconds=0.02))})
    async with running(replica(), engines=engines) as plane:
        events = await said(await submit(plane, max_tokens=3))
        kinds = [kind for kind, _ in events]
        assert kinds[:2] == ["started", "token"]
        assert kinds[-2:] == ["metrics", "end"]
        found = [data for kind, data in events if kind == "metrics"]
        assert len(found) >= 2
        assert all(data["on_time_probability"] == 1.0 and data["queue_depth"] == 0 for data in found)
        late = await submit(plane, max_tokens=3_000, expected_tokens=3_000, deadline_ms=10_000)
        seen = b""
        async with aclosing(late.stream.frames()) as frames:  # type: ignore[type-var]
            while b"event: metrics" not in seen:
                seen += await anext(frames)
        assert b'"on_time_probability":0.0' in seen
        late.cancel("client")


async def test_a_frame_of_metrics_that_a_slow_reader_misses_is_counted() -> None:
    async with running(replica()) as plane:
        run = await submit(plane, max_tokens=2_000)
        await eventually(lambda: run.stream._is_full, what="nobody to read")
        plane._runner._report(run, 1.0)
        assert plane.metrics.registry.get_sample_value("sse_backpressure_drops_total") == 1
        run.cancel("client")


async def test_a_crowd_is_narrated_in_part_and_the_rest_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="homeport")
    now = 0.0
    narrator = Narrator(lambda: now, per_second=2)
    async with running(replica(slots_total=10)) as plane:
        template = read_task(body_of())
        tickets = [plane.scheduler.admit(replace(template, task_id=str(n)), caller="me", sites=()) for n in range(6)]
        caplog.clear()
        for ticket in tickets[:5]:
            narrator.admitted(ticket, "/v2/tasks")
        now = 1.0
        narrator.admitted(tickets[5], "/v2/tasks")
        for ticket in tickets:
            narrator.ended(ticket)
            plane.scheduler.release(ticket)
    fields = [(record.getMessage(), record.__dict__["fields"]) for record in caplog.records]
    assert [each["job_id"] for message, each in fields if message == "task admitted"] == ["0", "1", "5"]
    assert [each["job_id"] for message, each in fields if message == "task ended"] == ["0", "1", "5"]
    assert [each["count"] for message, each in fields if message.startswith("requests not narrated")] == [3]


async def test_a_keys_rate_is_held_and_says_how_long_to_wait() -> None:
    async with running(replica(), settings=InferenceSettings(key_requests_per_minute=12)) as plane:
        for _ in range(2):
            assert (await said(await submit(plane)))[-1][0] == "end"
        with pytest.raises(TaskRefused) as refused:
            await submit(plane)
        found = refused.value.refusal
        assert (found.code, found.status, found.policy_label) == (TaskCode.ADMISSION_REJECT, 429, "key.rate")
        assert 0 < (found.retry_after_ms or 0) <= 5_000
        assert (await said(await submit(plane, Submitter("another"))))[-1][0] == "end"


async def test_what_runs_of_one_key_is_bounded_and_other_keys_pass() -> None:
    engines = Engines({"http://r0": FakeEngine(Faults(hangs_before_first=True))})
    settings = InferenceSettings(key_running_max=2)
    async with running(replica(slots_total=4), engines=engines, settings=settings) as plane:
        greedy = [await submit(plane) for _ in range(4)]
        other = await submit(plane, Submitter("another"))
        slots = [each.ticket.replica is not None for each in (*greedy, other)]
        assert slots == [True, True, False, False, True]
        greedy[0].cancel("client")
        await eventually(lambda: greedy[2].ticket.replica is not None, what="the next of the key to run")
        assert greedy[3].ticket.replica is None
        for each in (*greedy, other):
            each.cancel("client")
        await eventually(lambda: not plane.registry.replicas()[0].leases, what="all slots to be free")


async def test_tasks_of_a_session_that_come_together_have_its_turns_and_its_budget_together() -> None:
    """Before any of them is durable, and while they run: what they may still spend is not promised twice."""
    engines = Engines({"http://r0": FakeEngine(Faults(hangs_before_first=True))})
    async with running(replica(), engines=engines) as plane:
        session_id, codes = str(uuid.uuid4()), Counter[str]()

        async def send(budgets: Budgets, max_tokens: int) -> None:
            body = body_of(session_id=session_id, max_tokens=max_tokens)
            try:
                await plane.submit(read_task(body), body, ME, budgets)
            except TaskRefused as refused:
                codes[refused.refusal.field or ""] += 1

        async def together(count: int, budgets: Budgets, max_tokens: int) -> int:
            before = sum(codes.values())
            async with anyio.create_task_group() as tasks:
                for _ in range(count):
                    tasks.start_soon(send, budgets, max_tokens)
            return count - (sum(codes.values()) - before)

        assert await together(6, Budgets(tokens=25), 10) == 2, "the rest would exceed the budget"
        for run in list(plane._runs.values()):
            run.cancel("client")
        await eventually(lambda: not plane._runs, what="both to end")
        assert await together(14, Budgets(), 1) == 6, "of eight turns"
        assert codes == {"max_tokens": 4, "session_id": 8}
        found = plane.sessions.find("me", session_id)
        assert found is not None
        assert (found.turns, found.budgets.tokens, found.reserved_tokens) == (8, 25, 6)


async def test_a_task_that_could_not_be_written_has_taken_no_turn() -> None:
    is_full = False

    async def before() -> None:
        if is_full:
            raise TransientError("The disk is full.")

    async with running(replica(), store=MemoryStore(Disk(), before=before)) as plane:
        session_id, is_full = str(uuid.uuid4()), True
        with pytest.raises(TransientError):
            await submit(plane, session_id=session_id)
        assert plane.sessions.find("me", session_id) is None


async def test_with_drop_lru_the_oldest_batch_task_is_told() -> None:
    engines = Engines({"http://r0": FakeEngine(Faults(hangs_before_first=True))})
    settings = InferenceSettings(queue_capacity=1, full_policy=FullPolicy.DROP_LRU)
    async with running(replica(), engines=engines, settings=settings) as plane:
        await submit(plane)
        oldest = await submit(plane, priority="batch")
        await submit(plane)
        last = (await said(oldest))[-1]
        assert (last[0], last[1]["code"], last[1]["policy_label"]) == ("error", "QUEUE_FULL_DROP_LRU", "drop-lru")


@dataclass
class SwappingEngine(FakeEngine):
    """Has one of its models in memory, and loads another when it is asked for that."""

    loaded: str = "m"
    served: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(Faults(token_seconds=0.01))

    async def props(self) -> Props:
        return replace(await super().props(), models=("m", "n"), loaded=(self.loaded,))

    async def generate(self, request: Generation) -> AsyncIterator[TokenTexts | Finished]:
        self.served.append(request.model)
        self.loaded = request.model
        async for event in super().generate(request):
            yield event


async def test_an_engine_that_loads_models_one_by_one_changes_them_as_rarely_as_the_wait_allows() -> None:
    engine = SwappingEngine()
    engines: dict[str, FakeEngine] = {"http://r0": engine}
    async with running(replica(), engines=Engines(engines)) as plane:
        await eventually(lambda: plane.registry.models().keys() == {"m", "n"})
        runs = [await submit(plane, model_ref=model) for model in "mnmnmn"]
        for run in runs:
            assert (await said(run))[-1][0] == "end"
    assert engine.served == [*"mmmnnn"]


async def test_of_two_such_engines_the_one_that_has_the_model_is_asked() -> None:
    engines: dict[str, FakeEngine] = {"http://a": SwappingEngine(), "http://b": SwappingEngine(loaded="n")}
    async with running(replica("a"), replica("b"), engines=Engines(engines)) as plane:
        await eventually(lambda: all(len(found) == 2 for found in plane.registry.models().values()))
        for model, where in (("n", "b"), ("m", "a"), ("n", "b")):
            run = await submit(plane, model_ref=model)
            assert (await said(run))[-1][0] == "end"
            assert run.replica_key == ("default", where)


async def test_a_drained_pool_hands_its_waiting_tasks_to_another() -> None:
    slow = Faults(token_seconds=0.01)
    engines = Engines({"http://a": FakeEngine(slow), "http://b": FakeEngine(slow)})
    pools = (replica("a", pool_id="pa"), replica("b", pool_id="pb"))
    async with running(*pools, engines=engines) as plane:
        runs = [await submit(plane, placement={"mode": "prefer", "prefer_pools": ["pa"]}) for _ in range(6)]
        await drain_pool(plane, "pa", deadline_ms=1000)
        later = [await submit(plane) for _ in range(3)]
        for run in (*runs, *later):
            assert (await said(run))[-1][0] == "end"


@pytest.mark.parametrize("how", ["unbound", "dead"])
async def test_what_waits_for_a_pool_whose_engines_are_gone_runs_in_another(how: str) -> None:
    """It once waited for them until its deadline, beside a pool that had nothing to do."""
    held, free = FakeEngine(Faults(token_seconds=30)), FakeEngine()
    engines = Engines({"http://a": held, "http://b": free})
    pools = (replica("a", pool_id="pa"), replica("b", pool_id="pb"))
    settings = InferenceSettings(health_seconds=0.05)
    async with running(*pools, engines=engines, settings=settings) as plane:
        wish = {"mode": "prefer", "prefer_pools": ["pa"]}
        await submit(plane, placement=wish)
        waiting = [await submit(plane, placement=wish) for _ in range(3)]
        pinned = await submit(plane, placement={"mode": "pin", "pin_pool_id": "pa"}, deadline_ms=1500)
        assert plane.scheduler.depth("pa") == 4
        if how == "unbound":
            plane.registry.unbind("pa", "a")
        else:
            held.faults.is_down = True
        for run in waiting:
            assert (await said(run))[-1][0] == "end"
            assert run.replica_key == ("pb", "b")
        kind, data = (await said(pinned))[-1]
        assert (kind, data["code"]) == ("error", "DEADLINE_UNMET"), "it may run nowhere else"


class Control:
    """Starts engines of other models, unless told to fail."""

    def __init__(self) -> None:
        self.fails = False
        self.stopped = 0
        self.removed: tuple[str, ...] = ()

    async def reload(self, current: Sequence[Handoff], model_ref: str) -> Sequence[Handoff]:
        if self.fails:
            raise PermanentError("The file is not a model.")
        return [replace(each, url=f"{each.url}/reloaded", model=HandoffModel(model_ref)) for each in current]

    async def stop(self, current: Handoff) -> None:
        if self.fails:
            raise PermanentError("It was started elsewhere.")
        self.stopped += 1

    async def remove_models(self, models: tuple[str, ...]) -> None:
        self.removed += models


async def test_a_drain_ends_what_runs_at_its_deadline_and_can_be_taken_back() -> None:
    engines, control = Engines({"http://r0": FakeEngine(Faults(hangs_before_first=True))}), Control()
    async with running(replica(), engines=engines, ports=InferencePorts(engines=control)) as plane:
        run = await submit(plane)
        await drain_pool(plane, "default", deadline_ms=50)
        kind, data = (await said(run))[-1]
        assert (kind, data["canceled"]) == ("end", True)
        engines.by_url["http://r0"].faults.hangs_before_first = False
        with pytest.raises(TaskRefused):
            await submit(plane)
        await eventually(lambda: not plane.registry.replicas()[0].leases, what="the slot to be free")
        await plane.drains.remove("default")
        assert (await said(await submit(plane)))[-1][0] == "end"
        assert control.stopped == 0, "an engine that is idle stays"

        def is_measured() -> bool:
            return plane.metrics.registry.get_sample_value("drain_duration_ms_count", {"pool_id": "default"}) == 1

        await eventually(is_measured, what="the drain to be measured")


async def test_a_drain_holds_after_a_restart_until_it_is_taken_back() -> None:
    disk, pools = Disk(), (replica("a", pool_id="pa"), replica("b", pool_id="pb"))
    for is_drained in (True, False):
        async with running(*pools, disk=disk) as plane:
            await (drain_pool(plane, "pa", deadline_ms=0) if is_drained else plane.drains.remove("pa"))
        # Also for replicas that are announced late, when no other is known.
        async with running(replica("b", pool_id="pb"), disk=disk) as plane:
            plane.registry.bind(replica("a", pool_id="pa"))
            await eventually(lambda: all(each.ready for each in plane.registry.replicas()))
            now = plane.clock.monotonic()
            taking = {each.handoff.pool_id: each.takes_tasks(now) for each in plane.registry.replicas()}
            assert taking == {"pa": not is_drained, "pb": True}
            assert plane.registry.health("pa", queue_depth=0, now=now)["draining"] is is_drained
            if is_drained:
                with pytest.raises(TaskRefused) as refused:
                    await submit(plane, placement={"mode": "pin", "pin_pool_id": "pa"})
                assert refused.value.refusal.code is TaskCode.POOL_UNREADY
            assert (await said(await submit(plane)))[-1][0] == "end"


async def test_the_deadline_of_a_drain_that_was_taken_back_ends_nothing_of_the_next_one() -> None:
    engines = Engines({"http://r0": FakeEngine(Faults(token_seconds=0.05))})
    async with running(replica(), engines=engines) as plane:
        run = await submit(plane, max_tokens=8)
        await drain_pool(plane, "default", deadline_ms=100)
        await plane.drains.remove("default")
        await drain_pool(plane, "default", deadline_ms=60_000)
        kind, data = (await said(run))[-1]
        assert (kind, data["tokens_out"], data.get("canceled", False)) == ("end", 8, False)


async def test_a_drain_that_cannot_be_written_changes_nothing() -> None:
    is_full = False

    async def before() -> None:
        if is_full:
            raise TransientError("The disk is full.")

    async with running(replica(), store=MemoryStore(Disk(), before=before)) as plane:
        is_full = True
        with pytest.raises(TransientError):
            await drain_pool(plane, "default", deadline_ms=0)
        is_full = False
        assert (await said(await submit(plane)))[-1][0] == "end"


async def test_a_purge_of_a_drained_pool_leaves_no_drain_behind() -> None:
    disk, ports = Disk(), InferencePorts(engines=Control())
    async with running(replica(), disk=disk, ports=ports) as plane:
        await drain_pool(plane, "default", deadline_ms=0)
        await purge_pool(plane, "default", PurgeBody(purge_engine=True))
        assert plane.registry.is_draining("default"), "until its replicas are gone"
        plane.registry.unbind("default", "r0")
        assert not plane.registry.is_draining("default")
    async with running(replica(), disk=disk) as plane:
        assert (await said(await submit(plane)))[-1][0] == "end"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"delete_cache_dirs": True}, TaskCode.INVALID_PARAMS),
        ({"purge_models": ["m"]}, TaskCode.CONFLICT),
        ({"purge_engine": True, "drain_first": False}, TaskCode.CONFLICT),
    ],
)
async def test_a_purge_that_is_refused_changes_nothing(body: dict[str, Any], code: TaskCode) -> None:
    engines, control = Engines({"http://r0": FakeEngine(Faults(hangs_before_first=True))}), Control()
    async with running(replica(), engines=engines, ports=InferencePorts(engines=control)) as plane:
        run = await submit(plane)
        with pytest.raises(TaskRefused) as refused:
            await purge_pool(plane, "default", PurgeBody(**body))
        assert refused.value.refusal.code is code
        assert (control.stopped, control.removed, plane.registry.is_draining("default")) == (0, (), False)
        run.cancel("client")


async def test_a_purge_removes_what_it_names_and_a_pool_of_that_name_can_come_back() -> None:
    control = Control()
    async with running(replica(), ports=InferencePorts(engines=control)) as plane:
        await purge_pool(plane, "default", PurgeBody(purge_models=("other",)))
        assert (control.stopped, control.removed) == (0, ("other",)), "the engine serves on"
        assert (await said(await submit(plane)))[-1][0] == "end"
        control.fails = True
        with pytest.raises(TaskRefused, match="serves on"):
            await purge_pool(plane, "default", PurgeBody(purge_engine=True))
        assert (await said(await submit(plane)))[-1][0] == "end"
        control.fails = False
        await purge_pool(plane, "default", PurgeBody(purge_engine=True, purge_models=("m",)))
        assert (control.stopped, control.removed) == (1, ("other", "m"))
        with pytest.raises(TaskRefused):
            await submit(plane)
        plane.registry.unbind("default", "r0")
        plane.registry.bind(replica())
        await eventually(lambda: plane.registry.replicas()[0].ready)
        assert (await said(await submit(plane)))[-1][0] == "end"


async def test_a_reload_under_load_fails_no_task_and_a_bad_one_changes_nothing() -> None:
    control = Control()
    ports = InferencePorts(engines=control)
    async with running(replica(), ports=ports) as plane:
        ends: list[str] = []
        is_over = anyio.Event()

        async def load() -> None:
            while not is_over.is_set():
                model = "m2" if "m2" in plane.registry.replicas()[0].models else "m"
                ends.append((await said(await submit(plane, model_ref=model)))[-1][0])

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(load)
            control.fails = True
            with pytest.raises(TaskRefused) as refused:
                await reload_pool(plane, "default", "bad")
            assert refused.value.refusal.status == 409
            assert plane.registry.replicas()[0].models == {"m"}
            control.fails = False
            before = len(ends)
            await eventually(lambda: len(ends) > before + 3)
            await reload_pool(plane, "default", "m2")
            before = len(ends)
            await eventually(lambda: len(ends) > before + 3)
            is_over.set()
        assert {*ends} == {"end"}
        count = plane.metrics.registry.get_sample_value("reload_duration_ms_count", {"pool_id": "default"})
        assert count == 2


async def test_why_says_what_a_task_waits_for_and_how_it_ended() -> None:
    engines = Engines({"http://r0": FakeEngine(Faults(hangs_before_first=True))})
    async with running(replica(), engines=engines, settings=InferenceSettings(idle_seconds=0.2)) as plane:
        first, second, third = [await submit(plane) for _ in range(3)]
        assert "waits_for" not in plane.explain(first)
        assert plane.explain(third)["waits_for"] == "All slots of pool default are in use, 1 of 1."
        assert plane.explain(third)["queue_position"] == 1
        second.cancel("client")
        await eventually(lambda: plane.explain(third).get("queue_position") == 0)
        assert plane.explain(second)["canceled"] is True
        assert (await said(first))[-1][0] == "error"
        assert plane.explain(first)["error"]["code"] == "DECODE_TIMEOUT"
        await drain_pool(plane, "default", deadline_ms=0)
        assert (await said(third))[-1][0] in {"end", "error"}


async def test_why_names_what_is_wrong_with_the_pool_and_the_limit_of_the_key() -> None:
    fake = FakeEngine(Faults(hangs_before_first=True))
    settings = InferenceSettings(key_running_max=1, health_seconds=0.05)
    pool = (replica("a", slots_total=2),)
    async with running(*pool, engines=Engines({"http://a": fake}), settings=settings) as plane:
        await submit(plane)
        waiting = await submit(plane)
        assert plane.explain(waiting)["waits_for"] == "Its key runs as many tasks as it may at once: 1."
        fake.faults.is_down = True
        words = "No replica of pool default takes tasks: down."
        await eventually(lambda: plane.explain(waiting)["waits_for"] == words)


async def test_why_is_about_replicas_that_the_task_may_have() -> None:
    """Of other sites its caller hears nothing."""
    hanging = Faults(hangs_before_first=True)
    engines = Engines({f"http://{name}": FakeEngine(replace(hanging)) for name in ("here", "there")})
    settings = InferenceSettings(health_seconds=0.05)
    pool = (replica("here"), replica("there", slots_total=3))
    here = Submitter("me", ("here",))
    async with running(*pool, engines=engines, settings=settings, site_of=lambda each: each.replica_id) as plane:
        await submit(plane, here)
        waiting = await submit(plane, here)

        def why() -> str:
            return str(plane.explain(waiting)["waits_for"])

        assert why() == "All slots of pool default are in use, 1 of 1."
        engines.by_url["http://there"].faults.is_down = True
        engines.by_url["http://here"].faults.is_down = True
        await eventually(lambda: not any(each.ready for each in plane.registry.replicas()))
        there, own = plane.registry.replica(("default", "there")), plane.registry.replica(("default", "here"))
        assert there is not None
        assert own is not None
        there.last_error, own.last_error = "a secret of there", ""
        assert why() == "No replica of pool default takes tasks."
        engines.by_url["http://here"].faults.is_down = False
        await eventually(lambda: own.ready)
        waiting.ticket.excluded = frozenset({own.key})
        assert why() == "No free replica of pool default suits this task."
        waiting.ticket.excluded = frozenset()
        own.handoff = replace(own.handoff, slots_total=2)
        assert why() == "No free replica of pool default suits this task."


async def test_the_queue_is_shown_with_one_look_at_each_pool_for_each_scope(monkeypatch: pytest.MonkeyPatch) -> None:
    engines = Engines({"http://r0": FakeEngine(Faults(hangs_before_first=True))})
    looks: list[str | None] = []
    shown: list[Any] = []

    class Shown:
        submitter = ME

        async def json(self, status: int, body: Any) -> None:
            shown.extend(body["waiting"])

    async with running(replica(), engines=engines) as plane:
        for number in range(41):
            await submit(plane, Submitter("me", ("",) if number % 2 else ()))
        every = plane.registry.replicas

        def counted(pool_id: str | None = None) -> Sequence[Replica]:
            looks.append(pool_id)
            return every(pool_id)

        exchange: Any = Shown()
        with monkeypatch.context() as patch:
            patch.setattr(plane.registry, "replicas", counted)
            await show_queue(plane, exchange)
    assert [each["why"] for each in shown] == ["All slots of pool default are in use, 1 of 1."] * 40
    assert looks.count("default") == 2


async def test_what_was_queued_before_a_stop_runs_after_the_start() -> None:
    disk = Disk()
    engines = Engines({"http://r0": FakeEngine(Faults(hangs_before_first=True))})
    async with running(replica(), engines=engines, disk=disk) as plane:
        started = await submit(plane)
        queued = await submit(plane)
        await eventually(lambda: engines.by_url["http://r0"].running == 1)
    async with running(replica(), disk=disk) as plane:
        await eventually(lambda: _is_known(plane, queued.task.task_id))
        assert (await said(plane.find(queued.task.task_id, ME)))[-1][0] == "end"
        _, artifact = await plane.find_ended(started.task.task_id, ME)
        assert artifact is not None
        last = artifact.document["content"]["events"][-1]
        assert (last["type"], last["data"]["code"], last["data"]["retriable"]) == ("error", "WORKER_RESET", True)


async def test_the_deadline_of_a_task_goes_on_while_homeport_is_away() -> None:
    disk, now = Disk(), SystemClock().now()

    def queued(seconds: int) -> StoredTask:
        body = body_of(deadline_ms=60_000)
        kept = json.dumps({"sites": [], "request": body.decode()})
        at, task_id = now - timedelta(seconds=seconds), read_task(body).task_id
        return StoredTask(id=task_id, caller="me", digest="", state=TaskState.QUEUED, body=kept, answer="{}", at=at)

    late, early = queued(61), queued(30)
    await MemoryStore(disk).write(lambda transaction: transaction.add_tasks([late, early]))
    async with running(replica(), disk=disk) as plane:
        await eventually(lambda: _is_known(plane, early.id))
        run = plane.find(early.id, ME)
        assert 25_000 < run.task.deadline_ms <= 30_000
        assert (await said(run))[-1][0] == "end"
        await plane.journal.settle()
        stored, _ = await plane.find_ended(late.id, ME)
        error = json.loads(stored.outcome)["error"]
        assert (error["code"], error["retriable"]) == ("WORKER_RESET", True)
        assert "its deadline passed" in error["message"]


async def test_a_task_from_before_a_restart_that_would_start_too_late_says_so() -> None:
    disk, body = Disk(), body_of(deadline_ms=30_000)
    kept = json.dumps({"sites": [], "request": body.decode()})
    task_id, at = read_task(body).task_id, SystemClock().now()
    left = StoredTask(id=task_id, caller="me", digest="", state=TaskState.QUEUED, body=kept, answer="{}", at=at)
    engines = Engines({"http://r0": FakeEngine(Faults(hangs_before_first=True))})
    async with running(replica(), engines=engines, disk=disk) as plane:
        await submit(plane)
        plane.registry.replicas()[0].task_seconds = 100.0
        await MemoryStore(disk).write(lambda transaction: transaction.add_tasks([left]))
        await plane._recover()
        await eventually(lambda: task_id not in plane._stored)
        await plane.journal.settle()
        stored, _ = await plane.find_ended(task_id, ME)
        error = json.loads(stored.outcome)["error"]
        assert (error["code"], error["retriable"]) == ("WORKER_RESET", True)
        assert "its deadline would pass before it could start" in error["message"]


async def test_an_acknowledged_cancel_survives_a_kill() -> None:
    disk = Disk()
    engines = Engines({"http://r0": FakeEngine(Faults(hangs_before_first=True))})
    async with running(replica(), engines=engines, disk=disk) as plane:
        tasks = [(await submit(plane)).task.task_id for _ in range(2)]
        await eventually(lambda: engines.by_url["http://r0"].running == 1)
        for task_id in tasks:
            await plane.cancel(task_id, ME)
        async with MemoryStore(disk).read() as reader:
            kept = [await reader.task(each) for each in tasks]
        assert [each and each.state for each in kept] == [TaskState.ENDED] * 2


class UnreadableStore(MemoryStore):
    """Cannot be read for so many times."""

    failures = 0

    @asynccontextmanager
    async def read(self) -> AsyncIterator[Reader]:
        if self.failures:
            self.failures -= 1
            raise TransientError("The database does not answer.")
        async with super().read() as reader:
            yield reader


@pytest.mark.parametrize("restart", [0, 1, RESTARTS_MAX])
async def test_a_cancel_reaches_each_task_of_a_step_also_when_the_database_is_away_for_a_moment(restart: int) -> None:
    disk, first = Disk(), str(uuid.uuid4())
    task_id = first if restart == 0 else str(uuid.uuid5(uuid.UUID(first), str(restart)))
    kept = json.dumps({"sites": [], "request": body_of(task_id=task_id).decode()})
    at = SystemClock().now()
    left = StoredTask(id=task_id, caller="me", digest="", state=TaskState.QUEUED, body=kept, answer="{}", at=at)
    store = UnreadableStore(disk)
    await store.write(lambda transaction: transaction.add_tasks([left]))
    async with running(store=store) as plane:
        await eventually(lambda: task_id in plane._stored)
        store.failures = 2
        await InsideTasks(plane).cancel(first, Caller("me", Role.ADMIN))
        stored, _ = await plane.find_ended(task_id, ME)
        assert stored.state is TaskState.ENDED


async def test_a_cancel_that_cannot_be_carried_out_says_so_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("homeport.inference.tasks.inside.CANCEL_SECONDS", 0.1)
    store = UnreadableStore(Disk())
    async with running(store=store) as plane:
        await plane._recovered.wait()
        store.failures = 1_000_000
        with anyio.fail_after(2), pytest.raises(TransientError, match="could not be cancelled yet"):
            await InsideTasks(plane).cancel(str(uuid.uuid4()), Caller("me", Role.ADMIN))
        store.failures = 0


async def test_a_task_that_is_sent_again_while_its_cancel_is_written_does_not_run() -> None:
    disk, body = Disk(), body_of()
    task = read_task(body)
    kept = json.dumps({"sites": [], "request": body.decode()})
    digest, at = hashlib.sha256(body).hexdigest(), SystemClock().now()
    left = StoredTask(
        id=task.task_id, caller="me", digest=digest, state=TaskState.QUEUED, body=kept, answer="{}", at=at
    )
    engine, settings = FakeEngine(Faults(hangs_before_first=True)), InferenceSettings(queue_capacity=1)
    async with running(replica(), engines=Engines({"http://r0": engine}), disk=disk, settings=settings) as plane:
        _, filler = await submit(plane), await submit(plane)
        await MemoryStore(disk).write(lambda transaction: transaction.add_tasks([left]))
        await plane._recover()
        journal: Any = plane.journal
        end = journal.end
        answers: list[Any] = []

        def end_and_send_again(stored: StoredTask, artifact: StoredArtifact | None) -> None:
            journal.end = end
            end(stored, artifact)
            plane.scheduler.release(filler.ticket)  # now there is room for it
            plane.submit_soon(task, body, ME, Budgets(), answers.append)

        journal.end = end_and_send_again
        await plane.cancel(task.task_id, ME)
        await eventually(lambda: answers == ["{}"], what="the first answer again")
        await anyio.sleep(0.05)
        assert not _is_known(plane, task.task_id)
        stored, _ = await plane.find_ended(task.task_id, ME)
        assert (stored.state, json.loads(stored.outcome)["canceled"]) == (TaskState.ENDED, True)


async def test_a_task_that_was_lost_leaves_how_it_was_asked_for() -> None:
    disk, body = Disk(), body_of(seed=7)
    task = read_task(body)
    kept = json.dumps({"sites": [], "request": body.decode()})
    lost = StoredTask(
        id=task.task_id,
        caller="me",
        digest="",
        state=TaskState.STARTED,
        body=kept,
        answer="{}",
        at=SystemClock().now(),
    )
    await MemoryStore(disk).write(lambda transaction: transaction.add_tasks([lost]))
    async with running(replica(), disk=disk) as plane:
        await plane.journal.settle()
        _, artifact = await plane.find_ended(task.task_id, ME)
        assert artifact is not None
        content = artifact.document["content"]
        assert (content["session_id"], content["seed"], content["request"]["model_ref"]) == (task.session_id, 7, "m")
        assert (content["tokens_out"], content["events"][-1]["data"]["code"]) == (0, "WORKER_RESET")
        assert "a b c" not in json.dumps(content), "what was asked is not kept"


def _is_known(plane: TaskPlane, task_id: str) -> bool:
    try:
        plane.find(task_id, ME)
    except TaskRefused:
        return False
    return True


async def test_nobody_sees_or_cancels_another_callers_task() -> None:
    async with running(replica()) as plane:
        run = await submit(plane)
        with pytest.raises(TaskRefused) as refused:
            plane.find(run.task.task_id, Submitter("somebody else"))
        assert refused.value.refusal.code is TaskCode.NOT_FOUND
        assert plane.find(run.task.task_id, Submitter("admin", sees_all=True)) is run
