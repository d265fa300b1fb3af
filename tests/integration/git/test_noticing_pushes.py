"""A push to a local repository is noticed at once, and nothing is done while there is none."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from homeport.adapters.git import watch as watching
from homeport.adapters.git.watch import RepositoryWatch
from tests.support.git import Person, bare_repository

pytestmark = pytest.mark.anyio

SOON_SECONDS = 60.0


@pytest.fixture
def person(tmp_path: Path) -> Person:
    found = Person(str(bare_repository(tmp_path / "remote.git")), tmp_path / "person")
    found.write("a", "1")
    found.push()
    return found


@contextmanager
def blind(_folders: Sequence[Path]) -> Iterator[None]:
    yield None


@pytest.mark.parametrize("can_tell", [True, False], ids=["told by the system", "looked at"])
async def test_a_push_is_noticed_at_once(
    person: Person, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_tell: bool
) -> None:
    if not can_tell:
        monkeypatch.setattr(watching, "changes_in", blind)
    moves = RepositoryWatch(tmp_path / "remote.git", "refs/heads/main", poll_seconds=3600).moves()
    await anext(moves)
    async with anyio.create_task_group() as tasks:
        for number in range(3):
            tasks.start_soon(anyio.to_thread.run_sync, push, person, number)
            with anyio.fail_after(SOON_SECONDS):
                await anext(moves)


def push(person: Person, number: int) -> None:
    person.write("a", f"again {number}")
    person.push()


async def test_a_repository_that_comes_later_is_noticed(tmp_path: Path) -> None:
    moves = RepositoryWatch(tmp_path / "remote.git", "refs/heads/main", poll_seconds=3600).moves()
    await anext(moves)
    person = Person(str(bare_repository(tmp_path / "remote.git")), tmp_path / "person")
    push(person, 1)
    with anyio.fail_after(SOON_SECONDS):
        await anext(moves)


async def test_while_nothing_is_pushed_nobody_looks(
    person: Person, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    real = RepositoryWatch._mark

    def counted(self: RepositoryWatch) -> watching.Mark:
        nonlocal looks
        looks += 1
        return real(self)

    monkeypatch.setattr(RepositoryWatch, "_mark", counted)
    watch = RepositoryWatch(tmp_path / "remote.git", "refs/heads/main", poll_seconds=3600)
    moves = watch.moves()
    await anext(moves)
    with anyio.move_on_after(0.5):
        await anext(moves)
    assert looks <= 4
