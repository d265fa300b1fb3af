"""What a command has written, and how it ended, reaches the other end before the stream is left."""

import anyio
import pytest

from homeport.core.tunnel.exec_messages import Channel
from homeport.core.tunnel.targets import TerminalSize
from homeport.errors import PeerUnavailable
from homeport.tunnel.node.answering import converse

pytestmark = pytest.mark.anyio


class QuickCommand:
    """Ends at once, with one line."""

    def __init__(self) -> None:
        self._output = [(Channel.OUTPUT, b"done\n")]

    async def read(self) -> tuple[Channel, bytes] | None:
        return self._output.pop() if self._output else None

    async def write(self, data: bytes) -> None: ...
    async def end_input(self) -> None: ...
    async def resize(self, size: TerminalSize) -> None: ...
    async def exit_code(self) -> int:
        return 7


class SlowReader:
    """The other end: it hangs up when it has read everything, or breaks off."""

    def __init__(self, *, breaks: bool) -> None:
        self.header: dict[str, object] = {}
        self.written = b""
        self._breaks = breaks
        self._is_over = anyio.Event()

    async def read(self) -> bytes:
        await self._is_over.wait()
        await anyio.sleep(0.02)
        if self._breaks:
            raise PeerUnavailable("The other end closed the stream.")
        self.written += b" was read"
        return b""

    async def accept(self, answer: object) -> None: ...
    async def write(self, data: bytes) -> None:
        self.written += data

    async def end(self) -> None:
        self._is_over.set()


async def test_a_quick_command_waits_until_its_exit_code_was_read() -> None:
    stream = SlowReader(breaks=False)
    with anyio.fail_after(5):
        await converse(stream, QuickCommand())  # type: ignore[arg-type]
    assert b'{"code": 7}' in stream.written and stream.written.endswith(b"was read")


async def test_who_breaks_off_after_the_end_harms_nobody() -> None:
    with anyio.fail_after(5):
        await converse(SlowReader(breaks=True), QuickCommand())  # type: ignore[arg-type]
