"""The client's decisions: what it believes, when it calls, what it reports about itself."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from homeport.core.margo.client import Adopted, UpdateRejected, adopted_of, judge, missing, verified
from homeport.core.margo.device import Share, capabilities_of, share
from homeport.core.margo.manifest import Manifest, ManifestDeployment, digest_of, etag_of, render
from homeport.core.margo.polling import daily_window, schedule
from homeport.core.margo.status import MargoState, overall
from homeport.core.model.node import Capabilities, Gpu, Node, NodeInfo
from homeport.errors import InvalidInput
from homeport.margo.client.reports import component_states
from homeport.margo.client.transport import WfmRefused, WfmUnavailable, failure_of, wait_seconds
from homeport.margo.validation import CAPABILITIES, violations
from homeport.site.settings import SiteSettings
from homeport.vocabulary import DeploymentId, Digest, Liveness, NodeId, ProfileType, SiteName

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
MANIFEST = render(Manifest(7, ()))


def node(name: str, **changes: Any) -> Node:
    given: dict[str, Any] = {
        "cpu_cores": 4,
        "memory_bytes": 8 * 2**30,
        "disk_bytes": 2**40,
        "disk_free_bytes": 2**39,
        "os": "linux",
        "architecture": "amd64",
        "profile_types": (ProfileType.COMPOSE,),
        **changes,
    }
    info = NodeInfo(NodeId(name), name, Capabilities(**given), {"line": "7", "name": name})
    return Node(info, SiteName("north"), Liveness.LIVE, NOW, NOW)


def test_a_site_reports_its_nodes_as_one_device() -> None:
    gpu = Gpu("A2", "NVIDIA", 2**34)
    body = capabilities_of(
        SiteName("north"), [node("b", architecture="riscv64", gpus=(gpu,)), node("a")], version="1.2"
    )
    assert violations(body, CAPABILITIES) == []
    properties = body["properties"]
    assert properties["cpus"] == [{"cores": 4, "architecture": "amd64"}, {"cores": 4}]
    assert (properties["memory"], properties["storage"]) == ("16384Mi", "2097152Mi")
    assert properties["peripherals"] == [{"type": "gpu", "manufacturer": "NVIDIA", "model": "A2"}]
    assert properties["otelCollector"] is True and properties["supportedDeploymentTypes"] == ["compose"]
    assert body["labels"] == {"line": "7"}


def test_no_more_is_reported_than_was_handed_over() -> None:
    given = share(["cores=5.5", "memory=10Gi", "storage=512Gi"])
    assert given == Share(5.5, 10 * 2**30, 512 * 2**30) and share([]) == Share()
    body = capabilities_of(SiteName("north"), [node("a"), node("b"), node("c")], version="1.2", share=given)
    assert violations(body, CAPABILITIES) == []
    properties = body["properties"]
    assert [each["cores"] for each in properties["cpus"]] == [4, 1.5]
    assert (properties["memory"], properties["storage"]) == ("10240Mi", "524288Mi")
    # Nor more than there is.
    plenty = capabilities_of(SiteName("north"), [node("a")], version="1.2", share=share(["memory=64Gi", "cores=64"]))
    assert (plenty["properties"]["memory"], plenty["properties"]["cpus"][0]["cores"]) == ("8192Mi", 4)


@pytest.mark.parametrize(
    "text", ["", "cores", "cores=0", "cores=-1", "memory=4", "memory=0Gi", "disk=4Gi", "cores=" + "9" * 99]
)
def test_a_share_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="is not a share such as cores=2"):
        share([text])


def test_a_site_without_nodes_hosts_nothing() -> None:
    body = capabilities_of(SiteName("north"), [], version="1.2")
    assert violations(body, CAPABILITIES) == []
    assert body["properties"].keys() == {"id", "vendor", "modelNumber", "serialNumber"}


def test_a_manifest_is_believed_with_its_etag_and_a_newer_version() -> None:
    etag = etag_of(digest_of(MANIFEST))
    assert judge(MANIFEST, etag, Adopted(6, "")).version == 7
    assert judge(MANIFEST, "", Adopted()).version == 7
    assert judge(MANIFEST, etag.strip('"'), Adopted()).version == 7  # as some send it
    for odd in ('"v7"', f"W/{etag.strip(chr(34))}", etag.replace(":", ":-gzip"), '"', "é"):
        assert judge(MANIFEST, odd, Adopted()).version == 7  # a manager's own way, or a proxy's
    for body, header, adopted, why in (
        (MANIFEST, etag, Adopted(7, ""), "not newer than 7, .* start the site with --wfm-forget 7"),
        (MANIFEST, etag, Adopted(8, ""), "not newer"),
        (MANIFEST, etag_of(digest_of(b"other")), Adopted(), "ETag"),
        (MANIFEST, f"W/{etag_of(digest_of(b'other'))}", Adopted(), "ETag"),
        (b"{", "", Adopted(), "not JSON"),
    ):
        with pytest.raises(UpdateRejected, match=why):
            judge(body, header, adopted)


def test_an_etag_is_kept_as_it_was_sent_unless_no_request_could_carry_it() -> None:
    manifest, digest = Manifest(7, ()), digest_of(MANIFEST)
    for etag in (etag_of(digest), digest, f"W/{etag_of(digest)}", '"v7"', '"sha256:0-gzip"'):
        assert adopted_of(manifest, MANIFEST, etag) == Adopted(7, etag, digest)
    for etag in ("", '"a\udce9"', '"a\x7f"', '"a b"', '"a\r\nX: y"', f'"{"a" * 6_000}"', '"é"'):
        assert adopted_of(manifest, MANIFEST, etag) == Adopted(7, etag_of(digest), digest)


def test_only_what_changed_is_fetched_and_much_of_it_as_a_bundle() -> None:
    listed = tuple(
        ManifestDeployment(DeploymentId(f"id-{number}"), Digest(f"digest-{number}")) for number in range(20)
    )
    manifest = Manifest(2, listed, Digest("bundle"))
    have = {each.deployment_id: each.digest for each in listed[:-2]}
    assert missing(manifest, have).singles == listed[-2:]
    assert missing(manifest, {}).bundle == "bundle"
    assert missing(Manifest(2, listed[:1], Digest("bundle")), {}).bundle == "bundle"  # the first sync
    assert missing(manifest, {each.deployment_id: each.digest for each in listed}).singles == ()


def test_an_artifact_is_what_its_digest_says() -> None:
    assert verified(b"x", digest_of(b"x"), "it") == b"x"
    with pytest.raises(UpdateRejected, match="was announced"):
        verified(b"x", digest_of(b"y"), "it")


@pytest.mark.parametrize(
    ("at", "hours", "downtime", "seconds"),
    [
        ("12:00", [], [], 0),
        ("12:00", ["06:00-22:00"], [], 0),
        ("23:00", ["06:00-22:00"], [], 7 * 3600),
        ("12:00", [], ["11:00-13:00"], 3600),
        ("23:30", ["22:00-06:00"], [], 0),
        ("12:00", ["22:00-06:00"], [], 10 * 3600),
        ("12:00", [], ["00:00-24:00"], 24 * 3600),
    ],
)
def test_a_client_calls_within_its_hours_and_not_in_its_downtime(
    at: str, hours: list[str], downtime: list[str], seconds: float
) -> None:
    hour, minute = map(int, at.split(":"))
    now = NOW.replace(hour=hour, minute=minute)
    plan = schedule(15.0, hours, downtime)
    assert plan.seconds_until_open(now) == seconds
    assert plan.is_downtime(now) is bool(downtime)


@pytest.mark.parametrize("text", ["", "6-22", "06:00", "25:00-26:00", "06:00-06:00", "06:00-24:30"])
def test_hours_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="22:00-06:00"):
        daily_window(text)


@pytest.mark.parametrize("seconds", [0.0, -1.0, 1e9])
def test_a_rate_has_bounds(seconds: float) -> None:
    with pytest.raises(InvalidInput, match="between a second and a day"):
        schedule(seconds, (), ())


def test_the_component_that_failed_is_named() -> None:
    failure = {"code": "PULL", "message": "no such image", "source": "web"}
    states = component_states(["cache", "web", "log"], MargoState.FAILED, failure)
    assert [each.state.value for each in states] == ["installed", "failed", "pending"]
    assert states[1].error is not None and (states[1].error.code, states[1].error.source) == ("PULL", "web")
    assert overall([each.state for each in states]) is MargoState.FAILED
    unknown = component_states(["cache", "web"], MargoState.FAILED, {**failure, "source": ""})
    assert {each.state for each in unknown} == {MargoState.FAILED}


def test_a_site_has_one_source_of_desired_state() -> None:
    with pytest.raises(InvalidInput, match="one source of desired state"):
        SiteSettings(
            name=SiteName("north"), data=Path("north"), git_url="https://git.example/x", wfm_url="https://wfm.example"
        )


def test_an_unknown_problem_type_is_shown_as_it_is() -> None:
    refused = failure_of(409, "", b'{"type":"https://elsewhere.example/x","title":"Odd","status":409}')
    assert isinstance(refused, WfmRefused) and "Odd" in str(refused)
    ended = failure_of(403, "", b'{"detail":"You are not accepted."}')
    assert str(ended) == "The fleet manager answered 403: You are not accepted."
    moved = failure_of(308, "", b"", location="https://wfm.example/margo")
    assert isinstance(moved, WfmRefused) and "to https://wfm.example/margo, which is not followed" in str(moved)
    dated = failure_of(503, "Fri, 31 Dec 2100 23:59:59 GMT", b"")
    assert isinstance(dated, WfmUnavailable) and dated.retry_after_seconds == 7 * 86_400  # a week at most
    past = failure_of(503, "Fri, 31 Dec 1999 23:59:59 GMT", b"")
    assert isinstance(past, WfmUnavailable) and past.retry_after_seconds == 0
    # A date is by the clock of the fleet manager, whatever the time is here.
    date, until = "Thu, 01 Jan 1970 00:00:10 GMT", "Thu, 01 Jan 1970 00:00:40 GMT"
    for told, seconds in ((date, 30), ("", 0), ("yesterday", 0)):
        by_its_clock = failure_of(503, until, b"", date=told)
        assert isinstance(by_its_clock, WfmUnavailable) and by_its_clock.retry_after_seconds == seconds
    later = failure_of(503, "9", b"not json")
    assert isinstance(later, WfmUnavailable) and later.retry_after_seconds == 9
    said = failure_of(418, "", b'{"retryable":true,"retryAfterSeconds":4}')
    assert isinstance(said, WfmUnavailable) and said.retry_after_seconds == 4


def test_the_hints_of_a_problem_decide_whether_and_when_it_is_tried_again() -> None:
    assert isinstance(failure_of(500, "", b""), WfmUnavailable)
    assert isinstance(failure_of(500, "", b'{"retryable":false,"backoffStrategy":"none"}'), WfmRefused)
    # These two may always be tried again, whatever else is said.
    assert isinstance(failure_of(503, "1", b'{"retryable":false}'), WfmUnavailable)
    assert isinstance(failure_of(429, "1", b'{"retryable":false}'), WfmUnavailable)
    growing = failure_of(503, "3", b'{"retryable":true,"backoffStrategy":"exponential"}')
    fixed = failure_of(503, "3", b'{"retryable":true,"backoffStrategy":"fixed"}')
    unsaid = failure_of(503, "", b'{"retryable":true,"backoffStrategy":"fixed"}')
    for error, usual, waited in ((growing, 1.0, 3.0), (growing, 8.0, 8.0), (fixed, 8.0, 3.0), (unsaid, 8.0, 8.0)):
        assert isinstance(error, WfmUnavailable) and wait_seconds(error, usual, chance=0.0) == waited
    # Whoever was told the same does not come back at the same moment, and never before.
    assert isinstance(growing, WfmUnavailable) and isinstance(fixed, WfmUnavailable)
    assert [wait_seconds(growing, 1.0, chance=chance) for chance in (0.0, 0.5, 1.0)] == [3.0, 3.75, 4.5]
    assert [wait_seconds(fixed, 8.0, chance=chance) for chance in (0.0, 1.0)] == [3.0, 4.5]


@pytest.mark.parametrize(
    "text",
    ["Fri, 31 Dec 2100 23:59:59 +99999999999999999999", "Fri, 31 Dec 99999999999 23:59:59 GMT", "\x00", "²" * 9],
)
def test_a_wait_that_is_no_time_asks_for_nothing(text: str) -> None:
    found = failure_of(503, text, b"")
    assert isinstance(found, WfmUnavailable) and found.retry_after_seconds == 0
