"""A deploy is one trace, from the request at central to the container on a node, over real OTLP."""

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.collector import Collector, Received, collector
from tests.support.deployment_files import deployment_file
from tests.support.fleet import Fleet
from tests.support.git import Person, bare_repository, git
from tests.support.ports import free_port
from tests.support.processes import Machine, start_up
from tests.support.running_central import write_app

FROM_REQUEST = [
    "central:POST /api/v1/deployments",
    "central:git push",
    "site:sync",
    "site:plan",
    "site:order apply",
    "node:apply on node",
]
TRACE = "0af7651916cd43dd8448eb211c80319c"


@pytest.fixture
def traces(host: Machine) -> Iterator[Collector]:
    with collector() as running:
        host.environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": running.url}
        yield running


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    return bare_repository(tmp_path / "deployments.git")


@pytest.fixture
def fleet(host: Machine, traces: Collector, remote: Path, tmp_path: Path) -> Fleet:
    """Three processes; the node's runtime does nothing."""
    fleet = Fleet(host, str(remote))
    fleet.central()
    fleet.site("north", "--poll", "0.5")
    fleet.node("n1", "north")
    host.wait_for(lambda: host.json("nodes", "list")["nodes"])
    write_app(tmp_path / "apps")
    host.homeport("apps", "add", str(tmp_path / "apps"))
    return fleet


def deploy(host: Machine, **headers: str) -> Any:
    body = json.dumps({"app_name": "hello", "sites": [{"site_id": "north"}]}).encode()
    given = {"content-type": "application/json", **headers}
    with host.at(host.url).open("/api/v1/deployments", data=body, headers=given) as answer:
        return json.load(answer)


def wait_for(host: Machine, traces: Collector, name: str, count: int = 1, **attributes: Any) -> list[Received]:
    def look() -> list[Received] | None:
        found = traces.named(name, **attributes)
        return found if len(found) >= count else None

    found: list[Received] = host.wait_for(look)
    return found


def comes_to_be(host: Machine, path: Callable[[], list[str]], expected: list[str]) -> None:
    """Each role sends its spans when it has some time, in any order."""
    with contextlib.suppress(AssertionError):
        host.wait_for(lambda: path() == expected)
    assert path() == expected


def test_one_trace_from_the_request_to_the_container(host: Machine, fleet: Fleet, traces: Collector) -> None:
    done = deploy(host, traceparent=f"00-{TRACE}-b7ad6b7169203331-01")
    about = {"deployment__id": done["deployment_ids"][0]}
    wait_for(host, traces, "take report", trigger="healthy", **about)
    for step in ("pull", "create", "start", "health"):
        spans = wait_for(host, traces, step, 2, **about)
        assert {span.attributes["homeport.component"] for span in spans} == {"web", "cache"}
        for span in spans:
            # Below the client's own span, which is not told here.
            comes_to_be(host, lambda: traces.path(span), ["?", *FROM_REQUEST, f"node:{step}"])  # noqa: B023
    (report,) = traces.named("take report", trigger="healthy", **about)
    comes_to_be(host, lambda: traces.path(report), ["?", *FROM_REQUEST[:-1], "central:take report"])
    mine = [span for span in traces.spans if span.trace_id == TRACE]
    assert {span.service for span in mine} == {"central", "site", "node"}
    assert all(span.nanoseconds >= 0 for span in mine)
    (order,) = traces.named("apply on node", **about)
    assert order.attributes.items() >= {
        "homeport.node.id": "n1", "homeport.deployment.name": "hello", "homeport.order.kind": "apply"
    }.items()  # fmt: skip
    assert order.attributes["homeport.revision"].startswith("sha256:")


def test_the_command_line_hands_its_trace_on(host: Machine, fleet: Fleet, traces: Collector) -> None:
    host.environment = {**host.environment, "TRACEPARENT": f"00-{TRACE}-b7ad6b7169203331-01"}
    host.homeport("deploy", "hello", "--site", "north", "--wait")
    (order,) = wait_for(host, traces, "apply on node")
    assert order.trace_id == TRACE


def test_without_a_trace_of_the_client_central_begins_one(host: Machine, fleet: Fleet, traces: Collector) -> None:
    deploy(host)
    (pull, _) = wait_for(host, traces, "pull", 2)
    comes_to_be(host, lambda: traces.path(pull), [*FROM_REQUEST, "node:pull"])


def test_a_plain_git_push_is_one_trace_too(
    host: Machine, fleet: Fleet, traces: Collector, remote: Path, tmp_path: Path
) -> None:
    person = Person(str(remote), tmp_path / "checkout")
    path, text = deployment_file(site="north")
    person.write(path, text)
    commit = person.push()
    (health,) = wait_for(host, traces, "health")
    comes_to_be(host, lambda: traces.path(health), ["central:git push by hand", *FROM_REQUEST[2:], "node:health"])
    assert traces.named("git push by hand", commit=commit)

    traces.spans.clear()
    person.remove(path)
    person.push()
    (removed,) = wait_for(host, traces, "remove")
    above = ["central:git push by hand", "site:sync", "site:plan", "site:order remove", "node:remove on node"]
    comes_to_be(host, lambda: traces.path(removed), [*above, "node:remove"])


def test_a_restart_of_the_site_in_between_keeps_the_trace_whole(
    host: Machine, fleet: Fleet, traces: Collector
) -> None:
    fleet.roles["n1"].kill()
    done = deploy(host)
    about = {"deployment__id": done["deployment_ids"][0]}
    wait_for(host, traces, "plan")
    fleet.roles["north"].kill()
    fleet.again("north")
    fleet.again("n1")
    wait_for(host, traces, "take report", trigger="healthy", **about)
    (pull, _) = wait_for(host, traces, "pull", 2)
    comes_to_be(host, lambda: traces.path(pull), [*FROM_REQUEST, "node:pull"])


def test_the_context_is_in_the_commit_and_not_in_the_file(
    host: Machine, fleet: Fleet, traces: Collector, remote: Path
) -> None:
    done = deploy(host, traceparent=f"00-{TRACE}-b7ad6b7169203331-01")
    wait_for(host, traces, "order apply")
    message = git("show", "--no-patch", "--format=%(trailers:key=Traceparent,valueonly)", done["commit"], cwd=remote)
    assert message.startswith(f"00-{TRACE}-")
    assert TRACE not in git(
        "show", f"{done['commit']}:deployments/north/{done['deployment_ids'][0]}.yaml", cwd=remote
    )


def test_a_failure_is_in_the_span_with_its_code(
    host: Machine, fleet: Fleet, traces: Collector, remote: Path, tmp_path: Path
) -> None:
    person = Person(str(remote), tmp_path / "checkout")
    path, text = deployment_file(site="north")
    failing = '      - name: web\n        x-homeport-extensions: {"null": {fail: IMAGE_PULL_FAILED}}\n'
    person.write(path, text.replace("      - name: web\n", failing))
    person.push()
    (pull, *_) = wait_for(host, traces, "pull")
    (order, *_) = wait_for(host, traces, "order apply")
    for span in (pull, order):
        assert span.attributes["homeport.code"] == "IMAGE_PULL_FAILED"
        assert span.error


def test_going_back_belongs_to_the_deploy_that_failed(
    host: Machine, fleet: Fleet, traces: Collector, remote: Path, tmp_path: Path
) -> None:
    person = Person(str(remote), tmp_path / "checkout")
    path, text = deployment_file(site="north")
    person.write(path, text)
    person.push()
    wait_for(host, traces, "order apply")
    unhealthy = '      - name: web\n        x-homeport-extensions: {"null": {unhealthy: true}}\n'
    person.write(path, text.replace("      - name: web\n", unhealthy))
    commit = person.push()
    (back,) = wait_for(host, traces, "order rollback")
    (push,) = wait_for(host, traces, "git push by hand", commit=commit)
    assert back.trace_id == push.trace_id
    failed, again = host.wait_for(
        lambda: len(found := of_trace(traces, push.trace_id, "apply on node")) == 2 and found
    )
    assert (failed.attributes["homeport.code"], again.error) == ("HEALTH_CHECK_FAILED", "")


def of_trace(traces: Collector, trace_id: str, name: str) -> list[Received]:
    return [span for span in traces.named(name) if span.trace_id == trace_id]


def test_a_collector_that_is_gone_costs_one_line_and_gets_the_spans_later(
    host: Machine, remote: Path, tmp_path: Path
) -> None:
    port = free_port()
    host.environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}"}
    up = start_up(host, runtime="null")
    write_app(tmp_path / "apps")
    host.homeport("apps", "add", str(tmp_path / "apps"))
    host.homeport("deploy", "hello", "--site", "home", "--wait")
    host.homeport("deployments", "delete", "hello@home", "--wait")
    host.wait_for(lambda: "trace export failed" in up.log.read_text())
    with collector(port) as traces:
        (pull, _) = wait_for(host, traces, "pull", 2)
        wait_for(host, traces, "order apply")
        host.wait_for(lambda: "?" not in traces.path(pull))
        assert traces.path(pull) == [*FROM_REQUEST, "node:pull"], "one process with all three roles"
        host.wait_for(lambda: "trace export recovered" in up.log.read_text())
    text = up.log.read_text()
    assert text.count("trace export failed") == 1
    assert "opentelemetry" not in text
    with up.open("/metrics") as answer:
        metrics = answer.read().decode()
    assert "homeport_trace_spans_dropped_total 0.0" in metrics
