"""Every exit code, and the sentence that goes with it. No stack trace ever reaches a person."""

import socket

import pytest

from homeport.serving.bodies.fleet import AttentionBody, OverviewBody, SiteCountsBody, SitesBody
from tests.integration.cli.canned import (
    A_DAY_AGO,
    Canned,
    Request,
    deployment,
    instance,
    moved,
    problem,
    progress,
    site,
)
from tests.integration.cli.conftest import Homeport

FAILURE = {"code": "HEALTH_CHECK_FAILED", "message": "GET /healthz answered 500", "source": "web"}


def test_0_when_a_deployment_is_installed(homeport: Homeport, canned: Canned) -> None:
    canned.deploys(
        progress(1, "pulling", "pulling hello:1.1.0", bytes_done=1_400_000, bytes_total=1_400_000),
        progress(2, "starting"),
        progress(3, "healthy"),
        result=deployment(),
    )
    done = homeport("deploy", "hello", "--site", "home")
    assert done.returncode == 0, done.stderr
    assert "✓ INSTALLED in" in done.stdout
    assert done.stderr == ""


def test_1_when_a_deployment_fails_and_the_reason_is_shown(homeport: Homeport, canned: Canned) -> None:
    failed = instance("FAILED", failure=FAILURE, running_revision=None)
    canned.deploys(moved(1, "INSTALLING", "FAILED", "gave up"), result=deployment("FAILED", failed))
    done = homeport("deploy", "hello", "--site", "home")
    assert done.returncode == 1
    assert "✗ FAILED after" in done.stderr
    assert "GET /healthz answered 500 (HEALTH_CHECK_FAILED, component web)" in done.stderr
    assert "homeport why hello@home" in done.stderr


def test_1_when_the_input_is_not_valid_and_each_problem_has_its_place(homeport: Homeport, canned: Canned) -> None:
    errors = [
        {"field": "parameters.port", "message": "must be at most 65535, not 70000."},
        {"field": "id", "message": "is missing.", "path": "demo/web/1.0.0/margo.yaml", "line": 14},
    ]
    canned.answers["POST /api/v1/deployments"] = lambda _: problem(422, "invalid-input", "Two.", errors=errors)
    done = homeport("deploy", "hello", "--site", "home", "--set", "port=70000")
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "✗ parameters.port",
        "      must be at most 65535, not 70000.",
        "✗ demo/web/1.0.0/margo.yaml:14  id",
        "      is missing.",
        "2 problems; nothing was changed.",
    ]


def test_1_when_a_parameter_has_the_wrong_type_and_nothing_is_sent(homeport: Homeport, canned: Canned) -> None:
    done = homeport("deploy", "hello", "--site", "home", "--set", "port=eighty")
    assert done.returncode == 1
    assert "✗ parameters.port" in done.stderr
    assert not [request for request in canned.requests if request.method == "POST"]


def test_1_when_git_is_away(homeport: Homeport, canned: Canned) -> None:
    canned.answers["POST /api/v1/deployments"] = lambda _: problem(
        503, "git-unavailable", "The deployments repository cannot be reached.", retryable=True, hint="Try again."
    )
    done = homeport("deploy", "hello", "--site", "home")
    assert (done.returncode, done.stderr) == (
        1,
        "✗ The deployments repository cannot be reached.\n  Try again.\n",
    )


def test_1_when_the_status_shows_what_needs_attention_and_0_otherwise(homeport: Homeport, canned: Canned) -> None:
    well = homeport("status")
    assert (well.returncode, well.stdout.splitlines()[-1], well.stderr) == (0, "All is well.", "")
    overview = OverviewBody(
        version="0.1.0",
        role="central",
        commit=None,
        sites=SiteCountsBody(count=1, reachable=1),
        nodes={"live": 1},
        deployments={"FAILED": 1},
        jobs={},
        attention=[AttentionBody(kind="deployment", name="hello", site="home", why="GET /healthz answered 500")],
        attention_counts={"deployment": 1},
        last_event_id=7,
    )
    waiting = overview.model_copy(update={"attention": [], "nodes": {"live": 0}, "deployments": {"PENDING": 2}})
    canned.answers["GET /api/v1/overview"] = lambda _: waiting
    assert "2 PENDING, and no node has joined" in homeport("status").stdout
    canned.answers["GET /api/v1/overview"] = lambda _: waiting.model_copy(update={"devices": 12})
    assert homeport("status").stdout.endswith("All is well.\n"), "devices of Margo clients run what nodes do not"
    canned.answers["GET /api/v1/overview"] = lambda _: overview
    wrong = homeport("status")
    assert wrong.returncode == 1
    assert "hello@home" in wrong.stdout and "GET /healthz answered 500" in wrong.stdout
    assert wrong.stderr == "1 needs attention. Ask for the reason:  homeport why hello@home\n"
    assert homeport("status", "-o", "json").returncode == 1


def test_2_when_it_is_not_clear_where_to_deploy(homeport: Homeport, canned: Canned) -> None:
    for sites, words in (
        ([site("home"), site("line-7")], "Known sites: home, line-7."),
        ([], "No site has joined yet."),
    ):
        canned.answers["GET /api/v1/sites"] = lambda _, sites=sites: SitesBody(sites=sites)  # type: ignore[misc]
        done = homeport("deploy", "hello")
        assert done.returncode == 2
        assert "Missing site. Use --site SITE" in done.stderr
        assert words in done.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("deploy", "hello", "--site", "home", "--set", "greeting"), "write it as name=value"),
        (("deploy", "hello", "--site", "a", "--site", "b", "--host", "n"), "write SITE/n"),
        (("deploy", "hello", "--site", "a", "--node", "b/n"), "there is no --site b"),
        (("deploy", "hello", "-l", "line=7", "--host", "n"), "name its site with --site"),
        (("deployments", "list", "-o", "xml"), "'xml' is not one of"),
        (("deployments", "list", "--state", "instaled"), 'Did you mean "INSTALLED"?'),
        (("fly",), 'There is no command "fly"'),
        (("deplyo", "x"), 'Did you mean "deploy"?'),
        (("deployments", "delte", "x"), 'Did you mean "delete"?'),
        (("up", "--http", "here"), "is not HOST:PORT"),
        (("central", "--host", "homeport.example:8443"), "Write it without scheme and port"),
    ],
)
def test_2_when_the_command_line_is_wrong(homeport: Homeport, arguments: tuple[str, ...], sentence: str) -> None:
    done = homeport(*arguments)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert done.stderr.startswith("✗ ")
    assert "--help" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("deploy", "helo", "--site", "home"), '✗ There is no app "helo". Did you mean "hello"?'),
        (("deploy", "hello@9.9.9", "--site", "home"), '✗ There is no version 9.9.9 of "hello".'),
        (("deployments", "show", "helo"), '✗ There is no deployment "helo".'),
        (("nodes", "show", "nobody"), '✗ There is no page "/api/v1/nodes/nobody".'),
    ],
)
def test_3_when_there_is_no_such_thing(homeport: Homeport, arguments: tuple[str, ...], sentence: str) -> None:
    done = homeport(*arguments)
    assert done.returncode == 3
    assert done.stderr.startswith(sentence), done.stderr


def test_4_when_nothing_answers(homeport: Homeport) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        done = homeport("deployments", "list", "--url", url)
    assert done.returncode == 4
    assert done.stderr == (
        f"✗ Cannot reach Homeport at {url} (connection refused).\n"
        "  Start it with  homeport up , or give another address with --url or HOMEPORT_URL.\n"
    )


def test_4_when_what_answers_does_not_speak_https(homeport: Homeport, canned: Canned) -> None:
    done = homeport("sites", "list", "--url", canned.url.replace("http:", "https:"))
    assert done.returncode == 4
    assert f"does not speak https.\n  Try  --url {canned.url}\n" in done.stderr
    away = canned.url.replace("http:", "https:").replace("127.0.0.1", "0.0.0.0")
    done = homeport("sites", "list", "--url", away)
    assert "does not speak https.\n  Check the port.\n" in done.stderr, "a token is not sent there over http"


def test_4_when_what_answers_is_not_homeport(homeport: Homeport, canned: Canned) -> None:
    canned.answers["GET /api/v1/sites"] = lambda _: (200, b"<html>It works!</html>")
    done = homeport("sites", "list")
    assert done.returncode == 4
    assert "it is not Homeport" in done.stderr


@pytest.mark.parametrize("status", [401, 403, 409])
def test_5_when_it_is_refused(homeport: Homeport, canned: Canned, status: int) -> None:
    canned.answers["POST /api/v1/deployments"] = lambda _: problem(status, "refused", "Not here.", hint="Ask.")
    done = homeport("deploy", "hello", "--site", "home")
    assert (done.returncode, done.stderr) == (5, "✗ Not here.\n  Ask.\n")


def test_5_when_a_name_means_two_deployments(homeport: Homeport, canned: Canned) -> None:
    canned.deployments.append(deployment(id="7b9e41d2-1111-4c1c-8f7e-9d9d3f0a2222", site="line-7"))
    done = homeport("deployments", "show", "hello")
    assert done.returncode == 5
    assert "hello@home, hello@line-7" in done.stderr


@pytest.mark.parametrize("command", [("up",), ("central",), ("site", "--name", "a", "--central", "x", "--git", "y")])
def test_5_when_asked_to_listen_beyond_loopback(homeport: Homeport, command: tuple[str, ...]) -> None:
    done = homeport(*command, "--http", "0.0.0.0:8080")
    assert done.returncode == 5
    assert done.stderr.startswith("✗ Refusing to listen on 0.0.0.0")
    assert "127.0.0.1:8080" in done.stderr


def test_6_when_a_plan_has_changes_and_0_when_it_has_none(homeport: Homeport, canned: Canned) -> None:
    from tests.integration.cli.test_plan import NO_CHANGES, PLAN

    canned.answers["POST /api/v1/deployments"] = lambda _: PLAN
    assert homeport("deploy", "hello", "--site", "home", "--plan").returncode == 6
    canned.answers["POST /api/v1/deployments"] = lambda _: NO_CHANGES
    assert homeport("deploy", "hello", "--site", "home", "--plan").returncode == 0


def test_7_when_the_wait_runs_out_and_the_work_goes_on(homeport: Homeport, canned: Canned) -> None:
    waiting = deployment(
        "INSTALLING", instance("INSTALLING", running_revision=None), note="this-laptop: pulling 61 %"
    )
    canned.deploys(result=waiting)
    done = homeport("deploy", "hello", "--site", "home", "--timeout", "0.3")
    assert done.returncode == 7
    assert "this-laptop: pulling 61 %" in done.stderr
    assert "homeport deployments watch hello@home" in done.stderr


def test_8_when_it_was_rolled_back(homeport: Homeport, canned: Canned) -> None:
    back = instance(
        "INSTALLED",
        revision="sha256:1111",
        running_revision="sha256:1111",
        running_version="1.0.0",
        rejected_revision="sha256:2222",
        failure=FAILURE,
    )
    canned.deploys(
        moved(1, "UPDATING", "FAILED", "unhealthy"),
        moved(2, "FAILED", "ROLLINGBACK", "the last good release is 1.0.0"),
        moved(3, "ROLLINGBACK", "INSTALLED", "healthy"),
        result=deployment("INSTALLED", back),
    )
    done = homeport("deploy", "hello", "--site", "home")
    assert done.returncode == 8, done.stdout + done.stderr
    assert "✗ ROLLED BACK to 1.0.0 in" in done.stderr
    assert "HEALTH_CHECK_FAILED" in done.stderr


def test_a_fault_of_our_own_is_one_sentence_unless_asked_for_more(homeport: Homeport, canned: Canned) -> None:
    canned.answers["GET /api/v1/sites"] = lambda _: (200, b'{"places": []}')
    done = homeport("sites", "list")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("✗ Homeport itself failed: KeyError: 'sites'")
    assert "Traceback" in homeport("--debug", "sites", "list").stderr


def test_deleting_waits_until_it_is_gone(homeport: Homeport, canned: Canned) -> None:
    def remove(_: Request) -> tuple[int, bytes]:
        canned.deployments = [deployment("DELETED", instance("DELETED"), wanted=False, archived_at=A_DAY_AGO)]
        canned.events.append(moved(1, "DELETING", "DELETED", "removed"))
        return 202, b"{}"

    canned.answers[f"DELETE /api/v1/deployments/{deployment().id}"] = remove
    done = homeport("deployments", "delete", "hello@home")
    assert done.returncode == 0, done.stderr
    assert "✓ DELETED in" in done.stdout
    assert "Data volumes, if it has any, stay" in done.stdout
    assert "run  homeport deployments delete hello@home --remove-data" in done.stdout


def test_deleting_with_the_data_says_so_and_asks_for_it(homeport: Homeport, canned: Canned) -> None:
    path = f"/api/v1/deployments/{deployment().id}"
    canned.answers[f"DELETE {path}"] = lambda _: (202, b"{}")
    done = homeport("deployments", "delete", "hello@home", "--remove-data", "--no-wait")
    assert done.returncode == 0, done.stderr
    assert "data stays" not in done.stdout
    assert canned.sent("DELETE", path).query == {"remove_data": "true"}
