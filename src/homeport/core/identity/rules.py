"""Whether a certificate is trusted, and for which identity.

The rules are in the order of Margo's validation, and the first broken one gives the reason. Signatures are verified
before a chain arrives here (by the TLS layer, against anchors that may be outdated); everything else is decided here:
the name, the validity period, the keys, the current anchors and which ids each authority may sign.
Whether an authenticated peer is also admitted is a matter of policy and not decided here.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

from homeport.core.identity import spiffe
from homeport.core.model.identity import CertificateView, Peer
from homeport.errors import InvalidInput, Refused
from homeport.lazy_dataclass import dataclass

SKEW_SECONDS: Final = 60.0
"""Tolerated clock skew: a minute is more than any time service leaves, and short compared with a lifetime."""

KEY_BITS_MIN: Final = {"ec-p256": 256, "ec-p384": 384, "ed25519": 256, "rsa": 3072}
CHAIN_LENGTH_MAX: Final = 10


@dataclass(frozen=True, slots=True)
class Case:
    """One chain being validated: from the leaf up to the first anchor, or whole when it has none."""

    chain: Sequence[CertificateView]
    domain: str
    wfm: str
    now: datetime
    anchors: frozenset[str]
    skew: timedelta

    @property
    def leaf(self) -> CertificateView:
        return self.chain[0]

    @property
    def name(self) -> str:
        return self.leaf.uri_sans[0]

    @property
    def authorities(self) -> Sequence[CertificateView]:
        return self.chain[1:]


Rule = Callable[[Case], str | None]
"""The reason to refuse, or None where the rule holds."""


def judge(
    chain: Sequence[CertificateView],
    *,
    domain: str,
    wfm: str,
    now: datetime,
    anchors: frozenset[str],
    skew_seconds: float = SKEW_SECONDS,
) -> Peer:
    """The identity behind a verified chain (leaf first); Refused names the broken rule.

    `anchors` are the fingerprints of the currently trusted certificates.
    """
    if not chain:
        raise Refused("No certificate was presented.")
    case = Case(_up_to_anchor(chain, anchors), domain, wfm, now, anchors, timedelta(seconds=skew_seconds))
    for rule in RULES:
        sentence = rule(case)
        if sentence is not None:
            raise Refused(sentence)
    identity = spiffe.parse(case.name, domain=domain, wfm=wfm)
    return Peer(case.name, identity.kind, identity.name, identity.site, tuple(case.chain))


def _up_to_anchor(chain: Sequence[CertificateView], anchors: frozenset[str]) -> Sequence[CertificateView]:
    """A leaf is never its own anchor, so the search begins above it."""
    for place, certificate in enumerate(chain[1:], 1):
        if certificate.fingerprint in anchors:
            return chain[: place + 1]
    return chain


# --- 1. the name ----------------------------------------------------------------------------------------


def _one_name(case: Case) -> str | None:
    count = len(case.leaf.uri_sans)
    return None if count == 1 else f"A certificate must have exactly one URI name; this one has {count or 'none'}."


def _spiffe_name(case: Case) -> str | None:
    try:
        _, segments = spiffe.split(case.name)
    except InvalidInput as error:
        return str(error)
    return None if segments else f"{case.name} names a trust domain, not a machine."


def _own_domain(case: Case) -> str | None:
    domain, _ = spiffe.split(case.name)
    return (
        None if domain == case.domain else f"{case.name} belongs to the trust domain {domain}; ours is {case.domain}."
    )


# --- 2. the chain ---------------------------------------------------------------------------------------


def _anchored(case: Case) -> str | None:
    if len(case.chain) > 1 and case.chain[-1].fingerprint in case.anchors:
        return None
    return f"The certificate of {case.name} does not lead to an authority of the current trust bundle."


def _short(case: Case) -> str | None:
    return None if len(case.chain) <= CHAIN_LENGTH_MAX else f"The chain of {case.name} is {len(case.chain)} long."


def _begun(case: Case) -> str | None:
    for certificate in case.chain:
        if certificate.not_before > case.now + case.skew:
            return f"{_whose(case, certificate)} is not valid before {_when(certificate.not_before)}."
    return None


def _not_over(case: Case) -> str | None:
    for certificate in case.chain:
        if certificate.not_after < case.now - case.skew:
            return f"{_whose(case, certificate)} expired on {_when(certificate.not_after)}."
    return None


def _strong_keys(case: Case) -> str | None:
    for certificate in case.chain:
        bits = KEY_BITS_MIN.get(certificate.key_kind)
        if bits is None:
            return f"{_whose(case, certificate)} has a key of a kind that is not accepted ({certificate.key_kind})."
        if certificate.key_bits < bits:
            size = f"{certificate.key_bits} bits; at least {bits} are needed"
            return f"{_whose(case, certificate)} has an {certificate.key_kind.upper()} key of {size}."
    return None


def _signed_by_authorities(case: Case) -> str | None:
    if all(certificate.is_ca for certificate in case.authorities):
        return None
    return f"The certificate of {case.name} was signed by a certificate that is not an authority."


# --- 3. the leaf ----------------------------------------------------------------------------------------


def _leaf_is_no_authority(case: Case) -> str | None:
    return f"The certificate of {case.name} is that of an authority, not of a machine." if case.leaf.is_ca else None


def _leaf_signs_nothing(case: Case) -> str | None:
    return f"The certificate of {case.name} may sign others." if case.leaf.signs_certificates else None


# --- 4. what the name means, and who may sign for it ---------------------------------------------------


def _known_form(case: Case) -> str | None:
    try:
        spiffe.parse(case.name, domain=case.domain, wfm=case.wfm)
    except InvalidInput as error:
        return str(error)
    return None


def _vouched_by_the_right_authority(case: Case) -> str | None:
    """An authority without a name, or named for the trust domain, may sign for all; a site's authority for its site.

    So a compromised site can create nodes of its own, but no client and no node of another site.
    """
    roots = spiffe.domain_id(case.domain)
    for authority in case.authorities:
        for name in authority.uri_sans:
            if name.startswith(spiffe.SCHEME) and name != roots and not _may_vouch(name, case):
                return f"{name} may not vouch for {case.name}."
    return None


def _may_vouch(authority: str, case: Case) -> bool:
    try:
        domain, segments = spiffe.split(authority)
    except InvalidInput:
        return False
    is_site = domain == case.domain and len(segments) == 3 and segments[:2] == ("homeport", "site")
    return is_site and spiffe.may_vouch(authority, case.name)


RULES: Final[tuple[Rule, ...]] = (
    _one_name,
    _spiffe_name,
    _own_domain,
    _anchored,
    _short,
    _begun,
    _not_over,
    _strong_keys,
    _signed_by_authorities,
    _leaf_is_no_authority,
    _leaf_signs_nothing,
    _known_form,
    _vouched_by_the_right_authority,
)


def _whose(case: Case, certificate: CertificateView) -> str:
    return f"The certificate of {case.name}" if certificate is case.leaf else f"An authority behind {case.name}"


def _when(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"
