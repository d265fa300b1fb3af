"""Each rule a certificate is judged by, the order of the rules, and what a site's authority may vouch for."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from homeport.core.identity.rules import judge
from homeport.core.model.identity import CertificateView, IdentityKind, Peer
from homeport.errors import Refused

NOW = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
DOMAIN = "homeport.internal"
CLIENT = f"spiffe://{DOMAIN}/margo/wfm/central/client/line-7"
NODE = f"spiffe://{DOMAIN}/homeport/site/home/node/n1"

LEAF = CertificateView(
    uri_sans=(CLIENT,),
    is_ca=False,
    signs_certificates=False,
    not_before=NOW - timedelta(hours=1),
    not_after=NOW + timedelta(hours=1),
    key_kind="ec-p256",
    key_bits=256,
    fingerprint="leaf",
    spki="leaf-key",
)
ROOT = replace(
    LEAF, uri_sans=(f"spiffe://{DOMAIN}",), is_ca=True, signs_certificates=True, fingerprint="root", spki="root-key"
)
HOME = replace(ROOT, uri_sans=(f"spiffe://{DOMAIN}/homeport/site/home",), fingerprint="home", spki="home-key")


def believed(*chain: CertificateView, anchors: frozenset[str] = frozenset({"root"}), skew: float = 60.0) -> Peer:
    return judge(chain, domain=DOMAIN, wfm="central", now=NOW, anchors=anchors, skew_seconds=skew)


def test_a_good_chain_says_who_it_is() -> None:
    peer = believed(LEAF, ROOT)
    assert (peer.kind, peer.name, peer.site) == (IdentityKind.CLIENT, "line-7", "line-7")
    assert peer.chain == (LEAF, ROOT)


def test_a_node_of_a_site_is_known_by_its_sites_authority() -> None:
    node = replace(LEAF, uri_sans=(NODE,))
    peer = believed(node, HOME, ROOT)
    assert (peer.kind, peer.name, peer.site) == (IdentityKind.NODE, "n1", "home")


def test_a_chain_is_read_up_to_its_first_anchor() -> None:
    node = replace(LEAF, uri_sans=(NODE,))
    expired = replace(ROOT, not_after=NOW - timedelta(days=1))
    assert believed(node, HOME, expired, anchors=frozenset({"home"})).chain == (node, HOME)


# fmt: off
BROKEN: list[tuple[str, Callable[[], tuple[CertificateView, ...]], str]] = [
    ("no certificate",       lambda: (), "No certificate was presented"),
    ("no name",              lambda: (replace(LEAF, uri_sans=()), ROOT), "has none"),
    ("two names",            lambda: (replace(LEAF, uri_sans=(CLIENT, NODE)), ROOT), "this one has 2"),
    ("https",                lambda: (named(CLIENT.replace("spiffe", "https")), ROOT), "is not a SPIFFE ID"),
    ("domain only",          lambda: (named(f"spiffe://{DOMAIN}"), ROOT), "not a machine"),
    ("other domain",         lambda: (named("spiffe://other.example/margo/wfm/central/client/a"), ROOT), "ours is"),
    ("stranger",             lambda: (LEAF, replace(ROOT, fingerprint="stranger")), "current trust bundle"),
    ("leaf as anchor",       lambda: (replace(LEAF, fingerprint="root"),), "current trust bundle"),
    ("endless chain",        lambda: (LEAF, *[replace(ROOT, fingerprint=str(n)) for n in range(12)], ROOT), "long"),
    ("early leaf",           lambda: (replace(LEAF, not_before=NOW + timedelta(minutes=2)), ROOT), "not valid"),
    ("late leaf",            lambda: (replace(LEAF, not_after=NOW - timedelta(minutes=2)), ROOT), "expired on"),
    ("late intermediate",    lambda: (LEAF, late(HOME), ROOT), "An authority behind"),
    ("late root",            lambda: (LEAF, late(ROOT)), "An authority behind"),
    ("short RSA",            lambda: (replace(LEAF, key_kind="rsa", key_bits=2048), ROOT), "at least 3072"),
    ("short RSA above",      lambda: (LEAF, replace(ROOT, key_kind="rsa", key_bits=2048)), "at least 3072"),
    ("other curve",          lambda: (replace(LEAF, key_kind="ec-secp521r1"), ROOT), "not accepted (ec-secp521r1)"),
    ("signed by a leaf",     lambda: (LEAF, replace(HOME, is_ca=False, uri_sans=()), ROOT), "not an authority"),
    ("authority as leaf",    lambda: (replace(LEAF, is_ca=True), ROOT), "that of an authority"),
    ("leaf that signs",      lambda: (replace(LEAF, signs_certificates=True), ROOT), "may sign others"),
    ("other wfm",            lambda: (named(f"spiffe://{DOMAIN}/margo/wfm/other/client/a"), ROOT), "the WFM other"),
    ("other path",           lambda: (named(f"spiffe://{DOMAIN}/something"), ROOT), "names neither"),
    ("site mints a client",  lambda: (LEAF, HOME, ROOT), "may not vouch for"),
    ("site mints central",   lambda: (named(f"spiffe://{DOMAIN}/margo/wfm/central"), HOME, ROOT), "may not vouch"),
    ("site mints a neighbour's node", lambda: (named(NODE.replace("home/", "away/")), HOME, ROOT), "may not vouch"),
    ("site below a site",    lambda: (named(NODE), HOME, replace(HOME, uri_sans=(f"spiffe://{DOMAIN}/x",)), ROOT),
     "may not vouch"),
    ("authority of another domain", lambda: (LEAF, replace(HOME, uri_sans=("spiffe://other.example",)), ROOT),
     "may not vouch"),
    ("authority of no proper name", lambda: (LEAF, replace(HOME, uri_sans=("spiffe://%",)), ROOT), "may not vouch"),
    ("authority of two names", lambda: (LEAF, replace(HOME, uri_sans=(*ROOT.uri_sans, *HOME.uri_sans)), ROOT),
     "may not vouch"),
]
# fmt: on


def named(uri: str) -> CertificateView:
    return replace(LEAF, uri_sans=(uri,))


def late(certificate: CertificateView) -> CertificateView:
    return replace(certificate, not_after=NOW - timedelta(minutes=2))


@pytest.mark.parametrize(("chain", "sentence"), [row[1:] for row in BROKEN], ids=[row[0] for row in BROKEN])
def test_a_broken_rule_is_named(chain: Callable[[], tuple[CertificateView, ...]], sentence: str) -> None:
    with pytest.raises(Refused) as refused:
        believed(*chain())
    assert sentence in str(refused.value)
    assert str(refused.value).endswith(".")


def test_the_first_broken_rule_gives_the_reason() -> None:
    """The name before the chain, the chain before the leaf, the leaf before the form."""
    worst = replace(
        LEAF, uri_sans=(f"spiffe://{DOMAIN}/x",), is_ca=True, not_after=NOW - timedelta(days=1), fingerprint="worst"
    )
    reasons = []
    for chain in (
        (replace(worst, uri_sans=("https://x",)), replace(ROOT, fingerprint="stranger")),
        (worst, replace(ROOT, fingerprint="stranger")),
        (worst, ROOT),
        (replace(worst, not_after=LEAF.not_after), ROOT),
        (replace(worst, not_after=LEAF.not_after, is_ca=False), ROOT),
    ):
        with pytest.raises(Refused) as refused:
            believed(*chain)
        reasons.append(str(refused.value))
    for reason, word in zip(reasons, ("SPIFFE ID", "bundle", "expired", "authority", "neither"), strict=True):
        assert word in reason


def test_clocks_may_differ_by_the_allowance_and_no_more() -> None:
    ended = replace(LEAF, not_after=NOW - timedelta(seconds=30))
    begins = replace(LEAF, not_before=NOW + timedelta(seconds=30))
    assert believed(ended, ROOT).name == believed(begins, ROOT).name == "line-7"
    for certificate in (ended, begins):
        with pytest.raises(Refused):
            believed(certificate, ROOT, skew=0)


def test_an_authority_without_a_spiffe_name_may_vouch_for_all() -> None:
    """As those of other issuers often are; they are trusted because the bundle says so."""
    plain = replace(HOME, uri_sans=())
    web = replace(HOME, uri_sans=("https://pki.example/policy",))
    assert believed(LEAF, plain, ROOT) == replace(believed(LEAF, web, ROOT), chain=(LEAF, plain, ROOT))


@pytest.mark.parametrize(("kind", "bits"), [("ec-p384", 384), ("ed25519", 256), ("rsa", 3072), ("rsa", 4096)])
def test_other_good_keys_are_accepted(kind: str, bits: int) -> None:
    assert believed(replace(LEAF, key_kind=kind, key_bits=bits), ROOT).name == "line-7"
