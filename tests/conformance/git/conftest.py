"""The same repository reached in each of the ways that the suite must hold for."""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from homeport.adapters.git import Repository, open_repository
from tests.support.git import QUIET, Person, bare_repository
from tests.support.git_http import serve_git

Open = Callable[..., Awaitable[Repository]]


@dataclass(frozen=True)
class Remote:
    path: Path
    url: str


@pytest.fixture(autouse=True)
def _nobodys_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in QUIET.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(params=["path", "file", "http"])
def remote(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Remote]:
    path = bare_repository(tmp_path / "remotes" / "deployments.git")
    if request.param == "path":
        yield Remote(path, str(path))
    elif request.param == "file":
        yield Remote(path, path.as_uri())
    else:
        with serve_git(path.parent) as server:
            yield Remote(path, server.url(path.name))


@pytest.fixture
def open_one(remote: Remote, tmp_path: Path) -> Open:
    """Opens the remote through a clone of the given name."""

    async def opened(name: str = "ours", *, branch: str = "main", poll_seconds: float = 30.0) -> Repository:
        return await open_repository(
            remote.url, tmp_path / "clones" / name, branch=branch, poll_seconds=poll_seconds, timeout_seconds=20
        )

    return opened


@pytest.fixture
def person(remote: Remote, tmp_path: Path) -> Person:
    return Person(str(remote.path), tmp_path / "person")
