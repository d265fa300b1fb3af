"""Serves models of the catalog when the first task asks for them, where whoever added them said how: an engine is a
deployment, so the first task is what writes it to Git (ADR 0214).

From then on its pool exists, with a replica that is only expected: tasks wait for it, and are refused with the reason
when it fails. The replicas that the site announces take its place."""

import math
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

import anyio
from anyio.abc import TaskGroup

from homeport.core.inference.engines.handoff import TEXT_LENGTH_MAX, Handoff
from homeport.core.inference.engines.preparing import failed
from homeport.core.inference.models.on_request import OnRequest
from homeport.core.inference.replicas import Reached
from homeport.core.model.caller import INTERNAL
from homeport.core.model.deployment import PlacementOverrides
from homeport.core.update_values import RequestedValues
from homeport.errors import Conflict, HomeportError
from homeport.fleet.central.apps import AppQuery
from homeport.fleet.central.deploy import deploy
from homeport.fleet.central.platform import CentralPlatform
from homeport.fleet.central.resolve import DeployRequest, DeployTarget
from homeport.fleet.shared.overview import find_deployment
from homeport.log import get_log
from homeport.models.central.catalog import Catalog
from homeport.models.central.engine_control import DeployedEngines
from homeport.vocabulary import NodeId, PlacementMode, SiteName

log = get_log("homeport.models")

ANNOUNCED_SECONDS: Final = 20.0
"""How long the news of an engine that is healthy may take to central."""
FAILED_SECONDS: Final = 30.0
"""How long its pool says why it failed, where no node does."""
RETRY_SECONDS: Final = 300.0
"""Each attempt may be a commit: chat programs ask again and again."""
TRIED_MAX: Final = 10_000
LOOK_SECONDS: Final = 0.1
UNDER_WAY_MAX: Final = 64

Bound = Mapping[SiteName, Mapping[tuple[str, str], Reached]]


class CatalogEngines:
    """Implements `ports.EnginesOnRequest`."""

    def __init__(self, central: CentralPlatform, catalog: Catalog, engines: DeployedEngines, bound: Bound) -> None:
        self._central = central
        self._catalog = catalog
        self._engines = engines
        self._bound = bound
        self._under_way: set[tuple[str, str]] = set()
        self._tried_at: dict[tuple[str, str], float] = {}
        self._tasks: TaskGroup | None = None

    def offer(self, model_ref: str) -> Handoff | None:
        entry = self._catalog.served_on_request(model_ref)
        if entry is None or entry.on_request is None or self._tasks is None:
            return None
        expected = entry.on_request.expected(entry.id, size_bytes=entry.size_bytes)
        tried_at = self._tried_at.get(expected.key, -math.inf)
        is_too_soon = self._central.clock.monotonic() - tried_at < RETRY_SECONDS
        if is_too_soon or len(self._under_way) >= UNDER_WAY_MAX:
            return None
        return expected

    def models(self) -> Mapping[str, tuple[str, str]]:
        return self._catalog.offered()

    def start(self, expected: Handoff) -> None:
        entry = self._catalog.served_on_request(expected.model.id)
        if entry is not None and entry.on_request is not None and self._tasks is not None:
            self._tried_at[expected.key] = self._central.clock.monotonic()
            while len(self._tried_at) > TRIED_MAX:
                self._tried_at.pop(next(iter(self._tried_at)))
            self._under_way.add(expected.key)
            self._tasks.start_soon(self._serve, expected, entry.on_request)

    async def run(self) -> None:
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            await anyio.sleep_forever()

    async def _serve(self, expected: Handoff, wanted: OnRequest) -> None:
        model, pool_id = expected.model.id, expected.pool_id
        log.narrate(
            "model served on request",
            actor="models",
            action="serve",
            target=pool_id,
            human="A task asks for a model that is served on request: its engine is deployed.",
            pool_id=pool_id,
            site=wanted.site,
            model=model,
        )
        try:
            await self._deployed(expected, wanted)
        except HomeportError as error:
            await self._say_failed(expected, f"{error} {error.hint or ''}".strip())
        except Exception as error:  # one model that we stumble over harms itself alone
            log.exception("model not served on request", model=model)
            await self._say_failed(expected, f"Homeport itself failed: {type(error).__name__}.")
        finally:
            self._under_way.discard(expected.key)
            pools = self._central.inference.pools
            if pools is not None:
                pools.unbind(*expected.key)

    async def _deployed(self, expected: Handoff, wanted: OnRequest) -> None:
        """Returns when its site has announced it. Raises a HomeportError where it does not come."""
        placement = PlacementOverrides(mode=PlacementMode.COUNT, count=wanted.count)
        if wanted.count == 1:
            placement = PlacementOverrides(mode=PlacementMode.ONE)
        nodes = tuple(map(NodeId, wanted.nodes)) or None
        request = DeployRequest(
            (DeployTarget(SiteName(wanted.site), nodes),),
            app=AppQuery(None, wanted.app, wanted.version),
            name=wanted.name,
            requested=RequestedValues(parameters=dict(wanted.parameters), placement=placement, reset_values=True),
        )
        is_announced = partial(self._is_announced, expected.pool_id, self._announced(expected.pool_id))
        deployed = await deploy(request, INTERNAL, self._central.git_writer)
        async with self._central.store.read() as reader:
            row = await find_deployment(reader, deployed.deployment_ids[0])
        if await _first_of(partial(self._engines.settled, row), is_announced):
            return
        if not await _until(is_announced, ANNOUNCED_SECONDS):
            text = f"The engine of {wanted.name} at {wanted.site} is installed, and its node does not announce it."
            raise Conflict(text, hint=f"See  homeport deployments show {wanted.name}@{wanted.site}")

    def _announced(self, pool_id: str) -> dict[tuple[str, str], int]:
        """The replicas of the pool that sites have announced, each with when it failed, or 0."""
        found = (each.handoff for replicas in self._bound.values() for each in replicas.values())
        return {each.key: each.problem_at_ms for each in found if each.pool_id == pool_id}

    def _is_announced(self, pool_id: str, before: Mapping[tuple[str, str], int]) -> bool:
        """By its site, which says how far it is from then on. That an earlier attempt has failed does not count."""
        return any(
            not failed_at or before.get(key) != failed_at for key, failed_at in self._announced(pool_id).items()
        )

    async def _say_failed(self, expected: Handoff, why: str) -> None:
        log.warning("model not served on request", model=expected.model.id, why=why)
        said = "".join(each if each.isprintable() else " " for each in why)[:TEXT_LENGTH_MAX]
        pools = self._central.inference.pools
        if pools is not None:
            pools.bind(
                replace(
                    expected,
                    preparation=failed(expected.preparation),
                    problem=said,
                    problem_at_ms=int(time.time() * 1000),
                )
            )
        await anyio.sleep(FAILED_SECONDS)


async def _first_of(work: Callable[[], Awaitable[object]], is_over: Callable[[], bool]) -> bool:
    """True where it is over before the work has ended. Raises what the work raises."""
    problem: HomeportError | None = None
    was_over = False
    async with anyio.create_task_group() as tasks:

        async def watch() -> None:
            nonlocal was_over
            was_over = await _until(is_over, math.inf)
            tasks.cancel_scope.cancel()

        tasks.start_soon(watch)
        try:
            await work()
        except HomeportError as error:
            problem = error
        tasks.cancel_scope.cancel()
    if problem is not None:
        raise problem
    return was_over


async def _until(is_so: Callable[[], bool], seconds: float) -> bool:
    """Whether it was so in that time."""
    with anyio.move_on_after(seconds):
        while not is_so():  # noqa: ASYNC110 - replicas are bound, not announced to us
            await anyio.sleep(LOOK_SECONDS)
        return True
    return False
