"""Reading somebody's app registry, and making a repository of our own."""

from pathlib import Path

import pytest

from homeport.adapters.git import create_bare, open_repository, snapshot
from homeport.errors import GitUnavailable, InvalidInput, Refused
from tests.support.git import Person, bare_repository, git
from tests.support.git_http import GitHttpServer

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("over", ["path", "http"])
async def test_a_snapshot_is_the_default_branch_as_it_is_now(
    server: GitHttpServer, tmp_path: Path, over: str
) -> None:
    registry = bare_repository(server.root / "apps.git", branch="trunk")
    person = Person(str(registry), tmp_path / "person", branch="trunk")
    url = str(registry) if over == "path" else server.url("apps.git")
    assert (await snapshot(url, tmp_path / "clone"))[0] is None, "it is empty"
    person.write("demo/hello/1.0.0/margo.yaml", "kind: ApplicationDescription\n")
    for text in ("one", "two"):
        person.write("demo/hello/1.0.0/notes", text)
        pushed = person.push()
        commit, reader = await snapshot(url, tmp_path / "clone")
        assert commit == pushed
        files = {file.path: file.content for file in await reader.files(commit, "demo", size_max=100)}
        assert files["demo/hello/1.0.0/notes"] == text.encode()
        assert len(files) == 2


async def test_a_snapshot_can_be_of_another_branch(remote: Path, tmp_path: Path) -> None:
    Person(str(remote), tmp_path / "main").push()
    pushed = Person(str(remote), tmp_path / "next", branch="next").push("other")
    assert (await snapshot(str(remote), tmp_path / "clone", branch="next"))[0] == pushed
    assert (await snapshot(str(remote), tmp_path / "clone", branch="missing"))[0] is None


async def test_a_snapshot_of_a_checkout_is_what_is_checked_out(remote: Path, tmp_path: Path) -> None:
    person = Person(str(remote), tmp_path / "person")
    first = person.commit("first")
    person.commit("second")
    git("checkout", "--quiet", "--detach", first, cwd=person.folder)
    assert (await snapshot(str(person.folder), tmp_path / "clone"))[0] == first


async def test_a_snapshot_of_nothing_says_so(tmp_path: Path) -> None:
    with pytest.raises(GitUnavailable, match="does not exist"):
        await snapshot(str(tmp_path / "nothing"), tmp_path / "clone")


async def test_people_and_homeport_push_to_a_repository_of_our_making(tmp_path: Path) -> None:
    create_bare(tmp_path / "data" / "deployments.git", branch="live")
    person = Person(str(tmp_path / "data" / "deployments.git"), tmp_path / "person", branch="live")
    person.write("a", "1")
    pushed = person.push()
    source = await open_repository(str(tmp_path / "data" / "deployments.git"), tmp_path / "clone", branch="live")
    assert await source.fetch() == pushed
    git("clone", "--quiet", str(tmp_path / "data" / "deployments.git"), str(tmp_path / "second"))
    assert git("branch", "--show-current", cwd=tmp_path / "second") == "live"
    create_bare(tmp_path / "data" / "deployments.git", branch="live")
    assert await source.fetch() == pushed, "a second start leaves it as it is"
    git("fsck", "--strict", cwd=tmp_path / "data" / "deployments.git")


async def test_a_repository_is_not_made_over_somebodys_files(tmp_path: Path) -> None:
    (tmp_path / "letters.txt").write_text("dear")
    with pytest.raises(Refused):
        create_bare(tmp_path)
    with pytest.raises(InvalidInput):
        create_bare(tmp_path / "new", branch="a..b")
