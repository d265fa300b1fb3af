"""Answers central's requests about the identities of nodes. The site decides as for a local request; central only
forwards the decision of its administrator."""

from homeport.core.model.caller import Caller, Role
from homeport.errors import HomeportError, Refused
from homeport.ports import NodeIdentities
from homeport.serving.routes.enrolment import shown
from homeport.site.expulsion import evict
from homeport.site.parts import SiteCore
from homeport.wire.answers import Answer, encode_error


async def answer(site: SiteCore, asked: NodeIdentities) -> Answer:
    try:
        return await _decide(site, asked)
    except HomeportError as error:
        return encode_error(error)


async def _decide(site: SiteCore, asked: NodeIdentities) -> Answer:
    registrar = site.registrar
    if registrar is None:
        raise Refused(f"Site {site.settings.name} has no identity, so none of its nodes has one.")
    caller = Caller(asked.by, Role.ADMIN, "central")
    match asked.step:
        case "list":
            return {"identities": [shown(record).model_dump(mode="json") for record in await registrar.identities()]}
        case "approve":
            return shown(await registrar.approve(asked.name, caller, key=asked.key or None)).model_dump(mode="json")
        case "remove":
            removed = await registrar.remove(asked.name, caller)
            await evict(removed, site.sessions, site.conductor)
            return shown(removed).model_dump(mode="json")
    raise Refused(f"This site does not know how to {asked.step}; it may be older than central.")
