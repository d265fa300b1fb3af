"""What is said of a node whose site is silent."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from homeport.core.lifecycle.node import liveness_at_central, silent_since
from homeport.core.model.event import Site
from homeport.core.model.node import Capabilities, Node, NodeInfo
from homeport.vocabulary import Liveness, NodeId, SiteName

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
MACHINE = Capabilities(4, 8, 8, 8, "linux", "amd64")
NODE = Node(NodeInfo(NodeId("n1"), "n1", MACHINE), SiteName("home"), Liveness.LIVE, NOW, NOW)
SITE = Site(SiteName("home"), NOW, NOW - timedelta(seconds=5), None)


@pytest.mark.parametrize("said", [Liveness.LIVE, Liveness.STALE, Liveness.LOST])
def test_what_a_site_in_reach_says_is_believed(said: Liveness) -> None:
    assert liveness_at_central(replace(NODE, liveness=said), is_site_reachable=True) is said


@pytest.mark.parametrize(
    ("said", "seen"),
    [(Liveness.LIVE, Liveness.UNKNOWN), (Liveness.STALE, Liveness.UNKNOWN), (Liveness.LOST, Liveness.LOST)],
)
def test_what_a_silent_site_said_ages(said: Liveness, seen: Liveness) -> None:
    assert liveness_at_central(replace(NODE, liveness=said), is_site_reachable=False) is seen


def test_since_when_is_what_was_heard_last() -> None:
    assert silent_since(NODE, SITE, is_site_reachable=True) is None
    assert silent_since(NODE, SITE, is_site_reachable=False) == SITE.last_seen
    lost = replace(NODE, liveness=Liveness.LOST, last_seen=NOW - timedelta(hours=1))
    assert silent_since(lost, SITE, is_site_reachable=False) == lost.last_seen
