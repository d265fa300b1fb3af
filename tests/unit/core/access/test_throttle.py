"""Guessing becomes slow, memory stays small, and nobody else pays for it."""

from homeport.core.access.throttle import Throttle, address_key


def test_the_eleventh_failure_in_a_minute_has_to_wait() -> None:
    throttle = Throttle()
    assert [throttle.failed("a", second) for second in range(10)] == [0.0] * 10
    assert throttle.failed("a", 10.0) == 1.0


def test_each_wait_is_twice_as_long_up_to_a_limit() -> None:
    throttle = Throttle(failures_max=0, penalty_seconds_max=60.0)
    now, waits = 0.0, []
    for _ in range(9):
        waits.append(throttle.failed("a", now))
        now += waits[-1]
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]


def test_a_machine_that_tries_a_revoked_token_for_weeks_waits_as_long_each_time() -> None:
    throttle = Throttle(failures_max=0, penalty_seconds_max=60.0)
    now = 0.0
    for _ in range(1_100):
        now += throttle.failed("a", now)
    assert throttle.failed("a", now) == 60.0


def test_trying_on_while_waiting_does_not_prolong_the_wait() -> None:
    throttle = Throttle(failures_max=0)
    assert throttle.failed("a", 0.0) == 1.0
    assert throttle.failed("a", 0.25) == 0.75
    assert throttle.failed("a", 0.5) == 0.5


def test_a_quiet_minute_is_a_new_beginning() -> None:
    throttle = Throttle(failures_max=1)
    throttle.failed("a", 0.0)
    assert throttle.failed("a", 1.0) > 0
    assert throttle.failed("a", 100.0) == 0.0


def test_one_guesser_slows_nobody_else_down() -> None:
    throttle = Throttle(failures_max=0)
    throttle.failed("a", 0.0)
    assert Throttle(failures_max=1).failed("b", 0.0) == 0.0
    assert throttle.failed("b", 0.0) == 1.0


def test_a_million_addresses_take_no_more_memory_than_the_limit() -> None:
    throttle = Throttle(keys_max=100)
    for number in range(10_000):
        throttle.failed(str(number), 0.0)
    assert len(throttle) == 100


def test_all_addresses_of_one_small_network_are_one_key() -> None:
    assert address_key("2001:db8::1") == address_key("2001:db8::ffff:1")
    assert address_key("2001:db8::1") != address_key("2001:db8:0:1::1")
    assert address_key("::ffff:192.0.2.1") == address_key("192.0.2.1") != address_key("192.0.2.2")
    assert address_key("fe80::1%eth0") == "address:fe80::/64"
    assert address_key("not an address") == "address:?"
