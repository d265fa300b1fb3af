"""The pipelines capability of central."""

from datetime import timedelta
from functools import partial
from typing import Final

import anyio

from homeport.capability.central import CentralCapability, CentralPart, Loop, ReplicaChoice
from homeport.fleet.central.platform import CentralPlatform
from homeport.fleet.shared.periodic import every
from homeport.fleet.shared.retention import retention_now
from homeport.jobs.central.service import CentralJobs
from homeport.pipelines.engine import PipelineEngine
from homeport.pipelines.metrics import PipelineMetrics
from homeport.pipelines.routes import pipelines_routes
from homeport.pipelines.schedule import run_schedules
from homeport.pipelines.service import Pipelines
from homeport.pipelines.steps.kinds import step_kinds
from homeport.pipelines.steps.plugin import open_plugins
from homeport.pipelines.webhook import webhook_routes
from homeport.ports import Transaction

TRIM_SECONDS: Final = timedelta(minutes=10).total_seconds()


def _part(central: CentralPlatform) -> CentralPart:
    pipelines = Pipelines(central)
    jobs = CentralJobs(central)
    metrics = PipelineMetrics()
    plugins = open_plugins(central.pipelines.step_plugins)
    engine = PipelineEngine(
        lambda platform: step_kinds(platform, Pipelines(platform), jobs, plugins), on_ended=metrics.ended
    )
    return CentralPart(
        routes=(pipelines_routes(central, pipelines, jobs), webhook_routes(central, pipelines)),
        metrics=(metrics,),
        loops=(
            Loop("pipelines", partial(_run, engine), ReplicaChoice.ONE),
            Loop("pipelines jobs wake", jobs.wake_sites),
        ),
    )


async def _run(engine: PipelineEngine, central: CentralPlatform) -> None:
    """All that one replica does, under one lease: each costs renewals."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(engine.run, central)
        tasks.start_soon(run_schedules, central)
        tasks.start_soon(_trim, central)


async def _trim(central: CentralPlatform) -> None:
    await every("pipelines trim", TRIM_SECONDS, partial(_trim_once, central))


async def _trim_once(central: CentralPlatform) -> None:
    settings = central.pipelines
    before = await retention_now(central.store, central.clock) - timedelta(days=settings.runs_days)

    async def work(tx: Transaction) -> None:
        await tx.trim_pipeline_runs(keep=settings.runs_max, before=before)

    await central.store.write(work)


PIPELINES: Final = CentralCapability("pipelines", _part)
