"""Every way in which a remote fails: one sentence that names it, a hint, no secret, and nothing half-done."""

import os
import socket
import stat
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest

from homeport.adapters.git import Repository, open_repository, redact
from homeport.adapters.git.address import GitAddress
from homeport.adapters.git.failures import explain
from homeport.errors import GitUnavailable
from homeport.ports import Change
from homeport.vocabulary import Commit
from tests.support.git import Person, bare_repository, git, move
from tests.support.git_http import GitHttpServer
from tests.support.proposals import saying
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio


async def write(source: Repository, path: str = "a", text: str = "1") -> Commit | None:
    async def decide(_head: Commit | None) -> Sequence[Change]:
        return [Change(path, text.encode())]

    return await source.commit(saying("m", decide), author="tester")


async def failure_of_fetch(url: str, clone: Path, *, timeout_seconds: float = 20) -> GitUnavailable:
    source = await open_repository(url, clone, timeout_seconds=timeout_seconds)
    with pytest.raises(GitUnavailable) as caught:
        await source.fetch()
    assert "\n" not in str(caught.value)
    return caught.value


def add_hook(remote: Path, name: str, script: str) -> None:
    hook = remote / "hooks" / name
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\n{script}\n")
    hook.chmod(hook.stat().st_mode | stat.S_IXUSR)


async def test_a_path_that_does_not_exist(tmp_path: Path) -> None:
    error = await failure_of_fetch(str(tmp_path / "nowhere"), tmp_path / "clone")
    assert str(error) == f"The Git repository {tmp_path / 'nowhere'} does not exist."
    assert error.hint and "git init --bare" in error.hint


async def test_a_folder_that_is_no_repository(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    error = await failure_of_fetch(str(tmp_path / "plain"), tmp_path / "clone")
    assert str(error).startswith(f"The Git repository {tmp_path / 'plain'} is not a Git repository (")
    assert error.hint


async def test_a_url_that_is_no_repository(server: GitHttpServer, tmp_path: Path) -> None:
    error = await failure_of_fetch(server.url("other.git"), tmp_path / "clone")
    assert str(error).startswith(f"The Git repository {server.url('other.git')} is not a Git repository (")


async def test_a_server_that_is_down(server: GitHttpServer, tmp_path: Path) -> None:
    server.stop()
    error = await failure_of_fetch(server.url("deployments.git"), tmp_path / "clone")
    assert str(error).startswith(f"The Git repository {server.url('deployments.git')} cannot be reached (")
    assert error.hint == "Check that the server runs and that this machine can reach it."


async def test_a_host_that_nobody_knows(tmp_path: Path) -> None:
    error = await failure_of_fetch("http://nobody.invalid/x.git", tmp_path / "clone")
    assert "http://nobody.invalid/x.git is on a host that cannot be found" in str(error)


async def test_an_ssh_server_that_is_down(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    error = await failure_of_fetch(f"ssh://git@127.0.0.1:{port}/x.git", tmp_path / "clone")
    assert f"ssh://git@127.0.0.1:{port}/x.git" in str(error)


async def test_a_server_that_does_not_answer_costs_the_deadline(server: GitHttpServer, tmp_path: Path) -> None:
    server.answers.clear()
    with anyio.fail_after(60):
        error = await failure_of_fetch(server.url("deployments.git"), tmp_path / "clone", timeout_seconds=0.5)
    assert str(error) == f"The Git repository {server.url('deployments.git')} did not answer within 0.5 s."


async def test_missing_credentials_are_asked_for_without_a_prompt(guarded: GitHttpServer, tmp_path: Path) -> None:
    error = await failure_of_fetch(guarded.url("deployments.git"), tmp_path / "clone")
    assert "requires credentials" in str(error)
    assert error.hint and "credential helper" in error.hint


async def test_wrong_credentials_are_never_shown(
    guarded: GitHttpServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = guarded.url("deployments.git", with_credentials=True).replace("s3cr3t", "wr0ng")
    error = await failure_of_fetch(url, tmp_path / "clone")
    assert f"http://***@127.0.0.1:{guarded.port}/deployments.git requires credentials" in str(error)
    shown = "".join([str(error), repr(error.__cause__), error.hint or "", *capsys.readouterr()])
    assert "wr0ng" not in shown
    assert "ann" not in shown


async def test_right_credentials_read_and_push_and_stay_private(guarded: GitHttpServer, tmp_path: Path) -> None:
    source = await open_repository(guarded.url("deployments.git", with_credentials=True), tmp_path / "clone")
    assert await write(source) is not None
    assert source.url == f"http://***@127.0.0.1:{guarded.port}/deployments.git"
    assert stat.S_IMODE((tmp_path / "clone" / "config").stat().st_mode) == 0o600


async def test_an_account_that_may_not_push(server: GitHttpServer, remote: Path, tmp_path: Path) -> None:
    source = await open_repository(server.url("deployments.git"), tmp_path / "clone")
    first = await write(source)
    server.refuses_pushes = True
    with pytest.raises(GitUnavailable, match=r"does not allow this account .*403"):
        await write(source, "b")
    assert await source.head() == first == git("rev-parse", "main", cwd=remote)
    server.refuses_pushes = False
    assert await write(source, "c") is not None
    assert git("ls-tree", "--name-only", "main", cwd=remote).split() == ["a", "c"]


@pytest.mark.parametrize("hook", ["pre-receive", "update"])
@pytest.mark.parametrize("over", ["path", "http"])
async def test_a_hook_that_refuses_is_quoted(
    server: GitHttpServer, remote: Path, tmp_path: Path, hook: str, over: str
) -> None:
    url = str(remote) if over == "path" else server.url("deployments.git")
    source = await open_repository(url, tmp_path / "clone")
    first = await write(source)
    add_hook(remote, hook, 'echo "Deployments are frozen" >&2; echo "until Monday." >&2; exit 1')
    with pytest.raises(GitUnavailable) as caught:
        await write(source, "b")
    assert f"{url} refused the push (" in str(caught.value)
    assert "hook declined: Deployments are frozen until Monday." in str(caught.value)
    assert await source.head() == first == git("rev-parse", "main", cwd=remote) == await source.fetch()
    (remote / "hooks" / hook).unlink()
    assert await write(source, "c") is not None


async def test_a_branch_that_is_checked_out_refuses_with_a_hint(tmp_path: Path) -> None:
    person = Person(str(bare_repository(tmp_path / "unused.git")), tmp_path / "checkout")
    person.write("a", "0")
    person.commit()
    source = await open_repository(str(person.folder), tmp_path / "clone")
    with pytest.raises(GitUnavailable, match="currently checked out") as caught:
        await write(source)
    assert caught.value.hint and "bare" in caught.value.hint


async def test_a_repository_that_vanishes_deletes_nothing_here(remote: Path, tmp_path: Path) -> None:
    source = await open_repository(str(remote), tmp_path / "clone")
    commit = await write(source)
    assert commit is not None
    gone = move(remote, "gone.git")
    with pytest.raises(GitUnavailable, match="does not exist"):
        await source.fetch()
    with pytest.raises(GitUnavailable, match="does not exist"):
        await write(source, "b")
    assert await source.head() == commit
    assert len(await source.files(commit, "", size_max=10)) == 1
    move(gone, remote.name)
    assert await source.fetch() == commit
    assert await write(source, "b") is not None


async def test_a_site_starts_and_reads_with_its_remote_gone(server: GitHttpServer, tmp_path: Path) -> None:
    url = server.url("deployments.git")
    commit = await write(await open_repository(url, tmp_path / "clone"))
    server.stop()
    again = await open_repository(url, tmp_path / "clone")
    assert await again.head() == commit
    with pytest.raises(GitUnavailable):
        await again.fetch()
    server.start()
    assert await again.fetch() == commit


async def test_a_push_whose_answer_is_lost_counts_once(server: GitHttpServer, remote: Path, tmp_path: Path) -> None:
    source = await open_repository(server.url("deployments.git"), tmp_path / "clone")
    server.drops_push_answers = True
    commit = await write(source)
    assert commit is not None
    assert git("rev-list", "main", cwd=remote) == commit


async def test_a_slow_remote_that_shows_life_is_waited_for(remote: Path, tmp_path: Path) -> None:
    source = await open_repository(str(remote), tmp_path / "clone", timeout_seconds=1)
    add_hook(remote, "pre-receive", "for n in 1 2 3 4; do sleep 0.4; echo busy >&2; done")
    assert await write(source) is not None
    add_hook(remote, "pre-receive", "sleep 3")
    with pytest.raises(GitUnavailable, match="did not answer within 1 s"):
        await write(source, "b")


async def test_a_cancelled_fetch_leaves_no_process(
    server: GitHttpServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOMEPORT_TEST_MARK", "cancelled-fetch")
    server.answers.clear()
    source = await open_repository(server.url("deployments.git"), tmp_path / "clone")
    with anyio.move_on_after(0.5) as scope:
        await source.fetch()
    assert scope.cancelled_caught
    await eventually(lambda: _children_marked("cancelled-fetch") == [], what="every helper to be gone")
    server.answers.set()
    assert await source.fetch() is None


def _children_marked(mark: str) -> list[int]:
    """Processes other than this one whose environment holds the mark."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            marked = f"HOMEPORT_TEST_MARK={mark}".encode() in (folder / "environ").read_bytes()
            is_git = (
                b"git" in (folder / "cmdline").read_bytes()
                and b"http-backend" not in (folder / "cmdline").read_bytes()
            )
        except OSError:
            continue
        if marked and is_git and int(folder.name) != os.getpid():
            found.append(int(folder.name))
    return found


async def test_without_the_git_program_the_sentence_says_so(
    remote: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = await open_repository(str(remote), tmp_path / "clone")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(GitUnavailable, match="The program git is not installed") as caught:
        await source.fetch()
    assert caught.value.hint


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("see https://u:p@h/x?token=t now", "see https://***@h/x?*** now"),
        ("https://ghp_token@h/x", "https://***@h/x"),
        ("ssh://git@h/x and git@h:x", "ssh://git@h/x and git@h:x"),
        ("ssh://git:pw@h/x", "ssh://***@h/x"),
        ("HTTP://U:P@H", "HTTP://***@H"),
    ],
)
async def test_secrets_are_taken_out_of_any_text(text: str, shown: str) -> None:
    assert redact(text) == shown


def test_an_address_that_only_this_process_knows_is_not_told() -> None:
    """A site asks central's repository through a port of its own, whose path is a secret."""
    url = "http://127.0.0.1:37903/EEeh6shEZy2VbCnewBSl5XgKkqskz12I/deployments.git"
    address = GitAddress(url, "of central at https://central.example")
    said = str(explain(address, f"fatal: unable to access '{url}/': The requested URL returned error: 403\n"))
    assert "37903" not in said and "EEeh6s" not in said
    assert said.startswith("The Git repository of central at https://central.example does not allow this account")
