"""The vault on a real file."""

import json
import stat
from pathlib import Path

import pytest

from homeport.adapters.vault import FileVault, open_vault
from homeport.errors import InvalidInput, PermanentError, TransientError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "identity" / "vault.key"


@pytest.fixture
def vault(path: Path) -> FileVault:
    return open_vault(path)


def test_what_was_sealed_opens_again_also_after_a_restart(vault: FileVault, path: Path) -> None:
    sealed = vault.seal(b"plain", context="home/DB")
    assert b"plain" not in sealed
    assert open_vault(path).open(sealed, context="home/DB") == b"plain"
    assert vault.seal(b"plain", context="home/DB") != sealed, "equal values look different"


def test_the_key_is_its_owners_alone(vault: FileVault, path: Path) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    path.chmod(0o644)
    open_vault(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_value_cannot_be_passed_off_as_anothers(vault: FileVault) -> None:
    sealed = vault.seal(b"plain", context="home/DB")
    with pytest.raises(InvalidInput, match="not for this place"):
        vault.open(sealed, context="north/DB")


@pytest.mark.parametrize("position", [0, 2, 8, -1])
def test_a_changed_byte_is_noticed(vault: FileVault, position: int) -> None:
    sealed = bytearray(vault.seal(b"plain", context="x"))
    sealed[position] ^= 1
    with pytest.raises(InvalidInput):
        vault.open(bytes(sealed), context="x")


@pytest.mark.parametrize("sealed", [b"", b"\x01", b"nonsense", bytes(40)])
def test_nonsense_is_refused_in_a_sentence(vault: FileVault, sealed: bytes) -> None:
    with pytest.raises(InvalidInput):
        vault.open(sealed, context="x")


def test_the_key_can_be_changed_without_losing_anything(vault: FileVault, path: Path) -> None:
    old = vault.seal(b"old", context="x")
    assert vault.rotate() == 2
    new = vault.seal(b"new", context="x")
    again = open_vault(path)
    assert (again.open(old, context="x"), again.open(new, context="x")) == (b"old", b"new")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in path.parent.iterdir()] == ["vault.key"]


def test_a_forgotten_key_is_off_the_disk_and_its_number_is_not_used_again(vault: FileVault, path: Path) -> None:
    old = vault.seal(b"old", context="x")
    vault.rotate()
    new = vault.seal(b"new", context="x")
    vault.forget_older()
    assert vault.open(old, context="x") == b"old", "somebody had read it just before"
    again = open_vault(path)
    assert again.open(new, context="x") == b"new"
    with pytest.raises(InvalidInput, match="not sealed with any key"):
        again.open(old, context="x")
    assert vault.rotate() == 3
    assert json.loads(path.read_text())["keys"].keys() == {"2", "3"}


@pytest.mark.parametrize("step", ["rotate", "forget_older"])
def test_a_key_that_cannot_be_written_changes_nothing(vault: FileVault, path: Path, step: str) -> None:
    sealed = vault.seal(b"plain", context="x")
    moved = path.parent.rename(path.parent.with_name("elsewhere"))
    with pytest.raises(TransientError, match="cannot be written") as failure:
        getattr(vault, step)()
    assert "still be read" in str(failure.value.hint)
    moved.rename(path.parent)
    again = vault.seal(b"more", context="x")
    assert [open_vault(path).open(each, context="x") for each in (sealed, again)] == [b"plain", b"more"]


@pytest.mark.parametrize(
    "content", ["", "{}", "[]", '{"keys": {}}', '{"keys": {"1": "c2hvcnQ="}}', '{"keys": {"x": ""}}']
)
def test_a_broken_key_file_is_said_to_be_one_and_kept(path: Path, content: str) -> None:
    path.parent.mkdir()
    path.write_text(content)
    with pytest.raises(PermanentError, match="cannot be used") as failure:
        open_vault(path)
    assert "backup" in str(failure.value.hint)
    assert path.read_text() == content


def test_another_machines_key_opens_nothing(vault: FileVault, tmp_path: Path) -> None:
    other = open_vault(tmp_path / "other.key")
    with pytest.raises(InvalidInput):
        other.open(vault.seal(b"plain", context="x"), context="x")
    assert json.loads((tmp_path / "other.key").read_text())["keys"].keys() == {"1"}
