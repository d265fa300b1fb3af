"""A million instances on five thousand nodes: how long placing takes, and how much memory."""

import json
import resource
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

from homeport.core.model.deployment import Desired
from homeport.core.model.node import Node
from homeport.core.placement.roster import Roster
from homeport.core.reconcile.demand import place_deployment as place
from homeport.core.reconcile.demand import resources_of
from tests.support.builders import NOW, a_desired, a_node

ROOT = Path(__file__).resolve().parents[2]
NODES = 5_000
DEPLOYMENTS = 1_000
INSTANCES_EACH = 1_000
GIB = 2**30


def place_a_million() -> dict[str, float]:
    """In a process of its own, so that its memory is its own."""
    program = "import json; from tests.bench.placement import measure; print(json.dumps(measure()))"
    environment = {"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    numbers: dict[str, float] = json.loads(done.stdout)
    return numbers


def measure() -> dict[str, float]:
    """Placements are kept, as a site would keep them, and every refusal is put into words."""
    nodes, wanted = a_fleet(), wishes()
    began = time.process_time()
    roster = Roster(nodes)
    placements, explained = {}, 0
    for desired in wanted:
        placed = place(desired, roster, {}, NOW)
        need = resources_of(desired)
        for node_id in placed.chosen:
            roster.take(node_id, need)
        placements[desired.id] = placed.chosen
        explained += len(placed.explain())
    seconds = time.process_time() - began
    instances = sum(len(chosen) for chosen in placements.values())
    assert instances == DEPLOYMENTS * INSTANCES_EACH, f"only {instances} were placed"
    assert explained > 0
    assert all(slot.memory_free >= 0 for slot in roster.slots.values())
    return {
        "seconds": seconds,
        "memory MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "most on a node": float(max(slot.instances for slot in roster.slots.values())),
        "fewest on a node": float(min(slot.instances for slot in roster.slots.values())),
    }


def a_fleet() -> list[Node]:
    """Four zones, three sizes, every tenth without an engine that fits: 24 classes."""
    nodes = []
    for number in range(NODES):
        labels = {"zone": "abcd"[number % 4], "tier": "test" if number % 10 == 0 else "real"}
        size = (64, 128, 256)[number % 3] * GIB
        nodes.append(a_node(f"node-{number:05}", labels=labels, memory_bytes=size))
    return nodes


def wishes() -> list[Desired]:
    """Each wants a thousand nodes: half of them by label, all of them with memory and a rule about the machine."""
    rule = {
        "propertySelector": {
            "matchExpressions": [{"key": "/cpus/0/architecture", "operator": "In", "values": ["amd64"]}]
        },
        "labelSelector": {"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["test"]}]},
    }
    selectors = ("", "zone in (a,b)", "tier=real", "zone!=d")
    wanted = []
    for number in range(1, DEPLOYMENTS + 1):
        plain = a_desired(number, count=INSTANCES_EACH, selector=selectors[number % 4])
        constraints = {"capacityRequirements": {"memory": "128Mi"}, "eligibilityRules": [rule]}
        wanted.append(replace(plain, device_constraints=constraints))
    return wanted
