"""The jobs capability of central."""

from datetime import timedelta
from functools import partial
from typing import Final

from homeport.capability.central import CentralCapability, CentralPart, Loop, ReplicaChoice
from homeport.capability.late import late_service
from homeport.fleet.central.platform import CentralPlatform
from homeport.fleet.shared.periodic import every
from homeport.jobs.central.service import CentralJobs
from homeport.jobs.ports import SYNC
from homeport.jobs.retention import AT_CENTRAL, trim
from homeport.jobs.routes import jobs_routes

TRIM_SECONDS: Final = timedelta(minutes=5).total_seconds()


async def trim_jobs(central: CentralPlatform) -> None:
    await every("jobs trim", TRIM_SECONDS, partial(trim, central.store, central.clock, AT_CENTRAL))


def _part(central: CentralPlatform) -> CentralPart:
    jobs = CentralJobs(central)
    return CentralPart(
        routes=(jobs_routes(jobs, central.store),),
        services=(
            late_service("homeport.jobs.grpc", "jobs_service", jobs, central.store),
            late_service(
                "homeport.jobs.orchion", "orchion_jobs", jobs, central.store, central.inference, central.clock
            ),
        ),
        loops=(Loop("jobs wake", jobs.wake_sites), Loop("jobs trim", trim_jobs, ReplicaChoice.ONE)),
        from_sites={SYNC: jobs.take},
        forget_site=jobs.forget_site,
        metrics=(jobs.metrics,),
    )


JOBS: Final = CentralCapability("jobs", _part)
