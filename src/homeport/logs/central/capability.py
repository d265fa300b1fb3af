"""The logs capability of central: it stores the lines of all sites and its own, and answers questions from that."""

from functools import partial
from pathlib import Path
from typing import Final

import anyio

from homeport.adapters.logs.sqlite import LogFile, SqliteLogs
from homeport.capability.central import CentralCapability, CentralPart, Loop, ReplicaChoice
from homeport.capability.late import late_service, load_late
from homeport.core.logs.intake import LogArrival
from homeport.core.logs.line import Origin, SourceKind
from homeport.fleet.central.platform import CentralPlatform
from homeport.logs.outputs.running import run_outputs
from homeport.logs.role_lines import keep_own_lines
from homeport.logs.serving.reading import LogReading
from homeport.logs.serving.routes import alias_log_routes, log_routes
from homeport.logs.storing import Storing
from homeport.ports import LogStore
from homeport.vocabulary import SiteName
from homeport.wire.logs import decode_batch, encode_stored

FILE: Final = "logs.sqlite3"
TOPIC: Final = "logs"


class CentralLogs:
    def __init__(self, store: LogStore) -> None:
        self.store = store
        self.storing = Storing(store)

    async def take(self, central: CentralPlatform, site: SiteName, body: bytes) -> bytes:
        """A site's lines are believed to be its own, and no other site's."""
        batch = await central.in_thread(decode_batch, body)
        return encode_stored(await self.storing.store(LogArrival(f"site/{site}", site, [batch])))

    async def run(self, central: CentralPlatform) -> None:
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.storing.run)
                tasks.start_soon(self.storing.trim, central.logs, central.store, central.clock)
                if central.logs.own:
                    own = Origin("", "", SourceKind.CENTRAL)
                    tasks.start_soon(keep_own_lines, SourceKind.CENTRAL, partial(self.storing.put_own, own))
        finally:
            with anyio.move_on_after(5, shield=True):
                await self.store.close()

    async def run_outputs(self, central: CentralPlatform) -> None:
        await run_outputs(self.store, central.logs)
        await anyio.sleep_forever()


def _store(central: CentralPlatform, data: Path) -> LogStore:
    if central.database_url:
        store: LogStore = load_late("homeport.adapters.logs.postgresql", "PostgresLogs")(
            central.database_url, central.bus
        )
        return store
    return SqliteLogs(LogFile(data / FILE), in_thread=central.in_thread)


def _part(central: CentralPlatform) -> CentralPart:
    if central.data is None:
        return CentralPart()
    logs = CentralLogs(_store(central, central.data))
    reading = LogReading(logs.store, central.store)
    return CentralPart(
        routes=(log_routes(reading), alias_log_routes(reading)),
        services=(late_service("homeport.logs.serving.grpc", "log_service", reading),),
        loops=(Loop("logs", logs.run), Loop("log outputs", logs.run_outputs, ReplicaChoice.ONE)),
        from_sites={TOPIC: partial(logs.take, central)},
    )


LOGS: Final = CentralCapability("logs", _part)
