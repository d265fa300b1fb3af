"""What nodes say of other kinds of work than deployments reaches whoever registered for it, and nobody else."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from homeport.core.model.order import Held, Progress, Result
from homeport.fleet.site.work import connect_others, take_others
from homeport.ports import NodeNews, Unreadable
from homeport.vocabulary import DeploymentId, Generation, NodeId, OrderKind
from tests.support.builders import NOW

pytestmark = pytest.mark.anyio

ONE = NodeId("one")


def a_result(work: str) -> Result:
    return Result(DeploymentId("x"), Generation(1), OrderKind.APPLY, True, NOW, work=work)


@dataclass
class Jobs:
    news: list[str] = field(default_factory=list)
    held: list[str] = field(default_factory=list)

    async def connected(self, node_id: NodeId, held: Sequence[Held]) -> None:
        self.held += [f"{node_id} {item.deployment_id}" for item in held]

    async def take(self, news: Sequence[tuple[NodeId, Progress | Result]]) -> None:
        self.news += [item.work for _, item in news]


async def test_each_kind_goes_to_its_own_and_what_nobody_knows_is_refused_by_name() -> None:
    jobs, refused = Jobs(), list[str]()

    async def refuse(node_id: NodeId, why: str) -> None:
        refused.append(f"{node_id}: {why}")

    unreadable = Unreadable("news", "nonsense")
    news: list[tuple[NodeId, NodeNews]] = [
        (ONE, a_result("job")),
        (ONE, a_result("deployment")),
        (ONE, a_result("dream")),
        (ONE, unreadable),
    ]
    assert await take_others(news, {"job": jobs}, refuse) == [(ONE, a_result("deployment")), (ONE, unreadable)]
    assert jobs.news == ["job"]
    assert refused == ['one: it is about work of the kind "dream", which this site does not know']


async def test_a_node_that_connects_says_to_each_kind_what_it_has_of_it() -> None:
    jobs = Jobs()
    held = [
        Held(DeploymentId(name), Generation(1), OrderKind.APPLY, None, False, work=work)
        for name, work in (("a", "deployment"), ("b", "job"), ("c", "dream"))
    ]
    await connect_others(ONE, held, {"job": jobs})
    assert jobs.held == ["one b"]
