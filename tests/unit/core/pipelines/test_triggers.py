"""What a schedule does when its time has come, which signatures are believed, and which addresses are called."""

from datetime import UTC, datetime, timedelta

import pytest

from homeport.core.pipelines.due import decide
from homeport.core.pipelines.model import Missed, Overlap, Schedule
from homeport.core.pipelines.reach import is_rule, refusal
from homeport.core.pipelines.signature import judge, sign

DUE = datetime(2026, 1, 1, 3, tzinfo=UTC)


@pytest.mark.parametrize(
    ("missed", "overlap", "late_seconds", "is_running", "runs"),
    [
        (Missed.SKIP, Overlap.SKIP, 0, False, True),
        (Missed.SKIP, Overlap.SKIP, 80, False, True),
        (Missed.SKIP, Overlap.SKIP, 100, False, False),
        (Missed.RUN, Overlap.SKIP, 86_400, False, True),
        (Missed.RUN, Overlap.SKIP, 0, True, False),
        (Missed.SKIP, Overlap.ALLOW, 0, True, True),
    ],
)
def test_a_time_that_has_come_runs_or_says_why_not(
    missed: Missed, overlap: Overlap, late_seconds: float, is_running: bool, runs: bool
) -> None:
    schedule = Schedule("@daily", missed=missed, overlap=overlap)
    found = decide(schedule, DUE, DUE + timedelta(seconds=late_seconds), is_running=is_running)
    assert (found.runs, bool(found.why)) == (runs, not runs)


@pytest.mark.parametrize(
    ("timestamp", "signature", "is_believed"),
    [
        ("1000", sign("key", "1000", b"x"), True),
        ("1000", sign("other", "1000", b"x"), False),
        ("1000", sign("key", "1000", b"y"), False),
        ("1001", sign("key", "1000", b"x"), False),
        ("600", sign("key", "600", b"x"), False),
        ("1400", sign("key", "1400", b"x"), False),
        ("", "", False),
        ("-5", sign("key", "-5", b"x"), False),
        ("٣", "sha256=é", False),
    ],
)
def test_a_request_is_believed_by_its_signature_and_time(timestamp: str, signature: str, is_believed: bool) -> None:
    why = judge("key", timestamp=timestamp, signature=signature, body=b"x", now=1000.0)
    assert (why is None) is is_believed


@pytest.mark.parametrize(
    ("host", "address", "allowed", "is_called"),
    [
        ("example.org", "93.184.216.34", (), True),
        ("example.org", "2606:2800:220:1::1", (), True),
        *((name, name, (), False) for name in ("127.0.0.1", "10.1.2.3", "169.254.169.254", "192.168.1.1", "0.0.0.0")),
        *((name, name, (), False) for name in ("::1", "fe80::1", "fd00::1", "224.0.0.1", "100.64.0.1", "::")),
        *(
            (name, name, (), False)
            for name in ("::ffff:127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "fe80::1%eth0")
        ),
        *((name, name, (), False) for name in ("::127.0.0.1", "fec0::1", "64:ff9b:1::7f00:1", "4000::1")),
        ("nas.local", "10.1.2.3", ("NAS.local",), True),
        ("evil.example", "10.1.2.3", ("nas.local",), False),
        ("x", "10.1.2.3", ("10.1.0.0/16",), True),
        ("x", "10.2.2.3", ("10.1.0.0/16",), False),
        ("x", "127.0.0.1", ("127.0.0.1",), True),
    ],
)
def test_private_addresses_are_called_only_where_that_is_allowed(
    host: str, address: str, allowed: tuple[str, ...], is_called: bool
) -> None:
    assert (refusal(host, address, allowed) is None) is is_called


def test_a_rule_is_a_host_an_address_or_a_network() -> None:
    assert all(map(is_rule, ("nas.local", "10.0.0.0/8", "::1", "a-b_c.d")))
    assert not any(map(is_rule, ("", "a b", "http://x", "10.0.0.0/99", "x..y")))
