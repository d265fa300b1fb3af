"""The head of a response travels with the first part of its body."""

import asyncio
from typing import cast

import pytest

from homeport.serving.server.connections import JoinedWrites

pytestmark = pytest.mark.anyio


class Written:
    """What reached the transport, call by call."""

    def __init__(self) -> None:
        self.calls: list[bytes] = []
        self.is_closed = False

    def write(self, data: bytes) -> None:
        self.calls.append(data)

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed


def joined() -> tuple[Written, JoinedWrites]:
    written = Written()
    return written, JoinedWrites(cast(asyncio.Transport, written), asyncio.get_running_loop())


async def test_a_body_that_follows_at_once_is_one_write_with_its_head() -> None:
    written, writes = joined()
    writes.write(b"head ")
    writes.write(b"body")
    writes.write(b"more")
    await asyncio.sleep(0)
    assert written.calls == [b"head body", b"more"]


async def test_a_head_whose_body_comes_later_is_sent_in_the_same_step() -> None:
    written, writes = joined()
    writes.write(b"head")
    await asyncio.sleep(0)
    assert written.calls == [b"head"]
    writes.write(b"body")
    assert written.calls == [b"head", b"body"]


async def test_a_head_is_sent_before_the_connection_is_closed_and_never_after() -> None:
    written, writes = joined()
    writes.write(b"head")
    writes.close()
    assert (written.calls, written.is_closed) == ([b"head"], True)
    written, writes = joined()
    writes.write(b"head")
    written.close()
    await asyncio.sleep(0)
    assert written.calls == []
