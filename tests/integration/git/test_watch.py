"""A person's push to a local repository is noticed at once, however git writes it down."""

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from homeport.adapters.git import open_repository
from tests.support.git import Person, git
from tests.support.git_http import GitHttpServer

pytestmark = pytest.mark.anyio


async def is_quiet(watch: AsyncIterator[None], seconds: float) -> bool:
    with anyio.move_on_after(seconds) as scope:
        await anext(watch)
    return scope.cancelled_caught


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("as_url", [False, True])
async def test_a_push_to_a_local_repository_is_seen_at_once(
    remote: Path, tmp_path: Path, packed: bool, as_url: bool
) -> None:
    person = Person(str(remote), tmp_path / "person")
    person.push("first")
    if packed:
        git("pack-refs", "--all", cwd=remote)
    source = await open_repository(remote.as_uri() if as_url else str(remote), tmp_path / "clone", poll_seconds=600)
    watch = source.watch()
    await anext(watch)
    pushed = person.push("second")
    with anyio.fail_after(60):
        await anext(watch)
    assert await source.fetch() == pushed
    if packed:
        git("pack-refs", "--all", cwd=remote)
        with anyio.fail_after(60):
            await anext(watch)


async def test_what_happens_while_the_caller_is_busy_is_told_once(remote: Path, tmp_path: Path) -> None:
    person = Person(str(remote), tmp_path / "person")
    source = await open_repository(str(remote), tmp_path / "clone", poll_seconds=600)
    watch = source.watch()
    await anext(watch)
    person.push("first")
    person.push("second")
    source.nudge()
    with anyio.fail_after(60):
        await anext(watch)
    assert await is_quiet(watch, 0.3)


async def test_a_local_repository_that_does_not_move_is_quiet(remote: Path, tmp_path: Path) -> None:
    source = await open_repository(str(remote), tmp_path / "clone", poll_seconds=600)
    watch = source.watch()
    await anext(watch)
    assert await is_quiet(watch, 0.3)


async def test_the_commit_of_a_checkout_is_seen_at_once(remote: Path, tmp_path: Path) -> None:
    person = Person(str(remote), tmp_path / "person")
    person.commit("first")
    source = await open_repository(str(person.folder), tmp_path / "clone", poll_seconds=600)
    watch = source.watch()
    await anext(watch)
    made = person.commit("second")
    with anyio.fail_after(60):
        await anext(watch)
    assert await source.fetch() == made


async def test_a_remote_over_http_is_left_alone_between_polls(server: GitHttpServer, tmp_path: Path) -> None:
    source = await open_repository(server.url("deployments.git"), tmp_path / "clone", poll_seconds=600)
    watch = source.watch()
    await anext(watch)
    assert await is_quiet(watch, 0.3)
    assert server.requests == []
