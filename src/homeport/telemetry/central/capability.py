"""Telemetry at central: takes the batches of sites, and answers by asking them."""

from typing import Final

from homeport.capability.central import CentralCapability, CentralPart, Loop, ReplicaChoice
from homeport.fleet.central.platform import CentralPlatform
from homeport.fleet.shared.periodic import every
from homeport.telemetry.central.intake import TelemetryIntake, trim
from homeport.telemetry.central.source import CentralSource
from homeport.telemetry.shared.collector import TelemetryCollector
from homeport.telemetry.shared.exchange import TOPIC
from homeport.telemetry.shared.gpus import gpus_of
from homeport.telemetry.shared.routes import telemetry_routes
from homeport.vocabulary import SiteName

TRIM_SECONDS: Final = 600.0


async def trim_telemetry(central: CentralPlatform) -> None:
    await every("telemetry retention", TRIM_SECONDS, lambda: trim(central))


def _part(central: CentralPlatform) -> CentralPart:
    intake = TelemetryIntake(central)
    source = CentralSource(central, intake)
    central.inference.gpus = lambda nodes: gpus_of(
        (each for site in {SiteName(site) for site, _ in nodes} for each in intake.latest_of(site)), nodes
    )
    return CentralPart(
        routes=(telemetry_routes(source, central.store, central.clock, central.reachability),),
        loops=(Loop("telemetry", trim_telemetry, ReplicaChoice.ONE),),
        from_sites={TOPIC: intake.take},
        metrics=(TelemetryCollector(intake.latest),),
    )


TELEMETRY_AT_CENTRAL: Final = CentralCapability("telemetry", _part)
