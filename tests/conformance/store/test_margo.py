"""What a fleet manager keeps of many clients at once."""

from datetime import UTC, datetime

import pytest

from homeport.core.margo.records import ManifestArtifact, ManifestRecord
from homeport.ports import Store
from homeport.vocabulary import Digest, SiteName

pytestmark = pytest.mark.anyio

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
A, B, C = SiteName("a"), SiteName("b"), SiteName("c")


def manifest(site: SiteName, version: int) -> ManifestRecord:
    return ManifestRecord(site, version, b"%d" % version, (version,), NOW)


def artifact(site: SiteName, version: int) -> ManifestArtifact:
    return ManifestArtifact(site, Digest(f"sha256:{version}"), None, b"\x00", version)


async def test_each_manifest_is_replaced_by_a_higher_version_alone(store: Store) -> None:
    await store.write(lambda tx: tx.put_margo_manifests([manifest(A, 5), manifest(B, 1)]))
    await store.write(lambda tx: tx.put_margo_manifests([manifest(A, 4), manifest(B, 2)]))
    await store.write(lambda tx: tx.put_margo_manifests([]))
    async with store.read() as reader:
        assert await reader.margo_manifests_of([C, B, A]) == [manifest(A, 5), manifest(B, 2)]
        assert await reader.margo_manifests_of([C]) == await reader.margo_manifests_of([]) == []
    assert await store.write(lambda tx: tx.margo_manifests_of([B])) == [manifest(B, 2)]


async def test_artifacts_are_dropped_below_the_version_of_their_own_client(store: Store) -> None:
    both = [artifact(site, version) for site in (A, B, C) for version in (1, 2, 3)]
    await store.write(lambda tx: tx.put_margo_artifacts(both))
    await store.write(lambda tx: tx.drop_margo_artifacts({A: 3, B: 2}))
    await store.write(lambda tx: tx.drop_margo_artifacts({}))
    async with store.read() as reader:
        kept = [(each.site, each.version) for each in both if await reader.margo_artifact(each.site, each.digest)]
    assert kept == [(A, 3), (B, 2), (B, 3), (C, 1), (C, 2), (C, 3)]
