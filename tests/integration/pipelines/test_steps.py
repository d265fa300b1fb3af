"""HTTP steps, pipelines in pipelines, webhooks and schedules, at a central that runs as a process of its own."""

import json
import socket
import sqlite3
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from homeport.adapters.network.http_calls import call
from homeport.core.pipelines.signature import sign
from homeport.errors import PeerUnavailable, Refused
from tests.e2e.test_secrets import set_secret
from tests.support.fleet import Fleet
from tests.support.git import bare_repository
from tests.support.processes import Machine

SECRET = "hunter2hunter2"


class _Answers(BaseHTTPRequestHandler):
    seen: list[tuple[str, dict[str, str], bytes]] = []  # noqa: RUF012 - set anew for each server

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        self.seen.append((self.path, {name.lower(): value for name, value in self.headers.items()}, body))
        count = sum(path == self.path for path, _, _ in self.seen)
        status = 503 if self.path == "/flaky" and count == 1 else 302 if self.path == "/away" else 200
        said = b"x" * 2_000_000 if self.path == "/huge" else b""
        said = (
            said or json.dumps({"n": 7, "you": self.headers.get("authorization", ""), "sent": body.decode()}).encode()
        )
        self.send_response(status)
        self.send_header("content-length", str(len(said)))
        if status == 302:
            self.send_header("location", "http://169.254.169.254/")
        self.end_headers()
        try:
            self.wfile.write(said)
        except ConnectionError:
            self.close_connection = True

    do_GET = do_POST = _answer  # noqa: N815 - the library's names

    def log_message(self, *_: Any) -> None:
        """Silent."""


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    _Answers.seen = []
    found = ThreadingHTTPServer(("127.0.0.1", 0), _Answers)
    thread = threading.Thread(target=found.serve_forever)
    thread.start()
    yield found
    found.shutdown()
    thread.join()
    found.server_close()


@pytest.fixture
def fleet(host: Machine, tmp_path: Path) -> Fleet:
    fleet = Fleet(host, str(bare_repository(tmp_path / "deployments.git")))
    fleet.central("--pipelines-allow-http", "127.0.0.1")
    fleet.site("home", "--poll", "1")
    host.wait_for(lambda: host.json("sites", "list")["sites"])
    assert set_secret(host, "home", "api-token", SECRET).returncode == 0
    return fleet


def test_requests_other_pipelines_and_triggers(
    host: Machine, fleet: Fleet, server: ThreadingHTTPServer, tmp_path: Path
) -> None:
    base = f"http://127.0.0.1:{server.server_port}"
    _save(host, tmp_path, CHILD.replace("BASE", base))
    done = _run(host, tmp_path, PARENT.replace("BASE", base))
    assert (done["state"], done["outputs"]) == ("SUCCEEDED", {"n": [7, 7], "flaky": 2, "away": 302}), done
    assert {step["name"]: step["state"] for step in done["steps"]}["never"] == "SKIPPED"
    asked = next(headers for path, headers, _ in _Answers.seen if path == "/child?x=a+b")
    assert asked["authorization"] == f"Bearer {SECRET}"
    assert SECRET not in json.dumps([done, _logs(host, done["id"])])

    _refused_requests(host, tmp_path, base)
    _webhook(host, fleet)
    _schedule(host, fleet, tmp_path)


@pytest.mark.anyio
async def test_why_a_host_cannot_be_reached_is_told_in_a_few_words() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/"
        with pytest.raises(PeerUnavailable) as lost:
            await call("GET", url, headers={}, body=None, judge=lambda *_: None, bytes_max=10)
    assert str(lost.value) == "127.0.0.1 cannot be reached: connection refused."


@pytest.mark.anyio
async def test_a_name_is_judged_by_what_it_resolves_to(server: ThreadingHTTPServer) -> None:
    url, asked = f"http://localhost:{server.server_port}/", []

    def judge(host: str, address: str) -> str | None:
        asked.append((host, address))
        return "This one is private."

    with pytest.raises(Refused, match="private"):
        await call("GET", url, headers={}, body=None, judge=judge, bytes_max=10)
    assert asked[0][0] == "localhost"
    assert asked[0][1] in ("127.0.0.1", "::1")
    assert _Answers.seen == []


def _refused_requests(host: Machine, tmp_path: Path, base: str) -> None:
    for url, words in (
        ("http://127.0.0.2:9/", "not a public address"),
        ("http://169.254.169.254/latest/meta-data", "not a public address"),
        (f"{base}/huge", "larger than"),
        ("http://127.0.0.1:1/", "127.0.0.1 cannot be reached: connection refused (UNREACHABLE)"),
    ):
        done = _run(host, tmp_path, f"name: bad\nsteps: {{ask: {{http: {{url: '{url}'}}}}}}")
        assert (done["state"], words in done["reason"]) == ("FAILED", True), done["reason"]
    _save(host, tmp_path, "name: around\nsteps: {again: {pipeline: {name: around}}}")
    done = _run(host, tmp_path, "name: start\nsteps: {again: {pipeline: {name: around}}}")
    assert (done["state"], "more than 5 deep" in done["reason"]) == ("FAILED", True), done["reason"]


def _webhook(host: Machine, fleet: Fleet) -> None:
    now = str(int(time.time()))
    body = b'{"x": "hook", "other": 1}'
    good = {"X-Homeport-Timestamp": now, "X-Homeport-Signature": sign(SECRET, now, body)}
    status, first = _post(host, "child", body, good)
    assert (status, first["trigger"]) == (202, "webhook")
    assert _post(host, "child", body, good)[1]["id"] == first["id"]
    host.wait_for(lambda: host.json("pipelines", "show", first["id"])["state"] == "SUCCEEDED")
    bad = {**good, "X-Homeport-Signature": sign("wrong", now, body)}
    refused = [_post(host, name, body, headers) for name, headers in (("child", bad), ("child", {}), ("none", good))]
    host.homeport("pipelines", "pause", "child")
    refused.append(_post(host, "child", body, bad))
    status, answer = _post(host, "child", body, good)
    assert (status, answer["detail"]) == (409, "Pipeline child is paused.")
    host.homeport("pipelines", "resume", "child")
    assert {status for status, _ in refused} == {401}
    assert len({json.dumps(answer["detail"]) for _, answer in refused}) == 1
    host.wait_for(lambda: 429 in {_post(host, "child", body, bad)[0] for _ in range(12)})
    assert _post(host, "child", body, good)[0] == 202  # who signs rightly is never locked out
    actions = [entry["action"] for entry in host.json("audit", "list")["entries"]]
    assert "pipelines.webhook" in actions


def _schedule(host: Machine, fleet: Fleet, tmp_path: Path) -> None:
    """Central was not running at 3 o'clock."""
    for name, missed in (("late", "run"), ("gone", "skip")):
        _save(host, tmp_path, SCHEDULED.replace("NAME", name).replace("MISSED", missed))
    assert host.json("pipelines", "show", "late")["next_at"]
    _save(host, tmp_path, SCHEDULED.replace("NAME", "still").replace("MISSED", "run"))
    assert "pipeline still paused; its schedule and webhook start nothing" in host.homeport(
        "pipelines", "pause", "still"
    )
    assert "paused" in host.homeport("pipelines", "list", "--saved")
    fleet.roles["central"].kill()
    past = (datetime.now(UTC) - timedelta(hours=3)).replace(tzinfo=None).isoformat(sep=" ")
    with sqlite3.connect(host.folder / "data-central" / "central.db") as database:
        assert database.execute("UPDATE pipelines SET next_at = ? WHERE next_at IS NOT NULL", (past,)).rowcount == 2
    database.close()
    fleet.again("central")
    found = host.wait_for(lambda: host.json("pipelines", "list", "--pipeline", "late")["runs"])
    assert [run["trigger"] for run in found] == ["schedule"]
    host.wait_for(lambda: "pipeline gone did not run: its time" in host.homeport("events", "-o", "json"))
    assert host.json("pipelines", "list", "--pipeline", "gone")["runs"] == []
    assert host.json("pipelines", "list", "--pipeline", "still")["runs"] == []
    assert "pipeline still resumed; next run 20" in host.homeport("pipelines", "resume", "still")
    shown = host.json("pipelines", "show", "gone")
    assert (shown["version"], datetime.fromisoformat(shown["next_at"]) > datetime.now(UTC)) == (1, True)


def _run(host: Machine, folder: Path, source: str) -> dict[str, Any]:
    file = folder / "run.yaml"
    file.write_text(source)
    done = host.command("pipelines", "run", str(file), "-o", "json")
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert (done.returncode == 0) is (found["state"] == "SUCCEEDED")
    return found


def _save(host: Machine, folder: Path, source: str) -> None:
    file = folder / "save.yaml"
    file.write_text(source)
    host.homeport("pipelines", "save", str(file))


def _logs(host: Machine, run: str) -> Any:
    return host.json("pipelines", "logs", run)


def _post(host: Machine, name: str, body: bytes, headers: dict[str, str]) -> tuple[int, Any]:
    request = urllib.request.Request(f"{host.url}/api/v1/pipelines/{name}/webhook", body, headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


CHILD = """
name: child
site: home
inputs: {x: {type: string}}
triggers: {webhook: {secret: api-token}}
steps:
  ask:
    http:
      url: BASE/child?x=${{ inputs.x }}
      secrets: {Authorization: api-token}
      secret_prefix: "Bearer "
outputs: {n: "${{ steps.ask.output.json.n }}"}
"""
PARENT = """
name: parent
inputs: {names: {type: list, default: [a b, c]}}
steps:
  each:
    for_each: inputs.names
    pipeline: {name: child, inputs: {x: "${{ item }}"}}
  flaky:
    retries: 1
    backoff: 1s
    http: {method: POST, url: BASE/flaky, json: {from: "${{ steps.each.output[0].outputs.n }}"}}
  away:
    http: {url: BASE/away, expect: [302]}
  never:
    if: steps.each.output[0].outputs.n > 100
    http: {url: BASE/never}
outputs:
  n: ${{ [one.outputs.n for one in steps.each.output] }}
  flaky: ${{ length(steps.flaky.output.json.sent) // 5 }}
  away: ${{ steps.away.output.status }}
"""
SCHEDULED = """
name: NAME
triggers: {schedule: {cron: "0 3 * * *", timezone: Europe/Berlin, missed: MISSED}}
steps: {ask: {http: {url: "http://127.0.0.1:1/"}}}
"""
