"""Which errors are a disk's, and what is said then."""

import errno
import os

import pytest

from homeport.adapters.files.disk import disk_problem, disk_problems
from homeport.errors import StorageFull, StorageReadOnly
from homeport.serving.problems import problem_of


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_507_with_a_sentence(number: int) -> None:
    found = disk_problem(OSError(number, os.strerror(number)), "the clone")
    assert isinstance(found, StorageFull)
    problem = problem_of(found)
    assert (problem.status, problem.code, problem.retryable) == (507, "storage-full", True)
    assert problem.detail == "The disk that holds the clone is full; nothing was written."


def test_a_read_only_disk_is_503_with_a_sentence() -> None:
    found = disk_problem(OSError(errno.EROFS, "Read-only file system"), "the clone")
    assert isinstance(found, StorageReadOnly)
    assert (problem_of(found).status, problem_of(found).code) == (503, "storage-read-only")


def test_the_words_of_a_program_are_enough() -> None:
    assert isinstance(disk_problem("fatal: write error: No space left on device", "it"), StorageFull)
    assert disk_problem("fatal: bad object", "it") is None


def test_what_is_not_the_disks_passes_as_it_is() -> None:
    with pytest.raises(FileNotFoundError), disk_problems("it"):
        raise FileNotFoundError(errno.ENOENT, "no such file")
