"""How many connections a server accepts, in all and from one address."""

import pytest

from homeport.serving.server.limits import Limits
from homeport.serving.server.listening import LOG_SECONDS, Admission

LIMITS = Limits(connections_max=5, connections_per_address_max=2)


def test_an_address_has_its_share_and_the_server_has_an_end() -> None:
    admission = Admission(LIMITS)
    assert [admission.admit("203.0.113.7") for _ in range(3)] == [True, True, False]
    assert [admission.admit("203.0.113.8") for _ in range(3)] == [True, True, False]
    assert admission.admit("203.0.113.9") and not admission.admit("203.0.113.10")
    admission.release("203.0.113.8")
    assert not admission.admit("203.0.113.7") and admission.admit("203.0.113.10")


def test_this_machine_itself_has_no_share() -> None:
    admission = Admission(LIMITS)
    assert [admission.admit("127.0.0.1") for _ in range(6)] == [True] * 5 + [False]


def test_nothing_is_kept_of_who_has_left() -> None:
    admission = Admission(LIMITS)
    for number in range(1_000):
        address = f"203.0.113.{number % 250}"
        assert admission.admit(address)
        admission.release(address)
    assert (admission.total, dict(admission.by_address)) == (0, {})


def test_nothing_is_kept_of_who_was_turned_away() -> None:
    admission = Admission(Limits(connections_max=1))
    assert admission.admit("203.0.113.1")
    assert not any(admission.admit(f"198.51.100.{number}") for number in range(250))
    assert dict(admission.by_address) == {"203.0.113.1": 1}


def test_a_flood_is_logged_once_a_second(caplog: pytest.LogCaptureFixture) -> None:
    now = 100.0
    admission = Admission(Limits(connections_max=1), monotonic=lambda: now)
    admission.admit("203.0.113.1")
    for _ in range(1_000):
        admission.admit("203.0.113.1")
    assert len(caplog.records) == 1
    now += LOG_SECONDS
    admission.admit("203.0.113.1")
    assert len(caplog.records) == 2
