"""The dashboard in a real browser, on one fleet of one with real containers and a real model: what a person does."""

import gzip
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Browser, FilePayload, Page, Response, expect

from homeport.dashboard.static_files import load
from tests.support.dashboard import (
    WAIT_MILLISECONDS,
    Fleet,
    chromium,
    confirm,
    detail_pages,
    fleet_with_a_model,
    is_settled,
    log_in,
    pages,
    paint_milliseconds,
    serious_problems,
    shown,
    visit,
    wrong_commands,
)
from tests.support.engines import probe_image
from tests.support.ports import free_port
from tests.support.registry import RunningRegistry

PAINT_MILLISECONDS = 1000
PAINTS_MAX = 10
"""Tries, for a browser that shares its cores with other tests."""


@pytest.fixture(scope="module")
def image(registry: RunningRegistry) -> Iterator[str]:
    """Busybox alone."""
    with probe_image(registry.host) as reference:
        yield reference


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    expect.set_options(timeout=WAIT_MILLISECONDS)
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def fleet(apps: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet_with_a_model(tmp_path_factory.mktemp("dashboard"), apps) as started:
        yield started


@pytest.fixture(scope="module")
def page(fleet: Fleet, browser: Browser) -> Iterator[Page]:
    """One page, logged in, for the flows of an administrator."""
    with shown(browser, fleet.login_url()) as opened:
        expect(opened.get_by_role("heading", name="Overview")).to_be_visible()
        opened.get_by_role("button", name="Log out").click()
        # A token of its own outlives a restart, as the key of this machine does not.
        log_in(opened, fleet.host.json("tokens", "create", "--name", "ada", "--role", "admin")["token"])
        expect(opened.get_by_role("heading", name="Overview")).to_be_visible()
        yield opened


def has_hello(fleet: Fleet) -> None:
    """Deployed by an earlier test, unless another worker has run that one."""
    if all(each["name"] != "hello" for each in fleet.host.json("deployments", "list")["deployments"]):
        fleet.host.homeport("deploy", "hello@1.1.0", "--set", f"port={free_port()}", "--wait")


def deploy(page: Page, app: str) -> None:
    page.get_by_role("button", name="Show the plan").click()
    plan = page.get_by_role("region", name="Plan")
    expect(plan).to_contain_text(f"{app}@home create")
    expect(plan).to_contain_text(re.compile(r"image \S+ \(new\), pull up to \d"))
    expect(plan).to_contain_text("pulled at most")
    page.get_by_role("button", name="Deploy to 1 site").click()
    page.wait_for_url(re.compile(rf"/deployments/home/{app}"))


def test_an_app_is_deployed_from_the_form_and_its_logs_are_read(fleet: Fleet, page: Page) -> None:
    page.get_by_role("link", name="Deploy…").click()
    page.get_by_label("App").select_option(label="hello 1.1.0")
    page.get_by_label("Port").fill("not a number")
    page.get_by_role("button", name="Show the plan").click()
    expect(page.get_by_role("alert")).to_contain_text("port")
    expect(page.locator("#said-port")).not_to_be_empty()
    page.get_by_label("Port").fill(str(free_port()))
    deploy(page, "hello")
    expect(page.locator("h1 .pill")).to_have_text("INSTALLED")
    expect(page.get_by_text("homeport why hello@home")).to_be_visible()
    way = page.get_by_role("navigation", name="Breadcrumb")
    expect(way.get_by_role("link", name="home", exact=True)).to_have_attribute("href", "/sites/home")

    visit(page, "/logs")
    page.get_by_label("Filter").fill('"written to git" -site:nowhere')
    page.get_by_label("Filter").press("Enter")
    expect(page.get_by_role("log").get_by_text("deployment written to git").first).to_be_visible()
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_text("Following has stopped.")).to_be_visible()
    page.get_by_label("Filter").fill("")
    page.get_by_label("Filter").press("Enter")
    page.get_by_role("button", name="Follow").first.click()
    lines_are_followed_until_somebody_scrolls_up(page)
    lines_are_chosen_by_source_and_level(page)


def lines_are_chosen_by_source_and_level(page: Page) -> None:
    lines = page.get_by_role("log").locator(".line")
    page.get_by_label("Source").select_option("node")
    expect(page).to_have_url(re.compile("kind=node"))
    expect(lines.filter(has_text="order received").first).to_be_visible()
    expect(lines.locator(".from", has_text=re.compile("^(central|site)$"))).to_have_count(0)
    page.get_by_role("group", name="Level").get_by_role("button", name="Errors").click()
    expect(page.get_by_text("homeport logs --kind node --level error -f")).to_be_visible()
    expect(page.get_by_role("log").or_(page.get_by_text("No line matches"))).to_be_visible()
    expect(lines.locator("b[title=info]")).to_have_count(0)
    page.get_by_role("button", name="Between…").click()
    page.get_by_label("to", exact=True).fill("2020-01-02T03:04:05")
    expect(page.get_by_text("No line matches")).to_be_visible()
    page.reload()
    expect(page.get_by_label("to", exact=True)).to_have_value("2020-01-02T03:04:05")
    page.get_by_role("group", name="Time").get_by_role("button", name="1 h", exact=True).click()
    expect(page).to_have_url(re.compile(r"\?kind=node&level=error&since=1h$"))


IS_AT_ITS_END = "each => each.scrollTop + each.clientHeight >= each.scrollHeight - 2"


def lines_are_followed_until_somebody_scrolls_up(page: Page) -> None:
    """Rows that are read again and a window of another size move the list too, and stop nothing."""
    log, wide = page.get_by_role("log"), page.viewport_size
    assert wide is not None
    expect(log.locator("[data-row]").nth(10)).to_be_visible()
    for height in (wide["height"], 480, 700, 440):
        page.set_viewport_size({"width": wide["width"], "height": height})
        expect(page.get_by_text("Following.", exact=True)).to_be_visible()
        page.wait_for_function(
            "each => each.scrollTop + each.clientHeight >= each.scrollHeight - 2", arg=log.element_handle()
        )
    log.hover()
    page.mouse.wheel(0, -120)
    expect(page.get_by_text("Following has stopped.")).to_be_visible()
    page.set_viewport_size(wide)


def test_a_dropped_compose_file_becomes_an_app_of_the_catalog(fleet: Fleet, page: Page, image: str) -> None:
    visit(page, "/deploy")
    box = page.get_by_role("region", name="From a compose file")
    sent = box.get_by_label("Files to send")
    sent.set_input_files(compose("services:\n  web:\n    build: .\n"))
    expect(box.get_by_role("alert")).to_contain_text("is built from source")
    expect(box.get_by_role("button", name="Add to the catalog")).to_be_disabled()
    sent.set_input_files(compose(f"name: dropped\nservices:\n  web: {{image: {image}, command: [sleep, '9']}}\n"))
    expect(box.get_by_text("The service web of compose.yaml.")).to_be_visible()
    assert fleet.host.json("apps", "list", "--name", "dropped")["apps"] == [], "nothing is written before"
    box.get_by_role("button", name="Add to the catalog").click()
    expect(page.get_by_label("App").locator("option:checked")).to_have_text("dropped 1.0.0")
    expect(page.get_by_role("button", name="Deploy to 1 site")).to_be_enabled()


def compose(text: str) -> FilePayload:
    return {"name": "compose.yaml", "mimeType": "application/yaml", "buffer": text.encode()}


def test_a_broken_release_is_rolled_back_and_tabs_that_act_at_once_conflict(fleet: Fleet, page: Page) -> None:
    """One walk, since each step needs the ones before it."""
    watch_a_rollback(fleet, page)
    act_in_two_tabs_at_once(fleet, page)
    act_on_what_changed_in_another_tab(fleet, page)
    compare_any_two_revisions(fleet, page)


def watch_a_rollback(fleet: Fleet, page: Page) -> None:
    fleet.host.homeport("deploy", "fickle@1.0.0", "--site", "home", "--wait")
    page.goto(f"{fleet.url}/deployments/home/fickle")
    fleet.host.homeport("deploy", "fickle@1.1.0", "--site", "home", "--no-wait")
    expect(page.get_by_text("rolled back to 1.0.0").first).to_be_visible()
    steps = page.get_by_role("region", name="Why").locator(".why-step")
    expect(steps.filter(has_text="rollback")).to_be_visible()
    expect(steps.first).to_have_text("commit")
    expect(steps.last).to_have_text("next")
    found = steps.all_inner_texts()
    assert found.index("commit") < found.index("site") < found.index("rollback"), found
    tree = page.get_by_role("region", name="Where")
    expect(tree.locator(".tree-site")).to_contain_text("home")
    expect(tree.locator("summary")).to_contain_text(fleet.node)
    failures = page.get_by_role("region", name="Timeline").get_by_title(re.compile("^FAILED since "))
    expect(failures.first).to_be_visible()
    what_needs_a_person_leads_to_it(page)
    page.get_by_role("link", name="History").click()
    expect(page.get_by_text("FAILED → ROLLINGBACK")).to_be_visible()


def what_needs_a_person_leads_to_it(page: Page) -> None:
    visit(page, "/")
    needs = page.get_by_role("region", name="Needs a person")
    item = needs.get_by_role("listitem").filter(has_text="fickle@home")
    expect(item.locator(".reason")).to_contain_text("rolled back")
    expect(page.locator(".lede")).to_contain_text("needs a person")
    item.get_by_role("link", name="fickle@home", exact=True).click()
    page.wait_for_url(re.compile("/deployments/home/fickle"))


def act_in_two_tabs_at_once(fleet: Fleet, page: Page) -> None:
    other = page.context.new_page()
    dialogs = []
    for tab in (page, other):
        tab.goto(f"{fleet.url}/deployments/home/fickle")
        tab.get_by_role("button", name="Restart…").click()
        dialogs.append(tab.get_by_role("dialog", name="Restart fickle@home"))
        expect(dialogs[-1].get_by_role("button", name="Restart", exact=True)).to_be_enabled()
    dialogs[0].get_by_role("button", name="Restart", exact=True).click()
    expect(dialogs[0]).to_be_hidden()
    dialogs[1].get_by_role("button", name="Restart", exact=True).click()
    expect(dialogs[1].get_by_role("alert")).to_contain_text("another user was faster")
    other.close()


def act_on_what_changed_in_another_tab(fleet: Fleet, page: Page) -> None:
    page.goto(f"{fleet.url}/deployments/home/fickle")
    page.get_by_role("button", name="Restart…").click()
    dialog = page.get_by_role("dialog", name="Restart fickle@home")
    expect(dialog.get_by_role("button", name="Restart", exact=True)).to_be_enabled()
    fleet.host.homeport("deploy", "fickle@1.3.0", "--site", "home", "--wait")
    dialog.get_by_role("button", name="Restart", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("another user was faster")


def compare_any_two_revisions(fleet: Fleet, page: Page) -> None:
    page.goto(f"{fleet.url}/deployments/home/fickle?tab=diff")  # Its dialog is still open.
    changed = page.get_by_role("region", name="What changed")
    expect(changed.get_by_role("group", name="What changed")).to_contain_text("1.3.0")
    # Of each version there may be several revisions: a restart is one.
    oldest, middle = (
        changed.get_by_label("to").locator("option", has_text=each).first for each in ("1.0.0", "1.1.0")
    )
    changed.get_by_label("to").select_option(middle.get_attribute("value"))
    changed.get_by_label("from").select_option(oldest.get_attribute("value"))
    expect(changed.get_by_role("group", name="What changed")).not_to_contain_text("1.3.0")
    expect(changed.get_by_role("group", name="What changed")).to_contain_text('+    version: "1.1.0"')
    expect(page.get_by_text(re.compile("^homeport deployments diff fickle@home --from .* --to "))).to_be_visible()
    page.get_by_role("link", name="YAML").click()
    expect(page.get_by_role("group", name="fickle@home as YAML")).to_contain_text("app_name: fickle")


def test_a_node_shows_charts_takes_a_command_and_is_drained(fleet: Fleet, page: Page) -> None:
    has_hello(fleet)
    visit(page, f"/nodes/home/{fleet.node}")
    expect(page.get_by_role("region", name="CPU").locator("canvas")).to_be_visible()
    expect(page.get_by_role("img", name=re.compile("Heartbeats"))).to_be_visible()
    for label, span, hours in (("24 h", "24h", 24), ("7 d", "7d", 168), ("1 h", "1h", 1)):
        with page.expect_response(partial(is_about_the_last, hours)) as answered:
            page.get_by_role("group", name="Range").get_by_role("link", name=label).click()
        assert answered.value.json()["times"], "it is measured already"
        assert page.url.endswith(f"range={span}")
        expect(page.get_by_role("region", name="CPU").locator("canvas")).to_be_visible()
    page.get_by_role("navigation", name="About this node").get_by_role("link", name="Terminal").click()
    page.get_by_role("region", name="Terminal").locator("select").select_option(label="hello")
    page.get_by_label("Command", exact=True).fill("/bin/busybox sh")
    page.get_by_role("button", name="Start").click()
    expect(page.get_by_role("log")).to_contain_text("Connected to hello@home")
    page.get_by_label("Line to send").fill("echo $((40 + 2)) is it")
    page.get_by_label("Line to send").press("Enter")
    expect(page.get_by_role("log")).to_contain_text("42 is it")
    page.get_by_role("button", name="Stop").click()

    labels_of_two_people_are_both_kept(fleet, page)
    page.get_by_role("button", name="Drain…").click()
    page.get_by_label("Reason").fill("new disk")
    page.get_by_role("button", name=f"Drain {fleet.node}").click()
    expect(page.get_by_text("Drained: new disk")).to_be_visible()
    page.get_by_role("button", name="Undrain…").click()
    page.get_by_role("button", name="Undrain", exact=True).click()
    expect(page.get_by_role("button", name="Drain…")).to_be_visible()
    visit(page, "/nodes?view=cards")
    page.get_by_role("button", name="Add a machine…").click()
    dialog = page.get_by_role("dialog", name="Add a machine to home")
    dialog.get_by_role("button", name="Create token").click()
    expect(dialog.get_by_role("alert")).to_contain_text("has no identity")
    dialog.get_by_role("button", name="Cancel").click()


def is_about_the_last(hours: int, answer: Response) -> bool:
    """The measurements of that time."""
    url = urlsplit(answer.url)
    if not url.path.endswith("/telemetry") or "from" not in (asked := parse_qs(url.query)):
        return False
    ago = datetime.now(UTC) - datetime.fromisoformat(asked["from"][0])
    return abs(ago.total_seconds() / 3600 - hours) < hours / 10


def labels_of_two_people_are_both_kept(fleet: Fleet, page: Page) -> None:
    page.get_by_role("button", name="Labels…").click()
    dialog = page.get_by_role("dialog", name=f"Labels of {fleet.node}")
    text, button = dialog.get_by_label("Labels, one a line"), dialog.get_by_role("button", name="Set labels")
    expect(button).to_be_enabled()
    text.fill("zone cellar")
    button.click()
    expect(dialog.locator("#node-labels")).to_contain_text("“zone cellar” is not a label: write KEY=VALUE.")
    expect(text).to_have_attribute("aria-invalid", "true")
    text.fill("zone=cellar")
    button.click()
    expect(dialog.locator("#node-labels")).to_contain_text("homeport.allow is the node's own")
    text.fill("homeport.allow=all\nzone=cellar")
    fleet.host.homeport("nodes", "set", fleet.node, "--label", "rack=2")
    button.click()
    expect(dialog.get_by_role("alert")).to_contain_text("another user was faster")
    assert sorted(text.input_value().split()) == ["homeport.allow=all", "rack=2", "zone=cellar"]
    expect(dialog.locator("code")).to_have_text(f"homeport nodes set {fleet.node}@home --label zone=cellar")
    button.click()
    expect(dialog).to_be_hidden()
    for each in ("zone=cellar", "rack=2"):
        expect(page.locator("h1")).to_contain_text(each)
    seen = page.locator(".lede time")
    expect(seen).to_have_text(re.compile(r"^\d+ s$"))
    # Local time with its zone, and UTC.
    expect(seen).to_have_attribute("title", re.compile(r"\d:\d\d:\d\d .*UTC \(\d{4}-\d\d-\d\dT[\d:.]+Z\)$"))


def test_a_job_is_submitted_and_a_pipeline_edited_and_run(fleet: Fleet, page: Page, image: str) -> None:
    visit(page, "/jobs?tab=submit")
    prints = r"""printf "job \033[32msays\033[0m hello\n"; echo kept > /report.txt"""
    page.locator("[aria-describedby=job-command]").fill(f"/bin/sh -c '{prints}'")
    page.get_by_label("Artifacts").fill("/report.txt")
    page.locator("[aria-describedby=job-image]").fill(image)
    page.get_by_label("Memory").fill("much")
    page.get_by_role("button", name="Run it").click()
    expect(page.locator("#job-memory")).to_contain_text("512Mi")
    page.get_by_label("Memory").fill("")
    for field, wrong in (("Cores", "many"), ("Retries", "some"), ("Environment", "LEVEL")):
        page.get_by_label(field).fill(wrong)
        page.get_by_role("button", name="Run it").click()
        expect(page.get_by_label(field)).to_have_attribute("aria-invalid", "true")
        expect(page.get_by_label(field).locator("xpath=..").locator(".wrong")).not_to_be_empty()
        page.get_by_label(field).fill("")
    page.get_by_role("button", name="Run it").click()
    expect(page.get_by_role("log")).to_contain_text("job says hello")
    expect(page.locator("h1 .pill")).to_have_text("COMPLETED")
    with page.expect_download() as kept:
        page.get_by_role("region", name="Artifacts").get_by_role("button", name="Download").click()
    assert kept.value.suggested_filename == "report.txt"
    assert kept.value.path().read_text() == "kept\n"
    visit(page, "/jobs?tab=history")
    expect(page.locator("main tbody tr").first).to_contain_text("COMPLETED")
    page.get_by_role("group", name="State").get_by_role("link", name="FAILED").click()
    expect(page.get_by_text("No job matches")).to_be_visible()

    visit(page, "/pipelines/edit")
    page.get_by_label("Pipeline file").fill("name: two\nsteps:\n  one: {jobs: 1}\n")
    expect(page.locator("#pipeline-said")).to_contain_text("line")
    job = json.dumps({"image": image, "command": ["/bin/sh", "-c", "echo step output"]})
    says = json.dumps({"image": image, "command": ["/bin/sh", "-c", "echo step output on ${{ inputs.day }}"]})
    inputs = "inputs:\n  day: {type: string}\n  copies: {type: number, default: 1}\n"
    source = f"name: two\n{inputs}steps:\n  one:\n    job: {job}\n  two:\n    needs: [one]\n    job: {says}\n"
    page.get_by_label("Pipeline file").fill(source)
    expect(page.get_by_text("two is valid: one → two.")).to_be_visible()
    graph_follows_the_text(page, source)
    inputs_of = page.get_by_role("region", name="Inputs")
    inputs_of.get_by_label("copies").fill("several")
    page.get_by_role("button", name="Run it").click()
    expect(inputs_of.locator("label", has_text="day").locator(".wrong")).to_have_text("is missing.")
    expect(inputs_of.locator("label", has_text="copies").locator(".wrong")).to_have_text("must be a number.")
    inputs_of.get_by_label("day").fill("monday")
    inputs_of.get_by_label("copies").fill("2")
    expect(page.get_by_text("homeport pipelines run ./two.yaml --input day=monday --input copies=2")).to_be_visible()
    page.get_by_role("button", name="Run it").click()
    expect(page.locator("h1 .pill")).to_have_text("SUCCEEDED")
    expect(page.get_by_role("region", name="Inputs")).to_contain_text("monday")
    page.get_by_role("link", name=re.compile("^two, job")).click()
    expect(page.get_by_role("region", name="Step two")).to_contain_text("step output on monday")
    a_schedule_is_paused_and_resumed(page)


def a_schedule_is_paused_and_resumed(page: Page) -> None:
    visit(page, "/pipelines/edit")
    source = "name: nightly\ntriggers: {schedule: {cron: '0 3 * * *'}}\nsteps: {one: {job: {command: [echo, hi]}}}\n"
    page.get_by_label("Pipeline file").fill(source)
    expect(page.get_by_text("nightly is valid: one.")).to_be_visible()
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("nightly is saved.")).to_be_visible()
    visit(page, "/pipelines?tab=saved")
    row = page.get_by_role("region", name="Saved").get_by_role("listitem").filter(has_text="nightly")
    expect(row).to_contain_text(re.compile(r"0 3 \* \* \* UTC, next in \d+ (h|min)"))
    confirm(page, "Pause…", "Pause nightly", "Pause")
    expect(row.get_by_text("paused", exact=True)).to_be_visible()
    expect(row).not_to_contain_text("next in")
    confirm(page, "Resume…", "Resume nightly", "Resume")
    expect(row).to_contain_text("next in")


def graph_follows_the_text(page: Page, source: str) -> None:
    """While somebody writes: as the text is, or as it was when it was valid last."""
    graph, text = page.get_by_role("region", name="Graph"), page.get_by_label("Pipeline file")
    expect(graph.get_by_role("link")).to_have_count(2)
    text.fill(source + "  three:\n    needs: [one, two]\n    job: {command: [echo, hi]}\n")
    expect(graph.get_by_role("link", name="three, job, after one and two")).to_be_visible()
    expect(graph.locator("path.edge")).to_have_count(3)
    text.fill(source + "  three:\n    needs: [nothing]\n")
    expect(page.locator("#pipeline-said")).to_contain_text("line")
    expect(graph.get_by_text("as it was when the text was valid")).to_be_visible()
    expect(graph.get_by_role("link")).to_have_count(3)
    text.fill(source)
    expect(graph.get_by_role("link")).to_have_count(2)
    graph.get_by_role("link", name="two, job, after one").click()
    chosen = text.evaluate("each => each.value.slice(each.selectionStart, each.selectionEnd)")
    assert chosen == "  two:", "a step of the graph leads to its line"


def test_chosen_deployments_are_restarted_together_and_a_changed_one_is_left_out(fleet: Fleet, page: Page) -> None:
    has_hello(fleet)
    visit(page, "/deployments")
    page.get_by_label("Select hello@home").check()
    page.get_by_role("link", name="fickle@home").focus()
    page.keyboard.press("x")
    chosen = page.get_by_role("region", name="Selected deployments")
    expect(chosen).to_contain_text("2 selected")
    chosen.get_by_role("button", name="Restart…").click()
    dialog = page.get_by_role("dialog", name=re.compile("^Restart"))
    expect(dialog.get_by_role("listitem")).to_have_text(["fickle@home", "hello@home"])
    assert serious_problems(page) == []
    expect(dialog.locator("code")).to_contain_text('do homeport deployments restart "$each"; done')
    expect(dialog.get_by_role("button", name="Restart 2 deployments")).to_be_enabled()
    wanted = fleet.host.json("deployments", "list", "--name", "fickle")["deployments"][0]["app_version"]
    fleet.host.homeport("deploy", f"fickle@{'1.0.0' if wanted == '1.3.0' else '1.3.0'}", "--site", "home", "--wait")
    dialog.get_by_role("button", name="Restart 2 deployments").click()
    expect(dialog.get_by_role("alert")).to_contain_text("1 of 2 deployments could not be done; the others are.")
    expect(dialog.get_by_role("listitem")).to_contain_text(["another user was faster"])
    dialog.get_by_role("button", name="Restart 1 deployment").click()
    expect(dialog).to_be_hidden()
    expect(chosen).to_have_count(0)
    restarts = fleet.host.json("audit", "list", "--action", "deployments.restart")["entries"]
    assert len([each for each in restarts if each["actor"] == "ada"]) >= 2


def test_chosen_nodes_are_drained_and_chosen_jobs_cancelled(fleet: Fleet, page: Page, image: str) -> None:
    visit(page, "/nodes?view=cards")
    page.get_by_label(f"Select {fleet.node}").check()
    page.get_by_role("button", name="Drain…").click()
    page.get_by_label("Reason").fill("new fan")
    page.get_by_role("button", name="Drain 1 node").click()
    expect(page.get_by_text("drained: new fan")).to_be_visible()
    page.get_by_role("group", name="View").get_by_role("button", name="Table").click()
    page.get_by_label("Select all that are shown").check()
    page.get_by_role("button", name="Undrain…").click()
    page.get_by_role("button", name="Undrain 1 node").click()
    expect(page.locator("main table").get_by_text("drained")).to_have_count(0)

    for _ in range(2):
        fleet.host.homeport("jobs", "run", "--detach", "--image", image, "--", "/bin/sleep", "600")
    visit(page, "/jobs")
    expect(page.locator("main tbody tr")).to_have_count(2)
    page.get_by_label("Select all that are shown").check()
    page.get_by_role("button", name="Cancel…").click()
    expect(page.get_by_role("button", name="Cancel 2 jobs")).to_be_enabled()
    expect(page.get_by_role("dialog").get_by_role("button", name="Keep it as it is")).to_be_visible()
    page.get_by_role("button", name="Cancel 2 jobs").click()
    expect(page.get_by_text("The queue is empty.")).to_be_visible()


def test_charts_are_hatched_without_measurements_and_marked_at_deploys(fleet: Fleet, page: Page) -> None:
    has_hello(fleet)
    visit(page, f"/nodes/home/{fleet.node}")
    chart = page.get_by_role("region", name="Memory")
    # The machine is younger than the hour that is shown.
    expect(chart.locator(".chart-gap").first).to_be_visible()
    expect(chart.locator(".chart-mark", has_text=re.compile("hello|fickle")).first).to_be_visible()
    expect(chart.get_by_role("img")).to_have_attribute("aria-label", re.compile("nothing was measured from .* to "))
    gap, mark = chart.locator(".chart-gap").first.bounding_box(), chart.locator(".chart-mark").first.bounding_box()
    assert gap is not None and mark is not None
    assert gap["width"] > 20 and mark["x"] >= gap["x"] + gap["width"] - 20, "deploys come after the machine"
    chart.get_by_role("button", name="Table").click()
    expect(chart.get_by_text(re.compile("^nothing was measured until"))).not_to_have_count(0)
    chart.get_by_role("link", name=re.compile("^hello 1.1.0, PENDING → INSTALLING")).click()
    expect(page).to_have_url(re.compile("/deployments/home/hello.*tab=history"))


def test_an_app_is_read_in_logs_and_lists_rolled_back_and_deleted(
    fleet: Fleet, page: Page, image: str, tmp_path: Path
) -> None:
    """One walk, since each step needs the ones before it."""
    has_hello(fleet)
    find_changes_of_state_in_a_log(fleet, page, image, tmp_path)
    watch_a_row_change_in_place(fleet, page, image, tmp_path)
    steer_a_rollout_roll_back_and_delete(fleet, page)


def find_changes_of_state_in_a_log(fleet: Fleet, page: Page, image: str, tmp_path: Path) -> None:
    file = tmp_path / "compose.yaml"
    for said in ("first", "second"):
        command = json.dumps(["/bin/sh", "-c", f"echo {said} words; sleep 9999"])
        file.write_text(
            f"name: talker\nservices:\n  web: {{image: {image}, command: {command}, stop_grace_period: 1s}}\n"
        )
        fleet.host.homeport("deploy", str(file), "--site", "home", "--wait")
    visit(page, "/deployments/home/talker?tab=logs")
    log = page.get_by_role("log")
    expect(log).to_contain_text("second words")
    expect(log.locator(".change", has_text="INSTALLING")).to_contain_text("is wanted here")
    expect(log).to_contain_text("UPDATING")
    rows = "\n".join(log.get_by_role("listitem").all_inner_texts())
    found = [rows.index(each) for each in ("first words", "UPDATING", "second words")]
    assert found == sorted(found), rows
    log.get_by_role("link", name="Why").first.click()
    expect(page.get_by_role("region", name="Why")).to_be_visible()


def watch_a_row_change_in_place(fleet: Fleet, page: Page, image: str, tmp_path: Path) -> None:
    file = tmp_path / "compose.yaml"
    file.write_text(f"name: talker\nservices:\n  web: {{image: {image}, command: [/bin/false]}}\n")
    visit(page, "/deployments")
    rows = page.locator("[data-row] a.name")
    expect(rows.last).to_have_text("talker@home")
    before = rows.all_inner_texts()
    rows.first.hover()
    fleet.host.command("deploy", str(file), "--site", "home", "--retries", "0", "--wait")
    talker = page.locator("[data-row]", has=page.get_by_role("link", name="talker@home"))
    expect(talker).to_contain_text("rolled back")
    moved = page.get_by_role("button", name=re.compile("moved. Show the new order"))
    expect(moved).to_be_visible()
    assert rows.all_inner_texts() == before, "nothing moves under the pointer"
    moved.click()
    expect(rows.first).to_have_text("talker@home")


def steer_a_rollout_roll_back_and_delete(fleet: Fleet, page: Page) -> None:
    fleet.host.homeport("sites", "label", "home", "region=eu")
    visit(page, "/deploy?app=quiet&version=1.0.0")
    page.get_by_label("By label, in waves").check()
    page.get_by_role("textbox", name="Waves").fill("most")
    page.get_by_label("Sites with labels").fill("region=eu")
    expect(page.locator("#deploy-waves")).to_contain_text("most")
    page.get_by_role("textbox", name="Waves").fill("100%")
    page.get_by_role("textbox", name="Bake").fill("1h")
    page.locator("summary", has_text="Placement and policy").click()
    page.get_by_label("Retries").fill("1")
    expect(page.get_by_role("region", name="Plan")).to_contain_text("Wave 1 100% home")
    line = "homeport deploy quiet@1.0.0 -l region=eu --wave 100% --bake 1h --retries 1"
    expect(page.get_by_text(line, exact=True)).to_be_visible()
    page.get_by_role("button", name="Deploy to 1 site", exact=True).click()
    page.wait_for_url(re.compile("/rollouts/"))
    expect(page).to_have_title("quiet 1.0.0 · Homeport")
    state = page.locator("h1 .pill")
    expect(state).to_have_text("running")
    confirm(page, "Pause…", "Pause this rollout", "Pause")
    expect(state).to_have_text("paused")
    confirm(page, "Resume…", "Resume this rollout", "Resume")
    expect(state).to_have_text("running")
    confirm(page, "Abort…", "Abort this rollout", "Abort")
    expect(state).to_have_text("aborted")

    visit(page, "/deployments/home/talker")
    page.get_by_role("button", name="Roll back…").click()
    dialog = page.get_by_role("dialog", name="Roll talker@home back")
    expect(dialog.get_by_role("group", name="What changed")).to_contain_text("version:")
    button = dialog.get_by_role("button", name=re.compile("^Roll back to"))
    version = button.inner_text().removeprefix("Roll back to ")
    button.click()
    expect(page.locator(".lede")).to_contain_text(f"Wanted {version} on 1 of 1 node")
    expect(state).to_have_text("INSTALLED")
    for name in ("talker", "quiet"):
        visit(page, f"/deployments/home/{name}")
        page.get_by_role("button", name="Delete…").click()
        dialog = page.get_by_role("dialog", name=f"Delete {name}@home")
        expect(dialog.get_by_role("button", name=f"Delete {name}@home")).to_be_disabled()
        dialog.get_by_label("Remove its data volumes too").check()
        expect(dialog.locator("code")).to_have_text(f"homeport deployments delete {name}@home --remove-data")
        dialog.get_by_label("to confirm").fill(name)
        expect(dialog.get_by_role("button", name=f"Delete {name}@home and its data")).to_be_enabled()
        dialog.get_by_label("to confirm").press("Enter")
        expect(dialog).to_be_hidden()
        visit(page, "/deployments")
        expect(page.get_by_role("link", name=f"{name}@home")).to_have_count(0)


def test_the_page_is_small_and_painted_within_a_second(fleet: Fleet, browser: Browser) -> None:
    files = load().pages.items()
    assert sum(len(gzip.compress(each.content)) for name, each in files if name.endswith((".js", ".css"))) < 300_000
    with shown(browser, fleet.login_url()) as page:
        expect(page.get_by_role("heading", name="Overview")).to_be_visible()
        times: list[float] = []
        while len(times) < PAINTS_MAX and min(times, default=PAINT_MILLISECONDS) >= PAINT_MILLISECONDS:
            page.goto(fleet.url)
            is_settled(page)
            times.append(paint_milliseconds(page))
    assert 0 < min(times) < PAINT_MILLISECONDS, f"of {times}, other work on this machine aside"


def test_every_page_has_nothing_serious_for_axe_in_light_and_dark(fleet: Fleet, page: Page, browser: Browser) -> None:
    has_hello(fleet)
    wrong: list[str] = []
    # The frame around every page is the same: it is looked at once. Another scheme changes colours alone.
    within = None
    for name, path in {**pages(fleet), **detail_pages(fleet)}.items():
        visit(page, path)
        wrong += [f"{name}: {each}" for each in (*serious_problems(page, within=within), *wrong_commands(page))]
        page.evaluate("document.documentElement.dataset.theme = 'dark'")
        wrong += [f"{name} in dark: {each}" for each in serious_problems(page, "color-contrast", within=within)]
        page.evaluate("document.documentElement.dataset.theme = 'light'")
        wrong += [f"{name} {each}" for each in narrow(page)]
        within = "main"
    page.keyboard.press("Control+k")
    expect(page.get_by_role("combobox", name="Find or do anything")).to_be_focused()
    wrong += [f"palette: {each}" for each in serious_problems(page)]
    page.keyboard.type("hello@")
    expect(page.get_by_role("option", name="hello@home deployment, INSTALLED")).to_be_visible()
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("/deployments/home/hello"))
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    with shown(browser, f"{fleet.url}/login") as login:
        is_settled(login)
        wrong += [f"login: {each}" for each in serious_problems(login)]
    assert wrong == []


def narrow(page: Page) -> list[str]:
    """The narrowest phone, and a screen of 1280 pixels at 200 %: the page never scrolls sideways, no text stands in a
    column of single letters, none is cut off where nothing tells, and a finger hits every button and field."""
    found = []
    wide = page.viewport_size
    for width in (320, 640):
        page.set_viewport_size({"width": width, "height": 700})
        page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")  # it is drawn
        now = page.evaluate("document.documentElement.scrollWidth")
        if now > width:
            beyond = page.evaluate(BEYOND, width)
            found.append(f"is {now} wide at {width}: {beyond}")
        if unreadable := page.evaluate(UNREADABLE):
            found.append(f"is not readable at {width}: {unreadable}")
        if small := page.evaluate(TOO_SMALL, TOUCH_PIXELS_MIN):
            found.append(f"has something that no finger hits at {width}: {small}")
    assert wide is not None
    page.set_viewport_size(wide)
    return found


BEYOND = """width => [...document.querySelectorAll('body *')]
    .filter(each => each.getBoundingClientRect().right > width + 1)
    .map(each => `${each.tagName}.${each.className}`).slice(0, 6)"""
TOUCH_PIXELS_MIN = 36
TOO_SMALL = """least => [...document.querySelectorAll('main :is(.button, .chip, .iconbutton, .segments > *, .field)')]
    .filter(each => each.offsetHeight && each.offsetHeight < least)
    .map(each => `${each.className} ${each.offsetHeight} ${each.innerText.slice(0, 40)}`).slice(0, 6)"""
UNREADABLE = """() => [...document.querySelectorAll('main :is(p, td, dd, span, b, a)')].filter(each => {
    const { width, height } = each.getBoundingClientRect(), style = getComputedStyle(each);
    const own = [...each.childNodes].filter(part => part.nodeType === Node.TEXT_NODE).map(part => part.data);
    const isStacked = own.join('').trim().length > 8 && width < 24 && height > 80;
    const isCut = each.clientHeight && style.overflowY === 'hidden' && each.scrollHeight > each.clientHeight + 8;
    return !each.closest('.hidden') && (isStacked || isCut);
}).map(each => `${each.tagName}.${each.className} ${each.innerText.slice(0, 40)}`).slice(0, 6)"""


def test_everything_is_reached_and_seen_with_the_keyboard_alone(fleet: Fleet, page: Page) -> None:
    has_hello(fleet)
    page.goto(f"{fleet.url}/deployments/home/hello")
    is_settled(page)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    reached = []
    for _ in range(40):
        page.keyboard.press("Tab")
        name, ring = page.evaluate(FOCUSED)
        reached.append(name)
        assert ring >= 2, f"the focus is not seen on {name}"
        if name == "Restart…":
            break
    assert reached[-1] == "Restart…", reached
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="Restart hello@home")
    expect(dialog).to_be_visible()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('dialog') !== null"), "the focus stays in the dialog"
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(page.get_by_role("button", name="Restart…")).to_be_focused()


FOCUSED = """() => { const now = document.activeElement, style = getComputedStyle(now);
    const ring = style.outlineStyle === 'none' ? 0 : parseFloat(style.outlineWidth);
    return [now.innerText?.trim() || now.getAttribute('aria-label') || now.tagName, ring]; }"""


def test_a_token_is_created_and_a_site_held_and_both_are_in_the_records(
    fleet: Fleet, page: Page, browser: Browser
) -> None:
    visit(page, "/settings")
    expect(page.locator(".lede")).to_contain_text("You are ada, admin")
    expect(page.get_by_role("region", name="Registry")).to_contain_text("127.0.0.1")
    page.get_by_role("button", name="New token…").click()
    dialog = page.get_by_role("dialog", name="Create an access token")
    dialog.get_by_role("button", name="Create token").click()
    expect(dialog.locator("#token-name")).not_to_be_empty()
    dialog.locator("[aria-describedby=token-name]").fill("olga")
    dialog.get_by_label("Role").select_option("operator")
    dialog.get_by_label("Expires").select_option("30d")
    expect(dialog.locator("code")).to_have_text("homeport tokens create --name olga --role operator --expires 30d")
    dialog.get_by_role("button", name="Create token").click()
    made = page.locator(".command", has_text="The token").locator("code").inner_text()
    expect(page.get_by_role("listitem").filter(has_text="olga")).to_contain_text("operator")
    page.reload()
    is_settled(page)
    assert made not in page.content(), "it is shown once"
    with shown(browser, fleet.url) as other:
        log_in(other, made)
        expect(other.locator(".who")).to_contain_text("operator")
        visit(other, "/sites/home")
        other.get_by_role("button", name="Hold…").click()
        other.get_by_label("Reason").fill("audit week <b>")
        other.get_by_label("How long").select_option("1h")
        other.get_by_role("button", name="Hold", exact=True).click()
        expect(other.get_by_role("button", name="Release…")).to_be_visible()
    who_administers_some_sites_is_asked_for_nothing_else(fleet, browser)
    visit(page, "/")
    hold = page.get_by_role("region", name="Needs a person").get_by_role("listitem").filter(has_text="Hold at home")
    expect(hold).to_contain_text("“audit week <b>”, by olga")
    visit(page, "/sites/home")
    confirm(page, "Release…", "Release home", "Release")
    expect(page.get_by_role("button", name="Hold…")).to_be_visible()
    what_a_command_prints_is_shown_as_yaml(page)
    visit(page, "/audit")
    page.get_by_label("Actor").fill("olga")
    page.get_by_label("Actor").press("Enter")
    expect(page.locator("main tbody tr").first).to_contain_text("sites.hold")
    expect(page.get_by_text("homeport audit list --actor olga")).to_be_visible()
    visit(page, "/events")
    page.get_by_label("Filter").fill("audit week")
    expect(page.locator(".feed li").first).to_contain_text("home")


def what_a_command_prints_is_shown_as_yaml(page: Page) -> None:
    shown_as_yaml = page.get_by_role("group", name="What homeport sites show home prints")
    page.get_by_role("button", name="YAML").click()
    expect(page.get_by_text("homeport sites show home -o yaml", exact=True)).to_be_visible()
    expect(shown_as_yaml).to_contain_text("name: home")
    assert (serious_problems(page, within="main"), wrong_commands(page)) == ([], [])
    page.get_by_role("button", name="YAML").click()
    expect(shown_as_yaml).to_have_count(0)


def who_administers_some_sites_is_asked_for_nothing_else(fleet: Fleet, browser: Browser) -> None:
    made = fleet.host.json("tokens", "create", "--name", "adam", "--role", "admin", "--site", "home")
    with shown(browser, f"{fleet.url}/login") as other:
        log_in(other, made["token"])
        expect(other.locator(".who")).to_contain_text("admin · home")
        visit(other, "/settings")
        expect(other.get_by_role("region", name="Registry")).to_contain_text("127.0.0.1")
        expect(other.get_by_role("alert")).to_have_count(0)


def test_single_letters_are_keys_until_they_are_switched_off(fleet: Fleet, page: Page) -> None:
    visit(page, "/settings")
    is_settled(page)
    switch = page.get_by_label("Single letters are keys")
    switch.uncheck()
    page.keyboard.press("?")
    page.keyboard.press("Control+k")
    expect(page.get_by_role("combobox", name="Find or do anything")).to_be_focused()
    expect(page.get_by_role("dialog", name="Keys")).to_be_hidden()
    page.keyboard.press("Escape")
    switch.check()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")


def test_central_is_lost_and_found_again(fleet: Fleet, page: Page) -> None:
    has_hello(fleet)
    page.goto(f"{fleet.url}/deployments/home/hello")
    expect(page.locator("h1 .pill")).to_have_text("INSTALLED")
    assert page.evaluate("navigator.serviceWorker.ready.then(() => true)"), "what a page needs is kept"
    fleet.up.stop()
    expect(page.get_by_text("Central does not answer.")).to_be_visible()
    expect(page.get_by_text(re.compile(r"It is tried again in \d+ s\."))).to_be_visible()
    expect(page.locator("h1 .pill")).to_have_text("INSTALLED")
    expect(page.get_by_role("button", name="Restart…")).to_be_disabled()
    a_page_opened_without_central_says_so(fleet, page)
    fleet.start()
    page.get_by_role("button", name="Try now").or_(page.get_by_text("Connected again")).first.click()
    expect(page.get_by_text(re.compile(r"Connected again after \d+ s"))).to_be_visible()
    expect(page.get_by_text("Central does not answer.")).to_be_hidden()
    expect(page.locator("h1 .pill")).to_have_text("INSTALLED")
    visit(page, f"/nodes/home/{fleet.node}")
    expect(page.get_by_role("img", name=re.compile(r"Heartbeats: \d+ gaps?; the longest was"))).to_be_visible()
    expect(page.get_by_role("region", name="Heartbeats").locator(".beat.live")).not_to_have_count(1)


def a_page_opened_without_central_says_so(fleet: Fleet, page: Page) -> None:
    """Of what the browser has kept: the document, its script and its style, and nothing of the fleet."""
    kept = [each.partition(".")[0] for each in page.evaluate(KEPT)]
    assert kept == ["/", "/_app/immutable/assets/bundle", "/_app/immutable/bundle"]
    another = page.context.new_page()
    answer = another.goto(f"{fleet.url}/nodes?view=table")
    assert answer is not None and "default-src 'none'" in answer.headers["content-security-policy"]
    expect(another.get_by_role("heading", name="Nodes", exact=True)).to_be_visible()
    expect(another.get_by_text("nothing of them can be shown until it answers")).to_be_visible()
    assert another.evaluate("fetch('/api/v1/nodes').then(() => 'answered', () => 'lost')") == "lost"
    another.reload()
    expect(another.get_by_text("nothing of them can be shown until it answers")).to_be_visible()
    another.close()


KEPT = """async () => {
    const found = [];
    for (const name of await caches.keys())
        for (const each of await (await caches.open(name)).keys()) found.push(new URL(each.url).pathname);
    return found.sort();
}"""


def test_a_viewer_is_refused_on_a_phone_and_out_once_the_token_is_revoked(
    fleet: Fleet, page: Page, browser: Browser
) -> None:
    has_hello(fleet)
    made = fleet.host.json("tokens", "create", "--name", "vera", "--role", "viewer")
    with shown(browser, fleet.url, viewport={"width": 390, "height": 844}, color_scheme="dark") as phone:
        log_in(phone, "hp_00000000_" + "0" * 40)
        expect(phone.get_by_role("alert")).to_contain_text("token")
        log_in(phone, made["token"])
        phone.get_by_role("link", name="hello@home").click()
        expect(phone.get_by_role("button", name="Delete…")).to_be_disabled()
        for path in ("/", "/map", f"/nodes/home/{fleet.node}", "/inference", "/jobs?tab=submit", "/logs", "/audit"):
            phone.goto(fleet.url + path)
            is_settled(phone)
            assert phone.evaluate("document.documentElement.scrollWidth") <= 390, (
                f"a phone never scrolls sideways: {path}"
            )
        bar = phone.get_by_role("navigation", name="Pages")
        expect(bar.locator("[aria-current]")).to_have_text("More")
        every_tab_logs_out_and_in(phone, made["token"])
        visit(page, "/settings")
        row = page.get_by_role("listitem").filter(has_text="vera")
        row.get_by_role("button", name="Revoke…").click()
        row.get_by_role("dialog").get_by_role("button", name="Revoke", exact=True).click()
        expect(row).to_contain_text("revoked")
        phone.wait_for_url(re.compile("/login"))
        expect(phone.get_by_label("Access token")).to_be_visible()


def every_tab_logs_out_and_in(page: Page, token: str) -> None:
    """A browser has one cookie: a tab with the session before it would end the new one."""
    other = page.context.new_page()
    other.goto(page.url)
    other.get_by_role("button", name="Log out").click()
    page.wait_for_url(re.compile(r"/login\?to=%2Faudit"))
    log_in(other, token)
    expect(page.get_by_role("heading", name="Audit", level=1)).to_be_visible()
    other.reload()
    expect(other.get_by_role("button", name="Log out")).to_be_visible()
    other.close()
