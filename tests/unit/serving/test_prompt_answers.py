"""A connection that is answered from memory: what it writes, and when it is closed for being idle."""

from collections.abc import Callable
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from homeport.serving.server.connections import connection_class
from homeport.serving.server.limits import Limits

POLL = b"GET /poll HTTP/1.1\r\nHost: x\r\n\r\n"


class Timer:
    def __init__(self, at: float, call: Callable[[], None]) -> None:
        self.at, self.call, self.is_cancelled = at, call, False

    def cancel(self) -> None:
        self.is_cancelled = True


class Loop:
    """A clock that is set by hand, and the timers on it."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.timers: list[Timer] = []

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, call: Callable[[], None]) -> Timer:
        self.timers.append(Timer(self.now + seconds, call))
        return self.timers[-1]

    def pass_seconds(self, seconds: float) -> None:
        until = self.now + seconds
        while due := [each for each in self.timers if not each.is_cancelled and each.at <= until]:
            first = min(due, key=lambda each: each.at)
            self.timers.remove(first)
            self.now = first.at
            first.call()
        self.now = until


class Line:
    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.is_closed = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("10.0.0.1", 1) if name in ("peername", "sockname") else default

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed


def polling() -> tuple[Any, Loop, Line]:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError("answered before")

    answered = connection_class(Limits(head_seconds=10.0), None, prompt=lambda *_: (304, b"etag: x\r\n\r\n"))
    config = uvicorn.Config(app, loop="none", http=answered, ws="none", lifespan="off", log_config=None)
    config.load()
    state, loop, line = ServerState(), Loop(), Line()
    state.default_headers = [(b"date", b"now")]
    connection: Any = answered(config=config, server_state=state, app_state={}, _loop=loop)  # type: ignore[arg-type]
    connection.timeout_keep_alive = 30
    connection.connection_made(line)
    return connection, loop, line


def test_each_poll_is_answered_with_one_write_and_no_timer_of_its_own() -> None:
    connection, loop, line = polling()
    for _ in range(50):
        connection.data_received(POLL)
        loop.pass_seconds(0.1)
    assert line.written == [b"HTTP/1.1 304 Not Modified\r\ndate: now\r\netag: x\r\n\r\n"] * 50
    assert len([each for each in loop.timers if not each.is_cancelled]) == 1


def test_the_date_is_that_of_the_moment() -> None:
    connection, _, line = polling()
    connection.data_received(POLL)
    connection.server_state.default_headers = [(b"date", b"later")]
    connection.data_received(POLL)
    assert [b"date: later" in each for each in line.written] == [False, True]


def test_it_is_closed_when_no_poll_has_come_for_the_time_that_it_is_kept() -> None:
    connection, loop, line = polling()
    for _ in range(10):
        connection.data_received(POLL)
        loop.pass_seconds(20.0)
        assert not line.is_closed
    loop.pass_seconds(9.9)
    assert not line.is_closed
    loop.pass_seconds(1.2)
    assert line.is_closed


def test_a_head_that_has_begun_has_its_own_time() -> None:
    connection, loop, line = polling()
    connection.data_received(POLL)
    loop.pass_seconds(25.0)
    connection.data_received(POLL[:10])
    loop.pass_seconds(6.0)  # idle for more than thirty seconds, if the beginning did not count
    assert not line.is_closed
    connection.data_received(POLL[10:])
    assert len(line.written) == 2
