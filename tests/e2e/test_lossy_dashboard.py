"""The dashboard behind a line that loses requests: no page breaks, and every part of one asks again."""

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, Request, Route, expect

from tests.support.dashboard import IS_LONG, WAIT_MILLISECONDS, chromium, is_settled, log_in, shown
from tests.support.large_fleet import LargeFleet, large_fleet
from tests.support.ports import free_port
from tests.support.relay import Relay

SEEDS = (1, 2) if IS_LONG else (1,)
TABS = 9
LOST_SHARE = 0.3
KINDS_OF_LOSS = ("connectionreset", "connectionclosed", "internetdisconnected", "aborted", "failed")
ASKED_AGAIN_SECONDS = 20
CUT_BYTES = 3_000
AHEAD = {"last-event-id": "999999999"}
CONNECTIONS_OF_A_BROWSER = 6
"""To one server, over HTTP/1.1."""
WALKED = (
    *("Map", "Sites", "Nodes", "Deployments", "Rollouts", "Catalog", "Inference", "Jobs", "Pipelines", "Logs"),
    *("Events", "Audit", "Settings"),
)
SITE, NODE, DEPLOYMENT = "aalborg-1", "aalborg-1-edge-01", "edge-gateway-1"
PAGES = (
    *("/", "/map", "/sites", f"/sites/{SITE}", "/nodes?view=cards", "/nodes?view=table", "/deployments"),
    *(f"/nodes/{SITE}/{NODE}{tab}" for tab in ("", "?tab=capabilities", "?tab=logs", "?tab=terminal")),
    *(f"/deployments/{SITE}/{DEPLOYMENT}{tab}" for tab in ("", "?tab=why", "?tab=history", "?tab=diff", "?tab=logs")),
    *("/deploy", "/rollouts", "/catalog", "/jobs", "/jobs?tab=history", "/jobs?tab=submit"),
    *("/pipelines", "/pipelines?tab=saved", "/pipelines/edit", "/logs", "/events", "/audit", "/settings"),
    *(
        f"/inference?tab={tab}"
        for tab in ("pools", "queue", "models", "sessions", "artifacts", "usage", "playground")
    ),
)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LargeFleet]:
    with large_fleet(tmp_path_factory.mktemp("lossy"), allowed_hosts=("127.0.0.1",)) as started:
        started.add_sites(0, 3, nodes=2)
        yield started


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    expect.set_options(timeout=WAIT_MILLISECONDS)
    with chromium() as started:
        yield started


@pytest.fixture
def page(fleet: LargeFleet, browser: Browser) -> Iterator[Page]:
    with shown(browser, fleet.url) as opened:
        log_in(opened, fleet.token)
        expect(opened.get_by_role("heading", name="Overview", level=1)).to_be_visible()
        yield opened


def losing(
    page: Page, is_lost: Callable[[Request], bool], kind: Callable[[], str] = lambda: "connectionreset"
) -> None:
    """Documents come through: without one there is no page of ours."""

    def handle(route: Route) -> None:
        if route.request.resource_type != "document" and is_lost(route.request):
            route.abort(kind())
        else:
            route.continue_()

    page.unroute_all(behavior="ignoreErrors")
    page.route("**/*", handle)


def keeping(page: Page) -> None:
    losing(page, lambda _: False)


@pytest.mark.parametrize("seed", SEEDS)
def test_requests_lost_at_random_break_no_page(fleet: LargeFleet, page: Page, seed: int) -> None:
    chance = random.Random(seed)
    paths = list(PAGES)
    chance.shuffle(paths)
    for path in paths:
        losing(page, lambda _: chance.random() < LOST_SHARE, lambda: chance.choice(KINDS_OF_LOSS))
        page.goto(fleet.url + path, wait_until="commit")
        page.wait_for_timeout(chance.choice((0, 100, 400)))
    keeping(page)
    is_settled(page)


def test_each_part_of_a_page_asks_again_when_its_first_request_is_lost(fleet: LargeFleet, page: Page) -> None:
    tabs = [page, *(page.context.new_page() for _ in range(TABS - 1))]
    never: dict[str, list[str]] = {}
    pages = PAGES if IS_LONG else PAGES[::3]
    for start in range(0, len(pages), TABS):
        asked = {path: Counter[str]() for path in pages[start : start + TABS]}
        for tab, (path, seen) in zip(tabs, asked.items(), strict=False):
            tab.goto("about:blank")
            losing(tab, first_of_each(seen))
            tab.goto(fleet.url + path, wait_until="commit")
        for _ in range(ASKED_AGAIN_SECONDS * 10):
            if all(seen and min(seen.values()) > 1 for seen in asked.values()):
                break
            page.wait_for_timeout(100)
        for path, seen in asked.items():
            if waiting := [each for each, count in seen.items() if count < 2]:
                never[path] = waiting
    assert never == {}


def first_of_each(seen: Counter[str]) -> Callable[[Request], bool]:
    def is_first(request: Request) -> bool:
        if request.resource_type != "fetch":
            return False
        address = urlsplit(request.url).path
        seen[address] += 1
        # A stream would keep one of the few connections that a browser has for all its tabs.
        return seen[address] == 1 or "event-stream" in request.headers.get("accept", "")

    return is_first


def test_answers_that_break_off_are_asked_for_again(fleet: LargeFleet, browser: Browser) -> None:
    central = urlsplit(fleet.url)
    relay = Relay(None, free_port(), ("127.0.0.1", central.port or 0)).start()
    try:
        with shown(browser, f"http://127.0.0.1:{relay.port}") as page:
            log_in(page, fleet.token)
            expect(page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
            relay.cut_after_bytes, relay.cut_every_bytes = relay.reserved + CUT_BYTES, CUT_BYTES
            walk(page)
            assert relay.cuts > len(WALKED) / 2, "answers were cut in their middle"
            relay.cut_every_bytes = relay.cut_after_bytes = None
            for name in WALKED:
                page.get_by_role("navigation", name="Main").get_by_role("link", name=name).click()
                expect(page.get_by_role("heading", name=name, level=1)).to_be_visible()
                is_settled(page)
    finally:
        relay.stop()


def walk(page: Page) -> None:
    for name in WALKED:
        page.get_by_role("navigation", name="Main").get_by_role("link", name=name).click()
        page.wait_for_timeout(300)


def test_all_that_a_page_asks_goes_to_the_address_that_it_was_opened_at(fleet: LargeFleet, browser: Browser) -> None:
    """Central stands behind another address, whose name it was started with as `--host`: nothing is built into the
    page, and nothing is asked of anybody else."""
    central = urlsplit(fleet.url)
    relay = Relay(None, free_port(), ("127.0.0.1", central.port or 0)).start()
    asked: set[str] = set()
    try:
        with shown(browser, "about:blank") as page:
            page.on("request", lambda request: asked.add(urlsplit(request.url).netloc))
            page.goto(f"http://127.0.0.1:{relay.port}")
            log_in(page, fleet.token)
            expect(page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
            walk(page)
    finally:
        relay.stop()
    assert asked == {f"127.0.0.1:{relay.port}"}


def test_hidden_tabs_hold_no_connection_and_are_up_to_date_on_return(fleet: LargeFleet, browser: Browser) -> None:
    with shown(browser, fleet.url) as page:
        log_in(page, fleet.token)
        expect(page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
        tabs = [page]
        for number in range(CONNECTIONS_OF_A_BROWSER + 2):
            # Two streams in each: of events, and of lines or the queue.
            tabs[-1].goto(fleet.url + ("/logs", "/inference")[number % 2])
            is_settled(tabs[-1])
            hide(tabs[-1], is_hidden=True)
            tabs.append(page.context.new_page())
        tabs[-1].goto(fleet.url)
        expect(tabs[-1].get_by_role("heading", name="Overview", level=1)).to_be_visible()
        with page.expect_request("**/api/v1/events") as asked:
            hide(page, is_hidden=False)
        assert int(asked.value.headers["last-event-id"]) >= 0
        assert page.get_by_text("Connected again").count() == 0, "who looks elsewhere has lost nothing"


def hide(page: Page, *, is_hidden: bool) -> None:
    page.evaluate(
        """hidden => { Object.defineProperty(document, 'hidden', { configurable: true, get: () => hidden });
        document.dispatchEvent(new Event('visibilitychange')); }""",
        is_hidden,
    )


def test_a_central_with_another_history_is_read_again_and_said(fleet: LargeFleet, page: Page) -> None:
    """One that was restored from an older copy has fewer events than the page has seen. Nothing is asked while it is
    lost: the browser says so, which this one, with loopback alone, cannot."""
    page.add_init_script("Object.defineProperty(navigator, 'onLine', { get: () => !window.isUnplugged })")
    page.goto(f"{fleet.url}/events")
    fleet.add_event()
    expect(page.locator(".feed time").first).to_be_visible()
    page.context.set_offline(True)
    page.evaluate("window.isUnplugged = true")
    expect(page.get_by_text("Not live")).to_be_visible()
    page.route("**/api/v1/events", lambda route: route.continue_(headers={**route.request.headers, **AHEAD}))
    page.context.set_offline(False)
    expect(page.get_by_text(re.compile("another history than before, so everything was read again"))).to_be_visible()
    expect(page.locator(".feed time")).to_have_count(0)


def test_every_page_opens_and_tells_while_central_is_away(fleet: LargeFleet, page: Page) -> None:
    page.goto(f"{fleet.url}/settings")  # Where nothing is asked that the other pages show.
    is_settled(page)
    page.context.set_offline(True)
    for name in WALKED:
        page.get_by_role("navigation", name="Main").get_by_role("link", name=name).click()
        expect(page.get_by_role("heading", name=name, level=1)).to_be_visible()
        untrue = page.locator("main").get_by_text(re.compile("^(No|Nothing|Nobody) (?!package|matches yet)|is empty"))
        assert untrue.all_inner_texts() == [], f"{name}: what was not asked is not known"
    expect(page.get_by_text("Central does not answer.")).to_be_visible()
    page.context.set_offline(False)
    expect(page.get_by_text("Central does not answer.")).to_be_hidden()
    is_settled(page)


def test_a_page_whose_script_is_lost_says_so_and_comes_back(fleet: LargeFleet, browser: Browser) -> None:
    """At the first visit, and in browsers that keep no files of a page."""
    with shown(browser, fleet.url, service_workers="block") as page:
        log_in(page, fleet.token)
        expect(page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
        losing(page, lambda request: request.resource_type in ("script", "stylesheet"))
        page.goto(f"{fleet.url}/map", wait_until="commit")
        expect(page.get_by_text("The dashboard could not be loaded.")).to_be_visible()
        keeping(page)
        expect(page.get_by_role("heading", name="Map", level=1)).to_be_visible()
        assert page.evaluate("getComputedStyle(document.querySelector('.frame')).display") == "grid"
