"""The SPIFFE IDs of Homeport: how they are written and what they mean.

A SPIFFE ID is only a name; `rules` decides whether its holder is trusted. Comparison is exact and case-sensitive, and
nothing is normalised: an id that is not in the canonical form is invalid.
"""

import re
from functools import lru_cache
from typing import Final, NamedTuple

from homeport.core.model.identity import IdentityKind
from homeport.errors import InvalidInput
from homeport.vocabulary import NodeId, SiteName

SCHEME: Final = "spiffe://"
SERVER_NAME: Final = "svid.homeport.internal"
"""The TLS server name (SNI) that requests a server's SVID, independent of the address dialled. It is the same for
all, because a joining machine knows no other yet. It only selects a certificate; identity is the SPIFFE ID in it."""
LENGTH_MAX: Final = 2048
"""The maximum length of a SPIFFE ID."""
DOMAIN_LENGTH_MAX: Final = 255

_DOMAIN = re.compile(r"[a-z0-9._-]+", re.ASCII)
_SEGMENT = re.compile(r"[A-Za-z0-9._-]+", re.ASCII)


class ParsedId(NamedTuple):
    kind: IdentityKind
    name: str
    """Of central: its wfm-id. Of a client, a site's authority or a node: its name."""
    site: SiteName | None


def domain_id(domain: str) -> str:
    """The trust domain itself: the name of a root authority, never of a machine."""
    if not _is_domain(domain):
        raise InvalidInput(
            f"{domain!r} is not a trust domain.",
            hint="Use lowercase letters, digits, dots, dashes and underscores, such as homeport.internal.",
        )
    return SCHEME + domain


def central_id(domain: str, wfm: str) -> str:
    return _join(domain, "margo", "wfm", wfm)


def client_id(domain: str, wfm: str, name: str) -> str:
    return _join(domain, "margo", "wfm", wfm, "client", name)


def site_authority_id(domain: str, site: SiteName | str) -> str:
    return _join(domain, "homeport", "site", site)


def node_id(domain: str, site: SiteName | str, node: NodeId | str) -> str:
    return _join(domain, "homeport", "site", site, "node", node)


def parse(text: str, *, domain: str, wfm: str) -> ParsedId:
    """Parses an id of our own trust domain and our own wfm-id; InvalidInput for every other text."""
    found, segments = split(text)
    if found != domain:
        raise InvalidInput(f"{text} belongs to the trust domain {found}, not to {domain}.")
    match segments:
        case ("margo", "wfm", own) if own == wfm:
            return ParsedId(IdentityKind.CENTRAL, own, None)
        case ("margo", "wfm", own, "client", name) if own == wfm:
            return ParsedId(IdentityKind.CLIENT, name, SiteName(name))
        case ("homeport", "site", site):
            return ParsedId(IdentityKind.SITE_AUTHORITY, site, SiteName(site))
        case ("homeport", "site", site, "node", node):
            return ParsedId(IdentityKind.NODE, node, SiteName(site))
        case ("margo", "wfm", other, *_) if other != wfm:
            raise InvalidInput(f"{text} is of the WFM {other}, not of {wfm} (--wfm).")
    raise InvalidInput(f"{text} names neither the WFM {wfm}, nor a client of it, nor a site, nor a node.")


@lru_cache(maxsize=4096)
def split(text: str) -> tuple[str, tuple[str, ...]]:
    """The trust domain and the path segments, possibly none. Cached: the same few ids come with every request."""
    if not text.startswith(SCHEME) or len(text) > LENGTH_MAX:
        raise InvalidInput(f"{text[:200]!r} is not a SPIFFE ID.")
    domain, *segments = text[len(SCHEME) :].split("/")
    if not _is_domain(domain) or not all(map(_is_segment, segments)):
        raise InvalidInput(f"{text[:200]!r} is not a SPIFFE ID in its canonical form.")
    return domain, tuple(segments)


def may_vouch(authority: str, leaf: str) -> bool:
    """Whether a site's authority may sign for an id: its own nodes, and the site itself as its nodes see it.

    The second lets nodes authenticate their site when central has been gone for longer than the site's certificate
    from central is valid; central does not accept it.
    """
    node = leaf.removeprefix(f"{authority}/node/")
    return leaf == authority or (node != leaf and _is_segment(node))


def servers_for(own: str, *, domain: str, wfm: str) -> frozenset[str]:
    """The server ids that the holder of an id accepts; derived from its own id, never from configuration.

    A client accepts its WFM alone. A node accepts its site, with the certificate from central or with the one that
    the site issued for itself.
    """
    me = parse(own, domain=domain, wfm=wfm)
    if me.kind is IdentityKind.NODE and me.site is not None:
        return frozenset({client_id(domain, wfm, me.site), site_authority_id(domain, me.site)})
    return frozenset({central_id(domain, wfm)})


def _join(domain: str, *segments: str) -> str:
    for segment in segments:
        if not _is_segment(segment):
            raise InvalidInput(
                f"{segment!r} cannot be part of a SPIFFE ID.",
                hint="Use letters, digits, dots, dashes and underscores.",
            )
    text = "/".join((domain_id(domain), *segments))
    if len(text) > LENGTH_MAX:
        raise InvalidInput(f"A SPIFFE ID has at most {LENGTH_MAX} characters; this one would have {len(text)}.")
    return text


def _is_domain(text: str) -> bool:
    return len(text) <= DOMAIN_LENGTH_MAX and _DOMAIN.fullmatch(text) is not None


def _is_segment(text: str) -> bool:
    return text not in {".", ".."} and _SEGMENT.fullmatch(text) is not None
