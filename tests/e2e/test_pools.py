"""Pools of models, the same tests for both ways to run them: `homeport up`, where everything is one process and the
engine is on its machine; and central, site and node on hosts of their own, where central reaches the engine through
two tunnels. With the real llama.cpp."""

import contextlib
import json
import os
import re
import signal
import struct
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from http.client import HTTPResponse
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.support.hosts import CENTRAL_PORT, SITE_PORT, UNVERIFIED, HostFleet, host_fleet, stocked
from tests.support.namespaces import natted
from tests.support.processes import Machine, machine, start_up
from tests.support.tiny_model import write_tiny_model
from tests.support.waiting import wait_for

T = TypeVar("T")
REGISTRY_PORT = 8444
CONTEXT = 60_000
SLOTS = 2
FREE_SECONDS_MAX = 1.0
LOOKS = 3
"""How often a time is measured; the fastest counts, since a busy machine spoils one look."""
ORDER = re.compile("started (token )+((token|metrics) )*end ")


@dataclass
class Place:
    """Where pools run, and how they are asked for."""

    people: Machine
    """Whose command line talks to central."""
    node_data: Path
    url: str
    headers: dict[str, str]
    model: Path
    at_central: Callable[[Callable[[], Any]], Any]
    """Runs a call on central's machine."""
    at_node: Callable[[Callable[[], Any]], Any]
    fleet: HostFleet | None = None

    def open(self, path: str, body: Any = None, *, method: str | None = None) -> HTTPResponse:
        """An open answer, whatever its status."""
        data = None if body is None else json.dumps(body).encode()
        headers = {**self.headers, "Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, data, headers, method=method)

        def call() -> HTTPResponse:
            try:
                opened: HTTPResponse = urllib.request.urlopen(request, timeout=90, context=UNVERIFIED)
            except urllib.error.HTTPError as error:
                return error  # type: ignore[return-value]
            return opened

        answer: HTTPResponse = self.at_central(call)
        return answer

    def ask(self, path: str, body: Any = None, *, method: str | None = None) -> tuple[int, Any]:
        with closing(self.open(path, body, method=method)) as answer:
            content = answer.read()
            return answer.status, json.loads(content) if content else None

    def health(self, pool: str = "tiny") -> dict[str, Any]:
        found: dict[str, Any] = self.ask(f"/v2/pools/{pool}/health")[1]
        return found

    def chat(self, model: str = "tiny", **changes: Any) -> tuple[int, Any]:
        return self.ask("/v1/chat/completions", chat(model=model, **changes))

    def handoff(self, pool: str = "tiny") -> dict[str, Any]:
        """Empty while there is none."""
        found = (json.loads(each.read_text()) for each in (self.node_data / "engines").glob("*.json"))
        return next((each for each in found if each["pool_id"] == pool), {})

    def busy_slots(self) -> int:
        """Of the engine, asked on its own machine."""
        url = self.handoff()["url"]

        def call() -> int:
            with urllib.request.urlopen(f"{url}/slots", timeout=10) as answer:
                return sum(slot["is_processing"] for slot in json.load(answer))

        return int(self.at_node(call))

    def engine_pids(self) -> set[int]:
        states = (self.node_data / "engine-programs").glob("process/*/*/state.json")
        return {int(json.loads(each.read_text())["pid"]) for each in states}

    def wait(self, look: Callable[[], Any], what: str, seconds: float = 90.0) -> Any:
        return wait_for(look, what=what, seconds=seconds)


def chat(**changes: Any) -> dict[str, Any]:
    return {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4, **changes}


def task(**changes: Any) -> dict[str, Any]:
    return {
        "task_id": str(uuid.uuid4()),
        "session_id": str(uuid.uuid4()),
        "workload": "completion",
        "model_ref": "tiny",
        "engine": "llamacpp",
        "ctx": 16_000,
        "priority": "interactive",
        "max_tokens": 8,
        "deadline_ms": 300_000,
        "prompt": "Once",
        **changes,
    }


def read_event(answer: HTTPResponse) -> tuple[str, Any]:
    """The next one that is not a comment."""
    kind = ""
    while True:
        line = answer.readline().decode().rstrip("\n")
        if line.startswith("event: "):
            kind = line.removeprefix("event: ")
        elif line.startswith("data: ") and kind:
            return kind, json.loads(line.removeprefix("data: "))
        assert line or not answer.isclosed(), "the stream broke off"


def rest_of(answer: HTTPResponse) -> list[tuple[str, Any]]:
    found = [read_event(answer)]
    while found[-1][0] not in {"end", "error"}:
        found.append(read_event(answer))
    assert not answer.read().strip(), "nothing follows the end"
    return found


@contextlib.contextmanager
def at_home(folder: Path, model: Path) -> Iterator[Place]:
    with machine(folder / "home") as host:
        up = start_up(host, runtime="process")
        headers = {"Authorization": f"Bearer {host.homeport('token').strip()}"}
        yield Place(host, host.folder / "up/node", up.url, headers, model, lambda call: call(), lambda call: call())


@contextlib.contextmanager
def in_the_cloud(folder: Path, model: Path) -> Iterator[Place]:
    """Connections are opened upwards only, and the engine listens on its own machine's loopback alone."""
    stock = stocked((), folder / "stock")
    with host_fleet(folder, stock, network=natted, registry_port=REGISTRY_PORT) as fleet:
        url = f"https://{fleet.hosts['central'].address}:{CENTRAL_PORT}"
        headers = {"Authorization": f"Bearer {fleet.token}"}
        central, node = fleet.inside["central"].run, fleet.inside["n1"].run
        yield Place(fleet.machines["central"], fleet.data("n1"), url, headers, model, central, node, fleet)


@pytest.fixture(scope="module", params=[at_home, in_the_cloud])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """With the pool `tiny`."""
    if request.param is in_the_cloud and os.geteuid() != 0:
        pytest.skip("making network namespaces needs root")
    folder = tmp_path_factory.mktemp("pools")
    model = write_tiny_model(folder / "tiny.gguf", context=CONTEXT)
    with request.param(folder, model) as started:
        try:
            shown = serve(started, "tiny", "--ctx", str(CONTEXT), "--slots", str(SLOTS))
            assert "pool tiny serves tiny" in shown
            started.wait(lambda: started.chat()[0] == 200, "the pool to answer")
            yield started
        finally:
            # Engines outlive the node.
            for pid in started.engine_pids():
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)


def serve(place: Place, name: str, *options: str, model: Path | None = None) -> str:
    file, site = str(model or place.model), () if place.fleet is None else ("--site", "north")
    return place.people.homeport("models", "serve", file, "--name", name, "--allow-cpu", *site, *options)


# --- health, slots, leases, streams --------------------------------------------------------------------------------


def test_a_pool_says_how_it_is_and_what_it_has(place: Place) -> None:
    health = place.health()
    assert (health["live"], health["ready"], health["draining"]) == (True, True, False)
    assert health["metrics"]["slots_total"] == health["metrics"]["slots_free"] == SLOTS
    assert health["metrics"]["active_leases"] == 0
    _, pool = place.ask("/v2/pools/tiny")
    (replica,) = pool["replicas"]
    assert (replica["engine"], replica["loading"], replica["models"]) == ("llamacpp", "loaded", ["tiny"])
    assert place.ask("/v2/pools/none/health")[0] == 404
    _, capabilities = place.ask("/v2/meta/capabilities")
    assert [each["concurrency"] for each in capabilities["engines"] if each["pool_id"] == "tiny"] == [SLOTS]


def test_a_stream_comes_in_order_as_it_is_generated_and_holds_one_lease(place: Place) -> None:
    asked = task(max_tokens=40)
    assert place.ask("/v2/tasks", asked)[0] == 202
    with closing(place.open(f"/v2/tasks/{asked['task_id']}/events")) as answer:
        events = rest_of(answer)
    assert ORDER.fullmatch("".join(f"{kind} " for kind, _ in events)), [kind for kind, _ in events]
    tokens = [data["i"] for kind, data in events if kind == "token"]
    assert tokens == list(range(len(tokens)))
    assert events[-1][1]["tokens_out"] == 40

    endless = task(max_tokens=15_000)
    assert place.ask("/v2/tasks", endless)[0] == 202
    with closing(place.open(f"/v2/tasks/{endless['task_id']}/events")) as answer:
        assert [read_event(answer)[0] for _ in range(2)] == ["started", "token"], "long before it has ended"
        metrics = place.health()["metrics"]
        assert (metrics["active_leases"], metrics["slots_free"]) == (1, SLOTS - 1)
        assert place.ask(f"/v2/tasks/{endless['task_id']}/cancel", method="POST")[0] == 204
        last = rest_of(answer)[-1]
    assert (last[0], last[1]["canceled"]) == ("end", True)
    place.wait(lambda: place.health()["metrics"]["active_leases"] == 0, "the lease to be given back")


def cancelled(place: Place, streams: ExitStack) -> Callable[[], None]:
    asked = task(max_tokens=15_000)
    assert place.ask("/v2/tasks", asked)[0] == 202
    answer = streams.enter_context(closing(place.open(f"/v2/tasks/{asked['task_id']}/events")))
    assert read_event(answer)[0] == "started"

    def end() -> None:
        assert place.ask(f"/v2/tasks/{asked['task_id']}/cancel", method="POST")[0] == 204

    return end


def left(place: Place, streams: ExitStack) -> Callable[[], None]:
    answer = streams.enter_context(closing(place.open("/v1/chat/completions", chat(stream=True, max_tokens=50_000))))
    assert answer.readline().startswith(b"data: {")
    return streams.close


@pytest.mark.parametrize("ends", [cancelled, left])
def test_a_task_that_ends_early_frees_the_slot_of_the_engine_within_a_second(
    place: Place, ends: Callable[[Place, ExitStack], Callable[[], None]]
) -> None:
    took = []
    for _ in range(LOOKS):
        with ExitStack() as streams:
            end = ends(place, streams)
            place.wait(lambda: place.busy_slots() == 1, "the engine to work")
            began = time.monotonic()
            end()
            place.wait(lambda: place.busy_slots() == 0, "the slot to be free", seconds=10)
            took.append(time.monotonic() - began)
        if took[-1] <= FREE_SECONDS_MAX:
            return
    pytest.fail(f"the slot was free after {took} seconds")


# --- drain, reload, restart ----------------------------------------------------------------------------------------


def test_a_drained_pool_takes_nothing_new_and_what_runs_ends_at_the_deadline(place: Place) -> None:
    with ExitStack() as streams:
        answer = streams.enter_context(
            closing(place.open("/v1/chat/completions", chat(stream=True, max_tokens=50_000)))
        )
        assert answer.readline().startswith(b"data: {")
        assert place.ask("/v2/pools/tiny/drain", {"deadline_ms": 60_000})[0] == 202
        status, said = place.ask("/v2/tasks", task())
        assert (status, said["code"], said["retriable"]) == (503, "POOL_UNREADY", True)
        assert place.health()["draining"]
        assert answer.readline() == b"\n", "what runs goes on"
        assert answer.readline().startswith(b"data: {")
        assert place.ask("/v2/pools/tiny/drain", {"deadline_ms": 100})[0] == 202
        last = answer.read().decode().strip().splitlines()[-1]
        assert json.loads(last.removeprefix("data: "))["error"]["code"] == "pool_unready"
    assert place.ask("/v2/pools/tiny/drain", method="DELETE")[0] == 202
    assert place.chat()[0] == 200, "a drain can be taken back"


def test_a_bad_reload_is_a_conflict_and_the_old_model_serves_on(place: Place) -> None:
    broken = place.model.with_name("broken.gguf")
    empty = b"GGUF" + struct.pack("<IQQ", 3, 0, 0) + bytes(8)
    for content, words in ((b"this is no model", "is not a GGUF model"), (empty, "cannot read the model")):
        broken.write_bytes(content)
        status, said = place.ask("/v2/pools/tiny/reload", {"new_model_ref": str(broken)})
        assert (status, said["code"]) == (409, "CONFLICT")
        assert words in said["message"]
        place.wait(lambda: place.chat()[0] == 200, "the old model to serve")
        assert place.handoff()["model"]["id"] == "tiny"
    status, said = place.ask("/v2/pools/tiny/reload", {"new_model_ref": str(broken.with_name("none.gguf"))})
    assert (status, "There is no file" in said["message"]) == (409, True), said
    assert place.chat()[0] == 200


def test_a_good_reload_serves_the_new_model_in_the_same_pool_and_back(place: Place) -> None:
    second = write_tiny_model(place.model.with_name("second.gguf"), context=CONTEXT, seed=8, name="second")
    before = place.handoff()
    # The catalog has the one, so that it could be served; it was never told of the other.
    for model, gone, answer in ((second, "tiny", 503), (place.model, "second", 404)):
        status, said = place.ask("/v2/pools/tiny/reload", {"new_model_ref": str(model)})
        assert status == 202, said
        place.wait(lambda: place.chat(model.stem)[0] == 200, "the new model to serve")  # noqa: B023
        assert place.chat(gone)[0] == answer
        now = place.handoff()
        assert (now["model"]["id"], now["url"], now["replica_id"]) == (
            model.stem,
            before["url"],
            before["replica_id"],
        )


def test_an_engine_that_is_killed_is_started_again_at_the_same_address(place: Place) -> None:
    before, handoff = place.engine_pids(), place.handoff()
    (pid,) = before
    os.kill(pid, signal.SIGKILL)
    place.wait(lambda: place.engine_pids() not in (set(), before) and place.chat()[0] == 200, "another to answer")
    assert place.handoff() == handoff


# --- loading by use, purge -----------------------------------------------------------------------------------------


def test_a_pool_is_unloaded_when_idle_and_loaded_by_a_request_unless_it_stays_preloaded(place: Place) -> None:
    serve(place, "eager", "--idle", "1s", "--min-replicas", "1")
    of_its_own = write_tiny_model(place.model.with_name("lazy.gguf"), seed=9, name="lazy")
    serve(place, "lazy", "--idle", "1s", model=of_its_own)
    place.wait(lambda: place.handoff("lazy").get("loading") == "unloaded", "the idle engine to be unloaded")
    assert place.handoff("eager")["loading"] == "loaded", "one of it stays in memory"
    place.wait(lambda: len(place.engine_pids()) == 2, "its process to be gone")
    asked = task(model_ref="lazy", max_tokens=4, ctx=0)
    status, admitted = place.ask("/v2/tasks", asked)
    (step,) = admitted["preparation"]["steps"]
    assert (status, step["kind"]) == (202, "pool_warmup")
    with closing(place.open(f"/v2/tasks/{asked['task_id']}/events?verbose=true")) as answer:
        events = rest_of(answer)
    prepared = next(data for kind, data in events if kind == "metrics")["prep"]["pool:lazy"]
    assert (events[-1][0], prepared["status"], prepared["pct"]) == ("end", "completed", 100)
    place.wait(lambda: len(place.engine_pids()) == 2, "it to be unloaded again")

    path = Path(place.handoff("lazy")["model"]["path"])
    content = path.read_bytes()
    path.write_bytes(b"this is no model")
    asked = task(model_ref="lazy", max_tokens=4, ctx=0)
    assert place.ask("/v2/tasks", asked)[0] == 202
    with closing(place.open(f"/v2/tasks/{asked['task_id']}/events")) as answer:
        ((kind, error),) = rest_of(answer)
    path.write_bytes(content)
    assert (kind, error["code"]) == ("error", "POOL_UNREADY")
    assert "could not be loaded" in error["message"]
    assert place.chat()[0] == 200, "another pool is not touched"


def test_a_purge_ends_the_engine_and_the_pool_is_gone(place: Place) -> None:
    serve(place, "eager", "--idle", "1s", "--min-replicas", "1")
    status, _ = place.ask("/v2/pools/eager/purge", {"purge_engine": True})
    assert status == 202
    place.wait(lambda: place.handoff("eager") == {}, "the engine to be withdrawn")
    place.wait(lambda: place.ask("/v2/pools/eager")[0] == 404, "the pool to be gone")
    assert place.chat()[0] == 200, "another pool is not touched"


# --- without central -----------------------------------------------------------------------------------------------


def test_a_site_serves_its_pools_with_central_gone(place: Place) -> None:
    if place.fleet is None:
        pytest.skip("at home central and site are one process")
    fleet = place.fleet
    fleet.roles["central"].kill()
    headers = {"Authorization": f"Bearer {fleet.site_token}", "Content-Type": "application/json"}
    url = f"https://{fleet.hosts['north'].address}:{SITE_PORT}/v1/chat/completions"
    request = urllib.request.Request(url, json.dumps(chat()).encode(), headers)
    with fleet.inside["north"].run(lambda: urllib.request.urlopen(request, timeout=60, context=UNVERIFIED)) as answer:
        assert json.load(answer)["usage"]["completion_tokens"] == 4
