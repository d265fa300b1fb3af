"""The jobs capability of a site."""

from collections.abc import Callable, Coroutine
from datetime import timedelta
from functools import partial
from typing import Any, Final

from homeport.capability.late import late_service
from homeport.capability.site import Asked, SiteCapability, SitePart
from homeport.core.jobs.job import JOB
from homeport.fleet.shared.periodic import every
from homeport.fleet.site.platform import SitePlatform
from homeport.jobs.ports import OUTPUT, WAKE
from homeport.jobs.retention import AT_SITE, trim
from homeport.jobs.routes import jobs_routes
from homeport.jobs.site.board import JobBoard
from homeport.jobs.site.live import LiveOutput
from homeport.jobs.site.service import SiteJobs
from homeport.jobs.site.strategy import open_strategy
from homeport.jobs.site.sync import JobSync

TRIM_SECONDS: Final = timedelta(minutes=5).total_seconds()


def _part(platform: SitePlatform) -> SitePart:
    live = LiveOutput()
    board = JobBoard(platform, open_strategy(platform.job_strategy), live)
    jobs = SiteJobs(platform, board)
    work = partial(trim, platform.store, platform.clock, AT_SITE)
    loops: list[Callable[[], Coroutine[Any, Any, None]]] = [
        board.run,
        partial(every, "jobs trim", TRIM_SECONDS, work),
    ]
    asked: dict[str, Asked] = {OUTPUT: jobs.asked_for_output}
    on_central = None
    if platform.central is not None:
        sync = JobSync(platform, platform.central, board)
        loops.append(sync.run)
        asked[WAKE] = sync.woken
        on_central = sync.reconnected
    orchion = jobs, platform.store, platform.inference, platform.clock
    return SitePart(
        works={JOB: board},
        routes=(jobs_routes(jobs, platform.store),),
        services=(
            late_service("homeport.jobs.grpc", "jobs_service", jobs, platform.store),
            late_service("homeport.jobs.orchion", "orchion_jobs", *orchion),
        ),
        open_services=(late_service("homeport.jobs.orchion", "open_orchion_jobs", *orchion),),
        on_stream=live.take,
        reserved=board.reserved,
        asked=asked,
        on_central=on_central,
        metrics=(board.metrics,),
        loops=loops,
    )


JOBS: Final = SiteCapability("jobs", _part)
