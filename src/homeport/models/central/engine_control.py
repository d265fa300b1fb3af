"""Changing engines from central. An engine is a deployment, so every change is a commit: another model is an update,
stopping is a removal, and a model that does not start is rolled back by its site before the caller hears of it."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

import anyio

from homeport.core.inference.engines.handoff import Handoff, HandoffModel
from homeport.core.inference.engines.settling import Settling, settling
from homeport.core.inference.models.references import default_model_id, parse_reference
from homeport.core.model.caller import INTERNAL
from homeport.core.model.event import Deployment
from homeport.core.model.instance import Instance
from homeport.core.update_values import RequestedValues
from homeport.errors import Conflict, HomeportError, NotFound
from homeport.fleet.central.apps import AppQuery
from homeport.fleet.central.deploy import delete, deploy
from homeport.fleet.central.platform import CentralPlatform
from homeport.fleet.central.resolve import DeployRequest, DeployTarget
from homeport.fleet.shared.overview import find_deployment
from homeport.log import get_log
from homeport.models.central.catalog import Catalog
from homeport.models.central.trust import ModelTrust

log = get_log("homeport.models")

SETTLE_SECONDS_MAX: Final = 900.0
LOOK_SECONDS: Final = 0.25
MODEL_PARAMETERS: Final = ("model", "digest", "model_id")


class DeployedEngines:
    """Implements `ports.EngineControl`."""

    def __init__(self, central: CentralPlatform, catalog: Catalog, trust: ModelTrust) -> None:
        self._central = central
        self._catalog = catalog
        self._trust = trust

    async def reload(self, current: Sequence[Handoff], model_ref: str) -> Sequence[Handoff]:
        # All of them are looked up first: where one was not deployed from here, none is changed.
        rows = list({row.id: row for row in [await self._deployment(each) for each in current]}.values())
        wanted = await self._parameters(model_ref)
        taken: list[Deployment] = []
        try:
            for row in rows:
                await self._deploy(row, wanted)
            await self._take(rows, taken)
        except HomeportError as error:
            log.warning("reload failed", pool_id=current[0].pool_id, why=str(error))
            await self._restore(rows, taken)
            raise
        return [replace(each, model=HandoffModel(wanted["model_id"])) for each in current]

    async def _take(self, rows: Sequence[Deployment], taken: list[Deployment]) -> None:
        """Adds those that have taken it. Waits for each, and raises what went wrong first."""
        problem: Conflict | None = None
        for row in rows:
            try:
                await self.settled(row)
            except Conflict as error:
                problem = problem or error
            else:
                taken.append(row)
        if problem is not None:
            raise problem

    async def _restore(self, rows: Sequence[Deployment], taken: Sequence[Deployment]) -> None:
        """Git says again what ran before: otherwise the failed model would stay the wanted one, and sites that have
        taken it would serve another model than the others. A site that failed has gone back by itself."""
        for row in rows:
            await self._deploy(row, {key: str(row.parameters.get(key) or "") for key in MODEL_PARAMETERS})
        for row in taken:
            try:
                await self.settled(row)
            except Conflict as error:
                log.warning("old model not served again", site=row.site, deployment=row.name, why=str(error))

    async def stop(self, current: Handoff) -> None:
        row = await self._deployment(current)
        await delete(row.id, INTERNAL, self._central.git_writer)

    async def remove_models(self, models: tuple[str, ...]) -> None:
        """Nodes keep the files they fetched, by digest, for the engine that serves them next."""
        for model_id in models:
            with suppress(NotFound):
                await self._catalog.remove(model_id)

    async def _deployment(self, current: Handoff) -> Deployment:
        """Raises Conflict for an engine that no deployment started."""
        site = current.replica_id.partition("/")[0]
        try:
            async with self._central.store.read() as reader:
                found = await find_deployment(reader, f"{current.pool_id}@{site}")
        except NotFound as error:
            raise Conflict(
                f"The engine of pool {current.pool_id} was not deployed from here.",
                hint="Change it where it was started: its handoff file is on its node.",
            ) from error
        if "model" not in found.parameters:
            raise Conflict(f"{current.pool_id} at {site} is not an engine with a model as its parameter.")
        return found

    async def _parameters(self, model_ref: str) -> dict[str, str]:
        """A model of the catalog by its id, or any reference. Raises UntrustedArtifact."""
        entry = await self._catalog.find_entry(model_ref)
        self._trust.judge(entry, model_ref)
        if entry is not None and entry.source:
            return {"model": entry.source, "digest": entry.digest, "model_id": entry.id}
        reference = parse_reference(model_ref, field="new_model_ref")
        return {"model": reference.text, "digest": "", "model_id": default_model_id(reference)}

    async def _deploy(self, row: Deployment, parameters: dict[str, str]) -> None:
        request = DeployRequest(
            (DeployTarget(row.site),),
            app=AppQuery(row.app_category, row.app_name, row.app_version),
            name=row.name,
            requested=RequestedValues(parameters=parameters),
        )
        await deploy(request, INTERNAL, self._central.git_writer)

    async def settled(self, row: Deployment) -> None:
        """Raises Conflict where the site went back, gave up, or took too long."""
        with anyio.move_on_after(SETTLE_SECONDS_MAX):
            while True:
                now, instances = await self._look(row)
                verdict, why = settling(now.revision, instances)
                if verdict is Settling.DONE:
                    return
                if verdict is Settling.FAILED:
                    raise Conflict(why)
                await anyio.sleep(LOOK_SECONDS)
        raise Conflict(f"{row.name} was not ready within {SETTLE_SECONDS_MAX:.0f} s.")

    async def _look(self, row: Deployment) -> tuple[Deployment, Sequence[Instance]]:
        async with self._central.store.read() as reader:
            return await find_deployment(reader, row.id), await reader.instances([row.id])
