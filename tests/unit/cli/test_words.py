"""The small decisions of the command line: ages, sizes, versions, addresses, verdicts, lines."""

import errno
import io
import json
import logging
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import click
import pytest

from homeport.cli.api.client import parse_events, problem_of
from homeport.cli.commands.apps.deploy import mention_folder, target_sites
from homeport.cli.commands.machines.top import share
from homeport.cli.commands.running import up
from homeport.cli.commands.running.doctor import render
from homeport.cli.commands.running.node import parse_labels
from homeport.cli.exits import Exit, exit_for
from homeport.cli.local.diagnosis import Finding, check_python, judge_disk
from homeport.cli.main import explain, run
from homeport.cli.roles import logs
from homeport.cli.roles.addresses import ADDRESS, ListenAddress, require_loopback
from homeport.cli.roles.logs import BriefStart, EnduringHandler, JsonFormatter, TextFormatter
from homeport.cli.roles.running import first_of, tell
from homeport.cli.set_option import typed_parameters
from homeport.cli.terminal.ages import age, duration, size, took
from homeport.cli.terminal.moments import MomentParameter
from homeport.cli.terminal.progress import STEP_WIDTH, Line
from homeport.cli.terminal.verdicts import exit_of, print_verdicts
from homeport.cli.terminal.waiting import STEP_OF_STATE, Ended, WaitVerdict, line_of, verdict_of
from homeport.core.values.addresses import is_loopback
from homeport.core.values.versions import version_order
from homeport.errors import (
    Conflict,
    GitUnavailable,
    HomeportError,
    InvalidInput,
    NotFound,
    PeerUnavailable,
    Problem,
    Refused,
)
from homeport.vocabulary import Step

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (59, "59 s"), (60, "1 m"), (7_300, "2 h"), (9 * 86_400, "9 d"), (-5, "0 s")]
)
def test_an_age_has_one_unit(seconds: int, text: str) -> None:
    assert duration(seconds) == text
    assert age((NOW - timedelta(seconds=seconds)).isoformat(), NOW) == text


def test_an_age_of_nothing_is_a_dash_and_a_measurement_has_tenths() -> None:
    assert age(None, NOW) == "-"
    assert (took(2.44), took(14.2)) == ("2.4 s", "14 s")


@pytest.mark.parametrize(
    ("count", "text"), [(999, "999 B"), (2_100_000, "2.1 MB"), (16_000_000_000, "16 GB"), (1_500, "1.5 kB")]
)
def test_a_size_has_two_digits(count: int, text: str) -> None:
    assert size(count) == text


def test_versions_sort_by_number_and_a_release_after_its_candidates() -> None:
    versions = ["1.10.0", "1.9.0", "1.10.0-rc.1", "2.0.0", "1.9.1"]
    assert sorted(versions, key=version_order) == ["1.9.0", "1.9.1", "1.10.0-rc.1", "1.10.0", "2.0.0"]


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8080", ListenAddress("127.0.0.1", 8080)),
        ("8080", ListenAddress("127.0.0.1", 8080)),
        (":9", ListenAddress("127.0.0.1", 9)),
        ("[::1]:80", ListenAddress("::1", 80)),
    ],
)
def test_an_address_may_leave_out_its_host(text: str, address: ListenAddress) -> None:
    assert ADDRESS.convert(text, None, None) == address
    assert ADDRESS.convert(str(address), None, None) == address


@pytest.mark.parametrize("text", ["here", "host:", "host:99999", "host:-1", ""])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not HOST:PORT"):
        ADDRESS.convert(text, None, None)


def test_only_loopback_may_be_listened_on() -> None:
    assert all(is_loopback(host) for host in ("127.0.0.1", "127.8.8.8", "::1", "localhost"))
    for host in ("0.0.0.0", "192.168.1.4", "::", "example.org"):
        with pytest.raises(Refused, match="Refusing to listen"):
            require_loopback(ListenAddress(host, 80), "--http")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NotFound(), Exit.NOT_FOUND),
        (PeerUnavailable(), Exit.UNREACHABLE),
        (Refused(), Exit.REFUSED),
        (Conflict(), Exit.REFUSED),
        (InvalidInput("x"), Exit.FAILED),
        (GitUnavailable(), Exit.FAILED),
    ],
)
def test_each_error_has_its_exit_code(error: HomeportError, code: Exit) -> None:
    assert exit_for(error) is code


def test_a_stream_of_events_is_parsed_with_comments_and_lines_that_continue() -> None:
    lines = b': ping\n\nid: 7\nevent: node.joined\ndata: {"a":\ndata: 1}\n\nevent: x\n\ndata: {}\n\n'
    events = list(parse_events(iter(lines.splitlines(keepends=True))))
    assert [(event.id, event.name, event.data) for event in events] == [
        ("7", "node.joined", {"a": 1}),
        ("7", "message", {}),
    ]


def test_an_answer_that_is_no_problem_document_is_not_from_homeport() -> None:
    assert isinstance(problem_of(404, b"<html>", "http://x"), PeerUnavailable)
    assert str(problem_of(502, b"bad gateway", "http://x")) == "http://x failed with HTTP 502."


def test_hosts_belong_to_the_site_they_name() -> None:
    assert target_sites(("a", "b", "a"), ("a/1", "b/2", "a/3")) == [
        {"site_id": "a", "host_ids": ["1", "3"]},
        {"site_id": "b", "host_ids": ["2"]},
    ]


APP: dict[str, Any] = {
    "parameters": {"on": {"value": True}, "words": {"value": ["a"]}, "bare": {}},
    "configuration": None,
}


def test_a_parameter_without_a_rule_has_the_type_of_its_default() -> None:
    assert typed_parameters(["on=false", "words=b,c", "bare=7", "unknown=8"], APP) == {
        "on": False,
        "words": ("b", "c"),
        "bare": "7",
        "unknown": "8",
    }


@pytest.mark.parametrize("entry", ["=5", "PORT", ""])
def test_what_is_not_a_parameter_is_wrong_usage_before_anything_is_read(entry: str, tmp_path: Path) -> None:
    assert run(["deploy", str(tmp_path), "--set", entry, "--url", "http://127.0.0.1:1"]) == Exit.USAGE


@pytest.mark.parametrize("version", ["nonsense", "v1.0.0", "1.0 beta"])
def test_a_version_begins_with_a_number(version: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["deploy", str(tmp_path)], ["apps", "init", str(tmp_path)]):
        assert run([*command, "--app-version", version]) == Exit.USAGE
        assert "begin it with a number" in capsys.readouterr().err


def test_a_path_that_cannot_be_written_is_not_a_fault_of_homeport(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert explain(NotADirectoryError(20, "Not a directory", str(tmp_path / "file" / "apps"))) == Exit.FAILED
    said = capsys.readouterr().err
    assert said.startswith(f"✗ {tmp_path}/file/apps: Not a directory.\n")
    assert "fault in Homeport" not in said


def instance(
    state: str, revision: str | None = "new", running: str | None = "new", **more: str | None
) -> dict[str, Any]:
    plain = {"state": state, "revision": revision, "running_revision": running}
    return {**plain, "rejected_revision": None, "next_at": None, **more}


def deployment(state: str, *instances: dict[str, Any], wanted: bool = True) -> dict[str, Any]:
    return {"state": state, "revision": "new", "wanted": wanted, "instances": instances}


@pytest.mark.parametrize(
    ("given", "verdict"),
    [
        (deployment("PENDING"), None),
        (deployment("INSTALLED", instance("INSTALLED")), WaitVerdict.INSTALLED),
        # The site has not seen the new revision yet: the old one is installed, and nothing has ended.
        (deployment("INSTALLED", instance("INSTALLED", "old", "old")), None),
        (
            deployment("INSTALLED", instance("INSTALLED", "old", "old", rejected_revision="new")),
            WaitVerdict.ROLLED_BACK,
        ),
        (deployment("INSTALLED", instance("INSTALLED"), instance("INSTALLED", "old", "old")), None),
        (deployment("INSTALLED", instance("INSTALLED"), instance("DELETED", "old", None)), WaitVerdict.INSTALLED),
        (deployment("FAILED", instance("FAILED")), WaitVerdict.FAILED),
        (deployment("FAILED", instance("FAILED", None, None)), WaitVerdict.FAILED),
        # Its site tries again, or goes back, by itself.
        (deployment("FAILED", instance("FAILED", next_at="soon")), None),
        (deployment("FAILED", instance("FAILED", "old", "old", rejected_revision="new")), WaitVerdict.FAILED),
        # What failed is the revision before.
        (deployment("FAILED", instance("FAILED", "old", None)), None),
        (deployment("FAILED", instance("FAILED", "old", None), wanted=False), WaitVerdict.FAILED),
        (deployment("INSTALLED", instance("INSTALLED"), wanted=False), None),
        (deployment("DELETED", wanted=False), WaitVerdict.DELETED),
    ],
)
def test_a_deployment_is_judged_by_its_newest_revision(given: dict[str, Any], verdict: WaitVerdict | None) -> None:
    assert verdict_of(given) is verdict


def test_the_worst_end_decides_the_exit_code() -> None:
    def ends(*verdicts: WaitVerdict) -> list[Ended]:
        return [Ended(verdict, {}, 0.0) for verdict in verdicts]

    installed = WaitVerdict.INSTALLED
    assert exit_of(ends(installed, installed), wanted=installed) is Exit.DONE
    assert exit_of(ends(installed, WaitVerdict.TIMED_OUT), wanted=installed) is Exit.TIMED_OUT
    assert exit_of(ends(WaitVerdict.ROLLED_BACK, WaitVerdict.TIMED_OUT), wanted=installed) is Exit.ROLLED_BACK
    assert exit_of(ends(WaitVerdict.ROLLED_BACK, WaitVerdict.FAILED), wanted=installed) is Exit.FAILED
    assert exit_of(ends(WaitVerdict.DELETED), wanted=installed) is Exit.FAILED


def test_a_line_of_progress_has_a_bar_when_the_size_is_known() -> None:
    half = Line("home / a", "pulling", "x:1", bytes_done=50, bytes_total=100)
    assert half.render(10) == "  home / a     pulling      ━━━━━━━━╌╌╌╌╌╌╌╌  100 B   x:1"
    assert Line("home / a", "starting").render(8) == "  home / a   starting"


@pytest.mark.parametrize("step", [*STEP_OF_STATE.values(), *(step.value for step in Step)])
def test_a_space_stands_between_every_step_and_its_text(step: str) -> None:
    assert f" {step} " in Line("home / a", step, "the release that was good").render(8)
    assert Line("home", step, "text").render(4).index("text") == len("  home   ") + STEP_WIDTH + 1


def test_a_step_is_not_repeated_in_its_text() -> None:
    base = {"site": "home", "node_id": "a", "message": "m"}
    gone = line_of(
        {**base, "kind": "instance.state", "data": {"after": "DELETED", "reason": "removed from its node"}}
    )
    assert gone is not None and (gone.step, gone.text) == ("removed", "from its node")
    part = {"step": "configuring", "message": "configuring shop: 1 variable"}
    made = line_of({**base, "kind": "deployment.progress", "data": part})
    assert made is not None and (made.step, made.text) == ("configuring", "shop: 1 variable")


def test_a_failure_is_one_sentence_with_its_code_and_its_component(capsys: pytest.CaptureFixture[str]) -> None:
    failure = {"code": "EXITED", "message": "shop ended with exit code 1 right after its start.", "source": "shop"}
    deployment = {"id": "d-1", "name": "shop", "site": "home", "instances": [{"failure": failure}]}
    print_verdicts([Ended(WaitVerdict.FAILED, deployment, 1.0)])
    printed = capsys.readouterr().err
    assert "right after its start (EXITED, component shop)\n" in printed
    assert "Try again:  homeport deployments retry shop@home" in printed


def test_a_port_in_use_is_answered_with_the_parameter_that_holds_it(capsys: pytest.CaptureFixture[str]) -> None:
    message = "shop could not be started: port 18990 is already in use on this machine"
    failure = {"code": "CREATE_FAILED", "message": message, "source": "shop"}
    deployment: dict[str, Any] = {"name": "shop", "site": "home", "app_name": "shop", "id": "d-1"}
    deployment |= {
        "app_version": "1.0.0",
        "instances": [{"failure": failure}],
        "parameters": {"GREETING": "hi", "PORT": 18990},
    }
    print_verdicts([Ended(WaitVerdict.FAILED, deployment, 1.0)])
    assert "homeport deploy shop@1.0.0 --site home --set PORT=NUMBER" in capsys.readouterr().err
    print_verdicts([Ended(WaitVerdict.FAILED, {**deployment, "name": "second"}, 1.0)])
    assert "homeport deploy shop@1.0.0 --site home --name second --set PORT=NUMBER" in capsys.readouterr().err
    print_verdicts([Ended(WaitVerdict.FAILED, {**deployment, "parameters": {}}, 1.0)])
    assert "Free the port, then try again:  homeport deployments retry shop@home" in capsys.readouterr().err


def test_a_wrong_option_is_wrong_usage_and_a_wrong_document_is_not() -> None:
    assert exit_for(InvalidInput(problems=[Problem("-p", "is not a port")])) is Exit.USAGE
    assert exit_for(InvalidInput(problems=[Problem("services.web", "is not a service")])) is Exit.FAILED
    assert exit_for(InvalidInput("This is not valid.")) is Exit.FAILED


def test_a_deployment_that_was_as_asked_for_is_called_unchanged(capsys: pytest.CaptureFixture[str]) -> None:
    deployment = {"id": "d-1", "name": "shop", "site": "home", "app_name": "shop", "app_version": "1.0.0"}
    end = Ended(WaitVerdict.INSTALLED, deployment, 0.1)
    print_verdicts([end], unchanged=["d-1"])
    assert capsys.readouterr().out == "✓ unchanged: shop 1.0.0 is INSTALLED\n"
    print_verdicts([end], unchanged=["d-2"])
    assert "unchanged" not in capsys.readouterr().out


def test_events_without_news_for_a_person_make_no_line() -> None:
    base = {"site": "home", "node_id": "a", "message": "m"}
    assert line_of({**base, "kind": "deployment.progress", "data": {"step": "accepted"}}) is None
    assert line_of({**base, "kind": "instance.state", "data": {"after": "INSTALLED"}}) is None
    assert line_of({**base, "kind": "node.joined", "data": {}}) is None


def test_a_nearly_full_disk_and_an_old_python_are_problems() -> None:
    assert judge_disk(Path("/x"), 10**12).level == "ok"
    full = judge_disk(Path("/x"), 5 * 10**8)
    assert (full.level, full.message) == ("problem", "The disk of /x is nearly full: 0.5 GB free.")
    assert check_python((3, 10, 1)).level == "problem"


def test_of_several_errors_the_one_with_a_sentence_is_shown() -> None:
    ours = Refused("no")
    group = BaseExceptionGroup("", [RuntimeError("x"), BaseExceptionGroup("", [ours])])
    assert first_of(group) is ours


def test_labels_are_pairs() -> None:
    assert parse_labels(("room=attic", "x=a=b")) == {"room": "attic", "x": "a=b"}
    with pytest.raises(click.UsageError):
        parse_labels(("attic",))


def test_logs_carry_their_fields_whoever_wrote_them() -> None:
    record = logging.makeLogRecord(
        {
            "name": "homeport.x",
            "levelname": "WARNING",
            "msg": "loop iteration failed",
            "loop": "sweep",
            "fields": {"name": "a b"},
        }
    )
    entry = json.loads(JsonFormatter().format(record))
    assert (entry["message"], entry["level"], entry["loop"], entry["name"]) == (
        "loop iteration failed",
        "warning",
        "sweep",
        "a b",
    )
    assert TextFormatter().format(record).endswith('! loop iteration failed   loop=sweep  name="a b"')


def test_a_start_shows_warnings_alone_until_it_is_over_or_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    info, warning = (logging.makeLogRecord({"levelno": level}) for level in (logging.INFO, logging.WARNING))
    brief = BriefStart()
    assert (brief.filter(info), brief.filter(warning)) == (False, True)
    handler = logging.NullHandler()
    handler.addFilter(brief)
    logging.getLogger().addHandler(handler)
    try:
        logs.role_is_up()
    finally:
        logging.getLogger().removeHandler(handler)
    assert brief.filter(info)
    monkeypatch.setattr(logs, "BRIEF_SECONDS", 0.0)
    assert BriefStart().filter(info)


@pytest.mark.parametrize(("given", "is_brief"), [([], True), (["--log-level", "info"], False)])
def test_a_start_is_brief_unless_logs_were_asked_for(
    monkeypatch: pytest.MonkeyPatch, given: list[str], is_brief: bool
) -> None:
    @click.command()
    @logs.logged
    def role(log_level: str, log_format: str | None) -> None:
        logs.configure_logs(log_level, log_format, is_brief=True)

    configured: dict[str, Any] = {}
    monkeypatch.setattr(logging, "basicConfig", lambda **how: configured.update(how))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    role.main(given, standalone_mode=False)
    (handler,) = configured["handlers"]
    assert any(isinstance(each, BriefStart) for each in handler.filters) is is_brief


def test_a_log_on_a_terminal_shows_what_others_say_on_one_line_and_does_not_obey_it() -> None:
    evil = "web\x1b[2J\x1b]0;owned\x07\nerror ! forged line"
    said: dict[str, Any] = {"levelname": "WARNING", "msg": evil, "fields": {"name": evil}}
    shown = TextFormatter().format(logging.makeLogRecord(said))
    assert not [character for character in shown if character in "\x1b\x07\n"]
    fault = ValueError(evil)
    traced = TextFormatter().format(logging.makeLogRecord({**said, "exc_info": (type(fault), fault, None)}))
    assert "ValueError" in traced and "\x1b" not in traced


def test_the_password_of_a_repository_is_not_in_the_first_lines_of_up() -> None:
    notes = up.notes_of("http://127.0.0.1:8080", "https://git:ghp_LEAKED@git.example/d.git")
    assert notes == ("API: http://127.0.0.1:8080/docs", "Deployments in Git: https://***@git.example/d.git")


class SmallDisk(io.StringIO):
    """Takes nothing while it is full."""

    is_full = False

    def flush(self) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")

    def write(self, text: str) -> int:
        self.flush()
        return super().write(text)


def test_lines_that_a_full_disk_cost_are_counted_in_the_log() -> None:
    disk = SmallDisk()
    log = logging.Logger("homeport.test")
    handler = EnduringHandler(disk)
    handler.setFormatter(JsonFormatter())
    log.addHandler(handler)
    log.info("first")
    disk.is_full = True
    for _ in range(3):
        log.info("lost")
    disk.is_full = False
    log.info("last")
    log.info("and on")
    told = [json.loads(line) for line in disk.getvalue().splitlines()]
    assert [each["message"] for each in told] == ["first", "log write failed", "last", "and on"]
    assert told[1]["lines"] == 3


def test_a_role_says_nothing_where_the_disk_is_full_and_runs() -> None:
    def full(_message: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def gone(_message: str) -> None:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    tell("node is up", by=full)
    with pytest.raises(BrokenPipeError):
        tell("node is up", by=gone)


@pytest.mark.parametrize(
    ("span", "text", "expected"),
    [
        ("ago", "2026-03-01", "2026-03-01T00:00:00+00:00"),
        ("ago", "2026-03-01T12:00:00+02:00", "2026-03-01T12:00:00+02:00"),
        ("ahead", "2030-01-31T08:00:00Z", "2030-01-31T08:00:00+00:00"),
    ],
)
def test_a_time_is_read_as_it_stands_and_without_a_zone_as_utc(
    span: Literal["ago", "ahead"], text: str, expected: str
) -> None:
    assert MomentParameter(span).convert(text, None, None).isoformat() == expected


def test_a_span_leads_back_or_ahead() -> None:
    now = datetime.now(UTC)
    assert abs(now - timedelta(hours=2) - MomentParameter("ago").convert("2h", None, None)) < timedelta(minutes=1)
    assert abs(now + timedelta(weeks=4) - MomentParameter("ahead").convert("4w", None, None)) < timedelta(minutes=1)


@pytest.mark.parametrize("text", ["nonsense", "", "999999d", "2026-13-01", "-2h"])
def test_what_is_no_time_is_told_what_is(text: str) -> None:
    with pytest.raises(click.BadParameter, match="neither a span of time such as 90d nor a date"):
        MomentParameter("ago").convert(text, None, None)


def test_a_host_without_any_site_is_asked_for_its_site() -> None:
    with pytest.raises(click.UsageError, match="--site"):
        target_sites((), ("pi-1",))


def test_a_unit_that_two_sizes_share_is_said_once() -> None:
    assert share("2.8 GB", "25 GB") == "2.8 of 25 GB"
    assert share("800 MB", "25 GB") == "800 MB of 25 GB"


@pytest.mark.parametrize(("width", "in_line"), [(60, 2), (80, 3), (120, 3), (30, 1)])
def test_what_the_doctor_found_in_order_fits_the_terminal(width: int, in_line: int) -> None:
    good = [
        Finding("check", "ok", message)
        for message in ("python 3.11.7", "git 2.39.5", "disk 80 GB free", "podman 4.3.1")
    ]
    lines = [click.unstyle(line) for line in render(good, width)]
    assert max(map(len, lines)) <= width
    assert lines[0].count("✓") == in_line
    assert list(render([], width)) == []


def test_a_folder_that_is_called_like_an_app_is_mentioned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    mention_folder("shop")
    assert capsys.readouterr().err == ""
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "compose.yaml").touch()
    mention_folder("shop")
    assert "To deploy the folder:  homeport deploy ./shop" in capsys.readouterr().err
