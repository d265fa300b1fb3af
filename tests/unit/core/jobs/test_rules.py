"""What may be submitted: every problem by its field."""

import math
from dataclasses import replace
from typing import Any

import pytest

from homeport.core.inference.request import InferenceRequest
from homeport.core.jobs.job import JobSpec, JobType
from homeport.core.jobs.rules import check_job_id, check_spec
from homeport.errors import InvalidInput
from homeport.vocabulary import NodeId

GOOD = JobSpec(JobType.CONTAINER, ("echo", "hi"), "registry.example/app:1")
NATIVE = JobSpec(JobType.COMMAND, ("uname",))
POEM = InferenceRequest("tiny", "Write a poem")
ASKED = JobSpec(JobType.INFERENCE, inference=POEM)


def test_plain_jobs_are_fine() -> None:
    check_spec(GOOD)
    check_spec(NATIVE)
    check_spec(ASKED)
    check_spec(replace(GOOD, command=(), secrets={"KEY": "s3-key"}, artifacts=("/out/a.txt",), memory_bytes=2**30))


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        (replace(GOOD, image=""), "image"),
        (replace(GOOD, image="UPPER CASE"), "image"),
        (replace(NATIVE, image="app:1"), "image"),
        (replace(NATIVE, command=()), "command"),
        (replace(NATIVE, command=("",)), "command"),
        (replace(GOOD, command=("a\0b",)), "command"),
        (replace(GOOD, command=("a",) * 1001), "command"),
        (replace(GOOD, command=("a" * 70_000,)), "command"),
        (JobSpec(JobType.INFERENCE), "inference"),
        (replace(GOOD, inference=POEM), "inference"),
        (replace(ASKED, inference=replace(POEM, model="")), "inference.model"),
        (replace(ASKED, inference=replace(POEM, prompt="")), "inference.prompt"),
        (replace(ASKED, inference=replace(POEM, prompt="a" * 70_000)), "inference.prompt"),
        (replace(ASKED, inference=replace(POEM, max_tokens=0)), "inference.max_tokens"),
        (replace(ASKED, inference=replace(POEM, priority="now")), "inference.priority"),
        (replace(ASKED, inference=replace(POEM, seed=2**63)), "inference.seed"),
        (replace(ASKED, inference=replace(POEM, pool="a b")), "inference.pool"),
        (replace(ASKED, image="app:1"), "image"),
        (replace(ASKED, memory_bytes=2**30), "memory"),
        (replace(ASKED, timeout_seconds=-1.0), "timeout_seconds"),
        (replace(GOOD, environment={"1A": "x"}), "environment"),
        (replace(GOOD, environment={"A": "x" * 70_000}), "environment"),
        (replace(GOOD, environment={f"A{n}": "" for n in range(201)}), "environment"),
        (replace(GOOD, environment={"A": "secret://x"}), "environment.A"),
        (replace(GOOD, secrets={"A": "no such/name"}), "secrets.A"),
        (replace(GOOD, environment={"A": "x"}, secrets={"A": "a"}), "secrets.A"),
        (replace(GOOD, cpu_cores=math.nan), "cpu"),
        (replace(GOOD, cpu_cores=-1.0), "cpu"),
        (replace(GOOD, cpu_cores=0.001), "cpu"),
        (replace(GOOD, cpu_cores=math.inf), "cpu"),
        (replace(GOOD, memory_bytes=5), "memory"),
        (replace(GOOD, gpus=-1), "gpus"),
        (replace(GOOD, retries=11), "retries"),
        (replace(GOOD, timeout_seconds=0.0), "timeout_seconds"),
        (replace(GOOD, timeout_seconds=math.inf), "timeout_seconds"),
        (replace(GOOD, node=NodeId("a b")), "node"),
        (replace(GOOD, artifacts=("/a",) * 2), "artifacts"),
        (replace(GOOD, artifacts=tuple(f"/{n}" for n in range(17))), "artifacts"),
        (replace(GOOD, artifacts=("relative",)), "artifacts[0]"),
        (replace(GOOD, artifacts=("/a/../b",)), "artifacts[0]"),
        (replace(GOOD, artifacts=("",)), "artifacts[0]"),
        (replace(NATIVE, artifacts=("/etc/passwd",)), "artifacts[0]"),
    ],
)
def test_what_is_wrong_is_named(spec: JobSpec, field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_spec(spec)
    assert [problem.field for problem in caught.value.problems] == [field]


@pytest.mark.parametrize("job_id", ["", "a b", ".hidden", "a/b", "x" * 101, "a\n"])
def test_a_bad_id_is_refused(job_id: Any) -> None:
    with pytest.raises(InvalidInput):
        check_job_id(job_id)
