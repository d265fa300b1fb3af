"""The same repository reached in each of the ways that the suite must hold for, the simulated one included."""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import pytest

from homeport.adapters.git import open_repository
from homeport.ports import GitSource
from homeport.vocabulary import Commit
from tests.simulation import git as simulated
from tests.support.git import QUIET, Person, bare_repository, git
from tests.support.git_http import serve_git

Open = Callable[..., Awaitable[GitSource]]
REAL = ("path", "file", "http")
"""Where a test asks more than the simulated one can do: other branches, links, merges."""


class Remote(Protocol):
    """What a test asks of the repository itself."""

    @property
    def tip(self) -> str: ...
    @property
    def commits(self) -> int: ...
    @property
    def names(self) -> list[str]: ...
    def check(self) -> None: ...
    def delete_branch(self) -> None: ...


class Somebody(Protocol):
    """Who else works on the repository."""

    def pull(self) -> None: ...
    def write(self, path: str, text: str) -> None: ...
    def remove(self, path: str) -> None: ...
    def amend(self, message: str) -> None: ...
    def push(self, message: str = "by hand", *, force: bool = False) -> str: ...
    def set_back(self, commit: str) -> None: ...


@dataclass(frozen=True)
class RealRemote:
    path: Path
    url: str

    @property
    def tip(self) -> str:
        return git("rev-parse", "main", cwd=self.path)

    @property
    def commits(self) -> int:
        return int(git("rev-list", "--count", "main", cwd=self.path))

    @property
    def names(self) -> list[str]:
        return git("ls-tree", "-r", "--name-only", "main", cwd=self.path).splitlines()

    def check(self) -> None:
        assert git("for-each-ref", "--format=%(refname)", cwd=self.path) == "refs/heads/main"
        git("fsck", "--strict", cwd=self.path)

    def delete_branch(self) -> None:
        git("update-ref", "-d", "refs/heads/main", cwd=self.path)


class SimulatedRemote:
    def __init__(self) -> None:
        self.inside = simulated.Remote(lambda: datetime.now(UTC))

    @property
    def tip(self) -> str:
        return str(self.inside.head)

    @property
    def commits(self) -> int:
        return sum(self.inside.is_ancestor(each, Commit(self.tip)) for each in self.inside.order)

    @property
    def names(self) -> list[str]:
        return sorted(self.inside.tree)

    def check(self) -> None:
        """There are no objects that could be damaged."""

    def delete_branch(self) -> None:
        self.inside.head = None


class SimulatedPerson:
    def __init__(self, remote: simulated.Remote) -> None:
        self._remote = remote
        self.pull()

    def pull(self) -> None:
        self._base, self._tree = self._remote.head, dict(self._remote.tree)

    def write(self, path: str, text: str) -> None:
        self._tree[path] = text.encode()

    def remove(self, path: str) -> None:
        for each in [each for each in self._tree if each == path or each.startswith(f"{path}/")]:
            del self._tree[each]

    def amend(self, message: str) -> None:
        assert self._base is not None
        self._commit(message, self._remote.commits[self._base].parents)

    def push(self, message: str = "by hand", *, force: bool = False) -> str:
        assert force or self._remote.head == self._base, "somebody else was faster"
        self._remote.head = self._commit(message, () if self._base is None else (self._base,))
        return self._remote.head

    def set_back(self, commit: str) -> None:
        self._remote.head = Commit(commit)

    def _commit(self, message: str, parents: tuple[Commit, ...]) -> Commit:
        recorded = simulated.Recorded(parents, dict(self._tree), message, "Pat Person", datetime.now(UTC))
        self._base = self._remote.add(recorded)
        return self._base


@pytest.fixture(autouse=True)
def _nobodys_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in QUIET.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(params=[*REAL, "simulated"])
def remote(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Remote]:
    if request.param == "simulated":
        yield SimulatedRemote()
        return
    path = bare_repository(tmp_path / "remotes" / "deployments.git")
    if request.param == "path":
        yield RealRemote(path, str(path))
    elif request.param == "file":
        yield RealRemote(path, path.as_uri())
    else:
        with serve_git(path.parent) as server:
            yield RealRemote(path, server.url(path.name))


@pytest.fixture
def open_one(remote: Remote, tmp_path: Path) -> Open:
    """Opens the remote through a clone of the given name."""
    clones: dict[str, list[Commit]] = {}

    async def opened(name: str = "ours", *, branch: str = "main", poll_seconds: float = 30.0) -> GitSource:
        if isinstance(remote, SimulatedRemote):
            return simulated.MemoryGit(remote.inside, clones.setdefault(name, []), poll_seconds=poll_seconds)
        assert isinstance(remote, RealRemote)
        return await open_repository(
            remote.url, tmp_path / "clones" / name, branch=branch, poll_seconds=poll_seconds, timeout_seconds=20
        )

    return opened


@pytest.fixture
def person(remote: Remote, tmp_path: Path) -> Somebody:
    if isinstance(remote, SimulatedRemote):
        return SimulatedPerson(remote.inside)
    assert isinstance(remote, RealRemote)
    return Person(str(remote.path), tmp_path / "person")
