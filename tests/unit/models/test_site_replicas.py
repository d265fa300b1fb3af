"""A site that has just been started does not take engines that it has not heard of for engines that are not there."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import anyio
import pytest

from homeport.core.model.node import Node
from homeport.core.model.protocol import PeerProtocol
from homeport.errors import PeerUnavailable
from homeport.fleet.site.platform import SitePlatform
from homeport.models.site.replicas import INCOMPLETE_SECONDS_MAX, SiteReplicas
from homeport.ports import EngineHandoffs
from homeport.vocabulary import Feature, Liveness, NodeId, SiteName
from tests.support.builders import a_node
from tests.support.clock import ManualClock
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio

ANNOUNCES = PeerProtocol(features=(Feature.REPLICAS.value,))
NO_ENGINES = EngineHandoffs((), "a network")


class Central:
    """The link to central, as far as it is needed here."""

    def __init__(self) -> None:
        self.told = 0

    async def call(self, site: SiteName, topic: str, body: bytes) -> bytes:
        self.told += 1
        return b"{}"


def node(name: str, *, protocol: PeerProtocol = ANNOUNCES, liveness: Liveness = Liveness.LIVE) -> tuple[NodeId, Node]:
    made = a_node(name, liveness=liveness)
    return NodeId(name), replace(made, info=replace(made.info, protocol=protocol))


def a_site(nodes: Mapping[NodeId, Node]) -> tuple[SiteReplicas, ManualClock, Central]:
    clock, central = ManualClock(), Central()
    platform = SitePlatform(
        site=SiteName("home"),
        clock=clock,
        ids=cast(Any, None),
        store=cast(Any, None),
        central=cast(Any, central),
        nodes=lambda: nodes,
        send=lambda node_id, order: None,
        in_thread=cast(Any, None),
    )
    return SiteReplicas(platform, lambda replicas: None), clock, central


async def test_central_is_told_nothing_before_every_node_that_lives_has_announced_its_engines() -> None:
    old = node("old", protocol=PeerProtocol())
    lost = node("lost", liveness=Liveness.LOST)
    site, _, central = a_site(dict([node("one"), node("two"), old, lost]))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(site.run)
        site.announce(NodeId("one"), NO_ENGINES)
        await anyio.sleep(0.3)
        assert central.told == 0, "central would forget the engines of node two"
        with pytest.raises(PeerUnavailable, match="just started"):
            await site.asked({})
        site.announce(NodeId("two"), NO_ENGINES)
        await eventually(lambda: central.told > 0, what="the list of both")
        assert (await site.asked({}))["replicas"] == []
        tasks.cancel_scope.cancel()


async def test_a_node_that_says_nothing_is_not_waited_for_without_end() -> None:
    site, clock, _ = a_site(dict([node("one")]))
    assert not site.is_complete()
    clock.passed = INCOMPLETE_SECONDS_MAX + 0.1
    assert site.is_complete()


async def test_a_node_that_joins_later_changes_nothing() -> None:
    nodes: dict[NodeId, Node] = {}
    site, _, _ = a_site(nodes)
    assert site.is_complete()
    nodes.update([node("one")])
    assert site.is_complete()
