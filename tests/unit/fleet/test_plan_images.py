"""A plan says which images change and how much is pulled, and never waits for it longer than it may."""

import time
from collections.abc import Mapping

import anyio
import pytest

from homeport.core.images import Blobs, ImageChange
from homeport.core.model.deployment import ComponentSpec
from homeport.fleet.central.plans.images import COMPONENTS_MAX, with_images
from homeport.fleet.central.plans.preview import ComponentStep, DeploymentPlan, Plan
from homeport.vocabulary import Digest, NodeId, ProfileType
from tests.support.builders import HOME, a_desired

pytestmark = pytest.mark.anyio

BASE, OLD, NEW = (Digest(f"sha256:{letter * 64}") for letter in "abc")
NODE = NodeId("n-1")


class Known:
    """`ports.Images` of a small world; what it does not know takes for ever."""

    def __init__(self, *, knows_sizes: bool = True) -> None:
        self._sizes: Mapping[str, Blobs] = (
            {"web:1": {BASE: 100, OLD: 20}, "web:2": {BASE: 100, NEW: 30}} if knows_sizes else {}
        )
        self.asked = 0

    async def named(self, spec: ComponentSpec, *, compose: str | None = None) -> Mapping[str, str] | None:
        self.asked += 1
        if compose is not None:
            return {spec.name: compose}
        return None if spec.type is ProfileType.HELM else {spec.name: f"web:{spec.revision}"}

    async def blobs(self, image: str, architecture: str) -> Blobs | None:
        if image not in self._sizes:
            await anyio.sleep_forever()
        return self._sizes[image] if architecture == "amd64" else None


def spec(revision: str, kind: ProfileType = ProfileType.COMPOSE, name: str = "web") -> ComponentSpec:
    return ComponentSpec(name, kind, "oci://a.example/web", revision)


def plan_of(*steps: ComponentStep, architecture: str = "amd64") -> Plan:
    desired = a_desired()
    return Plan(
        (
            DeploymentPlan(
                HOME,
                None,
                desired,
                desired.name,
                "update",
                {NODE: steps},
                {},
                (),
                None,
                architectures={NODE: architecture},
            ),
        )
    )


async def told(plan: Plan, known: Known, *, seconds: float = 5.0) -> ComponentStep:
    return (await with_images(plan, known, seconds=seconds)).deployments[0].nodes[NODE][0]


async def test_an_update_pulls_the_layers_that_the_image_before_has_not() -> None:
    step = await told(plan_of(ComponentStep("web", "replace", "", spec("1"), spec("2"))), Known())
    assert (step.images, step.pull_bytes) == ((ImageChange("web", "web:1", "web:2"),), 30)


async def test_a_new_component_pulls_all_of_its_image_and_another_machine_is_unknown() -> None:
    new = ComponentStep("web", "install", "", None, spec("2"))
    step = await told(plan_of(new), Known())
    assert (step.images, step.pull_bytes) == ((ImageChange("web", None, "web:2"),), 130)
    step = await told(plan_of(new, architecture="arm64"), Known())
    assert (step.images, step.pull_bytes) == ((ImageChange("web", None, "web:2"),), None)


async def test_an_image_that_stays_is_not_pulled() -> None:
    changed = ComponentSpec("web", ProfileType.COMPOSE, "oci://a.example/web", "1", {"A": "b"})
    step = await told(plan_of(ComponentStep("web", "replace", "", spec("1"), changed)), Known(knows_sizes=False))
    assert (step.images, step.pull_bytes) == ((ImageChange("web", "web:1", "web:1"),), 0)


async def test_a_registry_that_does_not_answer_costs_its_time_and_nothing_else() -> None:
    began = time.monotonic()
    plan = plan_of(ComponentStep("web", "replace", "why", spec("1"), spec("2")))
    step = await told(plan, Known(knows_sizes=False), seconds=0.1)
    assert time.monotonic() - began < 5
    assert (step.why, step.images, step.pull_bytes) == ("why", (ImageChange("web", "web:1", "web:2"),), None)


async def test_what_stays_goes_or_cannot_be_told_has_no_images() -> None:
    known = Known()
    keep = ComponentStep("web", "keep", "unchanged")
    assert await told(plan_of(keep), known) == keep
    chart = ComponentStep("web", "install", "", None, spec("1", ProfileType.HELM))
    assert await told(plan_of(chart), known) == chart
    # Which release runs is not known, so neither is what it has.
    unclear = ComponentStep("web", "replace", "another revision runs here")
    assert await told(plan_of(unclear), known) == unclear
    assert known.asked == 1


async def test_a_plan_of_many_components_asks_for_some_of_them() -> None:
    known = Known()
    steps = [ComponentStep(f"c{number}", "keep", "") for number in range(3)]
    steps += [ComponentStep(f"c{number}", "install", "", None, spec("2", name=f"c{number}")) for number in range(200)]
    await with_images(plan_of(*steps), known, seconds=5.0)
    assert known.asked == COMPONENTS_MAX


async def test_the_file_of_what_is_not_published_yet_counts_for_what_would_run() -> None:
    plan = plan_of(ComponentStep("web", "replace", "", spec("1"), spec("unpublished")))
    step = (await with_images(plan, Known(), compose="web:2", seconds=5.0)).deployments[0].nodes[NODE][0]
    assert (step.images, step.pull_bytes) == ((ImageChange("web", "web:1", "web:2"),), 30)
