"""Renewed certificates reach contexts that exist; files that somebody else keeps; servers known by a pin."""

import asyncio
import json
import ssl
from base64 import b64encode
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from homeport.adapters.identity.bundle import encode
from homeport.adapters.identity.contexts import presented_chain
from homeport.adapters.identity.files import PRIVATE, PUBLIC, write_whole
from homeport.adapters.identity.keys import key_pem
from homeport.adapters.identity.membership import Membership, MembershipFile
from homeport.adapters.identity.renewal import keep, nothing_more
from homeport.adapters.identity.tls import Credentials, pinned_context
from homeport.core.model.identity import Peer
from homeport.errors import HomeportError, InvalidInput, Refused
from tests.support.certificates import (
    CENTRAL,
    CLIENT,
    DOMAIN,
    WFM,
    Household,
    Made,
    Meeting,
    context_of,
    forge,
    forge_root,
    meet,
    rsa_key,
    trusting_context,
    write_files,
)

pytestmark = pytest.mark.anyio


def judging(credentials: Credentials) -> Callable[[ssl.SSLObject], Peer | None]:
    return lambda found: credentials.verify(found, datetime.now(UTC))


async def shown_by(server: ssl.SSLContext) -> bytes:
    """The certificate that a new handshake shows."""
    seen: list[bytes] = []
    await meet(
        server,
        trusting_context(),
        judge_client=lambda _: None,
        judge_server=lambda found: seen.extend(presented_chain(found)),
    )
    return seen[0]


async def test_an_existing_context_shows_the_renewed_certificate(tmp_path: Path) -> None:
    household = Household(tmp_path)
    central = household.central()
    context = central.server_context()
    before = await shown_by(context)
    household.renew(central)
    assert await shown_by(context) != before


async def test_renewal_in_a_thread_takes_effect_on_the_loop_before_it_is_told(tmp_path: Path) -> None:
    household = Household(tmp_path)
    central = household.central()
    context = central.server_context()
    before = await shown_by(context)
    await anyio.to_thread.run_sync(household.renew, central)
    assert await shown_by(context) != before


async def test_handshakes_go_on_while_certificates_are_renewed(tmp_path: Path) -> None:
    household = Household(tmp_path)
    central, site = household.central(), household.credentials("site", CLIENT)
    server, client = central.server_context("required"), site.client_context()
    meetings: list[Meeting] = []

    async def visit() -> None:
        for _ in range(25):
            meetings.append(await meet(server, client, judge_client=judging(central)))

    async with anyio.create_task_group() as tasks:
        for _ in range(2):
            tasks.start_soon(visit)
        for _ in range(20):
            await anyio.to_thread.run_sync(household.renew, central)
            await anyio.to_thread.run_sync(household.renew, site)
    assert len(meetings) == 50
    assert all(meeting.succeeded for meeting in meetings)


async def test_a_client_without_a_valid_certificate_can_still_ask_for_a_new_one(tmp_path: Path) -> None:
    """It shows none, and still knows whom it talks to."""
    household = Household(tmp_path)
    then = datetime.now(UTC) - timedelta(days=1)
    central, site = household.central(), household.credentials("site", CLIENT, lifetime_seconds=60, now=then)

    async def visit(*, present: bool) -> Meeting:
        return await meet(
            central.server_context("optional"),
            site.client_context(present=present),
            judge_client=judging(central),
            judge_server=lambda found: site.verify_server(found, datetime.now(UTC)),
        )

    assert "expired on" in (await visit(present=True)).refusal
    meeting = await visit(present=False)
    assert (meeting.succeeded, meeting.client) == (True, None)
    household.renew(site)
    assert (await visit(present=True)).client is not None


# --- files that somebody else keeps ---------------------------------------------------------------------

ROOT = forge_root()
MIDDLE = forge(ROOT, uris=[f"spiffe://{DOMAIN}"], name="downstream", is_ca=True)


def outside(
    folder: Path, leaf: Made, *, above: list[Made] | None = None, anchors: list[Made] | None = None
) -> Credentials:
    return Credentials(
        write_files(folder, leaf, above=above or [], anchors=anchors or [ROOT]), domain=DOMAIN, wfm=WFM
    )


async def test_files_of_another_issuer_with_an_intermediate_work_on_both_sides(tmp_path: Path) -> None:
    central = outside(tmp_path / "central", forge(MIDDLE, uris=[CENTRAL]), above=[MIDDLE])
    site = outside(tmp_path / "site", forge(MIDDLE, uris=[CLIENT]), above=[MIDDLE])
    meeting = await meet(
        central.server_context("required"),
        site.client_context(),
        judge_client=judging(central),
        judge_server=lambda found: site.verify_server(found, datetime.now(UTC)),
    )
    assert meeting.client is not None
    assert len(meeting.client.chain) == 3


async def test_an_intermediate_alone_may_be_the_anchor(tmp_path: Path) -> None:
    central = outside(tmp_path / "central", forge(MIDDLE, uris=[CENTRAL]), anchors=[MIDDLE])
    client = context_of(tmp_path / "client", forge(MIDDLE))
    meeting = await meet(central.server_context("required"), client, judge_client=judging(central))
    assert meeting.client is not None
    assert len(meeting.client.chain) == 2


async def test_files_that_were_replaced_are_taken_at_the_next_refresh(tmp_path: Path) -> None:
    central = outside(tmp_path / "central", forge(ROOT, uris=[CENTRAL]))
    context = central.server_context("required")
    assert not central.refresh()
    other = forge_root(name="next")
    renewed = forge(other, uris=[CENTRAL])
    write_files(tmp_path / "central", renewed, anchors=[ROOT, other])
    assert central.refresh()
    assert await shown_by(central.server_context()) == renewed.der
    for authority in (ROOT, other):
        client = context_of(tmp_path / "client", forge(authority))
        assert (await meet(context, client, judge_client=judging(central))).client is not None


async def test_files_that_are_half_replaced_change_nothing(tmp_path: Path) -> None:
    leaf = forge(ROOT, uris=[CENTRAL])
    central = outside(tmp_path / "central", leaf)
    context = central.server_context()
    write_whole(tmp_path / "central" / "svid-key.pem", key_pem(forge(ROOT).key), mode=PRIVATE)
    with pytest.raises(InvalidInput, match="do not belong together"):
        central.refresh()
    assert await shown_by(context) == leaf.der
    assert central.spiffe_id == CENTRAL


def test_what_somebody_else_keeps_is_not_overwritten(tmp_path: Path) -> None:
    household = Household(tmp_path)
    central = outside(tmp_path / "central", forge(ROOT, uris=[CENTRAL]))
    with pytest.raises(Refused, match="managed by another program"):
        household.renew(central)


def test_a_key_of_another_kind_needs_a_restart_and_says_so(tmp_path: Path) -> None:
    central = outside(tmp_path / "central", forge(ROOT, uris=[CENTRAL]))
    context = central.server_context()
    write_files(tmp_path / "central", forge(ROOT, uris=[CENTRAL], key=rsa_key(3072)), anchors=[ROOT])
    with pytest.raises(Refused, match="another type than before"):
        central.refresh()
    del context
    assert central.refresh()


def test_a_key_of_somebody_else_that_others_can_read_is_refused_too(tmp_path: Path) -> None:
    write_files(tmp_path, forge(ROOT), anchors=[ROOT])
    (tmp_path / "svid-key.pem").chmod(0o644)
    with pytest.raises(Refused, match="open to other users"):
        Credentials(tmp_path, domain=DOMAIN, wfm=WFM)


# --- pins -----------------------------------------------------------------------------------------------


async def pinned_visit(server: ssl.SSLContext, pin: str) -> Meeting:
    context, check = pinned_context(pin)

    def judge(found: ssl.SSLObject) -> None:
        check(found)

    return await meet(server, context, judge_client=lambda _: None, judge_server=judge)


async def test_a_server_is_known_by_its_pin_before_there_is_a_bundle(tmp_path: Path) -> None:
    household = Household(tmp_path)
    central = household.central()
    context = central.server_context("optional")
    assert (await pinned_visit(context, central.pin)).succeeded
    assert (await pinned_visit(context, "sha256:" + b64encode(bytes.fromhex(central.spki)).decode())).succeeded
    household.renew(central)
    household.authority.begin_rotation()
    household.authority.switch()
    household.renew(central)
    assert (await pinned_visit(context, central.pin)).succeeded


async def test_another_server_is_left_before_the_first_byte(tmp_path: Path) -> None:
    household = Household(tmp_path)
    central, other = household.central(), household.credentials("other", CENTRAL)
    meeting = await pinned_visit(other.server_context(), central.pin)
    assert "does not match the pin" in meeting.refusal


def bundle_answer(content: bytes, status: str = "200 OK", more: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(content)}\r\n{more}\r\n".encode() + content


async def test_a_bundle_is_fetched_over_https_alone_and_a_failed_or_wrong_one_changes_nothing(tmp_path: Path) -> None:
    household = Household(tmp_path)
    central, site = household.central(), household.credentials("site", CLIENT)
    answers: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answers[0])
        writer.close()

    async def refreshed(scheme: str = "https") -> bool:
        joined = MembershipFile(f"{scheme}://127.0.0.1:{port}", central.pin, "site", DOMAIN, WFM, None)
        write_whole(site.folder / "membership.json", json.dumps(asdict(joined)).encode(), mode=PUBLIC)
        return await anyio.to_thread.run_sync(Membership(site.folder).refresh_bundle, site)

    context = central.server_context("optional")
    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context) as server:
        port = server.sockets[0].getsockname()[1]
        before, good = site.bundle, encode(site.bundle)
        answers[:] = [bundle_answer(good)]
        assert not await refreshed()
        for wrong in (
            bundle_answer(good, "500 Internal Server Error"),
            bundle_answer(good, "302 Found", f"Location: https://127.0.0.1:{port}/\r\n"),
            bundle_answer(b"{"),
            bundle_answer(b'{"keys": []}'),
            bundle_answer(good)[:-20],
            b"",
        ):
            answers[:] = [wrong]
            with pytest.raises(HomeportError):
                await refreshed()
            assert site.bundle == before == Credentials(site.folder, domain=DOMAIN, wfm=WFM).bundle, wrong
        household.authority.begin_rotation()
        # What caches are told is for caches: at its time the bundle is asked for, and the new one replaces the old.
        answers[:] = [bundle_answer(encode(household.authority.bundle()), more="Cache-Control: max-age=31536000\r\n")]
        with pytest.raises(InvalidInput, match="not an address"):
            await refreshed("http")
        assert await refreshed() and site.bundle == household.authority.bundle() != before
        answers[:] = [bundle_answer(good)]
        assert await refreshed() and site.bundle == before


@pytest.mark.parametrize(
    ("chain", "pinned", "known"),
    [
        (lambda: [forge(MIDDLE, uris=[CENTRAL]), MIDDLE], MIDDLE, True),
        (lambda: [forge(MIDDLE, uris=[CENTRAL]), MIDDLE, ROOT], ROOT, True),
        (lambda: [forge(MIDDLE, uris=[CENTRAL]), MIDDLE], ROOT, False),
        (lambda: [forge(forge_root(name="downstream"), uris=[CENTRAL]), MIDDLE], MIDDLE, False),
        (lambda: [forge(MIDDLE, begins=timedelta(days=-2), ends=timedelta(days=-1)), MIDDLE], MIDDLE, False),
    ],
    ids=["authority sent along", "root sent along", "root not sent", "not signed by it", "expired"],
)
async def test_a_pin_may_name_an_authority_that_the_server_sends_along(
    tmp_path: Path, chain: Callable[[], list[Made]], pinned: Made, known: bool
) -> None:
    leaf, *above = chain()
    central = outside(tmp_path / "central", leaf, above=above)
    pin = Credentials(
        write_files(tmp_path / "pinned", forge(ROOT, key=pinned.key), anchors=[ROOT]), domain=DOMAIN, wfm=WFM
    ).pin
    assert (await pinned_visit(central.server_context(), pin)).succeeded is known


@pytest.mark.parametrize("pin", ["", "sha256:", "sha256:abc", "sha1:" + "0" * 64, "0" * 64, "sha256:" + "g" * 64])
def test_a_pin_of_another_form_is_refused(pin: str) -> None:
    with pytest.raises(InvalidInput, match="pin is not of the form"):
        pinned_context(pin)


@dataclass
class Renewed:
    """A certificate that somebody renews: each time it begins so long after the clock of this machine."""

    begins_after: timedelta
    then_after: timedelta
    times: int = 0

    @property
    def not_before(self) -> datetime:
        return datetime.now(UTC) + (self.then_after if self.times else self.begins_after)

    @property
    def not_after(self) -> datetime:
        return self.not_before + timedelta(days=1)

    def renew(self) -> None:
        self.times += 1

    async def kept_for(self, seconds: float) -> int:
        with anyio.move_on_after(seconds):
            await keep(lambda: self, self.renew, nothing_more, name="n1")
        return self.times


async def test_a_certificate_from_a_clock_that_was_ahead_is_renewed_at_once_and_once() -> None:
    assert await Renewed(timedelta(days=365), -timedelta(hours=1)).kept_for(0.5) == 1


async def test_a_machine_whose_clock_is_behind_asks_again_and_again_and_does_not_spin() -> None:
    assert 2 <= await Renewed(timedelta(hours=2), timedelta(hours=2)).kept_for(1.5) <= 8
