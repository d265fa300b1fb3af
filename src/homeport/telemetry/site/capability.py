"""Telemetry at a site: takes what its nodes measure, keeps it, answers central and callers, and sends batches.

| loop       | period               | does                                                |
|------------|----------------------|-----------------------------------------------------|
| heartbeats | `LOOK_SECONDS`       | notes nodes that turned live, stale or lost         |
| windows    | `FLUSH_SECONDS`      | writes windows that are over; all of them at the end |
| reduction  | `REDUCE_SECONDS`     | makes coarser windows, and deletes old ones         |
| batches    | as central asks      | sends central what it has not got yet               |
"""

from collections.abc import Mapping
from typing import Any, Final

import anyio

from homeport.capability.site import SiteCapability, SitePart
from homeport.errors import InvalidInput, TransientError
from homeport.fleet.shared.periodic import every
from homeport.fleet.site.platform import SitePlatform
from homeport.log import get_log
from homeport.telemetry.shared.collector import TelemetryCollector
from homeport.telemetry.shared.exchange import HEARTBEATS_TOPIC, LATEST_TOPIC, SERIES_TOPIC, encode_intervals
from homeport.telemetry.shared.gpus import gpus_of
from homeport.telemetry.shared.latest import encode_latest
from homeport.telemetry.shared.routes import telemetry_routes
from homeport.telemetry.shared.series import decode_question
from homeport.telemetry.site.heartbeats import HeartbeatRecorder
from homeport.telemetry.site.keeper import TelemetryKeeper
from homeport.telemetry.site.sender import Sender
from homeport.telemetry.site.source import SiteSource, asked_range
from homeport.vocabulary import NodeId
from homeport.wire.values import text

log = get_log("homeport.telemetry")

LOOK_SECONDS: Final = 2.0
FLUSH_SECONDS: Final = 10.0
REDUCE_SECONDS: Final = 300.0
STOP_SECONDS: Final = 3.0


def _part(site: SitePlatform) -> SitePart:
    keeper, heartbeats = TelemetryKeeper(site), HeartbeatRecorder(site)
    sender = Sender(site, keeper, heartbeats)
    site.inference.gpus = lambda nodes: gpus_of(keeper.latest(), nodes)

    async def series(content: Mapping[str, Any]) -> Mapping[str, Any]:
        return await keeper.series(decode_question(content))

    async def latest(content: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"nodes": encode_latest(keeper.latest(), with_containers=True)}

    async def beats(content: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            node_id, (start, end) = NodeId(text(content["node"])), asked_range(content)
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInput(f"This is not a question about heartbeats: {error!r}.") from error
        return {"intervals": encode_intervals(await heartbeats.timeline(node_id, start, end))}

    async def keep_windows() -> None:
        try:
            await every("telemetry windows", FLUSH_SECONDS, keeper.flush)
        finally:
            await _flush_at_the_end(keeper)

    async def reduce() -> None:
        async def round_() -> None:
            await keeper.roll_up()
            await keeper.trim()
            await heartbeats.trim()

        await every("telemetry reduction", REDUCE_SECONDS, round_, limit_seconds=REDUCE_SECONDS)

    return SitePart(
        routes=(telemetry_routes(SiteSource(keeper, heartbeats), site.store, site.clock),),
        on_stream=keeper.on_stream,
        asked={SERIES_TOPIC: series, LATEST_TOPIC: latest, HEARTBEATS_TOPIC: beats},
        metrics=(TelemetryCollector(keeper.latest),),
        loops=(
            lambda: every("heartbeats", LOOK_SECONDS, heartbeats.look),
            keep_windows,
            reduce,
            sender.run,
        ),
    )


async def _flush_at_the_end(keeper: TelemetryKeeper) -> None:
    with anyio.move_on_after(STOP_SECONDS, shield=True):
        try:
            await keeper.flush(everything=True)
        except TransientError as error:
            log.warning("telemetry windows not written", error=str(error))


TELEMETRY_AT_SITE: Final = SiteCapability("telemetry", _part)
