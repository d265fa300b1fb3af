"""The site's link to central, when the connection goes away between two messages."""

from contextlib import suppress

import anyio
import pytest
from anyio.abc import SocketStream

from homeport.adapters.link.central_http import open_central_link
from homeport.errors import PeerUnavailable
from homeport.vocabulary import SiteName
from tests.support.listening import outliving

pytestmark = pytest.mark.anyio

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"

MESSAGE = b'data: {"kind": "secrets"}\n'


async def one_message(stream: SocketStream) -> None:
    await stream.receive()
    await stream.send(HEAD + b"%x\r\n%s\r\n" % (len(MESSAGE), MESSAGE))
    await anyio.sleep_forever()


async def test_a_connection_that_closes_while_a_message_is_worked_on_is_a_lost_one() -> None:
    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(listener.serve, outliving(one_message))
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        async with open_central_link(f"http://127.0.0.1:{port}") as link:
            with pytest.raises(PeerUnavailable):
                async for _ in link.watch(SiteName("home")):
                    await link.close()
        tasks.cancel_scope.cancel()


REFUSED = b"HTTP/1.1 403 Forbidden\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


class RefusingCentral:
    """Streams a message at first and another after it has refused a call, as it does once a certificate has ended."""

    def __init__(self) -> None:
        self.refused = anyio.Event()
        self.connections = 0

    async def serve(self, stream: SocketStream) -> None:
        self.connections += 1
        while True:
            if b"/watch" not in await stream.receive():
                await stream.send(REFUSED)
                self.refused.set()
                continue
            chunk = b"%x\r\n%s\r\n" % (len(MESSAGE), MESSAGE)
            await stream.send(HEAD + chunk)
            await self.refused.wait()
            await anyio.sleep(0.1)
            await stream.send(chunk)


async def test_a_refused_call_leaves_the_watch_stream_open() -> None:
    """A session that is closed wakes nobody who reads in it: the site would never listen to central again."""
    central, seen = RefusingCentral(), 0
    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(listener.serve, outliving(central.serve))
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        async with open_central_link(f"http://127.0.0.1:{port}") as link:

            async def call() -> None:
                for _ in range(2):
                    with pytest.raises(PeerUnavailable):
                        await link.secrets(SiteName("home"), known={})

            with anyio.fail_after(10):
                async for _ in link.watch(SiteName("home")):
                    seen += 1
                    if seen == 2:
                        break
                    tasks.start_soon(call)
        tasks.cancel_scope.cancel()
    assert seen == 2
    assert central.connections == 3, "each refused call opens a new connection the next time"


class ForgetfulCentral:
    """Refuses everything until the site is accepted again."""

    def __init__(self) -> None:
        self.requests = 0
        self.accepts = False

    async def serve(self, stream: SocketStream) -> None:
        while await stream.receive():
            self.requests += 1
            await stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}" if self.accepts else REFUSED)


async def test_a_removed_site_asks_less_and_less_often_and_is_heard_once_it_is_accepted() -> None:
    central = ForgetfulCentral()
    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(listener.serve, outliving(central.serve))
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        async with open_central_link(f"http://127.0.0.1:{port}") as link:
            for _ in range(50):
                with pytest.raises(PeerUnavailable, match="central answered 403"):
                    await link.call(SiteName("home"), "logs", b"")
            assert central.requests <= 5, "each of its loops would ask several times a second"
            central.accepts = True
            with anyio.fail_after(10):
                while True:
                    with suppress(PeerUnavailable):
                        assert await link.call(SiteName("home"), "logs", b"") == b"{}"
                        break
                    await anyio.sleep(0.05)
            asked = central.requests
            for _ in range(5):
                await link.call(SiteName("home"), "logs", b"")
            assert central.requests == asked + 5
        tasks.cancel_scope.cancel()
