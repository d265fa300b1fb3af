"""Git over HTTP on loopback: `git http-backend` behind a small server in threads of its own.

    with serve_git(folder_of_bare_repositories) as server:
        url = server.url("deployments.git")
        server.refuses_pushes = True     # may be changed at any time
        server.stop(); server.start()    # an outage; the address stays the same

It runs beside any event loop, so tests of both kinds use it alike.
"""

import base64
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from tests.support.git import QUIET

BACKEND_SECONDS_MAX = 60.0


class GitHttpServer:
    """Serves every repository below `root` for reading and pushing."""

    def __init__(
        self, root: Path, *, user: str | None = None, password: str = "", address: str = "127.0.0.1", port: int = 0
    ) -> None:
        self.root = root
        self.user = user
        self.password = password
        """With a user, every request must carry both (basic authentication)."""
        self.refuses_pushes = False
        """Answers 403 to pushes, as a hosting service does to an account without the right."""
        self.answers = threading.Event()
        """While cleared, requests are taken and not answered."""
        self.answers.set()
        self.drops_push_answers = False
        """Carries pushes out and then cuts the connection instead of answering."""
        self.requests: list[str] = []
        self.address = address
        self.port = port
        self.inside: Callable[[Callable[[], _Server]], _Server] = lambda make: make()
        """How its socket is made: for a host in a network namespace of its own."""
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    def url(self, repository: str, *, with_credentials: bool = False) -> str:
        userinfo = f"{quote(self.user or '')}:{quote(self.password)}@" if with_credentials else ""
        return f"http://{userinfo}{self.address}:{self.port}/{repository}"

    def start(self) -> None:
        assert self._server is None, "it runs already"
        self._server = self.inside(lambda: _Server((self.address, self.port), self))
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def start_if_stopped(self) -> None:
        if self._server is None:
            self.start()

    def stop(self) -> None:
        """Connections are refused from here on. Harmless when it is stopped already."""
        if self._server is None or self._thread is None:
            return
        self.answers.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._server = self._thread = None


@contextmanager
def serve_git(root: Path, *, user: str | None = None, password: str = "") -> Iterator[GitHttpServer]:
    server = GitHttpServer(root, user=user, password=password)
    server.start()
    try:
        yield server
    finally:
        server.stop()


class _Server(ThreadingHTTPServer):
    daemon_threads = False
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], git: GitHttpServer) -> None:
        self.git = git
        super().__init__(address, _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass

    def _answer(self) -> None:
        git = self.server.git
        git.requests.append(f"{self.command} {self.path}")
        body = self._body()
        git.answers.wait(BACKEND_SECONDS_MAX)
        is_push = "git-receive-pack" in self.path
        if git.user is not None and not self._is_authorized(git.user, git.password):
            self._refuse(401, {"WWW-Authenticate": 'Basic realm="git"'})
        elif git.refuses_pushes and is_push:
            self._refuse(403, {})
        else:
            header, content = self._run_backend(body)
            if git.drops_push_answers and self.command == "POST" and is_push:
                self.close_connection = True
            else:
                self._send(header, content)

    def _is_authorized(self, user: str, password: str) -> bool:
        expected = base64.b64encode(f"{user}:{password}".encode()).decode()
        return self.headers.get("Authorization") == f"Basic {expected}"

    def _refuse(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        chunks = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def _run_backend(self, body: bytes) -> tuple[bytes, bytes]:
        parts = urlsplit(self.path)
        environment = os.environ | QUIET | {
            "GIT_PROJECT_ROOT": str(self.server.git.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": unquote(parts.path),
            "QUERY_STRING": parts.query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "REMOTE_ADDR": "127.0.0.1",
            "REMOTE_USER": self.server.git.user or "anybody",
        }  # fmt: skip
        program = shutil.which("git") or "git"
        done = subprocess.run(
            [program, "http-backend"],
            input=body, env=environment, capture_output=True, timeout=BACKEND_SECONDS_MAX, check=False,
        )  # fmt: skip
        header, _, content = done.stdout.partition(b"\r\n\r\n")
        return header, content

    def _send(self, header: bytes, content: bytes) -> None:
        fields = [line.split(": ", 1) for line in header.decode().split("\r\n") if ": " in line]
        status = next((int(value.split()[0]) for name, value in fields if name == "Status"), 200)
        self.send_response(status)
        for name, value in fields:
            if name != "Status":
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
