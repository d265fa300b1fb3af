"""Keys on disk: whole, closed to others, and refused when they are not."""

import os
import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from homeport.adapters.identity.authority import open_authority
from homeport.adapters.identity.files import PRIVATE, SIZE_MAX, write_whole
from homeport.adapters.identity.keys import csr_spki, key_pem, load_key, load_or_create_key, make_csr, spki_of
from homeport.adapters.identity.tls import Credentials
from homeport.errors import InvalidInput, NotFound, Refused, TransientError
from tests.support.certificates import CLIENT, DOMAIN, WFM, Household, forge, forge_root, rsa_key, write_files


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_key_is_for_its_owner_alone_whatever_the_mask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        load_or_create_key(tmp_path / "identity" / "key.pem")
    finally:
        os.umask(before)
    assert mode_of(tmp_path / "identity" / "key.pem") == 0o600
    assert mode_of(tmp_path / "identity") == 0o700
    assert [path.name for path in (tmp_path / "identity").iterdir()] == ["key.pem"]


def test_a_key_is_made_once(tmp_path: Path) -> None:
    first, second = (load_or_create_key(tmp_path / "key.pem") for _ in range(2))
    assert first.public_key() == second.public_key()
    assert csr_spki(make_csr(first, "a")) == csr_spki(make_csr(second, "b")) == spki_of(first.public_key())


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660])
def test_a_key_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    load_or_create_key(tmp_path / "key.pem")
    (tmp_path / "key.pem").chmod(mode)
    with pytest.raises(Refused, match=f"mode {mode:04o}") as refused:
        load_or_create_key(tmp_path / "key.pem")
    assert refused.value.hint
    assert "chmod 600" in refused.value.hint


def test_every_key_of_the_authority_and_of_a_machine_is_closed(tmp_path: Path) -> None:
    household = Household(tmp_path)
    household.site_authority("home")
    household.credentials("site", CLIENT)
    household.authority.begin_rotation()
    keys = list(tmp_path.rglob("*key.pem"))
    assert len(keys) == 4
    assert {mode_of(path) for path in keys} == {0o600}
    (tmp_path / "authority" / "root-1-key.pem").chmod(0o644)
    with pytest.raises(Refused, match="open to other users"):
        open_authority(tmp_path / "authority", domain=DOMAIN)


@pytest.mark.parametrize("content", [b"", b"text", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"])
def test_a_key_that_cannot_be_read_is_not_replaced(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "key.pem"
    write_whole(path, content, mode=PRIVATE)
    with pytest.raises(InvalidInput, match="no private key"):
        load_or_create_key(path)
    assert path.read_bytes() == content


def test_a_key_behind_a_passphrase_or_too_weak_is_refused(tmp_path: Path) -> None:
    key = rsa_key(2048)
    locked = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    write_whole(tmp_path / "locked.pem", locked, mode=PRIVATE)
    with pytest.raises(InvalidInput) as refused:
        load_key(tmp_path / "locked.pem")
    assert "passphrase" in str(refused.value.hint)
    write_whole(tmp_path / "weak.pem", key_pem(key), mode=PRIVATE)
    with pytest.raises(InvalidInput, match="rsa, 2048 bits"):
        load_key(tmp_path / "weak.pem")


def test_a_missing_or_huge_file_is_met_with_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="is missing"):
        load_key(tmp_path / "key.pem")
    write_whole(tmp_path / "key.pem", b" " * (SIZE_MAX + 1), mode=PRIVATE)
    with pytest.raises(InvalidInput, match="larger than"):
        load_key(tmp_path / "key.pem")


def test_a_folder_that_cannot_be_written_is_met_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TransientError, match="cannot be written"):
        write_whole(tmp_path / "file" / "key.pem", b"", mode=PRIVATE)


def test_a_draft_that_a_crash_left_is_in_nobodys_way(tmp_path: Path) -> None:
    (tmp_path / ".key.pem.new").write_text("half")
    load_or_create_key(tmp_path / "key.pem")
    assert [path.name for path in tmp_path.iterdir()] == ["key.pem"]


def test_a_machine_that_has_not_joined_says_so(tmp_path: Path) -> None:
    credentials = Credentials(tmp_path / "none", domain=DOMAIN, wfm=WFM)
    assert not credentials.exists
    assert not (tmp_path / "none").exists()
    for ask in (credentials.server_context, credentials.client_context, lambda: credentials.spiffe_id):
        with pytest.raises(NotFound, match="no identity"):
            ask()


def test_an_identity_is_there_after_a_restart(tmp_path: Path) -> None:
    household = Household(tmp_path)
    first = household.credentials("site", CLIENT)
    again = Credentials(tmp_path / "site", domain=DOMAIN, wfm=WFM)
    assert again.exists
    assert (again.spiffe_id, again.spki, again.bundle) == (CLIENT, first.spki, household.authority.bundle())
    assert (again.not_before, again.not_after, again.pin) == (
        first.not_before,
        first.not_after,
        f"sha256:{first.spki}",
    )


def test_what_does_not_fit_is_not_installed(tmp_path: Path) -> None:
    household = Household(tmp_path)
    site, other = household.credentials("site", CLIENT), household.credentials("other", CLIENT)
    before = (tmp_path / "site" / "chain.pem").read_bytes()
    with pytest.raises(InvalidInput, match="do not belong together"):
        site.install((tmp_path / "other" / "chain.pem").read_bytes(), other.bundle)
    with pytest.raises(InvalidInput, match="no certificates in PEM form"):
        site.install(b"nothing", other.bundle)
    assert (tmp_path / "site" / "chain.pem").read_bytes() == before


def test_an_identity_of_another_domain_is_not_taken(tmp_path: Path) -> None:
    root = forge_root("other.example")
    leaf = forge(root, uris=["spiffe://other.example/margo/wfm/central/client/a"])
    with pytest.raises(InvalidInput, match=r"ours is homeport\.internal"):
        Credentials(write_files(tmp_path, leaf, anchors=[root]), domain=DOMAIN, wfm=WFM)
