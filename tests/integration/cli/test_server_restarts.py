"""What follows something goes on when the server is restarted, also when it meets one that is just stopping."""

import json
import os
import pty
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest

from tests.integration.cli.test_following import read_until
from tests.support.forks import HomeportProcess, run_homeport
from tests.support.waiting import wait_for

JOB = {"id": "count", "site": "home", "state": "RUNNING"}
OUTPUT = {"state": "RUNNING", "reason": "", "attempt": 1, "generation": 1, "start": 0, "complete": False}
STOPPING = (503, "application/problem+json", {"detail": "This Homeport is stopping.", "retryable": True})
LINE = {
    **{"at": "2026-01-01T00:00:00+00:00", "level": "info", "site": "home", "node": "n1", "source": "job/count"},
    **{"deployment": "", "component": "", "job": "count", "fields": {}},
}
Answer = tuple[int, str, object]


def ok(body: object) -> Answer:
    return 200, "application/json", body


def stream(number: int) -> Answer:
    data = json.dumps({**LINE, "id": number, "text": f"line {number}"})
    return 200, "text/event-stream", f"id: {number}\nevent: log\ndata: {data}\n\n"


class Scripted(ThreadingHTTPServer):
    """Gives the answers of a path one after the other, the last one again and again."""

    answers: dict[str, list[Answer]]

    def answer(self, path: str) -> Answer:
        left = self.answers[path]
        return left.pop(0) if len(left) > 1 else left[0]


class _Handler(BaseHTTPRequestHandler):
    server: Scripted

    def do_GET(self) -> None:
        path = urlsplit(self.path)
        status, kind, body = self.server.answer(f"{path.path}{'?follow' if 'follow=' in path.query else ''}")
        content = (body if isinstance(body, str) else json.dumps(body)).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Scripted]:
    with Scripted(("127.0.0.1", 0), _Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def homeport(server: Scripted, *arguments: str) -> tuple[int, str, str]:
    done = run_homeport(arguments, environment={"HOMEPORT_URL": f"http://127.0.0.1:{server.server_port}"})
    return done.returncode, done.stdout, done.stderr


def test_the_output_of_a_job(server: Scripted) -> None:
    ended = {**JOB, "state": "COMPLETED", "reason": "", "failure": None, "exit_code": 0}
    server.answers = {
        "/api/v1/jobs/count": [ok(JOB), STOPPING, ok(ended)],
        "/api/v1/jobs/count/output": [
            ok({**OUTPUT, "text": "one\n", "next": 4}),
            STOPPING,
            ok({**OUTPUT, "text": "two\n", "start": 4, "next": 8, "complete": True}),
        ],
    }
    assert homeport(server, "jobs", "logs", "-f", "count") == (0, "one\ntwo\n", "")


def test_the_lines_of_a_log(server: Scripted) -> None:
    server.answers = {
        "/healthz": [STOPPING, ok({"status": "ok"})],
        "/api/v1/logs": [ok({"lines": [], "next": None})],
        "/api/v1/logs?follow": [stream(1), STOPPING, stream(2)],
    }
    code, shown, _ = homeport(server, "logs", "-f")
    assert (code, [line.split()[-1] for line in shown.splitlines()]) == (0, ["1", "2"])


def test_a_list_on_a_terminal(server: Scripted) -> None:
    sites = [ok({"sites": [], "next": None}), STOPPING, STOPPING, ok({"sites": [], "next": None})]
    server.answers = {"/api/v1/sites": sites}
    master, screen = pty.openpty()
    command = ["--url", f"http://127.0.0.1:{server.server_port}", "sites", "list", "--watch"]
    environment = {**os.environ, "TERM": "xterm"}
    with HomeportProcess(command, stdin=screen, stdout=screen, stderr=screen, env=environment) as process:
        os.close(screen)
        try:
            read_until(master, b"is stopping. Trying again.")
            wait_for(lambda: len(sites) == 1, what="the list to be asked for again")
            assert process.poll() is None
        finally:
            process.kill()
            os.close(master)
