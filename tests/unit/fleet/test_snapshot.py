"""Reading a site's folder: what is there in any shape was not removed."""

import pytest

from homeport.fleet.snapshot import BrokenSource, read_snapshot
from homeport.ports import TreeFile
from homeport.vocabulary import Commit, SiteName
from tests.support.deployment_files import deployment_file

SITE, COMMIT = SiteName("north"), Commit("0" * 40)
MARKER = TreeFile("deployments/north/site.yaml", b"site: north\n")


def test_a_link_in_the_place_of_a_file_keeps_its_deployment_and_is_a_problem() -> None:
    path, text = deployment_file(site="north")
    known = read_snapshot(SITE, COMMIT, [MARKER, TreeFile(path, text.encode())], {}).desired
    snapshot = read_snapshot(SITE, COMMIT, [MARKER, TreeFile(path, b"", is_regular=False)], known)
    assert snapshot.kept == frozenset(known)
    assert not snapshot.desired
    assert [(problem.path, "link" in problem.message) for problem in snapshot.problems] == [(path, True)]


def test_a_marker_that_is_a_link_marks_nothing() -> None:
    with pytest.raises(BrokenSource):
        read_snapshot(SITE, COMMIT, [TreeFile(MARKER.path, b"", is_regular=False)], {})
