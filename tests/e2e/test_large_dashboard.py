"""The dashboard over a large fleet, in a real browser: it stays readable, and the server filters and counts."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, CDPSession, Page, Route, expect

from tests.support.dashboard import WAIT_MILLISECONDS, chromium, is_settled, log_in, serious_problems, shown, visit
from tests.support.large_fleet import CITIES, LargeFleet, large_fleet

SITES, NODES_EACH = 100, 10
HOSTILE = "<img src=x onerror=alert(1)>"
NAMES = (HOSTILE, "🚢 harbour", "very-long-" * 20, "שלום-עולם")
DEPLOYMENTS = SITES * NODES_EACH * 5 + len(NAMES)
ROWS_MAX = 120
FEW = SITES // len(CITIES) * NODES_EACH * 5
WHEEL_STEPS, STEP_PIXELS, ROW_PIXELS = 180, 100, 38
CALLS_MAX = 4_000
"""Functions called for one row that comes into view: 2,100 when this was written."""
SCROLLED = """async (box, [steps, pixels]) => {
    const frame = () => new Promise(requestAnimationFrame);
    box.scrollTop = 0;
    await frame();
    let made = 0, most = 0;
    const seen = new MutationObserver(changes => {
        const added = changes.flatMap(({ addedNodes }) => [...addedNodes]);
        made += added.filter(each => each.matches?.('[data-row]')).length;
        most = Math.max(most, box.querySelectorAll('[data-row]').length);
    });
    seen.observe(box, { childList: true, subtree: true });
    for (let step = 0; step < steps; step += 1) {
        box.scrollTop += pixels;
        await frame();
    }
    await frame();
    seen.disconnect();
    return { made, most };
}"""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LargeFleet]:
    with large_fleet(tmp_path_factory.mktemp("large")) as started:
        started.add_sites(0, SITES, nodes=NODES_EACH, names=NAMES)
        yield started


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    expect.set_options(timeout=WAIT_MILLISECONDS)
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def page(fleet: LargeFleet, browser: Browser) -> Iterator[Page]:
    with shown(browser, fleet.url, viewport={"width": 1280, "height": 900}) as opened:
        log_in(opened, fleet.token)
        expect(opened.get_by_role("heading", name="Overview")).to_be_visible()
        yield opened


def test_every_number_of_the_overview_leads_to_what_it_counts(fleet: LargeFleet, page: Page) -> None:
    page.goto(fleet.url)
    is_settled(page)
    first = page.get_by_role("region", name="Needs a person").get_by_role("listitem").first
    expect(first).to_contain_text("edge-gateway-1@bremen-1 has failed")
    expect(page.locator(".stat", has_text="Sites reachable").get_by_role("link")).to_have_text(f"98 of {SITES}")
    expect(page.locator(".stat", has_text="Nodes live").get_by_role("link")).to_contain_text(
        f"of {SITES * NODES_EACH:,}"
    )
    expect(page.locator(".stat", has_text="Tasks waiting").get_by_role("link")).to_have_text("0")
    assert serious_problems(page) == []
    failed = page.get_by_role("region", name="States of deployments").get_by_role("link", name=re.compile("FAILED"))
    count = int(failed.locator("b").inner_text())
    failed.click()
    expect(page.locator("[data-row]")).to_have_count(count)
    expect(page.locator("[data-row] .pill")).to_have_text(["FAILED"] * count)


def test_lists_grow_beyond_their_first_page(fleet: LargeFleet, page: Page) -> None:
    visit(page, "/nodes?view=table")
    expect(page.locator("main tbody tr")).to_have_count(500)
    page.get_by_role("button", name="Show more nodes").click()
    expect(page.locator("main tbody tr")).to_have_count(SITES * NODES_EACH)
    expect(page.get_by_role("button", name="Show more nodes")).to_have_count(0)
    fleet.add_event()
    page.wait_for_timeout(500)
    expect(page.locator("main tbody tr")).to_have_count(SITES * NODES_EACH)


def test_a_thousand_nodes_are_one_mark_each_with_readable_sites(fleet: LargeFleet, page: Page) -> None:
    page.goto(f"{fleet.url}/map")
    is_settled(page)
    fleet_map = page.get_by_role("region", name="Map")
    expect(fleet_map.locator("a.mark")).to_have_count(SITES * NODES_EACH)
    names = fleet_map.locator(".site-box > header a")
    cut = names.evaluate_all(
        "all => all.filter(each => each.scrollWidth > each.clientWidth).map(each => each.textContent)"
    )
    assert (names.count(), cut) == (SITES, []), "the name of every site is whole"
    beside = page.get_by_role("region", name="Not as wanted").locator("li a.name")
    assert beside.count() > 2
    beside.first.evaluate(
        "each => { each.nextElementSibling.textContent = '1 not on the wanted release, 2 changing'; }"
    )
    heights = beside.evaluate_all("all => all.map(each => each.getBoundingClientRect().height)")
    assert max(heights) < 30, "a name is whole, however long the words beside it are"
    first = names.all_inner_texts()
    assert first[0] == "bremen-1", "what has failed comes first"
    assert first.index("hamburg-1") < first.index("aalborg-1"), "a drain may be forgotten"
    expect(fleet_map.get_by_role("region", name="hamburg-1", exact=True)).to_contain_text("1 drained")
    page.reload()
    is_settled(page)
    assert names.all_inner_texts() == first, "a site keeps its place"
    assert serious_problems(page) == []
    page.get_by_role("button", name="Zoom out").click()
    expect(fleet_map.locator("a.site-mark")).to_have_count(SITES)
    page.get_by_role("button", name="Zoom in").click()
    page.get_by_role("button", name="Zoom in").click()
    expect(fleet_map.locator(".node-box").first).to_be_visible()
    assert NODES_EACH <= fleet_map.locator(".node-box").count() <= 2 * SITES, "zooming opens some boxes"
    expect(names).to_have_count(SITES)


def test_what_the_map_does_not_find_is_dimmed_and_the_table_has_the_same(fleet: LargeFleet, page: Page) -> None:
    page.goto(f"{fleet.url}/map")
    page.get_by_role("combobox", name="Find").fill("label:region=north -site:bremen-*")
    expect(page.get_by_text("20 of 100 sites and 200 of 1,000 nodes match")).to_be_visible()
    expect(page.locator(".site-box:not(.dim)")).to_have_count(20)
    page.get_by_role("combobox", name="Find").fill("state:drained")
    expect(page.get_by_text("4 of 1,000 nodes match")).to_be_visible()
    page.get_by_role("button", name="Table").click()
    expect(page.get_by_role("region", name="Table").locator("tbody tr")).to_have_count(4)
    assert serious_problems(page) == []


def test_a_field_offers_words_and_values_with_counts(fleet: LargeFleet, page: Page) -> None:
    page.goto(f"{fleet.url}/deployments")
    field = page.get_by_role("combobox", name="Filter")
    field.fill("la")
    page.get_by_role("option", name=re.compile("^label:")).click()
    expect(page.get_by_role("option", name=f"region=north {DEPLOYMENTS // 4 + 3:,}")).to_be_visible()
    field.press("ArrowDown")
    expect(page.get_by_role("option", selected=True)).to_have_count(1)
    field.fill("label:region=north code:")
    page.get_by_role("option", name="HEALTH_CHECK_FAILED 2").click()
    expect(field).to_have_value("label:region=north code:HEALTH_CHECK_FAILED ")
    expect(page.get_by_text("2 match.")).to_be_visible()
    expect(page).to_have_url(re.compile("filter=label"))
    expect(page.get_by_text("homeport deployments list --filter 'label:region=north code:HEALTH")).to_be_visible()
    field.fill("sate:FAILED")
    expect(page.get_by_text('"sate:" is not a word of this filter.')).to_be_visible()
    assert field.get_attribute("aria-invalid") == "true"
    page.goto(f"{fleet.url}/deployments?state=FAILED&site=bremen-*")
    expect(field).to_have_value("site:bremen-* state:FAILED")
    expect(page.locator("[data-row]")).to_have_count(4)
    back_undoes_a_filter(page)


def back_undoes_a_filter(page: Page) -> None:
    """As a whole, however many letters it had."""
    field = page.get_by_role("combobox", name="Filter")
    page.get_by_role("button", name=re.compile("^Needs attention")).click()
    expect(page).to_have_url(re.compile("attention=true"))
    for text in ("site:hamburg-1", "site:hamburg-1 state:FAILED"):
        field.fill(text)
        expect(page).to_have_url(re.compile(f"{quote(text, safe='')}(&|$)".replace("%20", r"(%20|\+)")))
    page.go_back()
    expect(field).to_have_value("site:bremen-* state:FAILED")
    expect(page.get_by_role("button", name=re.compile("^Needs attention"))).to_have_attribute("aria-pressed", "true")
    page.go_back()
    expect(page).not_to_have_url(re.compile("attention"))
    expect(page.locator("[data-row]")).to_have_count(4)


def test_a_row_that_scrolls_into_view_costs_as_much_of_five_thousand_as_of_five_hundred(
    fleet: LargeFleet, page: Page
) -> None:
    """Counts of the browser, not times: they are the same on a slow machine that is shared."""
    few = scrolled(page, "/deployments?filter=site:gdansk-*")
    many = scrolled(page, "/deployments")
    print(f"of {FEW:,} rows: {few}\nof {DEPLOYMENTS:,} rows: {many}")
    assert (few.rows, many.rows) == (FEW, DEPLOYMENTS)
    for each in (few, many):
        assert each.most_rows <= ROWS_MAX, "the document holds the rows in view, and some more"
        assert each.made <= WHEEL_STEPS * STEP_PIXELS / ROW_PIXELS + ROWS_MAX, "a row is made when it comes into view"
        # One of each for a frame; one that comes late, as on a busy machine, may take a second look at the styles.
        assert each.layouts <= 2 * WHEEL_STEPS and each.styles <= 3 * WHEEL_STEPS
        assert each.calls / each.made < CALLS_MAX
    assert many.calls < 1.5 * few.calls, "the length of the list costs nothing"


@dataclass(frozen=True, slots=True)
class Scrolled:
    rows: int
    most_rows: int
    """In the document at once."""
    made: int
    """Rows that were put into the document."""
    layouts: int
    styles: int
    calls: int
    """Of functions of ours, and of what they are built with."""
    busy_milliseconds: float
    """Of the page's thread for each step, for who reads this; nothing depends on it."""


def scrolled(page: Page, path: str) -> Scrolled:
    visit(page, path)
    count = load_all(page)
    measured = page.context.new_cdp_session(page)
    measured.send("Performance.enable", {"timeDomain": "threadTicks"})
    measured.send("Profiler.enable")
    measured.send("Profiler.startPreciseCoverage", {"callCount": True, "detailed": False})
    before = counters(measured)
    measured.send("Profiler.takePreciseCoverage")
    found = page.locator(".virtual").evaluate(SCROLLED, [WHEEL_STEPS, STEP_PIXELS])
    covered = measured.send("Profiler.takePreciseCoverage")["result"]
    spent = {name: value - before[name] for name, value in counters(measured).items()}
    measured.send("Profiler.stopPreciseCoverage")
    measured.detach()
    calls = sum(
        each["ranges"][0]["count"] for script in covered if "/_app/" in script["url"] for each in script["functions"]
    )
    busy = spent["TaskDuration"] * 1000 / WHEEL_STEPS
    return Scrolled(
        count, found["most"], found["made"], int(spent["LayoutCount"]), int(spent["RecalcStyleCount"]), calls, busy
    )


def load_all(page: Page) -> int:
    box, foot = page.locator(".virtual"), page.locator(".card-foot > span").first
    expect(foot).to_be_visible()
    while not (whole := re.fullmatch(r"([\d,]+) rows", foot.inner_text())):
        box.evaluate("each => { each.scrollTop = each.scrollHeight; }")
        page.wait_for_function("() => new Promise(done => requestAnimationFrame(() => done(true)))")
    return int(whole[1].replace(",", ""))


def counters(measured: CDPSession) -> Mapping[str, float]:
    return {each["name"]: each["value"] for each in measured.send("Performance.getMetrics")["metrics"]}


def test_any_name_is_text(fleet: LargeFleet, page: Page) -> None:
    for name in NAMES:
        visit(page, "/deployments?filter=" + quote(re.sub(r"\W+", "*", name)[:60], safe="*"))
        expect(page.get_by_role("link", name=f"{name}@aalborg-1")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
        page.get_by_role("link", name=f"{name}@aalborg-1").click()
        expect(page.get_by_role("heading", level=1)).to_contain_text(name)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
    assert page.locator("img").count() == 0, "a name is never markup"


def test_what_to_do_next_is_a_sentence_with_whole_commands(fleet: LargeFleet, page: Page) -> None:
    visit(page, "/deployments/bremen-1/edge-gateway-1")
    commands = [f"homeport deployments {verb} edge-gateway-1@bremen-1" for verb in ("retry", "rollback")]
    expect(page.locator(".why code")).to_have_text(commands)
    expect(page.locator(".notice")).to_contain_text(f"{commands[0]}, or push a new commit, or {commands[1]}")


def test_who_waits_at_the_end_gets_more_rows_also_when_the_list_was_just_read_again(
    fleet: LargeFleet, page: Page
) -> None:
    """Nothing scrolls any more there, so nothing would ask a second time."""
    page.goto(f"{fleet.url}/deployments")
    box = page.locator(".virtual")
    box.evaluate("each => { each.scrollTop = each.scrollHeight; }")
    expect(page.get_by_text(re.compile("^First 1,2.. of"))).to_be_visible()
    held: list[Route] = []
    page.route("**/api/v1/deployments?*cursor=*", lambda route: held.append(route))  # noqa: PLW0108 - playwright marks it
    fleet.add_event()
    try:
        while not held:
            page.wait_for_timeout(100)
        box.evaluate("each => { each.scrollTop = each.scrollHeight; }")
        page.wait_for_timeout(300)
        assert len(held) == 1, "one at a time"
    finally:
        page.unroute("**/api/v1/deployments?*cursor=*")  # What was held goes on.
    expect(page.get_by_text(re.compile("^First 2,2.. of"))).to_be_visible()


def test_columns_are_chosen_and_kept(fleet: LargeFleet, page: Page) -> None:
    page.goto(f"{fleet.url}/deployments?filter=site:gdansk-3")
    head = page.locator(".deployment-head")
    expect(head).to_contain_text("Version")
    page.locator("summary", has_text="Columns").click()
    chooser = page.get_by_role("group", name="Columns")
    chooser.get_by_label("Version", exact=True).uncheck()
    chooser.get_by_label("On", exact=True).check()
    assert serious_problems(page) == []
    page.keyboard.press("Escape")
    expect(chooser).to_be_hidden()
    expect(page.locator("[data-row]").first).to_contain_text("gdansk-3-edge-")
    page.reload()
    expect(head).to_contain_text("On")
    assert "Version" not in head.inner_text()
    page.locator("summary", has_text="Columns").click()
    chooser.get_by_role("button", name="Reset").click()
    expect(head).to_contain_text("Version")
    page.goto(f"{fleet.url}/nodes?view=table&filter=site:gdansk-3")
    page.locator("summary", has_text="Columns").click()
    page.get_by_role("group", name="Columns").get_by_label("System").check()
    expect(page.get_by_role("columnheader", name="System")).to_be_visible()


def test_the_marks_of_the_map_tell_load_and_versions_too(fleet: LargeFleet, page: Page) -> None:
    page.goto(f"{fleet.url}/map")
    tell = page.get_by_role("group", name="Marks tell")
    tell.get_by_role("button", name="Load").click()
    expect(page.get_by_text("No node has measured itself yet.")).to_be_visible()
    expect(page.get_by_role("link", name="bremen-1-edge-01: not measured")).to_be_visible()
    tell.get_by_role("button", name="Version").click()
    expect(page.get_by_text(re.compile("^Homeport runs in 1 version: .* on 1,000 nodes"))).to_be_visible()
    page.get_by_label("Version of").select_option("historian")
    expect(page.get_by_text(re.compile("^historian runs in 1 version: .* nodes"))).to_be_visible()
    expect(page).to_have_url(re.compile("show=version.*app=historian|app=historian.*show=version"))
    assert serious_problems(page) == []
    page.get_by_role("button", name="Zoom out").click()
    expect(page.locator("a.site-mark")).to_have_count(SITES)
    tell.get_by_role("button", name="Health").click()
    expect(page.get_by_text("not as wanted; sites with something to see")).to_be_visible()


def test_the_palette_finds_everything_and_opens_the_plan_of_an_action(fleet: LargeFleet, page: Page) -> None:
    visit(page, "/nodes")
    is_settled(page)
    page.keyboard.press("Control+k")
    field = page.get_by_role("combobox", name="Find or do anything")
    field.fill("gdansk-7")
    results = page.get_by_role("listbox", name="Results")
    expect(results.get_by_role("option", name="gdansk-7 site, live")).to_be_visible()
    expect(results.get_by_role("option", name=re.compile("gdansk-7-edge-01@gdansk-7 node"))).to_be_visible()
    expect(results.get_by_role("option", name=re.compile("@gdansk-7 deployment")).first).to_be_visible()
    field.fill("drain gdansk-7-edge-03")
    results.get_by_role("option", name=re.compile("^Drain gdansk-7-edge-03")).click()
    dialog = page.get_by_role("dialog", name="Drain gdansk-7-edge-03")
    expect(dialog).to_be_visible()
    expect(page).not_to_have_url(re.compile("do=drain"))
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()


def test_rows_are_walked_with_the_keyboard(fleet: LargeFleet, page: Page) -> None:
    page.goto(f"{fleet.url}/deployments?filter=site:gdansk-3")
    is_settled(page)
    expect(page.locator("[data-row]").first).to_be_visible()
    for key in "jjk":
        page.keyboard.press(key)
    row = page.locator("[data-row]").first
    expect(row.locator("a.name")).to_be_focused()
    page.keyboard.press("x")
    expect(row.get_by_role("checkbox")).to_be_checked()
    name = row.locator("a.name").inner_text().split("@")[0]
    page.keyboard.press(".")
    expect(page.get_by_role("option", name=re.compile(f"^Restart {name}@gdansk-3"))).to_be_visible()
    page.keyboard.press("Escape")
    expect(row.locator("a.name")).to_be_focused()
    page.keyboard.press("w")
    page.wait_for_url(re.compile(f"/deployments/gdansk-3/{name}.*tab=why"))
    page.keyboard.press("g")
    page.keyboard.press("o")
    expect(page.get_by_role("heading", name="Overview", level=1)).to_be_visible()


def test_beyond_two_thousand_nodes_the_map_draws_sites_alone(fleet: LargeFleet, page: Page) -> None:
    fleet.add_sites(SITES, 110, nodes=NODES_EACH)
    page.goto(f"{fleet.url}/map")
    is_settled(page)
    expect(page.get_by_text("2,100 nodes, too many to draw: one mark is one site")).to_be_visible()
    expect(page.locator("a.site-mark")).to_have_count(SITES + 110)
    expect(page.get_by_role("button", name="Zoom in")).to_be_disabled()
    page.locator("a.site-mark", has_text="gdansk-21").click()
    expect(page.get_by_role("region", name="Chosen site").get_by_text("10 of 10 live")).to_be_visible()
    assert serious_problems(page) == []
