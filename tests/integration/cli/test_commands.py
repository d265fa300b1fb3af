"""What the commands send and what they print, against real HTTP."""

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
import yaml

from homeport.central.api.identity import AuthorityBody
from homeport.core.jobs.job import Job, JobSpec, JobType
from homeport.core.why import Decision
from homeport.fleet.shared.answers.why import Why
from homeport.jobs.bodies import JobsBody, OutputBody, detail_body, job_body, output_body
from homeport.jobs.ports import OutputPart
from homeport.serving.bodies.apps import AddApps, AppsAddedBody
from homeport.serving.bodies.fleet import NodesBody, SitesBody
from homeport.serving.bodies.revisions import HistoryBody, HistoryEntryBody
from homeport.serving.to_bodies import why_body
from homeport.vocabulary import JobId, JobState, SiteName
from tests.integration.cli.canned import (
    A_DAY_AGO,
    HELLO,
    OTHER,
    Canned,
    Request,
    app,
    deployment,
    instance,
    moved,
    node,
    problem,
    progress,
    rollout,
    site,
)
from tests.integration.cli.conftest import Homeport
from tests.support.forks import HomeportProcess


def test_a_list_is_for_scanning_with_ages_and_names(homeport: Homeport, canned: Canned) -> None:
    canned.deployments = [
        deployment(note="rolled back from 2.0.0"),
        deployment("UPDATING", instance(), instance("UPDATING", node_id="node-c"), id=OTHER, name="vision"),
    ]
    done = homeport("deployments", "list")
    assert [line.split() for line in done.stdout.splitlines()] == [
        ["DEPLOYMENT", "SITE", "APP", "STATE", "NODES", "SINCE", "NOTE"],
        ["hello", "home", "hello", "1.1.0", "INSTALLED", "1/1", "4", "m", "rolled", "back", "from", "2.0.0"],
        ["vision", "home", "hello", "1.1.0", "UPDATING", "1/2", "4", "m"],
    ]


def test_a_list_shows_the_version_that_runs_and_the_one_that_waits(homeport: Homeport, canned: Canned) -> None:
    canned.deployments = [deployment(running_versions=["1.0.0"])]
    assert "hello 1.0.0 (1.1.0 wanted)" in homeport("deployments", "list").stdout


def test_ids_are_shown_on_request(homeport: Homeport) -> None:
    assert HELLO in homeport("deployments", "list", "-o", "wide").stdout
    assert homeport("deployments", "list", "-q").stdout == f"{HELLO}\n"


def test_json_and_yaml_have_the_exact_times(homeport: Homeport) -> None:
    as_json = json.loads(homeport("deployments", "list", "-o", "json").stdout)
    as_yaml = yaml.safe_load(homeport("-o", "yaml", "deployments", "list").stdout)
    assert as_json == as_yaml
    assert as_json["deployments"][0]["created_at"] == A_DAY_AGO.isoformat().replace("+00:00", "Z")


def test_an_empty_list_says_what_to_do_and_keeps_stdout_clean(homeport: Homeport, canned: Canned) -> None:
    canned.deployments = []
    done = homeport("deployments", "list")
    assert (done.returncode, done.stdout) == (0, "")
    assert "homeport deploy ./compose.yaml  (or an app of the catalog: homeport deploy APP)" in done.stderr


@pytest.mark.parametrize("reference", ["hello", "hello@home", HELLO, HELLO[:8]])
def test_a_deployment_is_found_by_name_place_id_or_prefix(homeport: Homeport, reference: str) -> None:
    done = homeport("deployments", "show", reference)
    assert done.returncode == 0, done.stderr
    assert "hello@home" in done.stdout
    assert "this-laptop" in done.stdout


def test_filters_become_the_query(homeport: Homeport, canned: Canned) -> None:
    homeport("deployments", "list", "--site", "home", "--state", "failed", "--archived")
    query = canned.requests[0].query
    fields = query.pop("fields").split(",")
    assert query == {"site": "home", "state": "FAILED", "archived": "true", "limit": "500"}
    assert {"name", "note"} <= set(fields) and "parameters" not in fields, "no more than is printed"


def test_deploy_takes_the_newest_version_and_types_the_parameters(homeport: Homeport, canned: Canned) -> None:
    canned.apps = [app("1.9.0"), app("1.10.0"), app("1.10.0-rc.1")]
    canned.deploys(result=deployment())
    done = homeport(
        *("deploy", "hello", "--site", "home", "--host", "a", "--host", "home/b", "--name", "hi"),
        *("--profile", "compose", "--set", "port=81", "--set", "greeting=5", "--no-wait"),
    )
    assert done.returncode == 0, done.stderr
    assert canned.sent("POST", "/api/v1/deployments").body == {
        "app_id": "demo-hello-1.10.0",
        "sites": [{"site_id": "home", "host_ids": ["a", "b"]}],
        "parameters": {"port": 81, "greeting": "5"},
        "profile": "compose",
        "name": "hi",
    }


def test_waiting_shows_each_step_of_each_node(homeport: Homeport, canned: Canned) -> None:
    canned.deploys(
        moved(1, "PENDING", "INSTALLING", "new here"),
        progress(2, "accepted"),
        progress(3, "pulling", "pulling hello:1.1.0", bytes_done=100, bytes_total=2_100_000),
        progress(4, "pulling", "pulling hello:1.1.0", bytes_done=2_000_000, bytes_total=2_100_000),
        progress(5, "starting"),
        progress(6, "healthy"),
        moved(7, "INSTALLING", "INSTALLED", "healthy"),
        result=deployment("INSTALLING", instance("INSTALLING", running_revision=None)),
    )

    looks: list[Request] = []

    def ends(request: Request) -> object:
        # The deployment is installed once its last event is out, which is the only one that makes it worth a look.
        looks.append(request)
        return deployment() if len(looks) > 1 else canned.deployments[0]

    canned.answers[f"GET /api/v1/deployments/{HELLO}"] = ends  # type: ignore[assignment]
    done = homeport("deploy", "hello", "--site", "home")
    lines = done.stdout.splitlines()
    assert lines[:4] == [
        "deploying hello 1.1.0 to site home",
        "  home / this-laptop   installing   new here",
        "  home / this-laptop   pulling      ╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌  2.1 MB   hello:1.1.0",
        "  home / this-laptop   starting",
    ]
    assert lines[4].startswith("  home / this-laptop   healthy      after 0.")
    assert lines[5].startswith("✓ INSTALLED in ")
    assert len(looks) == 2, "at first, and when it may have settled"


def test_deploy_answers_a_program_with_one_document(homeport: Homeport, canned: Canned) -> None:
    canned.deploys(progress(1, "starting"), result=deployment())
    answer = json.loads(homeport("deploy", "hello", "--site", "home", "-o", "json").stdout)
    assert answer["commit"] == "d" * 40
    assert answer["deployments"][0]["state"] == "INSTALLED"


def test_apps_are_added_by_the_full_path_of_a_local_folder(
    homeport: Homeport, canned: Canned, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("registry")

    def add(request: Request) -> AppsAddedBody:
        assert AddApps.model_validate(request.body).repository == str(folder)
        return AppsAddedBody(added=[app("1.1.0")], unchanged=[app("1.0.0")])

    canned.answers["POST /api/v1/apps"] = add
    done = homeport("apps", "add", os.path.relpath(folder), "--category", "demo")
    assert done.stdout == "✓ added demo/hello 1.1.0\n  demo/hello 1.0.0 is already in the catalog\n", done.stderr


def test_an_app_is_shown_and_removed_by_its_name(homeport: Homeport, canned: Canned) -> None:
    assert "greeting = Hello" in homeport("apps", "show", "hello@1.0.0").stdout
    canned.answers["DELETE /api/v1/apps/demo-hello-1.0.0"] = lambda _: (204, b"")
    assert homeport("apps", "remove", "demo/hello@1.0.0").stdout == "✓ removed demo/hello 1.0.0\n"


@pytest.mark.parametrize(
    ("phase", "wait", "behind", "advice"),
    [
        ("announced", 42, [], "In 42 s every site and node that is connected has fetched the new root"),
        ("announced", 0, [], "Every site and node that is connected has fetched the new root"),
        ("switched", 0, ["spiffe://x/north"], "1 still hold a certificate of the old root"),
        ("switched", 0, [], "homeport identity rotate finish"),
    ],
)
def test_a_rotation_says_what_comes_next_and_when(
    homeport: Homeport, canned: Canned, phase: str, wait: int, behind: list[str], advice: str
) -> None:
    found = AuthorityBody(
        phase=phase, domain="x", wfm="central", pin="p", sequence=2, anchors=2, behind=behind, wait_seconds=wait
    )
    canned.answers["GET /api/v1/authority"] = lambda _: found
    assert advice in homeport("identity", "rotate", "status").stdout


def test_tasks_that_wait_are_listed_before_those_that_ran_last(homeport: Homeport, canned: Canned) -> None:
    common = {"pool_id": "gpu", "priority": "batch", "from": "ada", "model": "tiny", "why": "every slot is busy"}
    waiting = {**common, "task_id": "t-2", "position": 1, "waits_ms": 1500}
    placed = {**common, "task_id": "t-1", "replica_id": "r", "waited_ms": 40, "ago_ms": 9, "why": "it has the model"}
    ended, running = {**placed, "running": False}, {**placed, "task_id": "t-3", "running": True}
    queue = json.dumps({"waiting": [waiting], "placed": [running, ended]}).encode()
    canned.answers["GET /v2/queue"] = lambda _: (200, queue)
    _, first, third, second = homeport("tasks", "list").stdout.splitlines()
    assert first.split()[:3] == ["t-2", "waits,", "1"] and "1.5 s" in first and "every slot is busy" in first
    assert second.split()[:2] == ["t-1", "ended"] and "it has the model" in second
    assert third.split()[:2] == ["t-3", "running"]
    assert json.loads(homeport("tasks", "ls", "-o", "json").stdout)["tasks"][0]["task_id"] == "t-2"
    canned.answers["GET /v2/queue"] = lambda _: (200, b'{"waiting": [], "placed": []}')
    assert "No task waits" in homeport("tasks", "list").stderr


def test_who_runs_a_job_is_told_what_it_waits_for(homeport: Homeport, canned: Canned) -> None:
    spec = JobSpec(JobType.COMMAND, ("true",))
    waits = Job(
        JobId("one"), SiteName("home"), spec, JobState.PENDING, 1, A_DAY_AGO, "ada", A_DAY_AGO, reason="waits: x"
    )
    ended = replace(waits, state=JobState.COMPLETED, reason="")
    parts = [OutputPart(waits, "", 0, 0, is_complete=False)] * 4 + [
        OutputPart(ended, "out\n", 0, 1, is_complete=True)
    ]

    def printed(_: Request) -> OutputBody:
        time.sleep(0.6)  # As a server that waits for more.
        return output_body(parts.pop(0))

    canned.answers["POST /api/v1/jobs"] = lambda _: job_body(waits)
    canned.answers["GET /api/v1/jobs/one/output"] = printed
    canned.answers["GET /api/v1/jobs/one"] = lambda _: detail_body(ended, "out\n")
    done = homeport("jobs", "run", "--", "true")
    assert (done.returncode, done.stdout, done.stderr) == (0, "out\n", "— waits: x —\n")


JOB = Job(
    JobId("one"),
    SiteName("home"),
    JobSpec(JobType.COMMAND, ("true",)),
    JobState.PENDING,
    1,
    A_DAY_AGO,
    "ada",
    A_DAY_AGO,
)


def test_a_program_that_runs_a_job_gets_one_document_or_its_id(homeport: Homeport, canned: Canned) -> None:
    ended = replace(JOB, state=JobState.COMPLETED, attempt=1, output_bytes=4)
    canned.answers["POST /api/v1/jobs"] = lambda _: job_body(JOB)
    canned.answers["GET /api/v1/jobs/one/output"] = lambda _: output_body(
        OutputPart(ended, "out\n", 0, 1, is_complete=True)
    )
    canned.answers["GET /api/v1/jobs/one"] = lambda _: detail_body(ended, "out\n")
    assert json.loads(homeport("jobs", "run", "-o", "json", "--", "true").stdout)["output"] == "out\n"
    assert homeport("jobs", "run", "-d", "-q", "--", "true").stdout == "one\n"


def test_output_that_is_gone_is_said_with_where_all_of_it_is(homeport: Homeport, canned: Canned) -> None:
    ended = replace(JOB, state=JobState.COMPLETED, attempt=1)
    canned.answers["GET /api/v1/jobs/one/output"] = lambda _: output_body(
        OutputPart(ended, "end\n", 5000, 1, is_complete=True)
    )
    canned.answers["GET /api/v1/jobs/one"] = lambda _: detail_body(ended, "end\n")
    done = homeport("jobs", "logs", "-f", "one")
    assert (done.stdout, done.stderr) == (
        "end\n",
        "— 5000 bytes are no longer here; its lines:  homeport logs job/one —\n",
    )


@pytest.mark.parametrize(("state", "words"), [("CANCELLED", "is cancelled"), ("COMPLETED", "already ended")])
def test_cancelling_what_has_ended_says_how(homeport: Homeport, canned: Canned, state: str, words: str) -> None:
    canned.answers["POST /api/v1/jobs/one/cancel"] = lambda _: job_body(replace(JOB, state=JobState(state)))
    assert words in homeport("jobs", "cancel", "one").stdout


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("jobs", "show", ""), 2, "it is empty"),
        (("jobs", "artifact", "", "out.txt"), 2, "it is empty"),
        (("secrets", "set", "", "password"), 2, "it is empty"),
        (("pipelines", "validate", ""), 2, "it is empty"),
        (("nodes", "drain", ""), 2, "it is empty"),
        (("deploy", "hello", "--site", ""), 2, "Invalid value for '--site': it is empty"),
        (("deploy", "hello@", "--site", "home"), 2, "has no version after the @"),
        (("deployments", "rollback", "hello", "--to", ""), 2, "Invalid value for '--to': it is empty"),
        (("tokens", "create", "--name", "ci", "--site", ""), 2, "Invalid value for '--site': it is empty"),
        (("login", "https://central.example", "--pin", ""), 2, "Invalid value for '--pin': it is empty"),
        (("--url", "", "status"), 2, "Invalid value for '--url': it is empty"),
        (("nodes", "show", "\x1b[31mred"), 1, "control characters"),
        (("jobs", "run", "--id", "", "--", "true"), 2, "Invalid value for '--id': it is empty"),
        (("jobs", "run", "--image", "", "--", "true"), 2, "a variable that it comes from may not be set"),
    ],
)
def test_a_name_that_is_empty_or_odd_is_told_before_anything_is_asked(
    homeport: Homeport, canned: Canned, words: tuple[str, ...], code: int, said: str
) -> None:
    done = homeport(*words)
    assert (done.returncode, said in done.stderr, canned.requests) == (code, True, []), done.stderr


@pytest.mark.parametrize(
    ("thing", "path"),
    [
        ("hello@home", "/api/v1/why/hello%40home"),
        ("deployment/hello@home", "/api/v1/why/hello%40home"),
        ("nodes/pi", "/api/v1/why/pi"),
        ("job/one", "/api/v1/jobs/one/why"),
        ("jobs/one", "/api/v1/jobs/one/why"),
        ("run/1a", "/api/v1/pipeline-runs/1a/why"),
    ],
)
def test_what_is_explained_is_named_as_its_logs_are(
    homeport: Homeport, canned: Canned, thing: str, path: str
) -> None:
    found = Why("node", "x", "fine", (Decision("next", "nothing"),))
    canned.answers[f"GET {path}"] = lambda _: why_body(found)
    assert "node x is fine" in homeport("why", thing).stdout
    refused = homeport("why", "bogus/x")
    assert (refused.returncode, "job/ID" in refused.stderr) == (1, True), refused.stderr


def test_a_job_with_a_long_script_takes_one_line_of_the_list(homeport: Homeport, canned: Canned) -> None:
    spec = JobSpec(JobType.COMMAND, ("sh", "-c", "echo one\necho two\n" * 100))
    job = Job(JobId("backup"), SiteName("home"), spec, JobState.PENDING, 1, A_DAY_AGO, "ada", A_DAY_AGO)
    canned.answers["GET /api/v1/jobs"] = lambda _: JobsBody(jobs=[job_body(job)])
    _, line = homeport("jobs", "list").stdout.splitlines()
    assert line.startswith("backup ")
    assert "sh -c 'echo one echo two" in line
    assert line.endswith("…")
    assert json.loads(homeport("jobs", "list", "-o", "json").stdout)["jobs"][0]["command"] == list(spec.command)


def test_an_app_in_two_categories_must_be_named_with_one(homeport: Homeport, canned: Canned) -> None:
    canned.apps = [app(), app(category="tools")]
    done = homeport("apps", "show", "hello")
    assert done.returncode == 5
    assert "demo/hello, tools/hello" in done.stderr


def test_sites_and_nodes_are_listed_and_shown(homeport: Homeport, canned: Canned) -> None:
    canned.answers["GET /api/v1/sites"] = lambda _: SitesBody(sites=[site()])
    canned.answers["GET /api/v1/sites/home"] = lambda _: site(problem="Git is away")
    canned.answers["GET /api/v1/nodes"] = lambda _: NodesBody(nodes=[node()])
    canned.answers["GET /api/v1/nodes/this-laptop"] = lambda _: node()
    canned.answers["DELETE /api/v1/nodes/this-laptop"] = lambda _: (204, b"")
    assert "2/3" in homeport("sites", "list").stdout
    assert "Git is away" in homeport("sites", "show", "home").stdout
    listed = homeport("nodes", "list").stdout
    assert "podman 4.3.1" in listed
    assert "16 GB" in listed
    assert "room=attic" in homeport("nodes", "show", "this-laptop").stdout
    assert homeport("nodes", "remove", "this-laptop").stdout.startswith("✓ removed node this-laptop\n")


def test_history_has_who_and_why(homeport: Homeport, canned: Canned) -> None:
    entry = HistoryEntryBody(
        at=A_DAY_AGO,
        node_id="this-laptop",
        incarnation=1,
        before="PENDING",
        after="INSTALLING",
        trigger="scheduled",
        actor="site",
        reason="new in Git",
        revision="sha256:2222",
        failure=None,
        verdict="stepped",
    )
    canned.answers[f"GET /api/v1/deployments/{HELLO}/history"] = lambda _: HistoryBody(
        deployment_id=HELLO, history=[entry]
    )
    assert homeport("deployments", "history", "hello").stdout.splitlines()[1].split()[2:] == [
        *("this-laptop", "INSTALLING", "PENDING", "site", "new", "in", "Git")
    ]


def test_history_has_what_a_node_has_repaired(homeport: Homeport, canned: Canned) -> None:
    canned.answers[f"GET /api/v1/deployments/{HELLO}/history"] = lambda _: HistoryBody(
        deployment_id=HELLO, history=[]
    )
    words = "web was not running (it had stopped with code 137); started again"
    repaired = progress(1, "repaired", f"hello on this-laptop: {words}").model_copy(update={"kind": "drift.repaired"})
    canned.events = [repaired, progress(2, "pulling")]
    lines = homeport("history", "hello").stdout.splitlines()
    assert len(lines) == 2 and lines[1].split()[2:6] == ["this-laptop", "repaired", "INSTALLED", "node"]
    assert lines[1].endswith(words)


def test_a_rollout_that_was_faster_than_the_command_shows_what_its_nodes_did(
    homeport: Homeport, canned: Canned
) -> None:
    ended = rollout("done")
    state = {"rollout_id": ended.id, "state": "done", "app_name": "hello", "app_version": "1.1.0"}
    end = progress(2, "done", "hello 1.1.0: 1 of 1 sites").model_copy(update={"kind": "rollout.state", "data": state})
    canned.deploys(progress(1, "pulling", "pulling web"), end, result=deployment())
    canned.answers["GET /api/v1/rollouts/r"] = lambda _: ended
    shown = homeport("deploy", "hello", "--site", "home", "--wave", "100%")
    assert (shown.returncode, "✓ DONE" in shown.stdout) == (0, True), shown.stderr
    assert "home / this-laptop   pulling" in shown.stdout


def test_events_end_with_the_newest_unless_followed(homeport: Homeport, canned: Canned) -> None:
    canned.events = [progress(1, "pulling"), progress(2, "starting"), progress(3, "healthy")]
    lines = [json.loads(line) for line in homeport("events", "--after", "1", "-o", "json").stdout.splitlines()]
    assert [line["id"] for line in lines] == [2, 3]
    newest = [json.loads(line)["id"] for line in homeport("events", "-n", "2", "-o", "json").stdout.splitlines()]
    assert newest == [2, 3]
    assert homeport("events", "--tail", "0").stdout == ""
    assert homeport("events", "--site", "elsewhere").stdout == ""
    assert len(homeport("events", "--since", "2026-01-01").stdout.splitlines()) == 3
    assert canned.requests[-1].query["since"].startswith("2026-01-01"), "asked of the server, export or not"


@contextlib.contextmanager
def started(*arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """A command that goes on until it is told to end; whatever a test makes of it, it ends with the test."""
    with HomeportProcess(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_watch_prints_again_what_has_changed_and_ends_well_on_ctrl_c(canned: Canned) -> None:
    with started("--url", canned.url, "deployments", "list", "-w", "-o", "json") as process:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        canned.deployments = [deployment("UPDATING")]
        second = json.loads(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert [each["deployments"][0]["state"] for each in (first, second)] == ["INSTALLED", "UPDATING"]
    assert (process.returncode, errors) == (0, "")


def test_a_followed_stream_goes_on_after_the_connection_was_lost(canned: Canned) -> None:
    """The canned server ends each stream when told to stop; the command resumes after the last id it has seen."""
    canned.events = [progress(1, "pulling")]
    with started("--url", canned.url, "events", "-f", "-o", "json") as process:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        canned.answers["GET /healthz"] = lambda _: (503, b"")
        canned.stopping.set()
        time.sleep(0.2)
        canned.stopping.clear()
        canned.events.append(progress(2, "starting"))
        second = json.loads(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert (first["id"], second["id"]) == (1, 2)
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("shell", "sign"), [("bash", "complete -o"), ("zsh", "#compdef homeport"), ("fish", "complete")]
)
def test_completion_scripts_are_printed(homeport: Homeport, shell: str, sign: str) -> None:
    done = homeport("completion", shell)
    assert sign in done.stdout
    assert "_HOMEPORT_COMPLETE" in done.stdout


def test_names_are_completed_from_the_server(homeport: Homeport, canned: Canned) -> None:
    canned.answers["GET /api/v1/sites"] = lambda _: SitesBody(sites=[site("home"), site("line-7")])
    words = {"_HOMEPORT_COMPLETE": "bash_complete", "COMP_CWORD": "2", "COMP_WORDS": "homeport deploy he"}
    assert homeport(**words).stdout.splitlines() == ["plain,hello", "plain,hello@1.0.0", "plain,hello@1.1.0"]
    words |= {"COMP_CWORD": "4", "COMP_WORDS": "homeport deploy hello --site l"}
    assert homeport(**words).stdout.splitlines() == ["plain,line-7"]
    words |= {"COMP_WORDS": "homeport deploy hello --set g"}
    assert homeport(**words).stdout.splitlines() == ["plain,greeting="]


def test_ctrl_c_in_a_wait_says_that_it_goes_on_and_how_to_follow_it(canned: Canned) -> None:
    canned.deploys(progress(1, "pulling"), result=deployment("UPDATING"))
    with started("--url", canned.url, "deploy", "hello", "--site", "home") as process:
        assert process.stdout is not None
        assert any("pulling" in line for line in iter(process.stdout.readline, ""))
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "The deployment continues in the background. Follow it:  homeport deployments watch " in errors


@pytest.mark.parametrize(("command", "offered"), [("why", ""), ("deploy", "file,he")])
def test_completion_offers_no_name_when_the_server_is_away(homeport: Homeport, command: str, offered: str) -> None:
    words = {"_HOMEPORT_COMPLETE": "bash_complete", "COMP_CWORD": "2", "COMP_WORDS": f"homeport {command} he"}
    done = homeport(**words, HOMEPORT_URL="http://127.0.0.1:9")
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, offered, "")


def test_colour_is_only_for_terminals_and_the_help_is_complete(homeport: Homeport) -> None:
    done = homeport("deploy", "helo", "--site", "home")
    assert "\x1b" not in done.stderr
    help_text = homeport("--help").stdout
    assert all(command in help_text for command in ("up", "deployments", "doctor", "completion"))


def test_a_component_behind_a_slash_is_told_its_option(homeport: Homeport) -> None:
    done = homeport("exec", "shop@home/web", "--", "true")
    assert (done.returncode, "Name a component with -c:  shop@home -c web" in done.stderr) == (1, True), done.stderr


def test_the_only_site_need_not_be_named_to_join_a_node_or_set_a_secret(homeport: Homeport, canned: Canned) -> None:
    canned.answers["GET /api/v1/sites"] = lambda _: SitesBody(sites=[site()])
    invitation = {"token": "hpj_x", "expires_at": "2030-01-01T00:00:00Z", "pin": "sha256:1"}
    invitation |= {"api": "https://home.example:8081", "nodes": "home.example:50052"}
    canned.answers["POST /api/v1/sites/home/nodes/join-token"] = lambda _: (200, json.dumps(invitation).encode())
    line = (
        "homeport node --site home.example:50052 --join-url https://home.example:8081 --join hpj_x --pin sha256:1\n"
    )
    assert homeport("nodes", "join-command").stdout == homeport("nodes", "join-command", "home").stdout == line
    canned.answers["DELETE /api/v1/sites/home/secrets/DB"] = lambda _: (204, b"")
    assert homeport("secrets", "remove", "DB").stdout == "✓ removed secret DB of site home\n"
    assert homeport("secrets", "remove", "home", "DB").stdout == "✓ removed secret DB of site home\n"
    waits = {"identities": [{**IDENTITY, "name": "shed"}], "next": None}
    canned.answers["GET /api/v1/sites/home/nodes/identities"] = lambda _: (200, json.dumps(waits).encode())
    assert "shed" in homeport("nodes", "pending").stdout


def test_with_several_sites_one_has_to_be_named(homeport: Homeport, canned: Canned) -> None:
    canned.answers["GET /api/v1/sites"] = lambda _: SitesBody(sites=[site(), site("north")])
    for command in (["nodes", "join-command"], ["nodes", "pending"], ["secrets", "remove", "DB"], ["cache", "show"]):
        done = homeport(*command)
        assert done.returncode == 2
        assert "Known sites: home, north." in done.stderr


IDENTITY = {
    "kind": "node",
    "standing": "pending",
    "not_after": None,
    "requested_at": "2030-01-01T00:00:00Z",
    "address": "10.0.0.2",
    "decided_by": None,
    "key": "sha256:2",
    "spiffe_id": "spiffe://home/shed",
}


def test_a_token_for_a_site_that_is_not_there_is_made_and_mentioned(homeport: Homeport, canned: Canned) -> None:
    made = {"id": "1", "token": "hp_1_2", "name": "ci", "role": "viewer", "sites": ["hoem"]}
    canned.answers["POST /api/v1/tokens"] = lambda _: (201, json.dumps(made).encode())
    canned.answers["GET /api/v1/sites/hoem"] = lambda _: problem(404, "not-found", 'There is no site "hoem".')
    done = homeport("tokens", "create", "--name", "ci", "--role", "viewer", "--site", "hoem")
    assert (done.returncode, "hp_1_2" in done.stdout) == (0, True)
    assert done.stderr == "! There is no site hoem yet.  homeport sites list\n"
    canned.answers["GET /api/v1/sites/hoem"] = lambda _: problem(503, "unavailable", "The database is not there.")
    done = homeport("tokens", "create", "--name", "ci", "--role", "viewer", "--site", "hoem")
    assert (done.returncode, "hp_1_2" in done.stdout) == (0, True), "this is the only time it is shown"
    assert done.stderr == "", "whether the site is there is not known"
