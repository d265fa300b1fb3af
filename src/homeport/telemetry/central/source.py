"""Answers of central: the site is asked, since it has every point; where it cannot be, what it sent before counts."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final

import anyio

from homeport.core.telemetry.heartbeats import INTERVALS_MAX, Interval, timeline
from homeport.core.telemetry.ranges import time_range
from homeport.core.telemetry.windows import MINUTE
from homeport.errors import InvalidInput, PeerIncompatible, PeerUnavailable, UnknownKind
from homeport.fleet.central.platform import CentralPlatform
from homeport.telemetry.central.intake import TelemetryIntake, observed_key
from homeport.telemetry.shared.exchange import (
    HEARTBEATS_TOPIC,
    LATEST_TOPIC,
    SERIES_TOPIC,
    decode_intervals,
)
from homeport.telemetry.shared.latest import Latest, decode_latest
from homeport.telemetry.shared.series import Question, answer, encode_question, find_contents, readable
from homeport.telemetry.shared.source import Newest
from homeport.vocabulary import NodeId, SiteName

ASK_SECONDS_MAX: Final = 5.0
AWAY: Final = (PeerUnavailable, PeerIncompatible, UnknownKind, TimeoutError)


class CentralSource:
    def __init__(self, central: CentralPlatform, intake: TelemetryIntake) -> None:
        self._central = central
        self._intake = intake

    async def series(self, site: SiteName, question: Question) -> dict[str, Any]:
        try:
            answered = await self._ask(site, SERIES_TOPIC, encode_question(question))
        except AWAY:
            return await self._stored_series(site, question)
        return {**answered, "is_stored": False}

    async def _stored_series(self, site: SiteName, question: Question) -> dict[str, Any]:
        step = max(question.step_seconds or 0.0, float(MINUTE.seconds))
        wanted = time_range(self._central.clock.now(), question.start, question.end, step)
        contents: dict[NodeId, list[bytes]] = {}
        async with self._central.store.read() as reader:
            for node_id in question.nodes:
                contents[node_id] = await find_contents(reader, site, node_id, wanted)
        windows = {node_id: readable(each) for node_id, each in contents.items()}
        answered = await self._central.in_thread(partial(answer, windows, question, wanted))
        return {**answered, "is_stored": True}

    async def latest(self, sites: Sequence[SiteName]) -> Newest:
        found: dict[SiteName, Sequence[Latest]] = {}
        unreachable: list[SiteName] = []

        async def ask(site: SiteName) -> None:
            try:
                found[site] = decode_latest(site, (await self._ask(site, LATEST_TOPIC, {})).get("nodes"))
            except (*AWAY, InvalidInput):
                unreachable.append(site)
                found[site] = self._intake.latest_of(site)

        async with anyio.create_task_group() as tasks:
            for site in sites:
                tasks.start_soon(ask, site)
        return Newest([each for site in sites for each in found[site]], sorted(unreachable))

    async def heartbeats(self, site: SiteName, node_id: NodeId, start: datetime, end: datetime) -> Sequence[Interval]:
        question = {"node": node_id, "start": start.isoformat(), "end": end.isoformat()}
        try:
            answered = await self._ask(site, HEARTBEATS_TOPIC, question)
            return decode_intervals(answered["intervals"][:INTERVALS_MAX])
        except (*AWAY, KeyError, ValueError, TypeError):
            pass
        async with self._central.store.read() as reader:
            kept = await reader.heartbeats(site, node_id, start=start, end=end, limit=INTERVALS_MAX)
            stored = await reader.value_as(observed_key(site), datetime.fromisoformat)
        until = start if stored is None else stored
        return timeline(kept, start=start, end=end, until=until)

    async def _ask(self, site: SiteName, topic: str, content: Mapping[str, Any]) -> dict[str, Any]:
        with anyio.fail_after(ASK_SECONDS_MAX):
            return dict(await self._central.questions.ask(site, topic, content))
