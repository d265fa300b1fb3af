"""Which content a repository no longer needs. Pure: everything comes in as values.

Kept is what a tag refers to, what a deployment or one of its rollback targets refers to by digest, and what arrived
recently, because a push comes in pieces; and of those also what they consist of and what refers to them.
"""

from collections.abc import Collection, Mapping
from datetime import datetime

from homeport.content.registry.manifests import OciManifest
from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import Digest


@dataclass(frozen=True, slots=True)
class SeenManifest:
    manifest: OciManifest
    at: datetime


@dataclass(frozen=True, slots=True)
class SeenRepository:
    tags: Mapping[str, Digest]
    manifests: Mapping[Digest, SeenManifest]
    blobs: Mapping[Digest, datetime]
    """When each was stored, or last requested."""


@dataclass(frozen=True, slots=True)
class Garbage:
    manifests: frozenset[Digest]
    blobs: frozenset[Digest]


def find_garbage(seen: SeenRepository, *, used: Collection[Digest], before: datetime) -> Garbage:
    """`used` are digests that deployments refer to; what is younger than `before` is kept."""
    fresh = {digest for digest, each in seen.manifests.items() if each.at >= before}
    kept = _closure(seen.manifests, {*seen.tags.values(), *used, *fresh})
    needed = {blob for digest in kept for blob in seen.manifests[digest].manifest.blobs} | set(used)
    return Garbage(
        manifests=frozenset(seen.manifests.keys() - kept),
        blobs=frozenset(digest for digest, at in seen.blobs.items() if digest not in needed and at < before),
    )


def _closure(manifests: Mapping[Digest, SeenManifest], roots: Collection[Digest]) -> set[Digest]:
    """Downwards to what an index lists, and sideways to signatures and other referrers."""
    referrers: dict[Digest, list[Digest]] = {}
    for digest, each in manifests.items():
        if each.manifest.subject is not None:
            referrers.setdefault(each.manifest.subject, []).append(digest)
    kept: set[Digest] = set()
    open_ends = [digest for digest in roots if digest in manifests]
    while open_ends:
        digest = open_ends.pop()
        if digest in kept:
            continue
        kept.add(digest)
        more = (*manifests[digest].manifest.manifests, *referrers.get(digest, ()))
        open_ends += [each for each in more if each in manifests]
    return kept
