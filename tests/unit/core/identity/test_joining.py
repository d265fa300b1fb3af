"""Tokens: made from given bytes, read back, and refused in a sentence."""

import hashlib
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homeport.core.identity import joining
from homeport.core.identity.renewal import is_due, renew_at
from homeport.core.model.identity import IdentityKind, JoinToken
from homeport.errors import InvalidInput
from homeport.vocabulary import SiteName

NOW = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
FRESH = joining.new_token("hpj", b"\x01" * 6, b"\x02" * 32)
TOKEN = JoinToken(
    id=FRESH.id,
    kind=IdentityKind.NODE,
    site=SiteName("home"),
    hash=FRESH.hash,
    created_at=NOW,
    created_by="local",
    expires_at=NOW + timedelta(hours=1),
)


@given(st.sampled_from(["hp", "hpj"]), st.binary(min_size=4, max_size=16), st.binary(min_size=32, max_size=64))
def test_a_token_is_found_by_its_id_and_proved_by_its_secret(prefix: str, id_bytes: bytes, secret: bytes) -> None:
    token = joining.new_token(prefix, id_bytes, secret)
    assert joining.split(token.text, prefix) == (token.id, token.hash)
    assert token.text == f"{prefix}_{id_bytes.hex()}_{secret.hex()}"
    assert token.hash == hashlib.sha256(secret.hex().encode()).hexdigest()
    assert secret.hex() not in token.hash


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hpj",
        "hpj__",
        FRESH.text[:-1],
        FRESH.text.replace("hpj_", "hp_"),
        FRESH.text.upper(),
        FRESH.text.replace("_", "-"),
        FRESH.text + "_x",
        "hpj_" + "0" * 12 + "_" + "٠" * 64,
    ],
)
def test_a_text_of_another_form_is_refused_without_repeating_it(text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        joining.split(text, "hpj")
    assert "02" * 8 not in str(refused.value)


def test_blanks_around_a_pasted_token_do_no_harm() -> None:
    assert joining.split(f"  {FRESH.text}\n", "hpj") == (FRESH.id, FRESH.hash)


def test_a_fresh_join_token_admits() -> None:
    assert joining.refusal(TOKEN, FRESH.hash, NOW) is None


def test_a_wrong_secret_learns_nothing_about_the_token() -> None:
    used = replace(TOKEN, used_at=NOW, used_by="n1")
    wrong = "0" * 64
    assert joining.refusal(TOKEN, wrong, NOW) == joining.refusal(used, wrong, NOW) == "The join token is not valid."


def test_a_used_or_expired_join_token_says_so() -> None:
    assert "was used on 2026-05-04 12:00" in str(joining.refusal(replace(TOKEN, used_at=NOW), FRESH.hash, NOW))
    assert "expired on" in str(joining.refusal(TOKEN, FRESH.hash, TOKEN.expires_at))


def test_renewal_begins_at_half_of_the_life() -> None:
    end = NOW + timedelta(hours=24)
    assert renew_at(NOW, end) == NOW + timedelta(hours=12)
    assert not is_due(NOW, end, NOW + timedelta(hours=11, minutes=59))
    assert is_due(NOW, end, NOW + timedelta(hours=12))
    assert is_due(NOW, end, NOW - timedelta(days=365)), "made with a clock that was ahead"
