"""Sessions of browsers: the cookie and the key are each useless alone."""

from datetime import UTC, datetime, timedelta

import pytest

from homeport.errors import Unauthenticated
from homeport.serving.middleware.session_cookie import (
    COOKIE,
    KEY_HEADER,
    LIFETIME,
    begin,
    clear_cookie,
    set_cookie,
    token_of,
)

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
TOKEN = "hp_0123abcd_secret"


def headers(cookie: str, key: str) -> dict[str, str]:
    return {"cookie": f"theme=dark; {COOKIE}={cookie}", KEY_HEADER: key}


def test_cookie_and_key_together_are_the_token() -> None:
    session = begin(TOKEN, NOW)
    assert token_of(headers(session.cookie, session.key), NOW) == TOKEN
    assert session.expires_at == NOW + LIFETIME


def test_neither_of_them_alone_is_a_session() -> None:
    session = begin(TOKEN, NOW)
    assert token_of({"cookie": f"{COOKIE}={session.cookie}"}, NOW) is None
    assert token_of({KEY_HEADER: session.key}, NOW) is None
    assert token_of({}, NOW) is None
    assert TOKEN not in session.cookie + session.key


@pytest.mark.parametrize("cookie", ["", "AAAA", "%%%%", "A" * 5_000])
def test_a_cookie_that_cannot_be_read_is_refused(cookie: str) -> None:
    with pytest.raises(Unauthenticated, match="not valid"):
        token_of(headers(cookie, begin(TOKEN, NOW).key), NOW)


def test_the_key_of_another_session_does_not_open_it() -> None:
    with pytest.raises(Unauthenticated, match="not valid"):
        token_of(headers(begin(TOKEN, NOW).cookie, begin(TOKEN, NOW).key), NOW)


def test_a_session_expires() -> None:
    session = begin(TOKEN, NOW)
    with pytest.raises(Unauthenticated, match="expired"):
        token_of(headers(session.cookie, session.key), NOW + LIFETIME + timedelta(seconds=1))


def test_scripts_cannot_read_the_cookie_and_other_sites_cannot_send_it() -> None:
    text = set_cookie(begin(TOKEN, NOW), is_tls=True)
    assert {"HttpOnly", "SameSite=Strict", "Secure", "Path=/"} <= set(text.split("; "))
    assert "Secure" not in set_cookie(begin(TOKEN, NOW), is_tls=False)
    assert "Max-Age=0" in clear_cookie(is_tls=False)
