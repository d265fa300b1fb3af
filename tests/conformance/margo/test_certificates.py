"""Who gets in at the Margo port, with certificates of an authority outside: each wrong one is refused before a
request is read, each right one gets its manifest."""

import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import aiohttp
import pytest

from homeport.central.app import CentralApp, open_central
from homeport.central.settings import CentralSettings
from homeport.cli.commands.running.central import central as central_command
from homeport.cli.roles.addresses import ListenAddress
from homeport.cli.roles.margo_options import MargoOptions
from homeport.core.identity import spiffe
from tests.support.certificates import Made, context_of, forge, forge_root, rsa_key, trusting_context, write_files
from tests.support.local import local_key
from tests.support.running_central import Client

pytestmark = pytest.mark.anyio
DOMAIN, WFM = "plant.example", "hq"
DAY = timedelta(days=1)


def client_id(name: str = "line-7", *, wfm: str = WFM, domain: str = DOMAIN) -> str:
    return spiffe.client_id(domain, wfm, name)


@asynccontextmanager
async def plant(folder: Path, anchors: Sequence[Made]) -> AsyncIterator[tuple[CentralApp, Client]]:
    leaf = forge(anchors[0], uris=[spiffe.central_id(DOMAIN, WFM)], name="central")
    settings = CentralSettings(
        data=folder / "central",
        svid_folder=write_files(folder / "svid", leaf, anchors=anchors),
        http_address=("127.0.0.1", 0),
        grpc_address=None,
        tls=True,
        trust_domain=DOMAIN,
        wfm_id=WFM,
        margo_address=("127.0.0.1", 0),
        margo_is_required=True,
    )
    async with (
        open_central(settings) as central,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trusting_context())) as session,
    ):
        yield central, Client(f"https://127.0.0.1:{central.http_port}", session, local_key(central))


async def asked(central: CentralApp, context: ssl.SSLContext) -> int | None:
    """The status of the answer, or None where the connection was refused."""
    address = central.parts.margo.address
    assert address is not None
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:
        try:
            async with session.get(f"https://127.0.0.1:{address[1]}/api/v1/deployments") as answer:
                return answer.status
        except aiohttp.ClientError:
            return None


async def test_each_wrong_certificate_is_refused_and_each_right_one_gets_its_manifest(tmp_path: Path) -> None:
    root, second, stranger = (
        forge_root(DOMAIN),
        forge_root(DOMAIN, name="second"),
        forge_root(DOMAIN, name="stranger"),
    )
    middle = forge(root, uris=[f"spiffe://{DOMAIN}"], name="middle", is_ca=True)
    broad = forge(root, uris=[], name="broad", is_ca=True, key=rsa_key(3072))
    late = forge(root, uris=[], name="late", is_ca=True, begins=-2 * DAY, ends=-DAY)
    mine = [client_id()]
    # fmt: off
    wrong: dict[str, list[Made]] = {
        "signed by a stranger":   [forge(stranger, uris=mine)],
        "self-signed":            [forge(uris=mine)],
        "expired":                [forge(root, uris=mine, begins=-2 * DAY, ends=-DAY)],
        "not yet valid":          [forge(root, uris=mine, begins=DAY, ends=2 * DAY)],
        "expired intermediate":   [forge(late, uris=mine), late],
        "an authority":           [forge(root, uris=mine, is_ca=True)],
        "may sign":               [forge(root, uris=mine, signs=True)],
        "no URI":                 [forge(root, uris=[])],
        "two URIs":               [forge(root, uris=[*mine, client_id("line-8")])],
        "https":                  [forge(root, uris=["https://plant.example/margo/wfm/hq/client/line-7"])],
        "only a domain":          [forge(root, uris=[f"spiffe://{DOMAIN}"])],
        "another domain":         [forge(root, uris=[client_id(domain="other.example")])],
        "another fleet manager":  [forge(root, uris=[client_id(wfm="HQ")])],
        "RSA of 2048 bits":       [forge(root, uris=mine, key=rsa_key(2048))],
        "intermediate not sent":  [forge(middle, uris=mine)],
    }
    right: dict[str, list[Made]] = {
        "P-256":                  [forge(root, uris=mine)],
        "the second anchor":      [forge(second, uris=mine)],
        "intermediate sent":      [forge(middle, uris=mine), middle],
        "RSA of 3072 bits":       [forge(root, uris=mine, key=rsa_key(3072))],
        "signed with PSS":        [forge(broad, uris=mine, pss=True), broad],
        "signed with PKCS #1":    [forge(broad, uris=mine), broad],
    }
    # fmt: on
    async with plant(tmp_path, [root, second]) as (central, api):
        not_accepted = context_of(tmp_path / "unknown", forge(root, uris=mine))
        assert await asked(central, not_accepted) == 403
        assert await asked(central, trusting_context()) is None
        approved = await api.post("/api/v1/identities/line-7/approve", {})
        assert approved.status == 200, approved.body
        for number, (what, (leaf, *above)) in enumerate(wrong.items()):
            context = context_of(tmp_path / f"wrong-{number}", leaf, above=above)
            assert await asked(central, context) is None, what
        for number, (what, (leaf, *above)) in enumerate(right.items()):
            context = context_of(tmp_path / f"right-{number}", leaf, above=above)
            assert await asked(central, context) == 200, what
        upper = context_of(tmp_path / "upper", forge(root, uris=[client_id("Line-7")]))
        assert await asked(central, upper) == 403


def test_the_port_of_central_is_443() -> None:
    (option,) = [each for each in central_command.params if each.name == "margo"]
    assert "[127.0.0.1:443]" in str(option.to_info_dict()["help"])
    for given, port in ((None, 443), (ListenAddress("0.0.0.0", 8443), 8443)):
        assert MargoOptions(given, ListenAddress("127.0.0.1", 443), "").settings["margo_address"][1] == port
