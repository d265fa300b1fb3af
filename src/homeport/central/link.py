"""Where sites arrive, whether over HTTP or from the same process."""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import structlog

from homeport.central.parts import CentralCore
from homeport.core.model.caller import INTERNAL
from homeport.core.secrets import SecretsThere
from homeport.errors import HomeportError, PeerUnavailable, PermanentError, TransientError
from homeport.fleet.deploy import mark_site
from homeport.ports import FromCentral, Outgoing
from homeport.vocabulary import NodeId, SiteName

log = structlog.get_logger("homeport.central")


async def welcome(central: CentralCore, site: SiteName, *, epoch: str, software_version: str) -> int:
    """Joins a site and gives it its folder in Git. With Git gone it has joined all the same."""
    last = await central.intake.join(site, epoch=epoch, software_version=software_version)
    try:
        await mark_site(site, central.desk, INTERNAL)
    except (TransientError, PermanentError) as error:
        central.unmarked.add(site)
        log.warning("marker of site not written, will try again", site=site, why=str(error))
    return last


class DirectLink:
    """`ports.CentralLink` for a site in the same process."""

    def __init__(self, central: CentralCore) -> None:
        self._central = central

    async def join(self, site: SiteName, *, epoch: str, software_version: str) -> int:
        try:
            return await welcome(self._central, site, epoch=epoch, software_version=software_version)
        except HomeportError as error:
            raise PeerUnavailable(str(error)) from error

    async def report(
        self, site: SiteName, reports: Sequence[Outgoing], *, epoch: str, seen: Mapping[NodeId, datetime]
    ) -> int:
        try:
            return await self._central.intake.take(site, reports, epoch=epoch, seen=seen)
        except HomeportError as error:
            raise PeerUnavailable(str(error)) from error

    async def secrets(self, site: SiteName, *, known: Mapping[str, int]) -> SecretsThere:
        try:
            return await self._central.secrets.for_site(site, known=known)
        except HomeportError as error:
            raise PeerUnavailable(str(error)) from error

    async def answer(self, site: SiteName, question: str, answer: Mapping[str, Any]) -> None:
        try:
            self._central.questions.answered(site, question, answer)
        except HomeportError as error:
            raise PeerUnavailable(str(error)) from error

    async def watch(self, site: SiteName) -> AsyncIterator[FromCentral]:
        async for call in self._central.calls.listen(site):
            yield call
