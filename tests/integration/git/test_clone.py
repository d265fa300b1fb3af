"""Our own clone: made, found again, and made anew whatever happened to it."""

import shutil
from collections.abc import Callable, Sequence
from hashlib import sha1
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from homeport.adapters.git import Repository, create_bare, mirror, open_repository
from homeport.adapters.git.clone import make_clone
from homeport.errors import GitUnavailable, InvalidInput, Refused
from homeport.ports import Change
from homeport.vocabulary import Commit
from tests.support.git import Person, bare_repository, git, move
from tests.support.proposals import saying

pytestmark = pytest.mark.anyio


async def write(source: Repository, path: str, text: str = "1") -> Commit | None:
    async def decide(_head: Commit | None) -> Sequence[Change]:
        return [Change(path, text.encode())]

    return await source.commit(saying("m", decide), author="tester")


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def remove_all(clone: Path) -> None:
    shutil.rmtree(clone)


def remove_objects(clone: Path) -> None:
    shutil.rmtree(clone / "objects")


def remove_head(clone: Path) -> None:
    (clone / "HEAD").unlink()


def empty_every_object(clone: Path) -> None:
    for file in (clone / "objects").rglob("*"):
        if file.is_file():
            file.chmod(0o600)
            file.write_bytes(b"")


def empty_the_ref(clone: Path) -> None:
    (clone / "refs/remotes/origin/main").write_bytes(b"")


def scramble_the_config(clone: Path) -> None:
    (clone / "config").write_text("[core\n nonsense")


def lock_the_ref(clone: Path) -> None:
    (clone / "refs/remotes/origin/main.lock").write_bytes(b"")
    (clone / "packed-refs.lock").write_bytes(b"")


def be_a_file(clone: Path) -> None:
    shutil.rmtree(clone)
    clone.write_text("not a folder")


DAMAGES = [
    remove_all,
    remove_objects,
    remove_head,
    empty_every_object,
    empty_the_ref,
    scramble_the_config,
    lock_the_ref,
    be_a_file,
]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("when", ["before it is opened", "while it is open"])
async def test_a_damaged_clone_is_made_anew(
    remote: Path, tmp_path: Path, damage: Callable[[Path], None], when: str
) -> None:
    clone = tmp_path / "clone"
    source = await open_repository(str(remote), clone)
    first = await write(source, "folder/a")
    assert first is not None
    damage(clone)
    if when == "before it is opened":
        source = await open_repository(str(remote), clone)
    Person(str(remote), tmp_path / "person").push("something to fetch")
    assert await source.fetch() == git("rev-parse", "main", cwd=remote)
    assert [file.path for file in await source.files(first, "folder", size_max=10)] == ["folder/a"]
    assert await write(source, "folder/b") is not None
    assert git("ls-tree", "-r", "--name-only", "main", cwd=remote).split() == ["folder/a", "folder/b"]
    assert names_in(tmp_path) == ["clone", "person", "remotes"], "nothing is left over"


@pytest.mark.parametrize("damage", [remove_all, remove_objects, remove_head, empty_every_object])
async def test_reading_and_committing_heal_a_damaged_clone_as_well(
    remote: Path, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    source = await open_repository(str(remote), tmp_path / "clone")
    first = await write(source, "folder/a")
    assert first is not None
    damage(tmp_path / "clone")
    assert len(await source.files(first, "folder", size_max=10)) == 1
    damage(tmp_path / "clone")
    assert await write(source, "folder/b") is not None


def malformed(person: Person) -> str:
    """A commit without an author, as no git makes one."""
    tree, parent = (git("rev-parse", name, cwd=person.folder) for name in ("HEAD^{tree}", "HEAD"))
    file = person.folder / "commit"
    file.write_text(f"tree {tree}\nparent {parent}\ncommitter a <b> 1 +0000\n\nx\n")
    return git("hash-object", "-t", "commit", "-w", "--literally", str(file), cwd=person.folder)


async def test_a_commit_that_cannot_be_read_does_not_make_a_clone_again_and_again(
    remote: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = await open_repository(str(remote), tmp_path / "clone")
    first = await write(source, "folder/a")
    assert first is not None
    person = Person(str(remote), tmp_path / "person")
    git("push", "--quiet", "origin", f"{malformed(person)}:main", cwd=person.folder)
    made: list[Path] = []

    def counted(folder: Path, *others: Any) -> None:
        made.append(folder)
        make_clone(folder, *others)

    monkeypatch.setattr(mirror, "make_clone", counted)
    for _ in range(3):
        with pytest.raises(GitUnavailable, match="cannot be read"):
            await source.fetch()
    assert len(made) == 1
    assert [file.path for file in await source.files(first, "folder", size_max=10)] == ["folder/a"]
    git("push", "--quiet", "--force", "origin", f"{first}:main", cwd=person.folder)
    assert await source.fetch() == first


async def test_an_author_and_a_message_without_end_are_cut(remote: Path, tmp_path: Path) -> None:
    source = await open_repository(str(remote), tmp_path / "clone")
    await write(source, "folder/a")
    person = Person(str(remote), tmp_path / "person")
    file = person.folder / "commit"
    tree, parent = (git("rev-parse", name, cwd=person.folder) for name in ("HEAD^{tree}", "HEAD"))
    who = f"{'A' * 100_000} <a@b> 1 +0000"
    file.write_text(f"tree {tree}\nparent {parent}\nauthor {who}\ncommitter {who}\n\n{'m' * 5_000_000}\n")
    odd = git("hash-object", "-t", "commit", "-w", str(file), cwd=person.folder)
    git("push", "--quiet", "origin", f"{odd}:main", cwd=person.folder)
    commit = await source.fetch()
    assert commit == odd
    message, author, _ = await source.log(commit)
    assert (len(message), len(author)) == (4 * 1024 * 1024, 200)


async def test_the_repository_of_central_takes_no_malformed_commit(tmp_path: Path) -> None:
    create_bare(tmp_path / "own")
    source = await open_repository(str(tmp_path / "own"), tmp_path / "clone")
    await write(source, "folder/a")
    person = Person(str(tmp_path / "own"), tmp_path / "person")
    with pytest.raises(AssertionError, match="missingAuthor"):
        git("push", "origin", f"{malformed(person)}:main", cwd=person.folder)


async def test_a_fetch_from_a_folder_without_news_starts_no_program(
    remote: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = await open_repository(str(remote), tmp_path / "clone")
    written = await write(source, "a")
    with monkeypatch.context() as without_git:
        without_git.setenv("PATH", "")
        assert await source.fetch() == written
    person = Person(str(remote), tmp_path / "person")
    person.write("b", "2")
    person.push()
    fetched = await source.fetch()
    assert fetched not in {None, written}
    assert git("rev-parse", "main", cwd=remote) == fetched


async def test_a_folder_of_somebody_else_is_not_deleted(remote: Path, tmp_path: Path) -> None:
    (tmp_path / "clone").mkdir()
    (tmp_path / "clone" / "letters.txt").write_text("dear")
    with pytest.raises(Refused, match=r"letters\.txt") as caught:
        await open_repository(str(remote), tmp_path / "clone")
    assert caught.value.hint
    assert (tmp_path / "clone" / "letters.txt").read_text() == "dear"


async def test_a_clone_follows_its_remote_to_a_new_address(remote: Path, tmp_path: Path) -> None:
    source = await open_repository(str(remote), tmp_path / "clone")
    first = await write(source, "a")
    moved = move(remote, "moved.git")
    again = await open_repository(moved.as_uri(), tmp_path / "clone")
    assert await again.head() == first
    assert await again.fetch() == first
    other = bare_repository(tmp_path / "remotes" / "other.git")
    elsewhere = await open_repository(str(other), tmp_path / "clone")
    assert await elsewhere.fetch() is None
    assert await write(elsewhere, "b") is not None
    assert git("ls-tree", "--name-only", "main", cwd=other) == "b"


@pytest.mark.parametrize("branch", ["", "-x", "a..b", "a b", "/a", "a.lock"])
async def test_a_branch_name_that_git_would_not_take_is_refused(remote: Path, tmp_path: Path, branch: str) -> None:
    with pytest.raises(InvalidInput):
        await open_repository(str(remote), tmp_path / "clone", branch=branch)


@pytest.mark.parametrize(
    "url",
    ["", "-u", "--upload-pack=touch x", "ext::sh -c id", "fd::3", "::x", "ftp://h/x", "ext://x", "javascript://x",
     "ssh://-oProxyCommand=id/x", "-oProxyCommand=id:x", "git@-oProxyCommand=id:x", "host:-x", "http://", "http://h:x/",
     "file://other/x", "file://", "a\nb", "http://[::1/x"],
)  # fmt: skip
async def test_an_address_that_would_run_a_program_or_is_none_is_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(InvalidInput):
        await open_repository(url, tmp_path / "clone")
    assert not (tmp_path / "clone").exists()


@pytest.mark.parametrize(
    "url",
    ["http://h/x.git", "https://u:p@h:8443/x", "ssh://git@h:22/x", "git@host:team/x.git", "host:x", "git://h/x",
     "file:///x", "file://localhost/x", "relative/path", "./x:y", "~/x"],
)  # fmt: skip
async def test_the_addresses_that_people_use_are_taken(tmp_path: Path, url: str) -> None:
    assert (await open_repository(url, tmp_path / "clone")).url


async def test_a_clone_packs_what_piles_up_and_reads_on(
    remote: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("homeport.adapters.git.mirror.UNTIDY_MAX", 3)
    source = await open_repository(str(remote), tmp_path / "clone")
    git("config", "gc.auto", "1", cwd=tmp_path / "clone")
    for number, text in enumerate(contents_that_git_counts(5)):
        await write(source, f"folder/{number}", text)
    commit = await source.fetch()
    assert commit is not None
    assert "packs: 1" in git("count-objects", "-v", cwd=tmp_path / "clone")
    assert len(await source.files(commit, "folder", size_max=10)) == 5
    assert await write(source, "after") is not None


def contents_that_git_counts(count: int) -> list[str]:
    """git estimates how many objects there are from those whose id begins with 17."""
    texts = (f"{number:06}" for number in range(100_000))
    counted = (text for text in texts if sha1(f"blob 6\0{text}".encode()).hexdigest().startswith("17"))
    return list(islice(counted, count))
