"""The inference capability, the same task plane at central and at a site. Who starts engines binds them through
`InferencePorts`; a site serves its own pools with central gone."""

from collections.abc import Callable
from typing import Final

from homeport.adapters import engine
from homeport.capability.central import CentralCapability, CentralPart, Loop
from homeport.capability.late import late_service
from homeport.capability.site import SiteCapability, SitePart
from homeport.core.inference.engines.handoff import Handoff
from homeport.fleet.central.platform import CentralPlatform
from homeport.fleet.site.platform import SitePlatform
from homeport.inference.http.routes import inference_routes
from homeport.inference.plane import TaskPlane
from homeport.inference.tasks.inside import InsideTasks
from homeport.inference.tasks.ownership import TaskOwnership
from homeport.inference.tasks.site_usage import TOPIC, SiteUsage, UsageReports


def _central(platform: CentralPlatform) -> CentralPart:
    ownership = TaskOwnership(platform.leases, seconds=platform.lease_seconds)
    plane = _plane(platform, _named_site, ownership)

    async def run(platform: CentralPlatform) -> None:
        await plane.run()

    loops = [Loop("inference", run)]
    if ownership.is_shared:
        shared, plane.drains.bus = plane.share_limits(platform.bus), platform.bus

        async def share(platform: CentralPlatform) -> None:
            await shared.run()

        async def follow(platform: CentralPlatform) -> None:
            await plane.drains.follow()

        loops += [Loop("inference limits", share), Loop("drained pools", follow)]
    return CentralPart(
        routes=(inference_routes(plane),),
        services=(late_service("homeport.inference.orchion", "orchion_llm", plane),),
        before_serving=(plane.drains.load,),
        from_sites={TOPIC: SiteUsage(platform.store).take},
        loops=tuple(loops),
        metrics=(plane.metrics, plane.key_usage),
    )


def _site(platform: SitePlatform) -> SitePart:
    plane = _plane(platform, lambda handoff: platform.site)
    loops = [plane.run]
    if platform.central is not None:
        usage = UsageReports(platform.site, platform.central, platform.store, platform.clock, plane.journal)
        loops.append(usage.run)
    return SitePart(
        routes=(inference_routes(plane),),
        services=(late_service("homeport.inference.orchion", "orchion_llm", plane),),
        open_services=(late_service("homeport.inference.orchion", "open_orchion_llm", plane),),
        metrics=(plane.metrics, plane.key_usage),
        before_serving=(plane.drains.load,),
        loops=loops,
    )


def _plane(
    platform: CentralPlatform | SitePlatform,
    site_of: Callable[[Handoff], str],
    ownership: TaskOwnership | None = None,
) -> TaskPlane:
    settings = platform.inference_settings
    plane = TaskPlane(
        store=platform.store,
        clock=platform.clock,
        ports=platform.inference,
        connect=lambda handoff, opens: engine.connect(handoff, opens, idle_seconds=settings.idle_seconds),
        settings=settings,
        site_of=site_of,
        ownership=ownership,
    )
    platform.inference.pools = plane.registry
    platform.inference.demand = plane.scheduler
    platform.inference.end_pool = plane.end_retired
    platform.inference.tasks = InsideTasks(plane)
    return plane


def _named_site(handoff: Handoff) -> str:
    """At central, a replica's id begins with its site."""
    site, separator, _ = handoff.replica_id.partition("/")
    return site if separator else ""


INFERENCE: Final = CentralCapability("inference", _central)
SITE_INFERENCE: Final = SiteCapability("inference", _site)
