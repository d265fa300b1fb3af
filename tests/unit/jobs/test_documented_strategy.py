"""The strategy of one's own that the guide shows is one that a site can use."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from homeport.core.jobs.job import JobSpec, JobType
from homeport.core.jobs.strategies import NodeCandidate
from homeport.errors import InvalidInput
from homeport.jobs.site.strategy import open_strategy
from tests.support.builders import a_node

GUIDE = Path(__file__).parents[3] / "docs" / "how-to" / "run-jobs.md"
JOB = JobSpec(JobType.COMMAND, ("true",))


def candidate(name: str, *, jobs: int, **labels: str) -> NodeCandidate:
    node = a_node(name)
    node = replace(node, info=replace(node.info, labels=labels))
    return NodeCandidate(node, jobs, 4, 0, 0.0, 0, 0, 0)


def test_the_strategy_of_the_guide_prefers_cheap_power(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    named = re.search(r"--job-strategy (\w+):(\w+)", code)
    assert named is not None
    (tmp_path / f"{named[1]}.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    strategy = open_strategy(f"{named[1]}:{named[2]}")
    nodes = [
        candidate("busy-solar", jobs=3, power="solar"),
        candidate("idle-grid", jobs=0),
        candidate("idle-solar", jobs=0, power="solar"),
    ]
    ranked = sorted(nodes, key=lambda node: (strategy.rank(JOB, node), node.node.id))
    assert [each.node.id for each in ranked] == ["idle-solar", "busy-solar", "idle-grid"]


@pytest.mark.parametrize("name", ["fastest", "no_such_module_here:Any", "json:JSONDecoder", "json:missing"])
def test_a_strategy_that_cannot_be_used_says_so(name: str) -> None:
    with pytest.raises(InvalidInput, match="job_strategy"):
        open_strategy(name)
