"""A fleet of one with something to see in it, and a browser that looks at its dashboard."""

import json
import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen
from tempfile import TemporaryDirectory
from typing import Any

import click
from playwright.sync_api import Browser, Page, expect, sync_playwright

from homeport.cli.main import cli
from homeport.cli.options import Settings
from tests.support.browser_network import browser_network
from tests.support.llama_server import llama_server
from tests.support.podman import new_node_prefix, remove_leftovers
from tests.support.ports import free_port
from tests.support.processes import Machine, Process, machine
from tests.support.tiny_model import write_tiny_model

CHROMIUM = "/usr/bin/chromium"
QUIET = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
]
IS_LONG = os.environ.get("HOMEPORT_BROWSER") == "long"
"""`make browser` walks every page in every way; `make test` some of them in each way, and each in some way."""
WAIT_MILLISECONDS = 30_000
AXE = Path(__file__).parents[2] / "web" / "node_modules" / "axe-core" / "axe.min.js"
EQUAL_ROWS = "main :is(ul, tbody) > :nth-child(n + 25)"
"""Of a long list the first rows are looked at: the others have the same markup."""
POLICY = "Content Security Policy"
SERIOUS = {"serious", "critical"}
FOLLOW = """path => {
    const link = Object.assign(document.createElement('a'), { href: path });
    document.body.append(link);
    link.click();
    link.remove();
}"""


@contextmanager
def chromium() -> Iterator[Browser]:
    with (
        browser_network() as network,
        TemporaryDirectory(prefix="homeport-browser-") as folder,
        sync_playwright() as playwright,
    ):
        started = playwright.chromium.launch(
            executable_path=network.program(Path(folder), CHROMIUM), args=QUIET, proxy={"server": network.proxy}
        )
        try:
            yield started
        finally:
            started.close()


@contextmanager
def shown(browser: Browser, url: str, **options: Any) -> Iterator[Page]:
    """A page without errors: none in its scripts, and nothing that its policy had to stop."""
    context = browser.new_context(**options)
    page = context.new_page()
    page.set_default_timeout(WAIT_MILLISECONDS)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(f"{page.url}: {error.stack or error}"))
    page.on("console", lambda said: errors.append(f"{page.url}: {said.text}") if POLICY in said.text else None)
    try:
        page.goto(url)
        yield page
    finally:
        context.close()
    assert errors == [], f"the page went wrong: {errors}"


class Fleet:
    """`homeport up` on ports that stay, so that a browser finds it again after a restart."""

    def __init__(self, host: Machine, node: str) -> None:
        self.host, self.node = host, node
        self.engine: Popen[str] | None = None
        self._http, self._grpc = free_port(), free_port()
        self.up = self.start()

    def start(self) -> Process:
        options = {
            "--data": str(self.host.folder / "up"),
            "--http": f"127.0.0.1:{self._http}",
            "--grpc": f"127.0.0.1:{self._grpc}",
            "--runtime": "podman",
            "--node": self.node,
        }
        self.up = self.host.start("up", "up", *(word for option in options.items() for word in option))
        self.host.url = self.up.url
        self.up.wait_ready()
        return self.up

    @property
    def url(self) -> str:
        return self.host.url

    def wait_until_it_answers(self) -> None:
        """Its model."""
        self.host.wait_for(lambda: [each["ready"] for each in self.host.json("pools", "list")["pools"]] == [True])

    def login_url(self) -> str:
        return self.host.homeport("dashboard", "--print-url").strip()


@contextmanager
def fleet_with_a_model(folder: Path, apps: Path | None = None) -> Iterator[Fleet]:
    """With a tiny model that answers one task at a time, and with these apps in its catalog."""
    node = f"{new_node_prefix('e2e')}-laptop"
    model = write_tiny_model(folder / "tiny.gguf")
    try:
        with machine(folder / "host") as host, llama_server(model, slots=1) as (url, engine):
            started = Fleet(host, node)
            started.engine = engine
            if apps is not None:
                host.homeport("apps", "add", str(apps))
            engines = host.folder / "up/node/engines"
            engines.mkdir(parents=True, exist_ok=True)
            record = {"engine": "llamacpp", "url": url, "model": {"id": "tiny"}, "slots_total": 1}
            (engines / "tiny.json").write_text(json.dumps(record))
            started.wait_until_it_answers()
            yield started
    finally:
        remove_leftovers(node)


def confirm(page: Page, label: str, title: str, button: str) -> None:
    """An action by its button, in the dialog of this title, which shows its command line."""
    page.get_by_role("button", name=label, exact=True).click()
    dialog = page.get_by_role("dialog", name=title)
    expect(dialog.locator("code")).to_contain_text("homeport ")
    dialog.get_by_role("button", name=button, exact=True).click()
    expect(dialog).to_be_hidden()


def log_in(page: Page, token: str) -> None:
    page.get_by_label("Access token").fill(token)
    page.get_by_role("button", name="Log in").click()


def pages(fleet: Fleet) -> Mapping[str, str]:
    """Every page by a name for its picture."""
    node = f"/nodes/home/{fleet.node}"
    tabs = ("pools", "queue", "models", "sessions", "artifacts", "usage", "playground")
    return {
        "overview": "/",
        "map": "/map",
        "sites": "/sites",
        "site": "/sites/home",
        "nodes": "/nodes?view=cards",
        "nodes-table": "/nodes?view=table",
        "node": node,
        "node-capabilities": f"{node}?tab=capabilities",
        "node-logs": f"{node}?tab=logs",
        "node-terminal": f"{node}?tab=terminal",
        "node-yaml": f"{node}?tab=yaml",
        "deployments": "/deployments",
        "deployment": "/deployments/home/hello",
        **{
            f"deployment-{tab}": f"/deployments/home/hello?tab={tab}"
            for tab in ("history", "diff", "logs", "parameters", "yaml")
        },
        "deploy": "/deploy?app=hello",
        "rollouts": "/rollouts",
        "catalog": "/catalog",
        **{f"inference-{tab}": f"/inference?tab={tab}" for tab in tabs},
        "jobs": "/jobs",
        "jobs-history": "/jobs?tab=history",
        "jobs-submit": "/jobs?tab=submit",
        "pipelines": "/pipelines",
        "pipelines-saved": "/pipelines?tab=saved",
        "pipeline-editor": "/pipelines/edit",
        "logs": "/logs",
        "events": "/events",
        "audit": "/audit",
        "settings": "/settings",
    }


def detail_pages(fleet: Fleet) -> Mapping[str, str]:
    """The pages of the newest rollout, job and run of a pipeline, as far as there are any."""
    found = {
        "rollout": [f"/rollouts/{each['id']}" for each in fleet.host.json("rollouts", "list")["rollouts"]],
        "job": [f"/jobs/{each['site']}/{each['id']}" for each in fleet.host.json("jobs", "list")["jobs"]],
        "pipeline-run": [f"/pipelines/runs/{each['id']}" for each in fleet.host.json("pipelines", "list")["runs"]],
    }
    return {name: paths[0] for name, paths in found.items() if paths}


def is_settled(page: Page) -> None:
    """Nothing is loading any more."""
    page.locator("main h1, .login h1").first.wait_for()
    page.wait_for_function("() => !document.querySelector('.skeleton')")


def visit(page: Page, path: str) -> None:
    """As a click on a link does, without loading everything again."""
    page.evaluate(FOLLOW, path)
    page.wait_for_url(lambda url: url.endswith(path))
    is_settled(page)


def paint_milliseconds(page: Page) -> float:
    """From the start of the navigation until the browser first painted content, by its own clock."""
    found: float = page.evaluate("() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? -1")
    return found


def serious_problems(page: Page, *rules: str, within: str | None = None) -> list[str]:
    """What axe calls serious or critical, in words; of these rules alone, where some are given."""
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(AXE.read_text("utf-8"))
    options = {"resultTypes": ["violations"], **({"runOnly": list(rules)} if rules else {})}
    context = {"include": [within or "html"], "exclude": [EQUAL_ROWS]}
    found = page.evaluate("([context, options]) => axe.run(context, options)", [context, options])
    return [
        f"{each['id']}: {each['nodes'][0]['html'][:200]} {each['nodes'][0].get('failureSummary', '')[:300]}"
        for each in found["violations"]
        if each["impact"] in SERIOUS
    ]


def wrong_commands(page: Page) -> list[str]:
    """Command lines of the page, of its closed dialogs too, that `homeport` would not take, and why."""
    shown = {each for each in page.locator(".command code").all_text_contents() if each.startswith("homeport ")}
    return [f"{each}: {why}" for each in sorted(shown) if (why := _refusal(each)) is not None]


def _refusal(line: str) -> str | None:
    """As the parser of the command line says it; nothing is run."""
    words = shlex.split(line)[1:]
    command: click.Command = cli
    parent: click.Context | None = None
    try:
        while True:
            parent = command.make_context(command.name, words, parent=parent, obj=Settings())
            if not isinstance(command, click.Group):
                return None
            _, found, words = command.resolve_command(parent, [*parent._protected_args, *parent.args])
            assert found is not None
            command = found
    except click.UsageError as error:
        # Names of files are examples.
        return None if "does not exist" in error.format_message() else error.format_message()
