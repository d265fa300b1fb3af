"""A web server on loopback that has files to fetch."""

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

HELD_SECONDS_MAX = 30


@dataclass
class WebServer:
    """Serves files with ranges; a file may break off after so many bytes, so many times."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    breaks: list[int] = field(default_factory=list)
    with_ranges: bool = True
    with_etag: bool = True
    asked: list[tuple[str, str, str]] = field(default_factory=list)
    """Path, Range, Authorization."""
    redirects: dict[str, str] = field(default_factory=dict)
    linked: str = ""
    """The digest that redirects promise, as Hugging Face does."""
    sent_bytes: int = 0
    forbidden: set[str] = field(default_factory=set)
    held: dict[str, threading.Event] = field(default_factory=dict)
    """Of these paths the second half waits until it is let go."""


@contextmanager
def web_server() -> Iterator[WebServer]:
    server = WebServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path, ranged = self.path, self.headers.get("Range", "")
            server.asked.append((path, ranged, self.headers.get("Authorization", "")))
            if path in server.redirects:
                self.send_response(302)
                self.send_header("Location", server.redirects[path])
                if server.linked:
                    self.send_header("X-Linked-Etag", f'"{server.linked}"')
                self.end_headers()
                return
            if path in server.forbidden:
                self.send_error(401)
                return
            if path not in server.files:
                self.send_error(404)
                return
            content = server.files[path]
            etag = '"' + hashlib.sha256(content).hexdigest()[:8] + '"'
            is_part = ranged and server.with_ranges and self.headers.get("If-Range", etag) == etag
            start = int(ranged.removeprefix("bytes=").partition("-")[0]) if is_part else 0
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(content) - start))
            if server.with_etag:
                self.send_header("ETag", etag)
            self.end_headers()
            end = len(content) if not server.breaks else start + server.breaks.pop(0)
            server.sent_bytes += len(content[start:end])
            if path in server.held:
                half = (start + end) // 2
                self.wfile.write(content[start:half])
                server.held[path].wait(HELD_SECONDS_MAX)
                start = half
            self.wfile.write(content[start:end])
            self.close_connection = True

        def log_message(self, *args: Any) -> None:
            pass

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.url = f"http://127.0.0.1:{httpd.server_port}"
    thread = threading.Thread(target=httpd.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        httpd.shutdown()
        thread.join()
        httpd.server_close()
