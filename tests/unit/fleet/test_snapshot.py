"""Reading a site's folder: what is there in any shape was not removed."""

from dataclasses import replace

import pytest

from homeport.fleet.shared.snapshot import UNKNOWN_FILES_SHOWN_MAX, BrokenSource, read_snapshot
from homeport.ports import TreeFile
from homeport.vocabulary import Commit, SiteName
from tests.support.deployment_files import deployment_file

SITE, COMMIT = SiteName("north"), Commit("0" * 40)
MARKER = TreeFile("deployments/north/site.yaml", b"site: north\n")


def test_a_link_in_the_place_of_a_file_keeps_its_deployment_and_is_a_problem() -> None:
    path, text = deployment_file(site="north")
    known = read_snapshot(SITE, COMMIT, [MARKER, TreeFile(path, text.encode())], {}).desired
    snapshot = read_snapshot(SITE, COMMIT, [MARKER, TreeFile(path, b"", is_regular=False)], known)
    assert snapshot.unreadable == frozenset(known)
    assert not snapshot.desired
    assert [(problem.path, "link" in problem.message) for problem in snapshot.problems] == [(path, True)]


def test_a_marker_that_is_a_link_marks_nothing() -> None:
    with pytest.raises(BrokenSource):
        read_snapshot(SITE, COMMIT, [TreeFile(MARKER.path, b"", is_regular=False)], {})


@pytest.mark.parametrize(
    "content",
    [
        b"site: south\n",
        b"",
        b"labels: {zone: a}\n",
        b"<<<<<<< HEAD\nsite: north\n=======\nsite: north\nlabels: {a: b}\n>>>>>>> theirs\n",
        b"site: north\nlabels: {a: " + b"9" * 400 + b"}\n",
        b"\xff\xfe",
    ],
)
def test_a_marker_that_is_unreadable_or_another_sites_marks_nothing(content: bytes) -> None:
    path, text = deployment_file(site="north")
    with pytest.raises(BrokenSource, match=r"deployments/north/site\.yaml"):
        read_snapshot(SITE, COMMIT, [replace(MARKER, content=content), TreeFile(path, text.encode())], {})


ID = "c0ffee00-5eed-4000-8000-00decade0000"


@pytest.mark.parametrize(
    "name",
    [f"{ID}.yml", f"{ID.upper()}.yaml", f"{ID}.YAML", f"{ID}.yaml/new.yaml", f"old/{ID}.yaml", f"{ID}.yaml.bak", ID],
)
def test_a_file_that_was_renamed_keeps_its_deployment_and_is_a_problem(name: str) -> None:
    path, text = deployment_file(site="north", deployment_id=ID)
    known = read_snapshot(SITE, COMMIT, [MARKER, TreeFile(path, text.encode())], {}).desired
    renamed = TreeFile(f"deployments/north/{name}", text.encode())
    snapshot = read_snapshot(SITE, COMMIT, [MARKER, renamed], known)
    assert snapshot.unreadable == snapshot.present == {ID}
    assert [(problem.path, problem.deployment_id) for problem in snapshot.problems] == [(renamed.path, ID)]


def test_a_copy_beside_the_file_itself_is_a_problem_of_its_own_alone() -> None:
    path, text = deployment_file(site="north", deployment_id=ID)
    files = [MARKER, TreeFile(path, text.encode()), TreeFile(f"{path}~", b"half of it")]
    snapshot = read_snapshot(SITE, COMMIT, files, {})
    assert (set(snapshot.desired), snapshot.unreadable) == ({ID}, frozenset())
    assert [(problem.path, problem.deployment_id) for problem in snapshot.problems] == [(f"{path}~", None)]


def test_of_two_files_with_one_name_the_one_that_had_it_first_stays() -> None:
    other = "00000000-5eed-4000-8000-00decade0000"
    first, second = (
        TreeFile(path, text.encode())
        for path, text in (deployment_file(site="north", deployment_id=key) for key in (ID, other))
    )
    known = read_snapshot(SITE, COMMIT, [MARKER, first], {}).desired
    snapshot = read_snapshot(SITE, COMMIT, [MARKER, first, second], known)
    assert set(snapshot.desired) == {ID}
    assert snapshot.unreadable == {other}
    assert [(problem.deployment_id, ID in problem.message) for problem in snapshot.problems] == [(other, True)]
    alone = read_snapshot(SITE, COMMIT, [MARKER, second], known)
    assert (set(alone.desired), alone.problems) == ({other}, ())


def test_two_files_may_swap_their_names() -> None:
    other = "00000000-5eed-4000-8000-00decade0000"

    def files(one: str, two: str) -> list[TreeFile]:
        named = ((ID, one), (other, two))
        written = [deployment_file(site="north", deployment_id=key, name=name) for key, name in named]
        return [MARKER, *(TreeFile(path, text.encode()) for path, text in written)]

    known = read_snapshot(SITE, COMMIT, files("a", "b"), {}).desired
    swapped = read_snapshot(SITE, COMMIT, files("b", "a"), known)
    assert {key: item.name for key, item in swapped.desired.items()} == {ID: "b", other: "a"}
    assert not swapped.problems


def test_a_folder_of_strange_files_names_only_some_of_them() -> None:
    unknown_peers = [TreeFile(f"deployments/north/notes-{number}.txt", b"") for number in range(500)]
    snapshot = read_snapshot(SITE, COMMIT, [MARKER, *unknown_peers], {})
    assert len(snapshot.problems) == UNKNOWN_FILES_SHOWN_MAX
