"""What a site answers when central asks about its nodes' identities. It decides as if it had been asked itself;
central only carries the word of its administrator."""

from homeport.core.model.caller import Caller, Role
from homeport.errors import HomeportError, Refused
from homeport.fleet.questions import Answer, refusal
from homeport.ports import NodeIdentities
from homeport.serving.enrolling import shown
from homeport.site.expelling import expel
from homeport.site.parts import SiteCore


async def answer(site: SiteCore, asked: NodeIdentities) -> Answer:
    try:
        return await _decide(site, asked)
    except HomeportError as error:
        return refusal(error)


async def _decide(site: SiteCore, asked: NodeIdentities) -> Answer:
    registrar = site.registrar
    if registrar is None:
        raise Refused(f"Site {site.settings.name} has no identity, so none of its nodes has one.")
    caller = Caller(asked.by, Role.ADMIN, "central")
    match asked.step:
        case "list":
            return {"identities": [shown(record).model_dump(mode="json") for record in await registrar.identities()]}
        case "approve":
            return shown(await registrar.approve(asked.name, caller)).model_dump(mode="json")
        case "remove":
            removed = await registrar.remove(asked.name, caller)
            await expel(removed, site.sessions, site.conductor)
            return shown(removed).model_dump(mode="json")
    raise Refused(f"This site does not know how to {asked.step}; it may be older than central.")
