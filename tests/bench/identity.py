"""What it costs to know each other: a mutual TLS handshake, judging a certificate, signing one.

Handshakes run through memory in one thread, so both ends' work is counted and no socket is.
"""

import ssl
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from homeport.adapters.identity.keys import make_csr, new_key
from homeport.adapters.identity.tls import Credentials
from homeport.core.identity import spiffe
from homeport.core.model.identity import Peer
from tests.support.certificates import CLIENT, DOMAIN, Household


def handshakes_per_second(times: int = 300) -> dict[str, float]:
    """A site with central (one certificate each) and a node with its site (through the site's intermediate)."""
    with tempfile.TemporaryDirectory() as folder:
        household = Household(Path(folder))
        central, site = household.central(), household.credentials("site", CLIENT)
        home = household.site_authority("home")
        host = household.credentials("host", home.spiffe_id, authority=home)
        node = household.credentials("node", spiffe.node_id(DOMAIN, "home", "n1"), authority=home)
        above = (central, central.server_context("required")), (site, site.client_context())
        below = (host, host.server_context("required", home.anchors)), (node, node.client_context())
        return {
            "site and central": 1 / _seconds(lambda: _meet(*above), times),
            "node and site": 1 / _seconds(lambda: _meet(*below), times),
        }


def verification_microseconds(times: int = 5_000) -> dict[str, float]:
    """`verify` reads the chain of a connection and judges it; `recheck` judges it again, as each request does."""
    with tempfile.TemporaryDirectory() as folder:
        household = Household(Path(folder))
        central, site = household.central(), household.credentials("site", CLIENT)
        peer, end = _meet((central, central.server_context("required")), (site, site.client_context()))
        now = datetime.now(UTC)
        return {
            "verify": 1e6 * _seconds(lambda: central.verify(end, now), times),
            "recheck": 1e6 * _seconds(lambda: central.recheck(peer, now), times),
        }


def issue_microseconds(times: int = 300) -> dict[str, float]:
    """From a request to a signed chain; each request is verified, so this is all that central pays for a renewal."""
    with tempfile.TemporaryDirectory() as folder:
        household = Household(Path(folder))
        home = household.site_authority("home")
        csr, now = make_csr(new_key(), "n1"), datetime.now(UTC)
        node = spiffe.node_id(DOMAIN, "home", "n1")
        return {
            "central": 1e6
            * _seconds(
                lambda: household.authority.issue(csr, spiffe_id=CLIENT, lifetime_seconds=3600, now=now), times
            ),
            "site": 1e6 * _seconds(lambda: home.issue(csr, spiffe_id=node, lifetime_seconds=3600, now=now), times),
        }


Side = tuple[Credentials, ssl.SSLContext]


def _meet(server: Side, client: Side) -> tuple[Peer, ssl.SSLObject]:
    """One full handshake with both sides' judgement; the server's end is given back."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = client[1].wrap_bio(down, up)
    far = server[1].wrap_bio(up, down, server_side=True)
    for end in (near, far, near, far):
        with suppress(ssl.SSLWantReadError):
            end.do_handshake()
    now = datetime.now(UTC)
    client[0].verify_server(near, now)
    peer = server[0].verify(far, now)
    assert peer is not None
    return peer, far


def _seconds(work: Callable[[], object], times: int) -> float:
    """The mean over `times` runs, after a few to warm up."""
    for _ in range(min(20, times)):
        work()
    started = time.perf_counter()
    for _ in range(times):
        work()
    return (time.perf_counter() - started) / times
