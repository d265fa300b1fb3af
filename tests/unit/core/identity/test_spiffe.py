"""SPIFFE IDs: written and read back alike, and everything that only looks like one is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homeport.core.identity import spiffe
from homeport.core.model.identity import IdentityKind
from homeport.errors import InvalidInput
from tests.support.vectors import load_json

VECTORS = load_json("spiffe-id")
TRUST_DOMAIN = VECTORS["wfm"]["trustDomain"]
WFM = VECTORS["wfm"]["wfmId"]

SEGMENTS = st.from_regex(r"\A[A-Za-z0-9._-]{1,40}\Z").filter(lambda text: text not in {".", ".."})
DOMAINS = st.from_regex(r"\A[a-z0-9._-]{1,40}\Z")


def is_client(text: str) -> bool:
    try:
        return spiffe.parse(text, domain=TRUST_DOMAIN, wfm=WFM).kind is IdentityKind.CLIENT
    except InvalidInput:
        return False


@pytest.mark.parametrize("case", VECTORS["clientCases"], ids=lambda case: case["why"])
def test_a_client_is_known_by_the_exact_form_alone(case: dict[str, object]) -> None:
    assert is_client(str(case["spiffeId"])) is case["accept"]


@pytest.mark.parametrize("case", VECTORS["clientSide"]["cases"], ids=lambda case: case["serverSpiffeId"])
def test_a_client_takes_only_its_own_wfm_for_its_server(case: dict[str, object]) -> None:
    own = VECTORS["clientSide"]["ownSpiffeId"]
    assert (case["serverSpiffeId"] in spiffe.servers_for(own, domain=TRUST_DOMAIN, wfm=WFM)) is case["accept"]


@given(domain=DOMAINS, wfm=SEGMENTS, name=SEGMENTS, site=SEGMENTS)
def test_what_is_written_is_what_is_read(domain: str, wfm: str, name: str, site: str) -> None:
    def read(text: str) -> spiffe.ParsedId:
        return spiffe.parse(text, domain=domain, wfm=wfm)

    assert read(spiffe.central_id(domain, wfm)) == (IdentityKind.CENTRAL, wfm, None)
    assert read(spiffe.client_id(domain, wfm, name)) == (IdentityKind.CLIENT, name, name)
    assert read(spiffe.site_authority_id(domain, site)) == (IdentityKind.SITE_AUTHORITY, site, site)
    assert read(spiffe.node_id(domain, site, name)) == (IdentityKind.NODE, name, site)


@given(text=st.one_of(st.text(), st.text(alphabet="/.%?#:@ab").map(lambda tail: "spiffe://homeport.internal" + tail)))
def test_any_text_is_either_in_canonical_form_or_refused(text: str) -> None:
    try:
        domain, segments = spiffe.split(text)
    except InvalidInput:
        return
    assert "/".join([f"spiffe://{domain}", *segments]) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "spiffe://",
        "spiffe:///margo/wfm/wfm-1",
        "SPIFFE://factory.example/margo/wfm/wfm-1",
        "spiffe://Factory.example/margo/wfm/wfm-1",
        "spiffe://factory.example:443/margo/wfm/wfm-1",
        "spiffe://user@factory.example/margo/wfm/wfm-1",
        "spiffe://factory.example/margo//wfm/wfm-1",
        "spiffe://factory.example/margo/./wfm-1",
        "spiffe://factory.example/margo/../wfm-1",
        "spiffe://factory.example/margo/wfm/wfm%2D1",
        "spiffe://factory.example/margo/wfm/wfm-1#x",
        "spiffe://factory.example/margo/wfm/wfm-1\n",
        "spiffe://factory.example/margo/wfm/ｗfm-1",
        "spiffe://factory.example/" + "a" * 2048,
    ],
)
def test_what_only_looks_like_an_id_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        spiffe.parse(text, domain=TRUST_DOMAIN, wfm=WFM)


def test_an_id_is_not_made_of_a_name_that_could_not_be_read_back() -> None:
    for name in ("", ".", "..", "a/b", "a b", "ä", "a" * 3000):
        with pytest.raises(InvalidInput):
            spiffe.client_id("homeport.internal", "central", name)
    with pytest.raises(InvalidInput, match="not a trust domain"):
        spiffe.central_id("Homeport", "central")


def test_a_sites_authority_vouches_for_its_own_nodes_and_itself_only() -> None:
    home = spiffe.site_authority_id("homeport.internal", "home")
    assert spiffe.may_vouch(home, spiffe.node_id("homeport.internal", "home", "n1"))
    assert spiffe.may_vouch(home, home)
    assert not spiffe.may_vouch(home, spiffe.node_id("homeport.internal", "home2", "n1"))
    assert not spiffe.may_vouch(home, spiffe.client_id("homeport.internal", "central", "home"))
    assert not spiffe.may_vouch(home, spiffe.central_id("homeport.internal", "central"))
    assert not spiffe.may_vouch(home, home + "/node/")
    assert not spiffe.may_vouch(home, home + "/node/a/b")


def test_a_node_answers_to_its_own_site_only() -> None:
    node = spiffe.node_id("homeport.internal", "home", "n1")
    assert spiffe.servers_for(node, domain="homeport.internal", wfm="central") == {
        "spiffe://homeport.internal/homeport/site/home",
        "spiffe://homeport.internal/margo/wfm/central/client/home",
    }
