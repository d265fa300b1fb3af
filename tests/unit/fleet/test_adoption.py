"""What a snapshot of Git means for the deployments of a site."""

from homeport.core.model.event import Deployment
from homeport.fleet.shared.adoption import adoption
from homeport.fleet.shared.snapshot import Snapshot, read_snapshot
from homeport.fleet.site.state import SiteState
from homeport.ports import TreeFile
from homeport.vocabulary import Commit, DeploymentId, Generation, Incarnation, NodeId, SiteName, State
from tests.simulation.life import BEGINNING
from tests.support.deployment_files import deployment_file

NORTH, COMMIT = SiteName("north"), Commit("0" * 40)
MARKER = TreeFile("deployments/north/site.yaml", b"site: north\n")
PATH, TEXT = deployment_file(site=NORTH)
KEY = DeploymentId(PATH.rpartition("/")[2].removesuffix(".yaml"))
GOOD, SPOILT = TreeFile(PATH, TEXT.encode()), TreeFile(PATH, b"id: [this is\n")


def snapshot(*files: TreeFile) -> Snapshot:
    return read_snapshot(NORTH, COMMIT, [MARKER, *files], {})


def test_a_file_that_comes_back_and_cannot_be_read_is_wanted_while_its_deployment_is_there() -> None:
    memory = SiteState(NORTH, Generation(1), Incarnation(1))
    rows: dict[DeploymentId, Deployment] = {}
    for found, is_wanted in ((snapshot(GOOD), True), (snapshot(), False), (snapshot(SPOILT), True)):
        gone = frozenset(memory.wanted - found.present)
        states = {KEY: [(NodeId("one"), State.DELETING)]}
        adopted = adoption(found, rows, gone, frozenset(), states, site=NORTH, author="ada", now=BEGINNING)
        rows |= {row.id: row for row in adopted.deployments}
        memory.adopt(found, ())
        assert (rows[KEY].wanted, KEY in memory.wanted) == (is_wanted, is_wanted)


def test_a_file_that_comes_back_and_cannot_be_read_does_not_bring_back_what_is_gone() -> None:
    memory = SiteState(NORTH, Generation(1), Incarnation(1))
    memory.adopt(snapshot(GOOD), ())
    memory.adopt(snapshot(), ())
    memory.forget_finished()
    memory.adopt(snapshot(SPOILT), ())
    assert not memory.wanted
