"""Every authority signs alike: what it vouches for, what is in the certificate, and what it refuses."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import ExtendedKeyUsageOID

from homeport.adapters.identity.certificates import read_chain, to_der, view
from homeport.adapters.identity.keys import PrivateKey, csr_spki, make_csr, new_key
from homeport.core.identity import rules, spiffe
from homeport.errors import InvalidInput, Refused
from homeport.ports import Authority
from tests.support.certificates import DOMAIN, WFM, Household, rsa_key


def now() -> datetime:
    return datetime.now(UTC)


NODE = spiffe.node_id(DOMAIN, "home", "n1")


@pytest.fixture(params=["root", "site"])
def authority(request: pytest.FixtureRequest, tmp_path: Path) -> Authority:
    household = Household(tmp_path)
    return household.authority if request.param == "root" else household.site_authority("home")


def issued(authority: Authority, key: PrivateKey | None = None, **wishes: object) -> list[x509.Certificate]:
    options: dict[str, object] = {"spiffe_id": NODE, "lifetime_seconds": 3600, "now": now(), **wishes}
    return read_chain(authority.issue(make_csr(key or new_key(), "n1"), **options).chain)  # type: ignore[arg-type]


def test_a_leaf_has_one_name_and_can_only_prove_itself(authority: Authority) -> None:
    leaf = issued(authority)[0]
    seen = view(to_der(leaf))
    assert (seen.uri_sans, seen.is_ca, seen.signs_certificates) == ((NODE,), False, False)
    usage = leaf.extensions.get_extension_for_class(x509.KeyUsage)
    assert usage.critical
    assert usage.value.digital_signature
    assert set(leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == {
        ExtendedKeyUsageOID.CLIENT_AUTH,
        ExtendedKeyUsageOID.SERVER_AUTH,
    }
    assert isinstance(leaf.signature_hash_algorithm, hashes.SHA256)
    leaf.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier)
    leaf.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)


def test_the_chain_is_believed_with_the_bundle(authority: Authority) -> None:
    roots = [x509.load_der_x509_certificate(der) for der in authority.bundle().anchors]
    chain = [*issued(authority), *roots]
    for below, above in pairwise(chain):
        below.verify_directly_issued_by(above)
    views = [view(to_der(certificate)) for certificate in chain]
    anchors = frozenset({views[-1].fingerprint})
    assert rules.judge(views, domain=DOMAIN, wfm=WFM, now=now(), anchors=anchors).name == "n1"


def test_a_leaf_begins_an_hour_before_now_and_lives_as_long_as_asked(authority: Authority) -> None:
    leaf = issued(authority, lifetime_seconds=86400)[0]
    assert abs(now() - leaf.not_valid_before_utc - timedelta(hours=1)) < timedelta(seconds=10)
    assert abs(leaf.not_valid_after_utc - now() - timedelta(hours=24)) < timedelta(seconds=10)


def test_whoever_reads_it_with_a_clock_that_is_behind_believes_it(authority: Authority) -> None:
    roots = [view(der) for der in authority.bundle().anchors]
    chain = [*(view(to_der(certificate)) for certificate in issued(authority, lifetime_seconds=86400)), *roots]
    behind = now() - timedelta(minutes=50)
    anchors = frozenset({roots[-1].fingerprint})
    assert rules.judge(chain, domain=DOMAIN, wfm=WFM, now=behind, anchors=anchors).name == "n1"


def test_a_very_short_life_is_not_half_over_when_it_begins(authority: Authority) -> None:
    seen = view(to_der(issued(authority, lifetime_seconds=4)[0]))
    assert now() - seen.not_before < seen.not_after - now()


def test_a_leaf_never_outlives_whoever_signed_it(authority: Authority) -> None:
    leaf, *above = issued(authority, lifetime_seconds=50 * 365 * 86400)
    roots = [x509.load_der_x509_certificate(der) for der in authority.bundle().anchors]
    assert leaf.not_valid_after_utc == (above or roots)[0].not_valid_after_utc


def test_serial_numbers_differ(authority: Authority) -> None:
    assert len({issued(authority)[0].serial_number for _ in range(20)}) == 20


def test_a_server_also_has_the_names_that_people_type(authority: Authority) -> None:
    leaf = issued(authority, dns_names=["localhost", "home.example", "127.0.0.1", "::1"])[0]
    sans = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert sans.get_values_for_type(x509.DNSName) == ["localhost", "home.example"]
    assert list(map(str, sans.get_values_for_type(x509.IPAddress))) == ["127.0.0.1", "::1"]
    assert sans.get_values_for_type(x509.UniformResourceIdentifier) == [NODE]
    for wrong in ("", "a b", "ä.example", "a" * 300):
        with pytest.raises(InvalidInput):
            issued(authority, dns_names=[wrong])


GOOD_KEYS: list[Callable[[], PrivateKey]] = [
    lambda: ec.generate_private_key(ec.SECP256R1()),
    lambda: ec.generate_private_key(ec.SECP384R1()),
    ed25519.Ed25519PrivateKey.generate,
    lambda: rsa_key(3072),
]
BAD_KEYS: list[Callable[[], PrivateKey]] = [
    lambda: ec.generate_private_key(ec.SECP224R1()),
    lambda: ec.generate_private_key(ec.SECP521R1()),
    lambda: rsa_key(2048),
]


@pytest.mark.parametrize("make", GOOD_KEYS, ids=["p256", "p384", "ed25519", "rsa3072"])
def test_the_key_that_the_request_proves_is_certified(authority: Authority, make: Callable[[], PrivateKey]) -> None:
    key = make()
    leaf = issued(authority, key)[0]
    assert leaf.public_key() == key.public_key()
    assert view(to_der(leaf)).spki == csr_spki(make_csr(key, "n1"))


@pytest.mark.parametrize("make", BAD_KEYS, ids=["p224", "p521", "rsa2048"])
def test_a_key_that_is_not_accepted_is_refused(authority: Authority, make: Callable[[], PrivateKey]) -> None:
    with pytest.raises(InvalidInput, match="not accepted"):
        issued(authority, make())


def test_a_request_in_der_is_as_good(authority: Authority) -> None:
    request = x509.load_pem_x509_csr(make_csr(new_key(), "n1")).public_bytes(serialization.Encoding.DER)
    assert authority.issue(request, spiffe_id=NODE, lifetime_seconds=60, now=now()).chain


@pytest.mark.parametrize("what", ["nothing", "text", "huge", "certificate", "spoiled"])
def test_a_request_that_proves_nothing_is_refused(authority: Authority, what: str) -> None:
    request = make_csr(new_key(), "n1")
    der = bytearray(x509.load_pem_x509_csr(request).public_bytes(serialization.Encoding.DER))
    der[-1] ^= 1
    content = {
        "nothing": b"",
        "text": b"please",
        "huge": request * 1000,
        "certificate": to_der(issued(authority)[0]),
        "spoiled": bytes(der),
    }[what]
    with pytest.raises(InvalidInput):
        authority.issue(content, spiffe_id=NODE, lifetime_seconds=60, now=now())


def test_the_requests_own_wishes_are_not_read(authority: Authority) -> None:
    key = new_key()
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "central")])
    greedy = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(name)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.UniformResourceIdentifier(spiffe.central_id(DOMAIN, WFM))]), False
        )
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )
    leaf = read_chain(authority.issue(greedy, spiffe_id=NODE, lifetime_seconds=60, now=now()).chain)[0]
    seen = view(to_der(leaf))
    assert (seen.uri_sans, seen.is_ca) == ((NODE,), False)
    assert leaf.subject.rfc4514_string() == "CN=n1"


@pytest.mark.parametrize("wish", [f"spiffe://{DOMAIN}", "spiffe://other.example/homeport/site/home/node/n1"])
def test_names_outside_are_refused(authority: Authority, wish: str) -> None:
    with pytest.raises(Refused):
        issued(authority, spiffe_id=wish)


def test_a_name_that_is_none_is_refused(authority: Authority) -> None:
    for wish in (f"https://{DOMAIN}/x", f"spiffe://{DOMAIN}/homeport/site/home/node/../x", ""):
        with pytest.raises(InvalidInput):
            issued(authority, spiffe_id=wish)


@pytest.mark.parametrize("seconds", [0, -5, 1e12, float("nan")])
def test_a_lifetime_that_makes_no_sense_is_refused(authority: Authority, seconds: float) -> None:
    with pytest.raises(InvalidInput, match="cannot live"):
        issued(authority, lifetime_seconds=seconds)


def test_an_expired_authority_says_so_and_signs_nothing(authority: Authority) -> None:
    with pytest.raises(Refused, match="expired on"):
        issued(authority, now=now() + timedelta(days=20 * 365))
