"""The contract's table of series, row by row: type, labels and buckets, with and without samples."""

import os
import re
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import generate_latest

from homeport.adapters.engine.fake import FakeEngine
from homeport.adapters.hardware.gpu.nvidia import read_nvidia
from homeport.central.app import CentralApp
from homeport.core.inference.engines.gpus import gpus_of_replica
from homeport.core.inference.engines.handoff import EngineName, Handoff, HandoffModel
from homeport.inference.key_usage import KEYS_MAX, KeyUsage
from homeport.inference.metrics import BUDGETS, InferenceMetrics
from homeport.inference.pools.replica import Replica
from homeport.ports import Sample
from homeport.telemetry.node.collector import gpu_samples
from homeport.telemetry.shared.gpus import gpus_of
from homeport.telemetry.shared.latest import Latest, values_of
from homeport.vocabulary import NodeId, SiteName
from tests.integration.inference.conftest import TASK
from tests.support.running_central import Client
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio

REPLICA = ("engine", "engine_version", "pool_id", "replica_id")
POOL = ("engine", "engine_version", "pool_id", "priority")
# fmt: off
TABLE: dict[str, tuple[str, tuple[str, ...]]] = {
    "tasks_enqueued_total": ("counter", (*REPLICA, "priority")),
    "tasks_started_total": ("counter", (*REPLICA, "priority")),
    "tasks_canceled_total": ("counter", (*REPLICA, "reason")),
    "tasks_rejected_total": ("counter", ("engine", "reason")),
    "admission_backpressure_events_total": ("counter", ("engine", "policy")),
    "tokens_in_total": ("counter", REPLICA),
    "tokens_out_total": ("counter", REPLICA),
    "catalog_verifications_total": ("counter", ("result", "reason", "engine")),
    "placement_decisions_total": ("counter", ("outcome", "pinned", "fallback")),
    "queue_depth": ("gauge", POOL),
    "kv_cache_usage_ratio": ("gauge", REPLICA),
    "gpu_utilization": ("gauge", (*REPLICA, "device")),
    "vram_used_bytes": ("gauge", (*REPLICA, "device")),
    "model_state": ("gauge", ("model_id", "state")),
    "placement_candidates_considered": ("gauge", ()),
    "latency_first_token_ms": ("histogram", POOL),
    "latency_decode_ms": ("histogram", POOL),
    "active_leases": ("gauge", ("pool_id",)),
    "pool_ready": ("gauge", ("pool_id",)),
    "drain_events_total": ("counter", ("pool_id", "reason")),
}
BUCKETS = {
    "latency_first_token_ms": [50, 100, 150, 200, 300, 500, 750, 1000, 1500, 2000, 3000],
    "latency_decode_ms": [250, 500, 1000, 1500, 2000, 3000, 4000, 6000, 8000, 12000],
}
CARDINALITY = {"device": 64, "engine_version": 64, "pool_id": 256, "replica_id": 1024, "model_id": 1024}
# fmt: on


def declared() -> dict[str, tuple[str, tuple[str, ...]]]:
    found = {}
    for collector in InferenceMetrics().registry._collector_to_names:
        known: Any = collector
        name = known._name + ("_total" if known._type == "counter" else "")
        found[name] = (known._type, tuple(known._labelnames))
    return found


def test_every_series_of_the_table_is_declared_with_its_type_and_labels() -> None:
    found = declared()
    assert {name: found.get(name) for name in TABLE} == TABLE
    assert BUDGETS == CARDINALITY
    assert not any("task_id" in labels or "job_id" in labels for _, labels in found.values())


def test_every_series_is_documented_with_its_labels() -> None:
    page = (Path(__file__).parents[3] / "docs/reference/metrics.md").read_text()
    for name, (_, labels) in declared().items():
        assert f"| `{name}{{{','.join(labels)}}}` |" in page or (not labels and f"| `{name}` |" in page), name


async def test_the_page_has_every_type_line_before_any_sample_and_the_buckets_after_one(
    empty: tuple[CentralApp, Client], llama: str
) -> None:
    from tests.integration.inference.conftest import bind, handoff

    central, client = empty
    first = await client.get("/metrics")
    assert first.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    before = str(first.body)
    for name, (kind, _) in TABLE.items():
        assert f"# TYPE {name} {kind}" in before, name
    await bind(client, central, handoff(llama))
    idle = str((await client.get("/metrics")).body)
    assert re.search(r'^queue_depth{.*pool_id="default",priority="batch"} 0.0$', idle, re.MULTILINE), "nothing waited"
    assert (await client.post("/v2/tasks", TASK)).status == 202
    assert [each async for each in client.events(f"/v2/tasks/{TASK['task_id']}/events")][-1].event == "end"

    async def page() -> str:
        text = str((await client.get("/metrics")).body)
        return text if "latency_decode_ms_bucket" in text else ""

    text = await eventually(page, what="the latencies of the task")
    for name, edges in BUCKETS.items():
        shown = re.findall(rf'{name}_bucket{{[^}}]*le="([^"]+)"', text)
        assert [float(edge) for edge in shown if edge != "+Inf"] == edges
    scraped_again = str((await client.get("/metrics")).body)
    counted = re.compile(r"^(tasks_\w+_total{.*) ", re.MULTILINE)
    assert counted.findall(text) == counted.findall(scraped_again), "a scrape counts nothing"


async def test_a_pool_that_is_gone_has_no_samples(empty: tuple[CentralApp, Client], llama: str) -> None:
    """One that never is ready again would be reported as broken for ever."""
    from tests.integration.inference.conftest import bind, handoff

    central, client = empty
    await bind(client, central, handoff(llama), handoff(llama, pool_id="other"))
    names = ("pool_ready", "active_leases", "queue_depth", "kv_cache_usage_ratio")

    async def shown(pool_id: str) -> set[str]:
        text = str((await client.get("/metrics")).body)
        assert "_created" not in text
        return {name for name in names if re.search(f'^{name}{{.*pool_id="{pool_id}"', text, re.MULTILINE)}

    assert await shown("default") == await shown("other") == {*names}
    pools = central.parts.inference.pools
    assert pools is not None
    pools.unbind("other", "r0")
    assert (await shown("default"), await shown("other")) == ({*names}, set())


async def test_what_each_key_has_used_is_counted_by_the_name_of_its_token(
    empty: tuple[CentralApp, Client], llama: str
) -> None:
    from tests.integration.inference.conftest import bind, handoff

    central, client = empty
    await bind(client, central, handoff(llama))
    made = (await client.post("/api/v1/tokens", {"name": "chat", "role": "viewer"})).body
    headers = {"Authorization": f"Bearer {made['token']}"}
    asked = {"model": "tiny", "prompt": "Once", "max_tokens": 3, "ignore_eos": True}
    for _ in range(2):
        assert (await client.post("/v1/completions", asked, headers=headers)).status == 200
    assert (await client.post("/v2/tasks", TASK)).status == 202
    ended = [each async for each in client.events(f"/v2/tasks/{TASK['task_id']}/events")][-1]
    text = str((await client.get("/metrics")).body)
    assert 'homeport_key_requests_total{key="chat"} 2.0' in text
    assert 'homeport_key_tokens_out_total{key="chat"} 6.0' in text
    assert 'homeport_key_requests_total{key="local"} 1.0' in text
    assert f'homeport_key_tokens_out_total{{key="local"}} {ended.data["tokens_out"]}.0' in text


def test_keys_beyond_the_limit_are_counted_together() -> None:
    usage = KeyUsage()
    for number in range(KEYS_MAX + 5):
        usage.used(f"k{number}", tokens_in=1, tokens_out=2)
    requests, *_ = usage.collect()
    counted = {each.labels["key"]: each.value for each in requests.samples}
    assert (len(counted), counted["k0"], counted["other"]) == (KEYS_MAX + 1, 1, 5)


async def test_a_model_of_the_catalog_has_its_state_and_its_checks_are_counted(
    empty: tuple[CentralApp, Client], tmp_path: Any
) -> None:
    _, client = empty
    file = tmp_path / "model.gguf"
    file.write_bytes(b"weights")
    body = {"id": "m", "digest": "sha256:" + "0" * 64, "source_url": f"file:{file}"}
    assert (await client.post("/v2/catalog/models", body)).status == 201
    assert (await client.post("/v2/catalog/models/m/verify", {})).status == 202
    assert (await client.post("/v2/catalog/models/m/state", {"state": "Retired"})).status == 202
    text = str((await client.get("/metrics")).body)
    assert 'model_state{model_id="m",state="Retired"} 1.0' in text
    assert 'model_state{model_id="m",state="Active"} 0.0' in text
    assert 'catalog_verifications_total{engine="",reason="mismatch",result="failed"} 1.0' in text


async def test_gpus_of_a_node_have_samples_for_the_replicas_that_use_them_and_only_where_there_are_any(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What nvidia-smi prints reaches the page of a site, with the labels of each replica."""
    tool = tmp_path / "nvidia-smi"
    lines = ("0, NVIDIA RTX, 10240, 1024, 37, 61, 221.50", "1, NVIDIA RTX, 10240, 2048, [N/A], 50, 99")
    tool.write_text("#!/bin/sh\n" + "".join(f"echo '{line}'\n" for line in lines))
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    samples = [
        sample for gpu in read_nvidia(lambda name: import_module("no_such_module")) for sample in gpu_samples(gpu)
    ]
    latest = Latest(SiteName("home"), NodeId("n1"), datetime.now(UTC), values_of(samples))
    plain = Latest(SiteName("home"), NodeId("n2"), datetime.now(UTC), values_of([Sample("cpu_percent", 3.0)]))
    uses = gpus_of([latest, plain], {("home", "n1"), ("home", "n2")})

    def told(**changes: Any) -> list[str]:
        known = {
            "node_id": "n1",
            "provisioning_mode": "package",
            "engine_version": "llamacpp-package:1-cuda",
            **changes,
        }
        found = Handoff(
            engine=EngineName.LLAMACPP, url="http://127.0.0.1:1", model=HandoffModel("m"), pool_id="p", **known
        )
        metrics = InferenceMetrics()
        replica = Replica(found, FakeEngine())
        metrics.gpus = lambda: [(replica, gpus_of_replica(found, uses.get(("home", found.node_id), {})))]
        text = generate_latest(metrics).decode()
        return sorted(line for line in text.splitlines() if re.match(r"(gpu_utilization|vram_used_bytes){", line))

    labels = 'device="{}",engine="llamacpp",engine_version="llamacpp-package:1-cuda",pool_id="p",replica_id="r0"'
    assert told() == [
        f"gpu_utilization{{{labels.format(0)}}} 0.37",
        f"vram_used_bytes{{{labels.format(0)}}} {1024 * 2**20:.9e}",
        f"vram_used_bytes{{{labels.format(1)}}} {2048 * 2**20:.9e}",
    ]
    assert [line.split('"')[1] for line in told(device_mask="1")] == ["1"]
    assert told(node_id="n2") == [], "a node without a GPU has no samples, not zeros"
    assert told(engine_version="llamacpp-package:1-cpu") == told(provisioning_mode="external") == []
