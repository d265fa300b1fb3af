"""Adds to a plan which images components run now and would run, and how much each node would pull.

Read from the registries while a user waits for the plan, so within a second in all: what is not known by then, or
cannot be read, is unknown and changes nothing else. A node may have layers of other work as well, so what it pulls is
an upper bound.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import anyio

from homeport.core.images import Blobs, ImageChange, bytes_to_pull, image_changes
from homeport.core.model.deployment import ComponentSpec
from homeport.fleet.central.plans.preview import ComponentStep, DeploymentPlan, Plan
from homeport.ports import Images
from homeport.vocabulary import Digest

SECONDS_MAX: Final = 1.0
COMPONENTS_MAX: Final = 50
"""Different ones of a plan, before and after; the images of more are unknown."""
IMAGES_MAX: Final = 100
AT_ONCE_MAX: Final = 8


async def with_images(
    plan: Plan, images: Images, *, compose: str | None = None, seconds: float = SECONDS_MAX
) -> Plan:
    """`compose` is the file of what would be deployed, where no registry has it yet."""
    if not any(_moving(step) for each in plan.deployments for steps in each.nodes.values() for step in steps):
        return plan
    known = _Known(images, compose)
    with anyio.move_on_after(seconds):
        await known.look(plan.deployments)
    return replace(plan, deployments=tuple(_told(each, known) for each in plan.deployments))


class _Known:
    """What was found out in time."""

    def __init__(self, images: Images, compose: str | None) -> None:
        self._images = images
        self._compose = compose
        self._turn = anyio.Semaphore(AT_ONCE_MAX)
        self._named: dict[Digest, Mapping[str, str]] = {}
        self._blobs: dict[tuple[str, str], Blobs] = {}

    async def look(self, plans: Sequence[DeploymentPlan]) -> None:
        specs: dict[Digest, tuple[ComponentSpec, str | None]] = {}
        for step in (step for plan in plans for steps in plan.nodes.values() for step in steps if _moving(step)):
            for spec, compose in ((step.before, None), (step.after, self._compose)):
                if spec is not None:
                    specs[spec.digest] = (spec, compose)
        async with anyio.create_task_group() as tasks:
            for digest, (spec, compose) in list(specs.items())[:COMPONENTS_MAX]:
                tasks.start_soon(self._name, digest, spec, compose)
        wanted: dict[tuple[str, str], None] = {}
        for plan in plans:
            for node_id, steps in plan.nodes.items():
                architecture = plan.architectures.get(node_id, "")
                for change in (change for step in steps for change in self.changes(step) or ()):
                    if change.before != change.after and architecture:
                        wanted |= {(image, architecture): None for image in (change.before, change.after) if image}
        async with anyio.create_task_group() as tasks:
            for image, architecture in list(wanted)[:IMAGES_MAX]:
                tasks.start_soon(self._read, image, architecture)

    def changes(self, step: ComponentStep) -> tuple[ImageChange, ...] | None:
        if not _moving(step) or step.after is None or step.after.digest not in self._named:
            return None
        if step.before is not None and step.before.digest not in self._named:
            return None
        before = {} if step.before is None else self._named[step.before.digest]
        return image_changes(before, self._named[step.after.digest])

    def pull_bytes(self, changes: Sequence[ImageChange], architecture: str) -> int | None:
        """Images that stay are there."""
        moving = [change for change in changes if change.before != change.after]
        there = [self._blobs.get((change.before, architecture)) for change in moving if change.before]
        wanted = [self._blobs.get((change.after, architecture)) for change in moving if change.after]
        found = [blobs for blobs in wanted if blobs is not None]
        if len(found) < len(wanted):
            return None
        return bytes_to_pull([blobs for blobs in there if blobs is not None], found)

    async def _name(self, digest: Digest, spec: ComponentSpec, compose: str | None) -> None:
        async with self._turn:
            found = await self._images.named(spec, compose=compose)
        if found is not None:
            self._named[digest] = found

    async def _read(self, image: str, architecture: str) -> None:
        async with self._turn:
            found = await self._images.blobs(image, architecture)
        if found is not None:
            self._blobs[image, architecture] = found


def _moving(step: ComponentStep) -> bool:
    return step.after is not None and step.action in ("install", "replace")


def _told(plan: DeploymentPlan, known: _Known) -> DeploymentPlan:
    nodes = {
        node_id: tuple(_step(step, known, plan.architectures.get(node_id, "")) for step in steps)
        for node_id, steps in plan.nodes.items()
    }
    return replace(plan, nodes=nodes)


def _step(step: ComponentStep, known: _Known, architecture: str) -> ComponentStep:
    changes = known.changes(step)
    if changes is None:
        return step
    return replace(step, images=changes, pull_bytes=known.pull_bytes(changes, architecture))
