"""The authority's own key changes while old and new machines meet, and a crash in between changes nothing."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest

from homeport.adapters.identity import roots
from homeport.adapters.identity.authority import FileAuthority, RotationPhase, open_authority
from homeport.core.model.identity import Peer
from homeport.errors import InvalidInput, Refused
from tests.support.certificates import CLIENT, DOMAIN, Household, Meeting, meet

pytestmark = pytest.mark.anyio


async def test_nobody_is_refused_while_the_authority_changes_its_key(tmp_path: Path) -> None:
    """Contexts are those from before the rotation: no server is restarted."""
    household = Household(tmp_path)
    central, early, late = household.central(), household.credentials("a", CLIENT), household.credentials("b", CLIENT)
    server, contexts = central.server_context("required"), [(each, each.client_context()) for each in (early, late)]
    everyone = (central, early, late)

    async def all_meet() -> None:
        meetings = [
            await meet(
                server,
                context,
                judge_client=lambda found: central.verify(found, datetime.now(UTC)),
                judge_server=lambda found, client=client: client.verify_server(found, datetime.now(UTC)),  # type: ignore[misc]
            )
            for client, context in contexts
        ]
        assert [(meeting.refusal, meeting.broken) for meeting in meetings] == [("", False)] * 2
        assert {meeting.client.spiffe_id for meeting in meetings if meeting.client} == {CLIENT}

    await all_meet()
    household.authority.begin_rotation()
    for who in everyone:
        who.install_bundle(household.authority.bundle())
        await all_meet()
    household.authority.switch()
    for who in everyone:
        household.renew(who)
        await all_meet()
    old_anchor = household.authority.bundle().anchors[0]
    household.authority.finish_rotation()
    assert old_anchor not in household.authority.bundle().anchors
    for who in everyone:
        who.install_bundle(household.authority.bundle())
        await all_meet()


async def test_whoever_slept_through_the_rotation_is_refused_also_on_open_connections(tmp_path: Path) -> None:
    household = Household(tmp_path)
    central, site = household.central(), household.credentials("site", CLIENT)
    server, client = central.server_context("required"), site.client_context()

    async def visit() -> Meeting:
        return await meet(server, client, judge_client=lambda found: central.verify(found, datetime.now(UTC)))

    peer = (await visit()).client
    assert isinstance(peer, Peer)
    household.authority.begin_rotation()
    household.authority.switch()
    household.authority.finish_rotation()
    household.renew(central)
    with pytest.raises(Refused, match="current trust bundle"):
        central.recheck(peer, datetime.now(UTC))
    assert (await visit()).broken  # the site does not know the new root either
    site.install_bundle(household.authority.bundle())
    assert "current trust bundle" in (await visit()).refusal


def test_a_rotation_moves_forward_only_and_repeating_a_step_changes_nothing(tmp_path: Path) -> None:
    authority = open_authority(tmp_path, domain=DOMAIN)
    assert (authority.phase, authority.bundle().sequence) == (RotationPhase.STEADY, 1)
    with pytest.raises(Refused, match="No rotation"):
        authority.switch()
    assert authority.finish_rotation() is RotationPhase.STEADY
    for step, phase, sequence, anchors in (
        (authority.begin_rotation, RotationPhase.ANNOUNCED, 2, 2),
        (authority.begin_rotation, RotationPhase.ANNOUNCED, 2, 2),
        (authority.switch, RotationPhase.SWITCHED, 2, 2),
        (authority.switch, RotationPhase.SWITCHED, 2, 2),
        (authority.begin_rotation, RotationPhase.SWITCHED, 2, 2),
        (authority.finish_rotation, RotationPhase.STEADY, 3, 1),
        (authority.finish_rotation, RotationPhase.STEADY, 3, 1),
    ):
        assert step() is phase
        assert (authority.bundle().sequence, len(authority.bundle().anchors)) == (sequence, anchors)


def test_a_rotation_cannot_be_finished_while_the_old_root_signs(tmp_path: Path) -> None:
    authority = open_authority(tmp_path, domain=DOMAIN)
    authority.begin_rotation()
    with pytest.raises(Refused, match="still signs"):
        authority.finish_rotation()


def test_a_rotation_goes_on_where_it_stood_when_the_process_ended(tmp_path: Path) -> None:
    def again() -> FileAuthority:
        return open_authority(tmp_path, domain=DOMAIN)

    moment = datetime(2026, 5, 4, tzinfo=UTC)
    first = again().bundle()
    again().begin_rotation(moment)
    assert (again().phase, again().phase_since) == (RotationPhase.ANNOUNCED, moment)
    announced = again().bundle()
    assert announced.anchors[0] == first.anchors[0]
    again().switch()
    assert (again().phase, again().bundle()) == (RotationPhase.SWITCHED, announced)
    again().finish_rotation()
    assert again().bundle().anchors == announced.anchors[1:]
    assert sorted(path.name for path in tmp_path.glob("root-*")) == ["root-2-cert.pem", "root-2-key.pem"]


STEPS = ("begin_rotation", "switch", "finish_rotation")


@pytest.mark.parametrize("place", range(3), ids=STEPS)
@pytest.mark.parametrize("fault", ["write_state", "forget_others"])
def test_a_crash_in_the_middle_of_a_step_leaves_before_or_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: int, fault: str
) -> None:
    authority = open_authority(tmp_path, domain=DOMAIN)
    for step in STEPS[:place]:
        getattr(authority, step)()
    before = authority.bundle()
    with monkeypatch.context() as patch:
        patch.setattr(roots, fault, _power_cut)
        with pytest.raises(SystemExit):
            getattr(authority, STEPS[place])()
    resumed = open_authority(tmp_path, domain=DOMAIN)
    if fault == "write_state":
        assert resumed.bundle() == before
    for step in STEPS[place:]:
        getattr(resumed, step)()
    assert (resumed.phase, resumed.bundle().sequence) == (RotationPhase.STEADY, 3)
    assert len(list(tmp_path.glob("root-*"))) == 2


def _power_cut(*_: object) -> None:
    raise SystemExit


def test_two_who_begin_a_rotation_at_once_begin_one(tmp_path: Path) -> None:
    authority = open_authority(tmp_path, domain=DOMAIN)
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(lambda _: authority.begin_rotation(), range(8))) == {RotationPhase.ANNOUNCED}
    authority.switch()
    assert open_authority(tmp_path, domain=DOMAIN).bundle() == authority.bundle()
    assert authority.bundle().sequence == 2


def test_a_copy_from_a_backup_is_the_same_authority(tmp_path: Path) -> None:
    authority = open_authority(tmp_path / "one", domain=DOMAIN)
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    assert open_authority(tmp_path / "two", domain=DOMAIN).bundle() == authority.bundle()


def test_an_authority_of_another_domain_is_not_taken(tmp_path: Path) -> None:
    open_authority(tmp_path, domain=DOMAIN)
    with pytest.raises(Refused, match=r"to the trust domain homeport\.internal, not to other\.example"):
        open_authority(tmp_path, domain="other.example")


NO_SIGNER = b'{"domain": "d", "sequence": 1, "roots": [1], "signing": 2, "since": "2026-01-01"}'


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("authority.json", b"{", "cannot be read"),
        ("authority.json", b"{}", "cannot be read"),
        (
            "authority.json",
            b'{"domain": "d", "sequence": 1, "roots": [1], "signing": 2, "since": "2026-01-01"}',
            "no root",
        ),
        ("root-1-key.pem", None, "is missing"),
        ("root-1-cert.pem", None, "is missing"),
        ("root-1-cert.pem", b"text", "no certificates in PEM form"),
        ("root-1-key.pem", b"text", "no private key"),
    ],
)
def test_a_damaged_authority_says_what_is_wrong_and_makes_no_new_one(
    tmp_path: Path, name: str, content: bytes | None, sentence: str
) -> None:
    open_authority(tmp_path, domain=DOMAIN)
    if content is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidInput, match=sentence) as refused:
        open_authority(tmp_path, domain=DOMAIN)
    assert refused.value.hint or name.endswith("cert.pem")
