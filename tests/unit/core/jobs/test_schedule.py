"""Which node gets a job: what fits, then the strategy."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from homeport.core.jobs.job import Job, JobSpec, JobType
from homeport.core.jobs.schedule import Load, Round, schedule, slots_of, unplaceable, unsupported
from homeport.core.jobs.strategies import STRATEGIES, NodeCandidate
from homeport.core.model.node import Gpu, Node
from homeport.core.model.protocol import OWN, UNSAID
from homeport.core.values.selectors import parse_selector
from homeport.vocabulary import JobId, JobState, Liveness, NodeId
from tests.support.builders import HOME, NOW, a_node

GIB = 2**30


def machine(name: str, *, gpus: int = 0, labels: dict[str, str] | None = None, **capabilities: Any) -> Node:
    node = a_node(name)
    able = replace(
        node.info.capabilities,
        engine=str(capabilities.pop("engine", "podman")),
        cpu_cores=2,
        memory_bytes=8 * GIB,
        gpus=tuple(Gpu("nvidia", "A2", GIB) for _ in range(gpus)),
        **capabilities,
    )
    return replace(node, info=replace(node.info, capabilities=able, labels=labels or {}))


def job(number: int, **spec: Any) -> Job:
    wanted = JobSpec(**{"type": JobType.CONTAINER, "image": "app:1", **spec})
    return Job(JobId(f"j{number:04}"), HOME, wanted, JobState.PENDING, 1, NOW, "ann", NOW)


def jobs(count: int, **spec: Any) -> list[Job]:
    return [job(number, **spec) for number in range(count)]


def given(pending: list[Job], nodes: list[Node], strategy: str = "least-loaded", load: Load | None = None) -> Round:
    return schedule(pending, nodes, (), load or Load(), STRATEGIES[strategy](), limit=1000)


def spread(made: Round) -> dict[str, int]:
    return dict(Counter(each.node_id for each in made.given))


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("first-fit", {"a": 4, "b": 2}),
        ("round-robin", {"a": 2, "b": 2, "c": 2}),
        ("least-loaded", {"a": 2, "b": 2, "c": 2}),
        ("spread", {"a": 2, "b": 1, "c": 3}),
    ],
)
def test_strategies_distribute_differently(strategy: str, expected: dict[str, int]) -> None:
    """a and b are in one zone, c in another."""
    nodes = [machine(name, labels={"zone": "east" if name == "c" else "west"}) for name in "abc"]
    assert spread(given(jobs(6), nodes, strategy)) == expected


def test_round_robin_goes_on_where_it_was_although_the_first_node_is_free_again() -> None:
    load, nodes = Load(), [machine(name) for name in "abc"]
    turns = []
    for number in range(4):
        load.jobs.clear()
        turns.append(given([job(number)], nodes, "round-robin", load).given[0].node_id)
    assert turns == ["a", "b", "c", "a"]


def test_least_loaded_prefers_the_node_with_less_to_do() -> None:
    load = Load()
    for _ in range(3):
        load.add(NodeId("a"), JobSpec(JobType.CONTAINER))
    assert spread(given(jobs(2), [machine("a"), machine("b")], load=load)) == {"b": 2}


def test_gpu_aware_keeps_gpus_free_and_fills_the_smallest_machine_that_fits() -> None:
    nodes = [machine("a", gpus=4), machine("b", gpus=1), machine("c")]
    assert spread(given(jobs(2), nodes, "gpu-aware")) == {"c": 2}
    assert spread(given(jobs(1, gpus=1), nodes, "gpu-aware")) == {"b": 1}
    assert spread(given(jobs(1, gpus=2), nodes, "gpu-aware")) == {"a": 1}


def test_a_strategy_of_ones_own_decides() -> None:
    class LastByName:
        def rank(self, job: JobSpec, node: NodeCandidate) -> int:
            return -ord(node.node.id)

    made = schedule(jobs(1), [machine("a"), machine("b")], (), Load(), LastByName(), limit=10)
    assert spread(made) == {"b": 1}


@pytest.mark.parametrize(
    "rank",
    [lambda name: 1 / 0, lambda name: {name: 1}, lambda name: 1 if name == "a" else "b"],
    ids=["raises", "unordered", "mixed"],
)
def test_a_strategy_of_ones_own_that_fails_is_what_its_job_waits_for_and_no_other(rank: Any) -> None:
    """One that raises, one whose ranks have no order, and one whose ranks are of two types."""

    class OnSomeJobs:
        def rank(self, job: JobSpec, node: NodeCandidate) -> Any:
            return rank(node.node.id) if job.command else 0

    pending = [job(1, command=("odd",)), job(2)]
    made = schedule(pending, [machine("a"), machine("b")], (), Load(), OnSomeJobs(), limit=10)
    assert [each.job_id for each in made.given] == ["j0002"]
    assert "the scheduling strategy failed: " in made.waiting[JobId("j0001")]


def test_a_node_gets_no_more_than_its_slots_and_the_rest_waits_with_a_reason() -> None:
    node = machine("a")
    made = given(jobs(slots_of(node) + 2), [node])
    assert len(made.given) == slots_of(node)
    assert set(made.waiting.values()) == {"every node that can run it is busy with other jobs"}


def test_memory_and_cores_of_running_jobs_are_taken_into_account() -> None:
    made = given(jobs(3, memory_bytes=3 * GIB), [machine("a")])
    assert len(made.given) == 2
    assert "3Gi of memory are asked for, 2Gi are left" in next(iter(made.waiting.values()))
    assert len(given(jobs(3, cpu_cores=1.0), [machine("a")]).given) == 2


def test_a_large_job_does_not_keep_smaller_ones_behind_it_waiting() -> None:
    pending = [job(1, memory_bytes=6 * GIB), job(2, memory_bytes=6 * GIB), job(3, memory_bytes=GIB)]
    assert [each.job_id for each in given(pending, [machine("a")]).given] == ["j0001", "j0003"]


def test_a_job_larger_than_any_node_names_what_each_of_them_lacks() -> None:
    nodes = [machine("a"), machine("b", gpus=1), machine("c", engine="process")]
    why = unplaceable(JobSpec(JobType.CONTAINER, image="app:1", memory_bytes=16 * GIB, gpus=1), nodes)
    assert why is not None
    assert "a needs 16Gi of memory, has 8Gi" in why
    assert "c cannot run images: with process it runs native programs" in why
    assert unplaceable(JobSpec(JobType.CONTAINER, image="app:1"), []) == "The site has no node."


def test_a_job_that_a_drained_or_lost_node_could_run_waits() -> None:
    spec = JobSpec(JobType.CONTAINER, image="app:1")
    assert unplaceable(spec, [replace(machine("a"), drain="disk change")]) is None
    assert unplaceable(spec, [replace(machine("a"), liveness=Liveness.LOST)]) is None
    made = given(jobs(1), [replace(machine("a"), drain="disk change")])
    assert made.waiting == {"j0000": "a is drained: disk change"}


def test_native_commands_need_the_nodes_permission() -> None:
    spec = JobSpec(JobType.COMMAND, ("uname",))
    why = unplaceable(spec, [machine("a")])
    assert why is not None
    assert "--allow native-commands" in why
    assert unplaceable(spec, [machine("a", labels={"homeport.allow": "native-commands"})]) is None
    assert unplaceable(spec, [machine("a", labels={"homeport.allow": "all"})]) is None
    assert unplaceable(spec, [machine("a", engine="process")]) is None


def test_node_and_selector_are_kept_to() -> None:
    nodes = [machine("a"), machine("b", labels={"disk": "ssd"})]
    assert spread(given(jobs(2, selector=parse_selector("disk=ssd")), nodes)) == {"b": 2}
    assert spread(given(jobs(2, node=NodeId("a")), nodes)) == {"a": 2}
    why = unplaceable(JobSpec(JobType.CONTAINER, image="app:1", node=NodeId("z")), nodes)
    assert why is not None
    assert 'no node called "z"' in why


def test_an_entrypoint_is_for_nodes_that_know_it_and_for_them_alone() -> None:
    """A node of the release before would run the image's own entrypoint, and nobody would know."""
    older, newer = machine("older"), machine("newer")
    newer = replace(newer, info=replace(newer.info, protocol=OWN))
    assert spread(given(jobs(3, entrypoint="/bin/sh"), [older, newer])) == {"newer": 3}
    (why,) = given([job(1, entrypoint="/bin/sh"), job(2)], [older]).waiting.values()
    assert why == (
        "older runs an earlier release of Homeport, which does not know the entrypoint of a job: upgrade it"
    )
    refused = unplaceable(JobSpec(JobType.CONTAINER, image="app:1", entrypoint="/bin/sh"), [older])
    assert refused == f"No node can run this job: {why}."


def test_a_site_of_the_release_before_is_not_sent_what_it_does_not_know() -> None:
    with_one, without = (JobSpec(JobType.CONTAINER, image="app:1", entrypoint=each) for each in ("/bin/sh", ""))
    assert unsupported(with_one, UNSAID) == (
        "The site runs an earlier release of Homeport, which does not know the entrypoint of a job: upgrade it first."
    )
    assert unsupported(with_one, OWN) is None
    assert unsupported(without, UNSAID) is None
