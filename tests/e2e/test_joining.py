"""Central, a site and a node as real processes that join by the lines that Homeport prints, with short lives."""

import json
import re
import shlex
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.support.dashboard import WAIT_MILLISECONDS, chromium, log_in, shown
from tests.support.ports import free_port
from tests.support.processes import Machine, Process, pin_of
from tests.support.running_central import write_app

LIFETIME = 6
"""Seconds that a certificate lives in these tests."""


@dataclass
class Joined:
    """A fleet of one site and one node; every role can be started again without its token and pin."""

    host: Machine
    roles: dict[str, Process]
    again: dict[str, list[str]]

    def start(self, name: str, scheme: str, *arguments: str) -> Process:
        process = self.host.start(name, *arguments, scheme=scheme)
        process.wait_ready()
        self.roles[name] = process
        return process

    def central(self) -> Process:
        return self.start("central", "https", *self.again["central"])

    def data(self, name: str) -> Path:
        return self.host.folder / f"data-{name}"

    def started(self) -> list[str]:
        """What the node has started so far, a line for each start."""
        return (self.data("n1") / "runtime" / "null.jsonl").read_text().splitlines()

    def ends(self, name: str) -> bytes:
        return (self.data(name) / "identity" / "chain.pem").read_bytes()

    def is_live(self) -> bool:
        done = self.host.command("nodes", "list", "-o", "json")
        nodes = json.loads(done.stdout)["nodes"] if done.returncode == 0 else []
        return [node["liveness"] for node in nodes] == ["live"]


@pytest.fixture
def fleet(host: Machine) -> Iterator[Joined]:
    joined = Joined(host, {}, {})
    http = free_port()
    joined.again["central"] = [
        "central", "--tls", "--http", f"127.0.0.1:{http}", "--grpc", f"127.0.0.1:{free_port()}",
        "--data", str(joined.data("central")), "--svid-lifetime", str(LIFETIME), "--bundle-refresh", "1",
    ]  # fmt: skip
    central = joined.central()
    host.url = central.url
    host.homeport("login", central.url, "--pin", pin_of(central))

    printed = shlex.split(host.homeport("sites", "join-command", "north"))
    assert printed[:2] == ["homeport", "site"]
    site = [
        "--http", f"127.0.0.1:{free_port()}", "--grpc", f"127.0.0.1:{free_port()}",
        "--data", str(joined.data("north")), "--svid-lifetime", str(LIFETIME),
    ]  # fmt: skip
    north = joined.start("north", "https", *printed[1:], *site)
    host.homeport("login", north.url, "--pin", pin_of(north), "--name", "north")
    host.homeport("contexts", "use", f"127.0.0.1-{http}")

    host.wait_for(lambda: host.command("nodes", "join-command", "north").returncode == 0)
    printed = shlex.split(host.homeport("nodes", "join-command", "north"))
    assert printed[:2] == ["homeport", "node"]
    node = [
        "--id", "n1", "--runtime", "null", "--http", f"127.0.0.1:{free_port()}", "--data", str(joined.data("n1")),
    ]  # fmt: skip
    joined.start("n1", "http", *printed[1:], *node)
    joined.again["n1"] = ["node", "--site", printed[printed.index("--site") + 1], *node]
    host.wait_for(joined.is_live)
    yield joined


def deploy(fleet: Joined) -> None:
    write_app(fleet.host.folder / "apps")
    fleet.host.homeport("apps", "add", str(fleet.host.folder / "apps"))
    fleet.host.homeport("deploy", "hello", "--site", "north", "--wait")


def test_two_printed_lines_make_a_fleet_and_a_deploy_reaches_it(fleet: Joined) -> None:
    deploy(fleet)
    (deployment,) = fleet.host.json("deployments", "list")["deployments"]
    assert (deployment["state"], deployment["site"]) == ("INSTALLED", "north")
    names = {item["name"]: item["standing"] for item in fleet.host.json("identity", "list")["identities"]}
    assert names == {"north": "accepted"}
    actions = {entry["action"] for entry in fleet.host.json("audit", "list")["entries"]}
    assert "identities.enrol" in actions
    token = fleet.host.json("tokens", "create", "--name", "ada", "--role", "admin")["token"]
    options: dict[str, Any] = {"ignore_https_errors": True, "permissions": ["clipboard-read", "clipboard-write"]}
    with chromium() as browser, shown(browser, f"{fleet.host.url}/nodes", **options) as page:
        expect.set_options(timeout=WAIT_MILLISECONDS)
        log_in(page, token)
        the_line_of_the_dashboard_joins_a_machine_that_appears_by_itself(fleet, page)
        machines_without_a_token_wait_until_they_are_approved_in_the_dashboard(fleet, page)


def the_line_of_the_dashboard_joins_a_machine_that_appears_by_itself(fleet: Joined, page: Page) -> None:
    """Copied, pasted into another terminal, and run there."""
    expect(page.locator("article")).to_have_count(1)
    page.evaluate("window.isTheSamePage = true")
    page.get_by_role("button", name="Add a machine…").click()
    page.get_by_role("dialog", name="Add a machine to north").get_by_role("button", name="Create token").click()
    line = page.locator(".command", has_text="On the new machine")
    line.get_by_role("button", name="Copy").click()
    expect(line.get_by_role("button", name="Copied")).to_be_visible()
    printed = shlex.split(page.evaluate("navigator.clipboard.readText()"))
    assert printed == shlex.split(line.locator("code").inner_text())
    assert printed[:2] == ["homeport", "node"]
    fleet.start("n2", "http", *printed[1:], *null_node(fleet, "n2"))
    expect(page.locator("article", has_text="n2")).to_contain_text("live")
    assert page.evaluate("window.isTheSamePage"), "it was not loaded again"
    again = fleet.host.start("n3", *printed[1:], *null_node(fleet, "n3"))
    assert again.popen.wait(30) != 0, "the token works once"
    assert "token" in again.log.read_text()


def null_node(fleet: Joined, name: str) -> list[str]:
    return ["--id", name, "--runtime", "null", "--http", f"127.0.0.1:{free_port()}", "--data", str(fleet.data(name))]


def machines_without_a_token_wait_until_they_are_approved_in_the_dashboard(fleet: Joined, page: Page) -> None:
    central = ["--central", fleet.host.url, "--pin", pin_of(fleet.roles["central"])]
    ports = ["--http", f"127.0.0.1:{free_port()}", "--grpc", f"127.0.0.1:{free_port()}"]
    fleet.host.start("south", "site", "--name", "south", *central, *ports, "--data", str(fleet.data("south")))
    page.goto(fleet.host.url)
    waiting = (
        page.get_by_role("region", name="Needs a person").get_by_role("listitem").filter(has_text="Machine south")
    )
    expect(waiting).to_contain_text("asks to join")
    waiting.get_by_role("link", name="Review").click()
    row = (
        page.get_by_role("region", name="Machines that may connect").get_by_role("listitem").filter(has_text="south")
    )
    expect(row).to_contain_text("pending")
    row.get_by_role("button", name="Approve…").click()
    dialog = page.get_by_role("dialog", name="Approve south")
    expect(dialog.locator("code")).to_have_text(
        re.compile("^homeport sites approve south --key sha256:[0-9a-f]{64}$")
    )
    dialog.get_by_role("button", name="Approve").click()
    expect(row).to_contain_text("accepted")
    page.goto(f"{fleet.host.url}/sites")
    expect(page.get_by_role("row", name=re.compile("south"))).to_contain_text("live")

    site = fleet.again["n1"][fleet.again["n1"].index("--site") + 1]
    north = ["--join-url", fleet.roles["north"].url, "--pin", pin_of(fleet.roles["north"])]
    fleet.host.start("n4", "node", "--site", site, *north, *null_node(fleet, "n4"))
    page.goto(f"{fleet.host.url}/sites/north")
    row = page.get_by_role("region", name="Machines that may connect").get_by_role("listitem").filter(has_text="n4")
    row.get_by_role("button", name="Approve…").click()
    dialog = page.get_by_role("dialog", name="Approve n4")
    expect(dialog.locator("code")).to_contain_text("homeport nodes approve n4 --key sha256:")
    dialog.get_by_role("button", name="Approve").click()
    expect(row).to_contain_text("accepted")
    expect(page.get_by_role("region", name="Nodes").get_by_role("link", name="n4")).to_be_visible()


def test_certificates_are_renewed_again_and_again_and_nothing_restarts(fleet: Joined) -> None:
    deploy(fleet)
    before = fleet.started()
    seen = {name: {fleet.ends(name)} for name in ("north", "n1")}
    deadline = time.monotonic() + 2.5 * LIFETIME
    while time.monotonic() < deadline:
        for name, chains in seen.items():
            chains.add(fleet.ends(name))
        time.sleep(0.2)
    assert all(len(chains) >= 4 for chains in seen.values()), {name: len(chains) for name, chains in seen.items()}
    assert fleet.is_live()
    assert fleet.started() == before, "the workload was not started anew"


def test_central_may_be_gone_for_longer_than_a_certificate_lives(fleet: Joined) -> None:
    deploy(fleet)
    before = fleet.started()
    fleet.roles["central"].stop()
    node_chain = fleet.ends("n1")
    time.sleep(LIFETIME * 1.5)
    assert fleet.ends("n1") != node_chain, "the site renews its node alone"
    north = fleet.roles["north"].url
    assert [node["liveness"] for node in fleet.host.json("nodes", "list", url=north)["nodes"]] == ["live"]
    fleet.central()
    fleet.host.wait_for(fleet.is_live, seconds=30)
    fleet.host.wait_for(lambda: fleet.host.json("sites", "show", "north")["reachable"], seconds=30)
    assert fleet.started() == before

    fleet.roles["n1"].stop()
    time.sleep(LIFETIME * 1.2)
    fleet.start("n1", "http", *fleet.again["n1"])
    fleet.host.wait_for(fleet.is_live, seconds=30)
    assert [json.loads(line)[2]["id"] for line in fleet.started()] == [json.loads(line)[2]["id"] for line in before]


def test_a_removed_node_is_cut_off_at_once_and_stays_out(fleet: Joined) -> None:
    deploy(fleet)
    before = fleet.started()
    north = fleet.roles["north"].url
    fleet.host.homeport("identity", "remove", "n1", url=north)
    log = fleet.roles["north"].log
    connections = log.read_text().count("node connected")
    # Or it was just on its way with a new certificate, and does not get in.
    cut = ("connection to the site lost", "site not reached")
    fleet.host.wait_for(lambda: any(words in fleet.roles["n1"].log.read_text() for words in cut))
    fleet.host.wait_for(lambda: not fleet.is_live(), seconds=30)
    assert log.read_text().count("node connected") == connections, "it did not come back"
    assert fleet.started() == before, "what it runs goes on"
