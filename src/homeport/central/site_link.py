"""Where sites connect, over HTTP or from the same process."""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from homeport.central.parts import CentralCore
from homeport.core.model.caller import INTERNAL
from homeport.core.model.protocol import OWN, PeerProtocol
from homeport.core.secrets import SecretsThere
from homeport.errors import (
    HomeportError,
    InvalidInput,
    PeerIncompatible,
    PeerUnavailable,
    PermanentError,
    Refused,
    TransientError,
    UnknownKind,
)
from homeport.fleet.central.deploy import mark_site
from homeport.log import get_log
from homeport.ports import FromCentral, JoinAnswer, Lineage, Outgoing
from homeport.vocabulary import NodeId, SiteName

log = get_log("homeport.central")


async def welcome(
    central: CentralCore,
    site: SiteName,
    *,
    epoch: str,
    software_version: str,
    lineage: Lineage | None = None,
    protocol: PeerProtocol = OWN,
) -> JoinAnswer:
    """Joins a site and creates its folder in Git. While Git is unavailable it still joins."""
    joined = await central.intake.join(
        site, epoch=epoch, software_version=software_version, lineage=lineage, protocol=protocol
    )
    try:
        await mark_site(site, central.git_writer, INTERNAL)
    except (TransientError, PermanentError) as error:
        central.unmarked.add(site)
        log.warning("site marker write failed, will retry", site=site, why=str(error))
    return joined


async def answer_call(central: CentralCore, site: SiteName, topic: str, body: bytes) -> bytes:
    """Hands a site's call to the capability that it is for. Raises UnknownKind where none answers this topic."""
    for part in central.brought:
        if (answer := part.from_sites.get(topic)) is not None:
            try:
                return await answer(site, body)
            except HomeportError:
                raise
            except Exception as error:  # A call that a capability stumbles over harms itself alone.
                log.exception("call of a site failed", site=site, topic=topic)
                raise InvalidInput(f"Central could not take this call: {type(error).__name__}.") from error
    raise UnknownKind(f'Central does not know calls about "{topic[:100]}".', hint="Upgrade central.")


class DirectLink:
    """`ports.CentralLink` for a site in the same process."""

    def __init__(self, central: CentralCore) -> None:
        self._central = central

    async def join(
        self, site: SiteName, *, epoch: str, software_version: str, lineage: Lineage | None = None
    ) -> JoinAnswer:
        try:
            return await welcome(self._central, site, epoch=epoch, software_version=software_version, lineage=lineage)
        except HomeportError as error:
            raise PeerUnavailable(str(error)) from error

    async def report(
        self,
        site: SiteName,
        reports: Sequence[Outgoing],
        *,
        epoch: str,
        seen: Mapping[NodeId, datetime],
        start: str = "",
    ) -> int:
        try:
            return await self._central.intake.take(site, reports, epoch=epoch, seen=seen, start=start)
        except HomeportError as error:
            raise PeerUnavailable(str(error)) from error

    async def secrets(self, site: SiteName, *, known: Mapping[str, int]) -> SecretsThere:
        try:
            return await self._central.secrets.for_site(site, known=known)
        except HomeportError as error:
            raise PeerUnavailable(str(error)) from error

    async def call(self, site: SiteName, topic: str, body: bytes) -> bytes:
        try:
            return await answer_call(self._central, site, topic, body)
        except UnknownKind as error:
            raise PeerIncompatible(str(error)) from error
        except PermanentError as error:
            raise Refused(str(error), hint=error.hint) from error
        except HomeportError as error:
            raise PeerUnavailable(str(error)) from error

    async def answer(self, site: SiteName, question: str, answer: Mapping[str, Any]) -> None:
        try:
            await self._central.questions.answered(site, question, answer)
        except HomeportError as error:
            raise PeerUnavailable(str(error)) from error

    async def watch(self, site: SiteName) -> AsyncIterator[FromCentral]:
        async for call in self._central.calls.listen(site):
            yield call
