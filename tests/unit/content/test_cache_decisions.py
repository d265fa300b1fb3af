"""What the cache decides, as values."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homeport.content.cache.decisions import (
    ASKED_SECONDS_MAX,
    FAILURES_MAX,
    PROGRESS_BYTES_MIN,
    Eviction,
    choose_evictions,
    failures_after,
    may_fetch_directly,
    may_serve_known,
    retry_seconds,
    with_dependencies,
)
from homeport.content.registry.manifests import OCI_INDEX, OCI_MANIFEST, OciManifest
from homeport.errors import (
    DigestMismatch,
    HomeportError,
    InvalidInput,
    NotFound,
    PeerUnavailable,
    QuotaExceeded,
    Refused,
    TooLarge,
)
from homeport.ports import StoredBlob
from homeport.vocabulary import Digest

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def blob(name: str, size: int, *, age: int = 0) -> StoredBlob:
    return StoredBlob(Digest(name), size, NOW - timedelta(seconds=age))


def test_the_least_recently_used_goes_first_and_no_more_than_needed() -> None:
    blobs = [blob("new", 10, age=1), blob("old", 10, age=3), blob("older", 10, age=4), blob("middle", 10, age=2)]
    found = choose_evictions(blobs, protected=(), needed_bytes=25, free_bytes=10)
    assert found == Eviction((Digest("older"), Digest("old")), 20, is_enough=True)


def test_nothing_is_evicted_where_it_would_not_be_enough() -> None:
    blobs = [blob("a", 10), blob("b", 10)]
    found = choose_evictions(blobs, protected={Digest("a")}, needed_bytes=11, free_bytes=0)
    assert found == Eviction((), 0, is_enough=False)


BLOBS = st.lists(st.builds(blob, st.sampled_from("abcdefgh"), st.integers(0, 50), age=st.integers(0, 9)), max_size=8)


@given(BLOBS, st.sets(st.sampled_from("abcdefgh")), st.integers(0, 300), st.integers(0, 100))
def test_eviction_makes_room_or_does_nothing_and_never_touches_what_is_protected(
    blobs: list[StoredBlob], protected: set[str], needed: int, free: int
) -> None:
    unique = list({each.digest: each for each in blobs}.values())
    kept = {Digest(each) for each in protected}
    found = choose_evictions(unique, protected=kept, needed_bytes=needed, free_bytes=free)
    assert not kept & set(found.digests)
    if found.is_enough:
        assert free + found.freed_bytes >= needed
    else:
        assert not found.digests
        assert free + sum(each.size_bytes for each in unique if each.digest not in kept) < needed


def test_what_manifests_refer_to_is_needed_too() -> None:
    manifests = {
        Digest("index"): OciManifest(OCI_INDEX, manifests=(Digest("image"), Digest("absent"))),
        Digest("image"): OciManifest(OCI_MANIFEST, blobs=(Digest("config"), Digest("layer"))),
        Digest("other"): OciManifest(OCI_MANIFEST, blobs=(Digest("else"),)),
    }
    found = with_dependencies([Digest("index"), Digest("file")], manifests)
    assert found == {"index", "image", "absent", "config", "layer", "file"}


def asked(seconds: float) -> PeerUnavailable:
    error = PeerUnavailable("busy")
    error.retry_after_seconds = seconds
    return error


@pytest.mark.parametrize(
    ("error", "failures", "seconds"),
    [
        (PeerUnavailable(), 1, 0.25),
        (PeerUnavailable(), 3, 1.0),
        (PeerUnavailable(), FAILURES_MAX - 1, 8.0),
        (PeerUnavailable(), FAILURES_MAX, None),
        (asked(2.0), 1, 2.0),
        (asked(ASKED_SECONDS_MAX + 1), 1, None),
        (asked(2.0), FAILURES_MAX, None),
        (Refused(), 1, None),
        (NotFound(), 1, None),
        (DigestMismatch(), 1, None),
    ],
)
def test_a_broken_download_is_retried_for_a_while(error: HomeportError, failures: int, seconds: float | None) -> None:
    assert retry_seconds(error, failures) == seconds


def test_a_byte_at_a_time_is_not_progress() -> None:
    assert [failures_after(3, arrived) for arrived in (0, 1, PROGRESS_BYTES_MIN)] == [4, 4, 1]


@pytest.mark.parametrize(
    ("error", "known", "direct_known", "direct_unknown"),
    [
        # error              stale   known host  never reached
        (PeerUnavailable(), True, False, True),
        (Refused(), True, True, True),
        (NotFound(), False, False, False),
        (DigestMismatch(), False, False, False),
        (InvalidInput(), False, False, False),
        (TooLarge(), False, True, True),
        (QuotaExceeded(), True, True, True),
    ],
)
def test_what_follows_a_failure(error: HomeportError, known: bool, direct_known: bool, direct_unknown: bool) -> None:
    assert may_serve_known(error) is known
    assert may_fetch_directly(error, is_known_host=True) is direct_known
    assert may_fetch_directly(error, is_known_host=False) is direct_unknown
