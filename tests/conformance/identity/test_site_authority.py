"""What a site's authority is: made by central, bound to its site, and unable to make others."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509

from homeport.adapters.identity.authority import install_site_authority, open_site_authority, request_site_authority
from homeport.adapters.identity.certificates import read_chain, to_der
from homeport.adapters.identity.keys import make_csr, new_key
from homeport.core.identity import spiffe
from homeport.errors import InvalidInput, Refused
from tests.support.certificates import CENTRAL, CLIENT, DOMAIN, Household

NOW = datetime.now(UTC)
HOME = spiffe.site_authority_id(DOMAIN, "home")


def test_the_intermediate_is_bound_to_its_site_and_ends_the_chain_of_authorities(tmp_path: Path) -> None:
    household = Household(tmp_path)
    certificate = x509.load_der_x509_certificate(household.site_authority("home").anchors[0])
    constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    assert constraints.critical
    assert (constraints.value.ca, constraints.value.path_length) == (True, 0)
    root = x509.load_der_x509_certificate(household.authority.bundle().anchors[0])
    above = root.extensions.get_extension_for_class(x509.BasicConstraints).value
    assert (above.ca, above.path_length) == (True, 1)


@pytest.mark.parametrize(
    "wish", [CENTRAL, CLIENT, spiffe.site_authority_id(DOMAIN, "away"), spiffe.node_id(DOMAIN, "away", "n1")]
)
def test_a_site_signs_for_nobody_elses_nodes(tmp_path: Path, wish: str) -> None:
    site = Household(tmp_path).site_authority("home")
    with pytest.raises(Refused, match="its own nodes only"):
        site.issue(make_csr(new_key(), "x"), spiffe_id=wish, lifetime_seconds=60, now=NOW)


def test_a_site_makes_no_authorities(tmp_path: Path) -> None:
    site = Household(tmp_path).site_authority("home")
    with pytest.raises(Refused, match="cannot make other authorities"):
        site.issue_intermediate(make_csr(new_key(), "x"), spiffe_id=HOME, lifetime_seconds=60, now=NOW)


@pytest.mark.parametrize(
    "wish", [CENTRAL, CLIENT, spiffe.node_id(DOMAIN, "home", "n1"), "spiffe://other/homeport/site/x"]
)
def test_central_makes_authorities_for_sites_only(tmp_path: Path, wish: str) -> None:
    with pytest.raises(Refused):
        Household(tmp_path).authority.issue_intermediate(
            make_csr(new_key(), "x"), spiffe_id=wish, lifetime_seconds=60, now=NOW
        )


def test_there_is_none_until_central_has_signed(tmp_path: Path) -> None:
    request_site_authority(tmp_path / "own", site="home")
    assert open_site_authority(tmp_path / "own", domain=DOMAIN, site="home") is None


def test_a_site_opens_its_authority_again_and_signs_without_central(tmp_path: Path) -> None:
    household = Household(tmp_path)
    household.site_authority("home")
    again = open_site_authority(tmp_path / "authority-home", domain=DOMAIN, site="home")
    assert again is not None
    node = spiffe.node_id(DOMAIN, "home", "n1")
    chain = read_chain(again.issue(make_csr(new_key(), "n1"), spiffe_id=node, lifetime_seconds=60, now=NOW).chain)
    assert to_der(chain[1]) == again.anchors[0]
    assert again.bundle() == household.authority.bundle()


def test_a_renewed_intermediate_has_the_same_key_so_that_older_leaves_still_fit(tmp_path: Path) -> None:
    household = Household(tmp_path)
    first = household.site_authority("home")
    node = spiffe.node_id(DOMAIN, "home", "n1")
    leaf = read_chain(first.issue(make_csr(new_key(), "n1"), spiffe_id=node, lifetime_seconds=60, now=NOW).chain)[0]
    second = household.site_authority("home")
    assert first.anchors != second.anchors
    leaf.verify_directly_issued_by(x509.load_der_x509_certificate(second.anchors[0]))


def test_an_intermediate_of_another_name_or_key_is_not_installed(tmp_path: Path) -> None:
    household = Household(tmp_path)
    household.site_authority("home")
    folder = tmp_path / "authority-away"
    csr = request_site_authority(folder, site="away")
    bundle = household.authority.bundle()
    wrong_name = household.authority.issue_intermediate(csr, spiffe_id=HOME, lifetime_seconds=60, now=NOW)
    with pytest.raises(InvalidInput, match="not the certificate of the authority"):
        install_site_authority(folder, domain=DOMAIN, site="away", chain=wrong_name.chain, bundle=bundle)
    wrong_key = household.authority.issue_intermediate(
        make_csr(new_key(), "x"),
        spiffe_id=spiffe.site_authority_id(DOMAIN, "away"),
        lifetime_seconds=60,
        now=NOW,
    )
    with pytest.raises(InvalidInput, match="do not belong together"):
        install_site_authority(folder, domain=DOMAIN, site="away", chain=wrong_key.chain, bundle=bundle)
    assert open_site_authority(folder, domain=DOMAIN, site="away") is None
