"""What a role keeps is for its owner alone, also where a folder or a file was there before."""

import os
import stat
from pathlib import Path

import pytest

from homeport.adapters.store.open import open_store
from homeport.cli.roles.options import prepare_folder

pytestmark = pytest.mark.anyio


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def modes_in(folder: Path) -> dict[str, int]:
    return {each.name: mode(each) for each in folder.iterdir() if each.name.startswith("central.db")}


@pytest.mark.parametrize("is_there", [False, True])
async def test_a_database_and_the_files_beside_it_are_private(tmp_path: Path, is_there: bool) -> None:
    path = tmp_path / "central.db"
    if is_there:
        async with open_store(str(path)):
            pass
        path.chmod(0o644)
    before = os.umask(0o022)
    try:
        async with open_store(str(path)) as store:
            await store.write(lambda tx: tx.set_value("a", "b"))
            found = modes_in(tmp_path)
    finally:
        os.umask(before)
    assert found["central.db"] == 0o600
    assert {name: value for name, value in found.items() if name.endswith(("-wal", "-shm")) and value != 0o600} == {}


def test_a_data_folder_that_was_open_to_others_is_closed(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    assert mode(prepare_folder(folder)) == 0o700
