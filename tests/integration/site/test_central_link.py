"""The site's link to central, when the connection goes away between two messages."""

import anyio
import pytest
from anyio.abc import SocketStream

from homeport.adapters.link.central_http import open_central_link
from homeport.errors import PeerUnavailable
from homeport.vocabulary import SiteName

pytestmark = pytest.mark.anyio

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"

MESSAGE = b'data: {"kind": "secrets"}\n'


async def one_message(stream: SocketStream) -> None:
    async with stream:
        await stream.receive()
        await stream.send(HEAD + b"%x\r\n%s\r\n" % (len(MESSAGE), MESSAGE))
        await anyio.sleep_forever()


async def test_a_connection_that_closes_while_a_message_is_worked_on_is_a_lost_one() -> None:
    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(listener.serve, one_message)
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        async with open_central_link(f"http://127.0.0.1:{port}") as link:
            with pytest.raises(PeerUnavailable):
                async for _ in link.watch(SiteName("home")):
                    await link.close()
        tasks.cancel_scope.cancel()
