"""Tasks, artifacts and usage of the inference plane."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from homeport.core.inference.models.entries import ModelEntry, TrustPolicy
from homeport.core.inference.models.lifecycle import ModelLifecycle
from homeport.core.inference.records import StoredArtifact, StoredTask, TaskState, Usage
from homeport.errors import NotFound
from homeport.ports import Store
from homeport.vocabulary import SiteName

pytestmark = pytest.mark.anyio
NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def a_task(name: str, state: TaskState = TaskState.QUEUED, *, minutes: int = 0) -> StoredTask:
    at = NOW + timedelta(minutes=minutes)
    return StoredTask(id=name, caller="k", digest="d", state=state, body="{}", answer="{}", at=at)


async def test_unfinished_tasks_are_found_oldest_first(store: Store) -> None:
    tasks = [a_task("b", minutes=1), a_task("a", minutes=2), a_task("c", TaskState.ENDED)]
    await store.write(lambda tx: tx.put_tasks(tasks))
    await store.write(lambda tx: tx.start_tasks(["b", "c", "unknown"]))
    async with store.read() as reader:
        assert await reader.unfinished_tasks() == [replace(tasks[0], state=TaskState.STARTED), tasks[1]]
        assert await reader.task("c") == tasks[2]
        assert await reader.task("unknown") is None
        assert {each.id for each in await reader.tasks(["a", "c", "unknown"])} == {"a", "c"}


async def test_of_added_tasks_those_that_are_known_stay_as_they_were(store: Store) -> None:
    first, again, new = a_task("a"), replace(a_task("a", minutes=3), digest="other"), a_task("b")
    assert list(await store.write(lambda tx: tx.add_tasks([first]))) == []
    assert list(await store.write(lambda tx: tx.add_tasks([again, new]))) == [first]
    assert list(await store.write(lambda tx: tx.add_tasks([]))) == []
    async with store.read() as reader:
        assert {each.id: each for each in await reader.tasks(["a", "b"])} == {"a": first, "b": new}


async def test_only_the_newest_ended_tasks_are_kept(store: Store) -> None:
    tasks = [a_task(f"t{n}", TaskState.ENDED, minutes=n) for n in range(4)]
    await store.write(lambda tx: tx.put_tasks([*tasks, a_task("queued")]))
    await store.write(lambda tx: tx.trim_tasks(keep=2))
    async with store.read() as reader:
        assert {each.id for each in await reader.tasks([*(t.id for t in tasks), "queued"])} == {"t2", "t3", "queued"}


async def test_an_artifact_is_kept_as_it_first_came(store: Store) -> None:
    first = StoredArtifact("a" * 64, "plan", 1, ("x",), {"content": {"n": 1}}, "me")
    await store.write(lambda tx: tx.put_artifacts([first]))
    await store.write(lambda tx: tx.put_artifacts([replace(first, created_ms=2)]))
    async with store.read() as reader:
        assert await reader.artifact(first.id) == first
    await store.write(lambda tx: tx.trim_artifacts(keep=0, bytes_max=0))
    async with store.read() as reader:
        assert await reader.artifact(first.id) is None


async def test_one_key_cannot_crowd_out_the_artifacts_of_others(store: Store) -> None:
    def artifact(number: int, owner: str, size: int) -> StoredArtifact:
        return StoredArtifact(f"{owner}{number}", "other", number, (), {"content": "x" * size}, owner)

    greedy = [artifact(number, "greedy", 100) for number in range(10, 20)]
    await store.write(lambda tx: tx.put_artifacts([*greedy, artifact(1, "modest", 100), artifact(2, "modest", 100)]))

    async def left(keep: int, bytes_max: int) -> set[str]:
        await store.write(lambda tx: tx.trim_artifacts(keep=keep, bytes_max=bytes_max))
        async with store.read() as reader:
            return {each.id for each in await reader.artifacts(None, limit=100)}

    assert len(await left(12, 10_000)) == 12
    assert await left(5, 10_000) == {"modest1", "modest2", "greedy17", "greedy18", "greedy19"}
    assert await left(5, 500) == {"modest1", "modest2", "greedy18", "greedy19"}, "of whatever size"


async def test_an_artifact_that_two_keys_posted_belongs_to_both(store: Store) -> None:
    first = StoredArtifact("a" * 64, "plan", 5, ("x",), {"content": {"n": 1}}, "ann")
    second, other = replace(first, owner="bob"), replace(first, id="b" * 64, created_ms=9)

    async def post(*artifacts: StoredArtifact) -> None:
        await store.write(lambda tx: tx.put_artifacts(artifacts))
        await store.write(lambda tx: tx.share_artifacts(artifacts))

    async def owned_by(owner: str) -> tuple[list[str], bool]:
        async with store.read() as reader:
            listed = [each.id for each in await reader.artifacts(owner, limit=10)]
            return listed, await reader.owns_artifact(first.id, owner)

    await post(first, other)
    assert await owned_by("bob") == ([], False)
    await post(second)
    await post(second)
    assert await owned_by("bob") == ([first.id], True)
    assert await owned_by("ann") == ([other.id, first.id], True)
    assert await owned_by("eve") == ([], False)
    await store.write(lambda tx: tx.trim_artifacts(keep=1, bytes_max=1_000))
    assert await owned_by("ann") == ([other.id], False), "the oldest of who has most"
    assert await owned_by("bob") == ([first.id], True), "its own since then"
    await store.write(lambda tx: tx.trim_artifacts(keep=0, bytes_max=0))
    assert await owned_by("bob") == ([], False)


async def test_usage_adds_up(store: Store) -> None:
    await store.write(lambda tx: tx.add_usage([Usage("k", "2026-03-01", "m", 1, 2, 3)]))
    await store.write(
        lambda tx: tx.add_usage([Usage("k", "2026-03-01", "m", 1, 2, 3), Usage("k", "2026-02-01", "m")])
    )
    async with store.read() as reader:
        assert await reader.usage("2026-03-01") == [Usage("k", "2026-03-01", "m", 2, 4, 6)]


async def test_what_sites_have_used_only_grows_and_is_theirs_alone(store: Store) -> None:
    home, north = SiteName("home"), SiteName("north")
    await store.write(lambda tx: tx.put_site_usage(home, [Usage("k", "2026-03-01", "m", 2, 4, 6)]))
    await store.write(lambda tx: tx.put_site_usage(north, [Usage("k", "2026-03-01", "m", 9, 9, 9)]))
    late = [Usage("k", "2026-03-01", "m", 1, 2, 3), Usage("k", "2026-02-01", "m", 1)]
    await store.write(lambda tx: tx.put_site_usage(home, late))
    await store.write(lambda tx: tx.put_site_usage(home, [Usage("k", "2026-03-02", "m", 3, 5, 7)]))
    async with store.read() as reader:
        assert await reader.site_usage("2026-03-01") == [
            (home, Usage("k", "2026-03-01", "m", 2, 4, 6)),
            (north, Usage("k", "2026-03-01", "m", 9, 9, 9)),
            (home, Usage("k", "2026-03-02", "m", 3, 5, 7)),
        ]
        assert (await reader.count_site_usage(home), await reader.count_site_usage(north)) == (3, 1)
        assert await reader.usage("2026-01-01") == []


MODEL = ModelEntry(
    id="tiny",
    source="hf:org/repo/tiny.gguf",
    digest="sha256:" + "a" * 64,
    size_bytes=7,
    tags=("small",),
    signatures=({"signer": "us", "verified": True},),
    policy=TrustPolicy(is_strict=True, allowed_registries=("hf",)),
    sbom={"uri": "https://example.org/sbom"},
)


async def test_a_model_of_the_catalog_is_added_changed_and_removed(store: Store) -> None:
    other = replace(MODEL, id="other", source="", policy=TrustPolicy(), sbom=None, signatures=())
    await store.write(lambda tx: tx.add_catalog_models([MODEL, other]))
    await store.write(lambda tx: tx.add_catalog_models([replace(MODEL, size_bytes=9)]))
    async with store.read() as reader:
        assert await reader.catalog_models() == [other, MODEL], "what was there stays"
        assert (await reader.catalog_model("tiny"), await reader.catalog_model("none")) == (MODEL, None)
        assert await reader.count_catalog_models() == 2

    def retire(old: ModelEntry | None) -> ModelEntry:
        assert old is not None
        return replace(old, state=ModelLifecycle.RETIRED)

    retired = replace(MODEL, state=ModelLifecycle.RETIRED)
    assert await store.write(lambda tx: tx.change_catalog_model("tiny", retire)) == retired
    assert await store.write(lambda tx: tx.change_catalog_model("other", lambda old: None)) is None
    assert await store.write(lambda tx: tx.change_catalog_model("none", lambda old: None)) is None
    async with store.read() as reader:
        assert await reader.catalog_models() == [retired]


async def test_a_change_of_a_model_that_fails_changes_nothing(store: Store) -> None:
    def fail(old: ModelEntry | None) -> ModelEntry:
        raise NotFound("There is no such model.")

    await store.write(lambda tx: tx.add_catalog_models([MODEL]))
    with pytest.raises(NotFound):
        await store.write(lambda tx: tx.change_catalog_model("tiny", fail))
    async with store.read() as reader:
        assert await reader.catalog_models() == [MODEL]
