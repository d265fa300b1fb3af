"""A bare repository and the ways to reach it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.git import QUIET, bare_repository
from tests.support.git_http import GitHttpServer, serve_git


@pytest.fixture(autouse=True)
def _nobodys_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in QUIET.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    return bare_repository(tmp_path / "remotes" / "deployments.git")


@pytest.fixture
def server(remote: Path) -> Iterator[GitHttpServer]:
    with serve_git(remote.parent) as running:
        yield running


@pytest.fixture
def guarded(remote: Path) -> Iterator[GitHttpServer]:
    """The same repository behind a user and a password."""
    with serve_git(remote.parent, user="ann", password="s3cr3t") as running:
        yield running
