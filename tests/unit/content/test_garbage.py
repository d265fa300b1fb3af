"""What is garbage: every rule that keeps something, and that nothing kept needs what is collected."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from homeport.content.registry.garbage import Garbage, SeenManifest, SeenRepository, find_garbage
from homeport.content.registry.manifests import OCI_INDEX, OCI_MANIFEST, OciManifest
from homeport.vocabulary import Digest

NOW = datetime(2026, 1, 1, tzinfo=UTC)
OLD = NOW - timedelta(days=1)
BEFORE = NOW - timedelta(hours=2)
NOTHING = Garbage(frozenset(), frozenset())


def image(*blobs: str, subject: str | None = None, at: datetime = OLD) -> SeenManifest:
    needed = tuple(Digest(blob) for blob in blobs)
    return SeenManifest(OciManifest(OCI_MANIFEST, blobs=needed, subject=Digest(subject) if subject else None), at)


def index(*manifests: str) -> SeenManifest:
    return SeenManifest(OciManifest(OCI_INDEX, manifests=tuple(Digest(each) for each in manifests)), OLD)


def repository(
    manifests: dict[str, SeenManifest], *, tags: dict[str, str] | None = None, blobs: str = "", at: datetime = OLD
) -> SeenRepository:
    return SeenRepository(
        tags={tag: Digest(digest) for tag, digest in (tags or {}).items()},
        manifests={Digest(digest): each for digest, each in manifests.items()},
        blobs={Digest(blob): at for blob in blobs.split()},
    )


def collected(seen: SeenRepository, *used: str) -> tuple[set[str], set[str]]:
    found = find_garbage(seen, used=[Digest(each) for each in used], before=BEFORE)
    return set(found.manifests), set(found.blobs)


def test_what_a_tag_names_stays_with_all_that_it_is_made_of() -> None:
    manifests = {"i": index("m"), "m": image("b"), "x": image("c")}
    assert collected(repository(manifests, tags={"latest": "i"}, blobs="b c")) == ({"x"}, {"c"})


def test_what_a_deployment_names_by_digest_stays_without_a_tag() -> None:
    seen = repository({"m": image("b"), "x": image("c")}, blobs="b c d")
    assert collected(seen, "m", "d") == ({"x"}, {"c"})


def test_a_signature_stays_as_long_as_what_it_signs() -> None:
    manifests = {"m": image("b"), "s": image("c", subject="m"), "t": image("d", subject="gone")}
    assert collected(repository(manifests, tags={"latest": "m"}, blobs="b c d")) == ({"t"}, {"d"})


def test_what_came_a_short_while_ago_stays_for_its_push_may_go_on() -> None:
    manifests = {"m": image("b", at=NOW)}
    assert find_garbage(repository(manifests, blobs="b c", at=NOW), used=(), before=BEFORE) == NOTHING
    assert collected(repository(manifests, blobs="b c")) == (set(), {"c"})


NAMES = st.sampled_from("abcdefgh")
REPOSITORIES = st.builds(
    lambda manifests, tags: repository(manifests, tags=tags, blobs="1 2 3 4"),
    st.dictionaries(
        NAMES,
        st.one_of(
            st.lists(NAMES, max_size=3).map(lambda names: index(*names)),
            st.builds(
                lambda blobs, subject: image(*blobs, subject=subject),
                st.lists(st.sampled_from("1234"), max_size=3),
                st.none() | NAMES,
            ),
        ),
    ),
    st.dictionaries(st.sampled_from(["latest", "1.0"]), NAMES),
)


@given(REPOSITORIES, st.lists(NAMES))
def test_nothing_that_stays_needs_what_goes_and_the_next_look_finds_nothing(
    seen: SeenRepository, used: list[str]
) -> None:
    roots = [Digest(each) for each in used]
    garbage = find_garbage(seen, used=roots, before=BEFORE)
    left = SeenRepository(
        tags=seen.tags,
        manifests={digest: each for digest, each in seen.manifests.items() if digest not in garbage.manifests},
        blobs={digest: at for digest, at in seen.blobs.items() if digest not in garbage.blobs},
    )
    for digest in (*seen.tags.values(), *roots):
        assert digest not in garbage.manifests
    for each in left.manifests.values():
        assert not set(each.manifest.manifests) & garbage.manifests
        assert not set(each.manifest.blobs) & garbage.blobs
    assert find_garbage(left, used=roots, before=BEFORE) == NOTHING
