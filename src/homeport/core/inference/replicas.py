"""Which replicas of which machines can be used from here, how they are reached, and by which name. Pure.

An address is connected to directly only on the machine and in the network namespace where it was said; an engine of
another one is reached through the tunnel of the role that announced it. Two machines may both have a replica `r0` of
one pool, when people wrote their files: the second is then named with its machine."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from homeport.core.inference.engines.handoff import Handoff
from homeport.core.tunnel.targets import Endpoint
from homeport.errors import InvalidInput
from homeport.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Reached:
    """A replica under the name it has here."""

    owner: str
    handoff: Handoff
    endpoint: Endpoint
    is_direct: bool
    """Else through the tunnel of its owner."""


Announced = Mapping[str, tuple[str, Sequence[Handoff]]]
"""By machine: the network that its addresses belong to, and its replicas."""


def assigned(announced: Announced, *, network: str) -> tuple[list[Reached], tuple[str, ...]]:
    """The usable replicas with names of their own, and a sentence for each whose address cannot be read."""
    found: dict[tuple[str, str], Reached] = {}
    problems = []
    for owner in sorted(announced):
        theirs, handoffs = announced[owner]
        is_direct = bool(network) and theirs == network
        for handoff in handoffs:
            try:
                endpoint = Endpoint.of(handoff.url)
            except InvalidInput as error:
                problems.append(f"{handoff.pool_id} on {owner}: {error}")
                continue
            named = handoff
            if named.key in found:
                named = replace(handoff, replica_id=f"{owner}/{handoff.replica_id}"[:128])
            found.setdefault(named.key, Reached(owner, named, endpoint, is_direct))
    return list(found.values()), tuple(problems)


def of_site(site: str, reached: Iterable[Reached]) -> dict[tuple[str, str], Reached]:
    """At central, replicas carry the name of their site: two sites may have a node of one name."""
    named = (replace(each, handoff=_named(each.handoff, site)) for each in reached)
    return {each.handoff.key: each for each in named}


def _named(handoff: Handoff, site: str) -> Handoff:
    return replace(handoff, replica_id=f"{site}/{handoff.replica_id}"[:128])
