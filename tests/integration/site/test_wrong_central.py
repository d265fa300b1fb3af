"""Another program has central's port: a site waits until central is back."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from homeport.adapters.link.central_http import open_central_link
from homeport.errors import PeerUnavailable
from homeport.vocabulary import SiteName

pytestmark = pytest.mark.anyio

HOME = SiteName("home")
ANSWERS = [
    b"[]",
    b"null",
    b'"hello"',
    b"{}",
    b'{"last_sequence": 1e999}',
    b'{"last_sequence": 1, "ahead": []}',
    b'{"last_sequence": 1, "ahead": {"generation": 1e999, "incarnation": 0}}',
    b'{"changed": [], "versions": 3}',
    b'{"changed": {"a": {"version": 1e999, "value": ""}}, "versions": {}}',
    b"[" * 100_000,
]


class _Other(BaseHTTPRequestHandler):
    said = b""

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        stream = self.path.endswith("/watch")
        body = b"data: " + self.said + b"\n\n" if stream else self.said
        self.send_response(200)
        self.send_header("content-type", "text/event-stream" if stream else "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PUT = _answer  # noqa: N815 - the library's names

    def log_message(self, *_: Any) -> None:
        """Silent."""


@pytest.fixture
def url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Other)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("said", ANSWERS)
async def test_answers_that_are_not_centrals_are_a_central_that_is_away(url: str, said: bytes) -> None:
    _Other.said = said
    async with open_central_link(url) as link:
        for ask in (
            lambda: link.join(HOME, epoch="e", software_version="1"),
            lambda: link.report(HOME, [], epoch="e", seen={}),
            lambda: link.secrets(HOME, known={}),
        ):
            try:
                await ask()
            except PeerUnavailable:
                continue
        try:
            async for _ in link.watch(HOME):
                pass
        except PeerUnavailable:
            pass
