"""What every `GitSource` does, over a path, a file URL and HTTP, and in the simulation."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest

from homeport.adapters.git import trees
from homeport.errors import Conflict, InvalidInput, NotFound, TooLarge
from homeport.ports import Change, GitSource, TreeFile
from homeport.vocabulary import Commit
from tests.conformance.git.conftest import REAL, Open, RealRemote, Remote, Somebody
from tests.support.git import Person, git
from tests.support.proposals import saying

pytestmark = pytest.mark.anyio

Decide = Callable[[Commit | None], Awaitable[Sequence[Change]]]


def writing(**files: str | None) -> Decide:
    """Decides on these files whatever is there; `__` in a name stands for a slash."""

    async def decide(_head: Commit | None) -> Sequence[Change]:
        return [
            Change(name.replace("__", "/"), None if text is None else text.encode()) for name, text in files.items()
        ]

    return decide


async def put(source: GitSource, path: str, text: str | None) -> Commit | None:
    async def decide(_head: Commit | None) -> Sequence[Change]:
        return [Change(path, None if text is None else text.encode())]

    return await source.commit(saying(f"change {path}", decide), author="tester")


async def contents(source: GitSource, commit: Commit | None, folder: str = "") -> dict[str, str]:
    assert commit is not None
    return {file.path: file.content.decode() for file in await source.files(commit, folder, size_max=1000)}


async def test_a_remote_without_the_branch_has_no_newest_commit(open_one: Open) -> None:
    source = await open_one()
    assert await source.fetch() is None
    assert await source.head() is None


async def test_the_first_commit_makes_the_branch_of_an_empty_remote(open_one: Open, remote: Remote) -> None:
    source = await open_one()
    commit = await put(source, "deployments/home/site.yaml", "site: home\n")
    assert remote.tip == commit == await source.head() == await source.fetch()
    assert await contents(source, commit) == {"deployments/home/site.yaml": "site: home\n"}


async def test_a_persons_push_is_fetched(open_one: Open, person: Somebody) -> None:
    source = await open_one()
    person.write("deployments/home/a.yaml", "a\n")
    pushed = person.push()
    assert await source.head() is None
    assert await source.fetch() == pushed == await source.head()


@pytest.mark.parametrize("remote", REAL, indirect=True)
async def test_our_commit_reaches_a_person(open_one: Open, person: Person) -> None:
    await put(await open_one(), "deployments/home/a.yaml", "a\n")
    person.pull()
    assert person.read("deployments/home/a.yaml") == "a\n"
    assert git("log", "-1", "--format=%an <%ae> %s", cwd=person.folder) == (
        "tester <tester@homeport.invalid> change deployments/home/a.yaml"
    )
    git("fsck", "--strict", cwd=person.folder)


@pytest.mark.parametrize("remote", REAL, indirect=True)
async def test_a_branch_other_than_main_is_followed(open_one: Open, remote: RealRemote, tmp_path: Path) -> None:
    source = await open_one(branch="fleet/live")
    commit = await put(source, "a", "1")
    assert git("rev-parse", "fleet/live", cwd=remote.path) == commit
    other = Person(str(remote.path), tmp_path / "other", branch="fleet/live")
    other.write("a", "2")
    assert other.push() == await source.fetch()


async def test_changes_write_replace_and_remove_nested_files(open_one: Open) -> None:
    source = await open_one()
    await source.commit(saying("first", writing(a="1", b__c__d="2", b__e="3")), author="tester")
    commit = await source.commit(saying("second", writing(a="one", b__c__d=None, f__g="4")), author="tester")
    assert await contents(source, commit) == {"a": "one", "b/e": "3", "f/g": "4"}


async def test_a_folder_vanishes_with_its_last_file(open_one: Open, remote: Remote) -> None:
    source = await open_one()
    await source.commit(saying("first", writing(a__b__c="1", d="2")), author="tester")
    await put(source, "a/b/c", None)
    assert remote.names == ["d"]
    last = await put(source, "d", None)
    assert await contents(source, last) == {}


async def test_no_changes_make_no_commit(open_one: Open) -> None:
    source = await open_one()
    first = await put(source, "a", "1")
    assert await source.commit(saying("nothing", writing()), author="tester") is None
    assert await put(source, "a", "1") is None
    assert await put(source, "missing/file", None) is None
    assert await source.fetch() == first


@pytest.mark.parametrize("author", ["\\", "\\\\.", "", "\0", "<>", '"', "a" * 5000, "\ud800", "a\nb <c@d>"])
async def test_any_author_may_change_something_and_damages_nothing(
    open_one: Open, author: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The name of a token is anybody's choice; what git would not write as a name is left out of it."""
    source = await open_one()
    assert await source.commit(saying("change", writing(a="1")), author=author) is not None
    assert await contents(source, await put(source, "b", "2")) == {"a": "1", "b": "2"}
    assert not [record for record in caplog.records if "damaged" in record.getMessage()]


async def test_to_do_nothing_is_decided_on_the_remotes_newest_commit(open_one: Open, person: Somebody) -> None:
    source = await open_one()
    await put(source, "a", "1")
    person.pull()
    person.remove("a")
    person.push()
    assert await put(source, "a", "1") is not None, "the file is gone by now, so writing it is a change"


async def test_a_refusal_is_decided_on_the_remotes_newest_commit(open_one: Open, person: Somebody) -> None:
    source = await open_one()
    await put(source, "a", "1")
    person.pull()
    person.write("b", "2")
    person.push()

    async def decide(head: Commit | None) -> Sequence[Change]:
        if "b" not in await contents(source, head):
            raise NotFound("There is no b.")
        return [Change("b", None)]

    assert await contents(source, await source.commit(saying("remove b", decide), author="tester")) == {"a": "1"}


async def test_an_error_of_the_decision_reaches_the_caller_and_changes_nothing(open_one: Open) -> None:
    source = await open_one()
    first = await put(source, "a", "1")

    async def decide(_head: Commit | None) -> Sequence[Change]:
        raise Conflict("No.")

    with pytest.raises(Conflict):
        await source.commit(saying("no", decide), author="tester")
    assert await source.fetch() == first


async def test_the_decision_is_asked_again_on_top_of_a_faster_writer(open_one: Open, person: Somebody) -> None:
    source = await open_one()
    await put(source, "a", "1")
    person.pull()
    heads: list[Commit | None] = []

    async def decide(head: Commit | None) -> Sequence[Change]:
        heads.append(head)
        if len(heads) == 1:
            person.write("theirs", "x")
            person.push()
        return [Change("ours", f"attempt {len(heads)}".encode())]

    commit = await source.commit(saying("ours", decide), author="tester")
    assert await contents(source, commit) == {"a": "1", "ours": "attempt 2", "theirs": "x"}
    assert len(set(heads)) == 2
    assert heads[1] is not None and await source.is_ancestor(heads[1], Commit(str(commit)))


async def test_a_branch_that_was_just_set_back_does_not_get_back_what_was_taken_from_it(
    open_one: Open, person: Somebody
) -> None:
    """A commit on top of what was here a moment ago would be a fast-forward of the older one as well."""
    source = await open_one()
    first = await put(source, "kept", "1")
    await put(source, "taken back", "1")
    heads: list[Commit | None] = []

    async def decide(head: Commit | None) -> Sequence[Change]:
        if not heads:
            person.set_back(str(first))
        heads.append(head)
        return [Change("ours", b"1")]

    commit = await source.commit(saying("ours", decide), author="tester")
    assert heads[-1] == first
    assert await contents(source, commit) == {"kept": "1", "ours": "1"}


@pytest.mark.parametrize("remote", ["path", "http", "simulated"], indirect=True)
async def test_twenty_writers_with_their_own_clones_lose_no_commit(open_one: Open, remote: Remote) -> None:
    async def write(number: int) -> None:
        source = await open_one(f"clone-{number}")
        assert await put(source, f"deployments/site-{number}/a.yaml", str(number)) is not None

    async with anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(write, number)
    assert remote.commits == 20
    assert len(remote.names) == 20


async def test_twenty_writers_through_one_clone_lose_no_commit(open_one: Open, remote: Remote) -> None:
    source = await open_one()
    async with anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(put, source, f"file-{number}", str(number))
    assert remote.commits == 20
    assert len(await contents(source, await source.head())) == 20


@pytest.mark.parametrize("remote", ["path", "simulated"], indirect=True)
@pytest.mark.parametrize(
    "path",
    ["", "/etc/passwd", "../up", "a/../../b", "a//b", "a/", "./a", ".git/config", "a/.GIT/hooks/x", "git~1/x",
     ".git./x", "a\\b", "a\nb", "a\0b", "a\ud800b", "/".join("x" * 40)],
)  # fmt: skip
async def test_a_path_that_leaves_the_repository_is_refused(open_one: Open, path: str) -> None:
    source = await open_one()
    with pytest.raises(InvalidInput):
        await put(source, path, "x")
    assert await source.fetch() is None


async def test_a_file_and_a_folder_do_not_share_a_path(open_one: Open) -> None:
    source = await open_one()
    first = await put(source, "a/b", "1")
    for changes in (writing(a="x"), writing(a__b__c="x"), writing(c="x", c__d="x"), writing(c__d="x", c="x")):
        with pytest.raises(InvalidInput):
            await source.commit(saying("no", changes), author="tester")
    assert await source.fetch() == first


async def test_a_thousand_files_in_one_commit_are_like_one(open_one: Open, remote: Remote) -> None:
    source = await open_one()

    async def commit(changes: Sequence[Change]) -> Commit | None:
        async def decide(_head: Commit | None) -> Sequence[Change]:
            return changes

        return await source.commit(saying("many\n\nat once", decide), author='Ann "A" Lee')

    files = {f'deployments/site-{n}/"ä {n}".yaml': f"{n}\n" for n in range(1000)}
    everything = [Change(path, text.encode()) for path, text in files.items()]
    assert await commit([Change(path, None) for path in files]) is None, "there is nothing to remove yet"
    await commit([Change("kept", b"1")])
    made = await commit(everything)
    assert made is not None
    assert await contents(source, made, "deployments") == files
    assert (await source.log(made))[:2] == ("many\n\nat once", 'Ann "A" Lee')
    assert await commit(everything) is None
    assert len(await source.changed_paths(None, made, "deployments")) == 1000
    with pytest.raises(InvalidInput):
        await commit([*everything, Change("deployments/site-1", b"x")])
    with pytest.raises(InvalidInput):
        await commit([Change("kept/below", b"x"), *everything])
    removed = await commit([Change(path, None) for path in files])
    assert await contents(source, removed) == {"kept": "1"}
    remote.check()


async def test_files_are_those_below_the_folder_sorted_by_path(open_one: Open) -> None:
    source = await open_one()
    files = writing(a__z="1", a__b__c="2", a__b="3", ab__c="4", b="5")
    with pytest.raises(InvalidInput):
        await source.commit(saying("b is both", files), author="tester")
    commit = await source.commit(
        saying("m", writing(a__z="1", a__b__c="2", **{"a__b-d": "3", "ab__c": "4", "b": "5"})), author="tester"
    )
    assert commit is not None
    for folder in ("a", "a/", "/a", "./a"):
        assert [file.path for file in await source.files(commit, folder, size_max=9)] == ["a/b-d", "a/b/c", "a/z"]
    assert await source.files(commit, "b", size_max=9) == [], "a file is no folder"
    assert await source.files(commit, "nowhere", size_max=9) == []
    assert len(await source.files(commit, "", size_max=9)) == 5


async def test_a_file_above_the_limit_has_one_byte_more_than_the_limit(open_one: Open) -> None:
    source = await open_one()
    commit = await source.commit(saying("m", writing(at="x" * 10, above="x" * 11, far="x" * 5000)), author="tester")
    assert commit is not None
    assert await source.files(commit, "", size_max=10) == [
        TreeFile("above", b"x" * 11),
        TreeFile("at", b"x" * 10),
        TreeFile("far", b"x" * 11),
    ]


@pytest.mark.parametrize("remote", REAL, indirect=True)
async def test_links_are_named_but_not_followed_and_programs_are_files(open_one: Open, person: Person) -> None:
    source = await open_one()
    person.write("folder/plain", "1")
    person.write("folder/program", "2")
    (person.folder / "folder/program").chmod(0o755)
    (person.folder / "folder/link").symlink_to("/etc/passwd")
    (person.folder / "linked").symlink_to("folder")
    git("update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},folder/submodule", cwd=person.folder)
    git("add", "--all", ":!folder/submodule", cwd=person.folder)
    git("commit", "--quiet", "--message", "all kinds", cwd=person.folder)
    git("push", "--quiet", "origin", "HEAD:refs/heads/main", cwd=person.folder)
    commit = await source.fetch()
    assert commit is not None
    regular = {
        file.path: file.content for file in await source.files(commit, "folder", size_max=100) if file.is_regular
    }
    assert regular == {"folder/plain": b"1", "folder/program": b"2"}
    others = [file for file in await source.files(commit, "folder", size_max=100) if not file.is_regular]
    assert others == [TreeFile(f"folder/{name}", b"", is_regular=False) for name in ("link", "submodule")]
    assert await contents(source, commit, "linked") == {}


async def test_changed_paths_are_added_changed_and_removed_ones(open_one: Open) -> None:
    source = await open_one()
    before = await source.commit(saying("m", writing(d__s__a="1", d__s__b="1", d__t__c="1", e="1")), author="t")
    after = await source.commit(saying("m", writing(d__s__a="2", d__s__b=None, d__u__n="1", e="2")), author="t")
    assert before is not None and after is not None
    assert await source.changed_paths(before, after, "d") == ["d/s/a", "d/s/b", "d/u/n"]
    assert await source.changed_paths(before, after, "d/s") == ["d/s/a", "d/s/b"]
    assert await source.changed_paths(before, after, "d/t") == []
    assert await source.changed_paths(before, after, "") == ["d/s/a", "d/s/b", "d/u/n", "e"]
    assert await source.changed_paths(None, before, "d/s") == ["d/s/a", "d/s/b"]
    assert await source.changed_paths(after, before, "d/u") == ["d/u/n"]


async def test_a_file_that_becomes_a_folder_counts_with_what_is_in_it(open_one: Open, person: Somebody) -> None:
    source = await open_one()
    person.write("d/x", "1")
    before = Commit(person.push())
    person.remove("d/x")
    person.write("d/x/y", "1")
    after = Commit(person.push())
    await source.fetch()
    assert await source.changed_paths(before, after, "d") == ["d/x", "d/x/y"]


async def test_rewritten_history_is_fetched_and_is_no_descendant(open_one: Open, person: Somebody) -> None:
    source = await open_one()
    person.write("a", "1")
    first = Commit(person.push())
    person.write("a", "2")
    second = Commit(person.push())
    assert await source.fetch() == second
    assert await source.is_ancestor(first, second)
    assert await source.is_ancestor(second, second)
    assert not await source.is_ancestor(second, first)
    person.amend("rewritten")
    rewritten = Commit(person.push("on top", force=True))
    assert await source.fetch() == rewritten
    assert await source.is_ancestor(first, rewritten)
    assert not await source.is_ancestor(second, rewritten)
    assert await contents(source, second) == {"a": "2"}, "what was applied can still be read"


async def test_a_commit_that_is_not_here_is_nobodys_ancestor_and_not_found(open_one: Open) -> None:
    source = await open_one()
    head = await put(source, "a", "1")
    assert head is not None
    for unknown in (Commit("1" * 40), Commit("nonsense"), Commit("")):
        assert not await source.is_ancestor(unknown, head)
        with pytest.raises(NotFound):
            await source.files(unknown, "", size_max=1)
        with pytest.raises(NotFound):
            await source.log(unknown)


async def test_a_branch_that_was_deleted_is_none_and_what_was_fetched_stays(
    open_one: Open, person: Somebody, remote: Remote
) -> None:
    source = await open_one()
    person.write("a", "1")
    pushed = Commit(person.push())
    await source.fetch()
    remote.delete_branch()
    assert await source.fetch() is None
    assert await source.head() == pushed
    assert await contents(source, pushed) == {"a": "1"}


async def test_the_log_tells_message_author_and_time(open_one: Open) -> None:
    source = await open_one()
    commit = await source.commit(saying("deploy hello\n\nfor a reason", writing(a="1")), author="Ann <b> Lee\n")
    assert commit is not None
    message, author, when = await source.log(commit)
    assert (message, author) == ("deploy hello\n\nfor a reason", "Ann b Lee")
    assert abs(datetime.now(UTC) - when) < timedelta(minutes=1)


@pytest.mark.parametrize("remote", ["path", "simulated"], indirect=True)
@pytest.mark.parametrize("author", ["", "  ", "<>", "...", "Zoë Ünï", "token:ci/deploy", "\\", "\\\"'", "\ud800"])
async def test_any_author_can_commit(open_one: Open, remote: Remote, author: str) -> None:
    assert await (await open_one()).commit(saying("m", writing(a="1")), author=author) is not None
    remote.check()


async def test_a_clone_is_used_again_after_a_restart(open_one: Open) -> None:
    commit = await put(await open_one(), "a", "1")
    again = await open_one()
    assert await again.head() == commit
    assert await contents(again, commit) == {"a": "1"}


async def test_a_nudge_wakes_every_watcher_at_once_and_nudges_add_up(open_one: Open) -> None:
    source = await open_one(poll_seconds=600)
    first, second = source.watch(), source.watch()
    with anyio.fail_after(60):
        await anext(first)
        await anext(second)
        source.nudge()
        source.nudge()
        await anext(first)
        await anext(second)
    with anyio.move_on_after(0.2) as scope:
        await anext(first)
    assert scope.cancelled_caught, "two nudges are one look"


async def test_without_any_nudge_the_poll_comes(open_one: Open) -> None:
    source = await open_one(poll_seconds=0.2)
    watch = source.watch()
    with anyio.fail_after(60):
        for _ in range(3):
            await anext(watch)


async def test_each_changed_path_has_the_commit_that_last_touched_it(open_one: Open) -> None:
    source = await open_one()
    first = await put(source, "deployments/home/a.yaml", "1\n")
    assert first is not None
    second = await put(source, "deployments/home/b.yaml", "1\n")
    await put(source, "deployments/away/c.yaml", "1\n")
    third = await put(source, "deployments/home/a.yaml", "2\n")
    last = await put(source, "deployments/home/b.yaml", None)
    assert last is not None
    assert third is not None
    home = "deployments/home"
    assert await source.origins(first, last, home) == {f"{home}/a.yaml": third, f"{home}/b.yaml": last}
    assert await source.origins(first, third, home) == {f"{home}/a.yaml": third, f"{home}/b.yaml": second}
    assert await source.origins(last, last, home) == {}
    assert await source.origins(None, last, home) == {f"{home}/b.yaml": last}, "without a beginning, the newest alone"


async def test_what_a_file_held_before_is_found_newest_first(open_one: Open) -> None:
    source = await open_one()
    path = "deployments/home/a.yaml"
    await put(source, path, "1\n")
    await put(source, path, "2\n")
    await put(source, "deployments/home/b.yaml", "1\n")
    await put(source, path, None)
    last = await put(source, path, "3 and more\n")
    assert last is not None
    assert await source.contents(last, path, size_max=100) == [b"3 and more\n", b"2\n", b"1\n"]
    assert await source.contents(last, path, size_max=5) == [b"2\n", b"1\n"]
    assert await source.contents(last, "deployments/away/a.yaml", size_max=100) == []


@pytest.mark.parametrize("others", [0, 60])
async def test_what_was_there_before_a_file_was_changed_or_removed_is_found_newest_first(
    open_one: Open, others: int
) -> None:
    source, folder, path = await open_one(), "deployments", "deployments/home/site.yaml"
    first = await put(source, path, "1\n")
    between = await put(source, "deployments/home/a.yaml", "1\n")
    await put(source, path, "2\n")
    changed = await put(source, "deployments/away/a.yaml", "1\n")
    last = await put(source, path, None)
    assert first is not None and last is not None
    paths = [path, *(f"deployments/{number}/site.yaml" for number in range(others))]
    assert await source.before_changes(last, folder, paths) == {path: [changed, between]}
    assert await source.before_changes(first, folder, paths) == {}


@pytest.mark.parametrize("remote", REAL, indirect=True)
async def test_a_merge_is_the_origin_of_what_it_brings(open_one: Open, person: Person) -> None:
    source = await open_one()
    person.write("deployments/home/a.yaml", "1\n")
    before = Commit(person.push())
    git("checkout", "--quiet", "-b", "side", cwd=person.folder)
    person.write("deployments/home/b.yaml", "1\n")
    person.commit()
    git("checkout", "--quiet", "main", cwd=person.folder)
    person.write("deployments/home/a.yaml", "2\n")
    own = person.commit()
    git("merge", "--quiet", "--no-edit", "side", cwd=person.folder)
    person.push()
    after = await source.fetch()
    assert after is not None
    found = await source.origins(before, after, "deployments/home")
    assert found["deployments/home/a.yaml"] == own
    merged = git("rev-parse", "HEAD^", cwd=person.folder)
    assert found["deployments/home/b.yaml"] == merged


@pytest.mark.parametrize("remote", ["path"], indirect=True)
@pytest.mark.parametrize(
    ("encoding", "name", "author", "seconds"),
    [
        (None, "Zoë".encode("latin-1"), "Zo\ufffd", 1_700_000_000),
        ("ISO-8859-1", "Zoë".encode("latin-1"), "Zoë", 1_700_000_000),
        ("nonsense", b"Ann", "Ann", 1_700_000_000),
        ("punycode", b"Ann", "Ann", 1_700_000_000),
        (None, b"Ann", "Ann", 2**60),
        (None, b"Ann", "Ann", 2**62),
    ],
)
async def test_a_commit_of_any_encoding_and_time_is_read(
    open_one: Open, remote: RealRemote, tmp_path: Path, encoding: str | None, name: bytes, author: str, seconds: int
) -> None:
    """By roles, at every start: one that could not would never start again."""
    tree = git("hash-object", "-t", "tree", "-w", "/dev/null", cwd=remote.path)
    who = name + f" <a@example.org> {seconds} +0000\n".encode()
    extra = b"" if encoding is None else f"encoding {encoding}\n".encode()
    made = tmp_path / "commit"
    made.write_bytes(f"tree {tree}\n".encode() + b"author " + who + b"committer " + who + extra + b"\nhello \xff\n")
    commit = git("hash-object", "-t", "commit", "--literally", "-w", str(made), cwd=remote.path)
    git("update-ref", "refs/heads/main", commit, cwd=remote.path)
    source = await open_one()
    assert await source.fetch() == commit
    message, found, when = await source.log(Commit(commit))
    assert message.startswith("hello")
    assert found == author
    assert when.timestamp() in (seconds, 0)


DEEP = "/".join(f"d{number}" for number in range(80))


@pytest.mark.parametrize("remote", REAL, indirect=True)
async def test_a_folder_that_nests_too_deep_is_listed_and_not_entered(open_one: Open, person: Person) -> None:
    source = await open_one()
    person.write("deployments/a/file", "1")
    before = Commit(person.push())
    person.write(f"deployments/a/{DEEP}/file", "2")
    person.write("deployments/b/file", "3")
    after = Commit(person.push())
    assert await source.fetch() == after
    deep, *rest = await source.files(after, "deployments/a", size_max=1000)
    assert [each.path for each in rest] == ["deployments/a/file"]
    assert (deep.is_regular, deep.path.count("/")) == (False, 64)
    assert await source.changed_paths(before, after, "deployments") == [deep.path, "deployments/b/file"]
    assert set(await source.origins(before, after, "deployments")) == {deep.path, "deployments/b/file"}


@pytest.mark.parametrize("remote", REAL, indirect=True)
async def test_a_folder_full_of_files_hides_no_change_of_its_neighbours(
    open_one: Open, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trees, "FILES_MAX", 20)
    source = await open_one()
    for number in range(30):
        person.write(f"deployments/a/{number}", "1")
    for folder in ("b", "c"):
        person.write(f"deployments/{folder}/file", "1")
    commit = Commit(person.push())
    await source.fetch()
    changed = await source.changed_paths(None, commit, "deployments")
    assert {path.split("/")[1] for path in changed} == {"a", "b", "c"}
    with pytest.raises(TooLarge, match="more than 20 files"):
        await source.files(commit, "deployments/a", size_max=1000)
