"""Makes State Manifests of what is wanted, for many clients with one read and one commit.

A manifest and its version are written in one transaction, so replicas serve the same one and a version never goes
back. What cannot be rendered fails for its own client alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from homeport.core.margo.bundle import pack
from homeport.core.margo.manifest import (
    MANIFEST_TYPE,
    Manifest,
    ManifestDeployment,
    digest_of,
    etag_of,
    next_version,
    parse,
    render,
    versions_kept,
)
from homeport.core.margo.records import ManifestArtifact, ManifestRecord
from homeport.core.model.event import Deployment
from homeport.errors import HomeportError, InvalidInput, TransientError
from homeport.lazy_dataclass import dataclass
from homeport.log import get_log
from homeport.margo.wfm.removed import Revision, left_out, removed_devices
from homeport.ports import Clock, DeploymentFilter, InThread, Reader, Store, Transaction
from homeport.vocabulary import DeploymentId, Digest, SiteName

VERSIONS_KEPT: Final = 10
"""How many manifests back their artifacts can be fetched, for a client that was cut off in the middle of a sync."""
NAMED_MAX: Final = 5

Headers = Sequence[tuple[bytes, bytes]]
Wanted = Mapping[SiteName, Sequence[Deployment]]

log = get_log("homeport.margo")


@dataclass(frozen=True, slots=True)
class Prepared:
    """A manifest, ready to be sent."""

    version: int
    body: bytes
    etag: bytes
    headers: Headers
    headers_unchanged: Headers
    whole: bytes
    """A response with the manifest: what follows the status line and the Date."""
    unchanged: bytes
    """The same without the manifest, for a client that has it."""


@dataclass(frozen=True, slots=True)
class _Files:
    """What a new manifest of a client lists."""

    contents: Mapping[DeploymentId, bytes]
    bundle: bytes | None
    """None exactly where there are no deployments."""


Rendered = Mapping[SiteName, Prepared | HomeportError]


@dataclass(frozen=True, slots=True)
class Renderer:
    store: Store
    clock: Clock
    in_thread: InThread

    async def render(self, sites: Sequence[SiteName]) -> Rendered:
        """The current manifest of each client, or why there is none. One whose desired state changed meanwhile is
        left out. Raises HomeportError where the store fails."""
        found: dict[SiteName, Prepared | HomeportError] = {}
        async with self.store.read() as reader:
            wanted = await _wanted(reader, sites)
            unlisted = await left_out(reader, wanted, await removed_devices(reader, sites))
            wanted = _without(wanted, unlisted)
            for record in await _known_manifests(reader, sites):
                if _is_current(record, wanted[record.site]):
                    found[record.site] = prepared(record)
                elif await _unreadable(reader, record, wanted[record.site], unlisted):
                    # Leaving it out of the manifest would remove it from its device.
                    found[record.site] = TransientError(f"A deployment of {record.site} cannot be read.")
            new = [row for site in sites if site not in found for row in wanted[site]]
            contents = await _contents(reader, new)
        files: dict[SiteName, Mapping[DeploymentId, bytes]] = {}
        for site in sites:
            missing = [row.name for row in wanted[site] if row.id not in contents]
            if site not in found and missing:
                # Leaving it out of the manifest would remove it from its device.
                found[site] = TransientError(f"The content of {missing[0]} at {site} is not there yet.")
            elif site not in found:
                files[site] = {row.id: contents[row.id] for row in wanted[site]}
        if files:
            packed = await self.in_thread(_pack, files)
            records = await self.store.write(lambda tx: self._write(tx, packed, unlisted))
            found |= {record.site: prepared(record) for record in records}
            log.info("manifests rendered", sites=_named(records))
        return found

    async def discard(self, site: SiteName) -> None:
        """The client's next manifest is a new one, and what it lists is stored again."""

        async def work(tx: Transaction) -> None:
            records = await tx.margo_manifests_of([site])
            await tx.put_margo_manifests([replace(each, version=each.version + 1, body=b"") for each in records])

        await self.store.write(work)

    async def _write(
        self, tx: Transaction, files: Mapping[SiteName, _Files], unlisted: frozenset[Revision]
    ) -> Sequence[ManifestRecord]:
        sites, now = list(files), self.clock.now()
        before = {record.site: record for record in await _known_manifests(tx, sites)}
        wanted = _without(await _wanted(tx, sites), unlisted)
        known: list[ManifestRecord] = []
        new: list[ManifestRecord] = []
        artifacts: list[ManifestArtifact] = []
        for site, made in files.items():
            listed = tuple(
                ManifestDeployment(key, digest_of(content), len(content)) for key, content in made.contents.items()
            )
            if _revisions(wanted[site]) != {(each.deployment_id, each.digest) for each in listed}:
                continue  # changed since it was read
            last = before.get(site)
            if last is not None and _is_current(last, wanted[site]):
                known.append(last)  # another replica was faster
                continue
            new.append(_record(site, last, listed, made.bundle, now))
            artifacts += _artifacts(new[-1], listed, made)
        await tx.put_margo_manifests(new)
        await tx.put_margo_artifacts(artifacts)
        await tx.drop_margo_artifacts({record.site: record.recent[-1] for record in new if record.site in before})
        return [*known, *new]


def prepared(record: ManifestRecord) -> Prepared:
    etag = etag_of(digest_of(record.body)).encode()
    # `private` and to be asked again each time; a cached manifest would hide a change.
    caching = ((b"etag", etag), (b"cache-control", b"private, no-cache"))
    headers = (
        (b"content-type", MANIFEST_TYPE.encode()),
        (b"content-length", str(len(record.body)).encode()),
        *caching,
    )
    whole = _lines(headers) + record.body
    return Prepared(record.version, record.body, etag, headers, caching, whole, _lines(caching))


def _lines(headers: Headers) -> bytes:
    return b"".join(b"%s: %s\r\n" % header for header in headers) + b"\r\n"


async def _known_manifests(reader: Reader, sites: Sequence[SiteName]) -> Sequence[ManifestRecord]:
    """Raises ValueError where one cannot be read: taken for absent, its versions would begin again."""
    found = await reader.margo_manifests_of(sites)
    if damaged := {key[0] for key in reader.left_out("margo_manifests")} & set(sites):
        raise ValueError(f"the manifest of {min(damaged)} cannot be read")
    return found


async def _unreadable(
    reader: Reader, record: ManifestRecord, wanted: Sequence[Deployment], unlisted: frozenset[Revision]
) -> bool:
    """Whether a deployment of the last manifest is not listed again, and no row says why: rows of what was deleted or
    moved stay."""
    missing = _listed(record).keys() - {row.id for row in wanted} - {key for key, _ in unlisted}
    return bool(missing) and len(await reader.deployments_by_ids(sorted(missing))) < len(missing)


async def _wanted(reader: Reader, sites: Sequence[SiteName]) -> Wanted:
    found: dict[SiteName, list[Deployment]] = {site: [] for site in sites}
    for row in await reader.deployments(DeploymentFilter(sites=frozenset(sites))):
        if row.wanted:
            found[row.site].append(row)
    return found


def _without(wanted: Wanted, unlisted: frozenset[Revision]) -> Wanted:
    if not unlisted:
        return wanted
    return {site: [row for row in rows if (row.id, row.revision) not in unlisted] for site, rows in wanted.items()}


async def _contents(reader: Reader, rows: Sequence[Deployment]) -> Mapping[DeploymentId, bytes]:
    """The exact bytes of the files in Git, as far as they are known. What is stored and damaged is not known."""
    stored = await reader.revision_contents({row.id: row.revision for row in rows})
    found: dict[DeploymentId, bytes] = {}
    for row in rows:
        content = stored.get(row.id)
        if content is None or digest_of(content) != row.revision:
            known = await reader.margo_artifact(row.site, row.revision)
            content = None if known is None else known.content
        if content is not None and digest_of(content) == row.revision:
            found[row.id] = content
    return found


def _revisions(wanted: Sequence[Deployment]) -> set[Revision]:
    return {(row.id, row.revision) for row in wanted}


def _is_current(record: ManifestRecord, wanted: Sequence[Deployment]) -> bool:
    """Whether it lists exactly these deployments, with these contents."""
    return bool(record.body) and set(_listed(record).items()) == _revisions(wanted)


def _listed(record: ManifestRecord) -> Mapping[DeploymentId, Digest]:
    """Nothing where it was discarded or cannot be read."""
    try:
        return {each.deployment_id: each.digest for each in parse(record.body).deployments} if record.body else {}
    except InvalidInput:
        return {}


def _pack(files: Mapping[SiteName, Mapping[DeploymentId, bytes]]) -> Mapping[SiteName, _Files]:
    return {site: _Files(contents, pack(contents) if contents else None) for site, contents in files.items()}


def _record(
    site: SiteName,
    before: ManifestRecord | None,
    listed: tuple[ManifestDeployment, ...],
    bundle: bytes | None,
    now: datetime,
) -> ManifestRecord:
    version = next_version(None if before is None else before.version, now_ms=int(now.timestamp() * 1000))
    digest, size = (None, None) if bundle is None else (digest_of(bundle), len(bundle))
    recent = versions_kept(() if before is None else before.recent, version, keep=VERSIONS_KEPT)
    return ManifestRecord(site, version, render(Manifest(version, listed, digest, size)), recent, now)


def _artifacts(record: ManifestRecord, listed: Sequence[ManifestDeployment], files: _Files) -> list[ManifestArtifact]:
    found = [
        ManifestArtifact(
            record.site, each.digest, each.deployment_id, files.contents[each.deployment_id], record.version
        )
        for each in listed
    ]
    if files.bundle is not None:
        found.append(ManifestArtifact(record.site, digest_of(files.bundle), None, files.bundle, record.version))
    return found


def _named(records: Sequence[ManifestRecord]) -> str:
    more = f" and {len(records) - NAMED_MAX} more" if len(records) > NAMED_MAX else ""
    return ", ".join(f"{each.site} {each.version}" for each in records[:NAMED_MAX]) + more
