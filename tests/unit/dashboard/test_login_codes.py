"""Codes that log a browser in: used once, for a minute, and bounded."""

import pytest

from homeport.dashboard.login_codes import CODES_MAX, SECONDS, LoginCodes
from homeport.errors import Unauthenticated


def test_a_code_stands_for_its_token_once() -> None:
    codes = LoginCodes()
    code = codes.create("hp_secret", 100.0)
    assert "secret" not in code
    assert codes.redeem(code, 101.0) == "hp_secret"
    with pytest.raises(Unauthenticated, match="used already"):
        codes.redeem(code, 102.0)


def test_a_code_expires() -> None:
    codes = LoginCodes()
    code = codes.create("hp_secret", 100.0)
    with pytest.raises(Unauthenticated, match="older than a minute"):
        codes.redeem(code, 100.0 + SECONDS)


def test_the_oldest_give_way_where_there_are_too_many() -> None:
    codes = LoginCodes()
    first, *others = [codes.create(f"token-{number}", 100.0) for number in range(CODES_MAX + 1)]
    with pytest.raises(Unauthenticated):
        codes.redeem(first, 101.0)
    assert codes.redeem(others[-1], 101.0) == f"token-{CODES_MAX}"
