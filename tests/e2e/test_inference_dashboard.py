"""Inference in the dashboard, in a real browser, with a real engine: who waits, and where it went."""

import hashlib
import json
import re
import signal
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest
from playwright.sync_api import Browser, Page, Request, expect

from tests.support.dashboard import (
    WAIT_MILLISECONDS,
    Fleet,
    chromium,
    confirm,
    fleet_with_a_model,
    serious_problems,
    shown,
    visit,
)
from tests.support.web_files import web_server

SESSION = "11111111-2222-4333-8444-555555555555"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    expect.set_options(timeout=WAIT_MILLISECONDS)
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet_with_a_model(tmp_path_factory.mktemp("inference")) as started:
        yield started


@pytest.fixture(scope="module")
def page(fleet: Fleet, browser: Browser) -> Iterator[Page]:
    with shown(browser, fleet.login_url()) as opened:
        expect(opened.get_by_role("heading", name="Overview")).to_be_visible()
        yield opened


def submit(fleet: Fleet, **changes: Any) -> str:
    """A task of `/v2`; returns its id."""
    task_id = str(uuid.uuid4())
    task = {"task_id": task_id, "session_id": str(uuid.uuid4()), **TASK, **changes}
    headers = {"content-type": "application/json"}
    with fleet.up.open("/v2/tasks", data=json.dumps(task).encode(), headers=headers, method="POST") as answer:
        assert answer.status == 202
    return task_id


TASK = {
    **{"workload": "completion", "model_ref": "tiny", "engine": "llamacpp", "ctx": 512, "priority": "interactive"},
    **{"max_tokens": 8, "deadline_ms": 300_000, "prompt": "Once"},
}


@contextmanager
def busy(fleet: Fleet) -> Iterator[None]:
    """Its engine stands still, so that what comes has to wait."""
    assert fleet.engine is not None
    fleet.engine.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        fleet.engine.send_signal(signal.SIGCONT)
        fleet.wait_until_it_answers()


def test_who_waits_stands_in_the_queue_by_priority_with_a_position(fleet: Fleet, page: Page) -> None:
    visit(page, "/inference?tab=queue")
    expect(page.get_by_text("No task is waiting.").first).to_be_visible()
    with busy(fleet):
        for priority in ("interactive", "batch", "interactive"):
            submit(fleet, priority=priority)
        waiting = page.get_by_role("region", name="Waiting").locator("tbody tr:not(.group)")
        expect(waiting).to_have_count(2)
        expect(waiting.locator("td:first-child")).to_have_text(["1 interactive", "1 batch"])
        expect(page.get_by_role("region", name="Waiting")).to_contain_text("1 of 1 slots busy")
        expect(page.locator(".lede")).to_contain_text("2 tasks wait")
        assert serious_problems(page) == []
        visit(page, "/")
        expect(page.get_by_text(re.compile("^2 tasks? waiting"))).to_be_visible()
    visit(page, "/inference?tab=queue")
    expect(page.get_by_text("No task is waiting.").first).to_be_visible()
    placed = page.get_by_role("region", name="Placements").get_by_text(re.compile("^placed on"))
    expect(placed).not_to_have_count(0)


def test_a_session_and_what_its_tasks_left_are_shown(fleet: Fleet, page: Page) -> None:
    submit(fleet, session_id=SESSION)
    visit(page, "/inference?tab=sessions")
    row = page.get_by_role("region", name="Sessions").get_by_role("listitem").filter(has_text=SESSION)
    expect(row).to_contain_text(re.compile(r"1 turn · warm at default/.* · ends in \d+ (s|min)"))
    visit(page, "/inference?tab=artifacts")
    page.get_by_role("region", name="Artifacts").get_by_role("link").first.click()
    expect(page.get_by_role("region", name="Artifact", exact=True)).to_contain_text('"digest"')
    visit(page, "/inference?tab=usage")
    expect(page.get_by_role("region", name="Usage").locator("tbody tr").first).to_contain_text("tiny")


def test_a_pool_is_drained_and_takes_tasks_again(fleet: Fleet, page: Page) -> None:
    visit(page, "/inference")
    pool = page.get_by_role("region", name="Pools").locator("tbody tr")
    name = pool.locator("b").inner_text()
    confirm(page, "Drain…", f"Drain {name}", f"Drain {name}")
    expect(pool).to_contain_text("draining")
    confirm(page, "Undrain…", f"Let {name} take tasks", "Undrain")
    expect(pool).to_contain_text("ready")


def test_a_job_asks_a_model_and_its_answer_is_its_output(fleet: Fleet, page: Page) -> None:
    visit(page, "/jobs?tab=submit")
    page.get_by_role("group", name="Type").get_by_role("link", name="Inference").click()
    expect(page).to_have_url(re.compile("type=inference"))
    expect(page.locator("[aria-describedby=job-model] option")).to_have_text(["tiny"])
    expect(page.get_by_role("button", name="Run it")).to_be_disabled()
    page.get_by_label("Prompt").fill("What is a 'harbour'?")
    for field, wrong in (("Max tokens", "many"), ("Max tokens", "0"), ("Retries", "99")):
        before = page.get_by_label(field).input_value()
        page.get_by_label(field).fill(wrong)
        page.get_by_role("button", name="Run it").click()
        expect(page.get_by_label(field)).to_have_attribute("aria-invalid", "true")
        expect(page.get_by_label(field).locator("xpath=..").locator(".wrong")).not_to_be_empty()
        page.get_by_role("alert").get_by_role("button").click()
        expect(page.get_by_label(field)).to_be_focused()
        page.get_by_label(field).fill(before)
    page.get_by_label("Max tokens").fill("12")
    line = "homeport jobs run --model tiny --max-tokens 12 -- 'What is a '\\''harbour'\\''?'"
    expect(page.get_by_text(line, exact=True)).to_be_visible()
    assert serious_problems(page) == []
    page.get_by_role("button", name="Run it").click()
    expect(page.locator("h1 .pill")).to_have_text("COMPLETED")
    facts = page.locator("main dl.facts")
    expect(facts).to_contain_text("What is a 'harbour'?")
    expect(facts).to_contain_text("tiny")
    (job,) = fleet.host.json("jobs", "list")["jobs"]
    assert (job["type"], job["inference"]["max_tokens"]) == ("inference", 12)
    output = fleet.host.homeport("jobs", "logs", job["id"]).strip()
    expect(page.get_by_role("log")).to_contain_text(output[:20] if output else "It printed nothing.")


def test_a_chat_streams_and_its_placement_has_a_reason(fleet: Fleet, page: Page) -> None:
    visit(page, "/inference?tab=playground")
    expect(page.get_by_label("Model").locator("option")).to_have_text(["tiny"])
    page.get_by_label("Max tokens").fill("40")
    page.get_by_label("Message").fill("hello")
    page.get_by_label("Message").press("Enter")
    answer = page.get_by_text(re.compile(r"first token after \d+ ms · \d+ tokens|the model said nothing"))
    expect(answer).to_be_visible()
    for _ in range(5):
        if page.get_by_text("the model said nothing").is_hidden():
            break
        # Random weights may end an answer before its first word.
        page.get_by_role("button", name="Again").click()
        expect(page.get_by_role("button", name="Again")).to_be_visible()
    expect(page.get_by_text(re.compile(r"first token after \d+ ms · \d+ tokens"))).to_be_visible()
    expect(page.get_by_role("group", name="Conversation").get_by_text("placed on default/").first).to_be_visible()
    page.get_by_role("link", name="Queue").click()
    expect(page.get_by_text("placed on default/").first).to_be_visible()


def test_the_same_words_go_to_two_sides_with_their_own_settings(fleet: Fleet, page: Page) -> None:
    visit(page, "/inference?tab=playground")
    expect(page.get_by_label("Model").locator("option")).to_have_text(["tiny"])
    page.get_by_role("button", name="Compare").click()
    one, other = page.get_by_role("region", name="Side A"), page.get_by_role("region", name="Side B")
    one.get_by_label("Max tokens").fill("40")
    other.get_by_label("Max tokens").fill("3")
    other.get_by_label("System prompt").fill("be short")
    expect(page.locator(".command code").last).to_contain_text("--max-tokens 3 --system 'be short'")
    asked: list[dict[str, Any]] = []

    def noted(request: Request) -> None:
        if request.url.endswith("/v1/chat/completions"):
            asked.append(cast(dict[str, Any], request.post_data_json))

    page.on("request", noted)
    page.get_by_label("Message").fill("hello")
    page.get_by_label("Message").press("Enter")
    for side in (one, other):
        expect(side.get_by_text("hello", exact=True)).to_be_visible()
        # Random weights may end an answer before its first word.
        expect(side.get_by_text(re.compile(r"first token after \d+ ms|the model said nothing"))).to_be_visible()
    expect(page.get_by_role("button", name="Again")).to_be_visible()
    assert serious_problems(page) == []
    page.remove_listener("request", noted)
    assert sorted(each["max_tokens"] for each in asked) == [3, 40]
    assert [each["role"] for each in min(asked, key=lambda each: each["max_tokens"])["messages"]] == [
        "system",
        "user",
    ]
    page.get_by_role("button", name="Stop comparing").click()
    expect(page.get_by_role("region", name="Side B")).to_have_count(0)


def test_a_model_is_added_pulled_verified_retired_and_deleted(fleet: Fleet, page: Page) -> None:
    content = b"weights" * 1_800_000
    visit(page, "/inference?tab=models")
    row = page.get_by_role("region", name="Models").get_by_role("listitem")
    with web_server() as web:
        web.files["/pocket.gguf"], web.held["/pocket.gguf"] = content, threading.Event()
        page.get_by_role("button", name="Add model…").click()
        dialog = page.get_by_role("dialog", name="Add a model")
        dialog.get_by_label("Name").fill("pocket")
        dialog.get_by_label("Digest").fill("short")
        dialog.get_by_role("button", name="Add", exact=True).click()
        expect(dialog.locator("#model-digest")).to_contain_text("sha256")
        dialog.get_by_label("Source").fill(f"{web.url}/pocket.gguf")
        dialog.get_by_label("Digest").fill("sha256:" + hashlib.sha256(content).hexdigest())
        dialog.get_by_label("Digest").press("Enter")
        expect(dialog).to_be_hidden()
        confirm(page, "Pull…", "Pull pocket", "Pull")
        expect(row.get_by_role("progressbar", name="Pulling pocket")).to_be_visible()
        expect(row.get_by_text(re.compile(r"^pulling: [4-6]\.\d MB of 13 MB"))).to_be_visible()
        web.held["/pocket.gguf"].set()
        expect(row).to_contain_text("Pulled and verified at central.")
    confirm(page, "Verify…", "Verify pocket", "Verify")
    expect(page.get_by_text("pocket is what its digest says.")).to_be_visible()
    confirm(page, "Retire…", "Retire pocket", "Retire")
    expect(row).to_contain_text("Retired")
    confirm(page, "Activate…", "Activate pocket", "Activate")
    delete_model(page, "pocket")
    what_is_not_its_digest_is_a_failure_in_words(fleet, page)


def what_is_not_its_digest_is_a_failure_in_words(fleet: Fleet, page: Page) -> None:
    file = fleet.host.folder / "odd.gguf"
    file.write_bytes((fleet.host.folder.parent / "tiny.gguf").read_bytes())
    digest = "sha256:" + hashlib.sha256(file.read_bytes()).hexdigest()
    fleet.host.homeport("models", "add", f"file:{file}", "--id", "odd", "--digest", digest)
    file.write_bytes(b"GGUF of others")
    visit(page, "/inference")
    visit(page, "/inference?tab=models")
    for label, said in (("Pull", "there is nothing to pull"), ("Verify", "odd does not match its digest")):
        page.get_by_role("button", name=f"{label}…").click()
        dialog = page.get_by_role("dialog", name=f"{label} odd")
        dialog.get_by_role("button", name=label, exact=True).click()
        expect(dialog.get_by_role("alert")).to_contain_text(said)
        dialog.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("region", name="Models")).to_contain_text("verification failed")
    delete_model(page, "odd")


def delete_model(page: Page, name: str) -> None:
    page.get_by_role("button", name="Delete…").click()
    page.get_by_label("to confirm").fill(name)
    page.get_by_role("button", name=f"Delete {name}").click()
    expect(page.get_by_text("No model is in the catalog yet.")).to_be_visible()
