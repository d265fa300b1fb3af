"""Why a server cannot be reached, in words that a person can act on."""

import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import anyio
import pytest
from anyio import to_thread

from homeport.adapters.network.http_client import reason_of
from tests.support.certificates import forge, forge_root, trusting_context, write_files

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def listening(context: ssl.SSLContext | None) -> AsyncIterator[int]:
    """A server that says why it refuses: asyncio's own closes the connection without an alert."""

    def serve() -> None:
        connection, _ = listener.accept()
        connection.settimeout(10)
        if context is not None:
            connection = context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        with connection, suppress(OSError):
            with suppress(ssl.SSLError):
                if isinstance(connection, ssl.SSLSocket):
                    connection.do_handshake()
                else:
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65_536):
                pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(10)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(to_thread.run_sync, serve)
            yield listener.getsockname()[1]


def serving(folder: Path) -> ssl.SSLContext:
    root = forge_root()
    files = write_files(folder, forge(root), anchors=[root])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files / "svid-cert.pem", files / "svid-key.pem")
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context


async def reason(port: int, context: ssl.SSLContext) -> str:
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientError) as caught:
            await session.post(f"https://127.0.0.1:{port}/", ssl=context)  # A GET would be tried again.
    return reason_of(caught.value)


async def test_a_certificate_that_the_server_misses_is_no_lack_of_permission(tmp_path: Path) -> None:
    """With TLS 1.3 the server says it after the client has finished the handshake."""
    context = serving(tmp_path)
    context.verify_mode = ssl.CERT_REQUIRED
    async with listening(context) as port:
        assert await reason(port, trusting_context()) == "TLS failed: tlsv13 alert certificate required"


async def test_a_version_of_tls_that_the_server_refuses_is_tls_all_the_same(tmp_path: Path) -> None:
    old = trusting_context()
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    async with listening(serving(tmp_path)) as port:
        assert await reason(port, old) == "TLS failed: tlsv1 alert protocol version"


async def test_a_server_that_nobody_trusts_and_one_without_tls_are_told_apart(tmp_path: Path) -> None:
    async with listening(serving(tmp_path)) as port:
        assert (await reason(port, ssl.create_default_context())).startswith("its certificate is not trusted: ")
    async with listening(None) as port:
        assert await reason(port, trusting_context()) == "it does not speak TLS"


def test_a_tls_error_that_lost_its_cause_is_still_one() -> None:
    alert = ssl.SSLError(1, "[SSL: TLSV1_ALERT_UNKNOWN_CA] tlsv1 alert unknown ca (_ssl.c:2580)")
    assert reason_of(aiohttp.ClientOSError(*alert.args)) == "TLS failed: tlsv1 alert unknown ca"
    assert reason_of(ssl.SSLError(1, "no ciphers")) == "TLS failed: no ciphers"
    assert reason_of(PermissionError(1, "Operation not permitted")) == "operation not permitted"
