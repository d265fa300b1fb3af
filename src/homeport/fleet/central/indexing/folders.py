"""Reads the folders of sites at a commit, and compares them with what is known. A folder that cannot be read is the
problem of its site alone."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from typing import Final

from homeport.catalog.deployment import marker_path
from homeport.catalog.marker import read_labels
from homeport.errors import PermanentError, TooLarge
from homeport.fleet.shared.snapshot import (
    FILE_SIZE_MAX,
    BrokenSource,
    Known,
    Snapshot,
    deployment_of,
    read_snapshot,
    site_folder,
)
from homeport.lazy_dataclass import dataclass
from homeport.ports import GitSource, InThread, TreeFile
from homeport.vocabulary import SITE_NAME_PATTERN, Commit, DeploymentId, SiteName

ROOT: Final = "deployments"
FOLDERS_MAX: Final = 50
"""With more changed folders than this, reading everything once is cheaper than reading each."""
_SITE_NAME: Final = re.compile(SITE_NAME_PATTERN)


@dataclass(frozen=True, slots=True)
class Folder:
    """A site's folder at one commit, read and compared with the table."""

    site: SiteName
    snapshot: Snapshot | None
    """None when the marker is missing or another site's: then nothing of this site changes."""
    complaint: str = ""
    contents: Mapping[DeploymentId, bytes] = field(default_factory=dict)
    """Of the adopted files."""
    labels: Mapping[str, str] | None = None
    """None when they are invalid: then they stay unchanged."""
    label_complaint: str = ""


@dataclass(frozen=True, slots=True)
class FolderReader:
    git: GitSource
    in_thread: InThread

    async def of(
        self, commit: Commit, sites: Sequence[SiteName], known: Mapping[SiteName, Mapping[DeploymentId, Known]]
    ) -> list[Folder]:
        """A folder that is too large to read is the problem of its site alone."""
        whole = await self._every(commit) if len(sites) > FOLDERS_MAX else None
        by_site: dict[SiteName, Sequence[TreeFile]] = {}
        unread: list[Folder] = []
        for site in sites:
            try:
                by_site[site] = await self._files(commit, site_folder(site)) if whole is None else whole.get(site, ())
            except TooLarge as error:
                unread.append(Folder(site, None, f"{error} Nothing is changed at this site."))
        return [*await self.in_thread(_read_all, commit, by_site, known), *unread]

    async def _every(self, commit: Commit) -> Mapping[SiteName, Sequence[TreeFile]] | None:
        """The files of every site in one read; None where they are too many for that."""
        found: dict[SiteName, list[TreeFile]] = {}
        with suppress(TooLarge):
            for file in await self._files(commit, ROOT):
                found.setdefault(SiteName(file.path.split("/")[1]), []).append(file)
            return found
        return None

    async def _files(self, commit: Commit, folder: str) -> Sequence[TreeFile]:
        return await self.git.files(commit, folder, size_max=FILE_SIZE_MAX)


def sites_of(paths: Sequence[str]) -> list[SiteName]:
    """The sites whose folders contain these paths. Paths elsewhere, or below an invalid name, are ignored."""
    names = {parts[1] for path in paths if len(parts := path.split("/")) >= 3}
    return sorted(SiteName(name) for name in names if _SITE_NAME.fullmatch(name))


def _read_all(
    commit: Commit,
    by_site: Mapping[SiteName, Sequence[TreeFile]],
    known: Mapping[SiteName, Mapping[DeploymentId, Known]],
) -> list[Folder]:
    """Parses only files whose bytes differ from the stored ones."""
    return [_read_folder(site, commit, files, known.get(site, {})) for site, files in by_site.items()]


def _read_folder(
    site: SiteName, commit: Commit, files: Sequence[TreeFile], known: Mapping[DeploymentId, Known]
) -> Folder:
    try:
        snapshot = read_snapshot(site, commit, files, known)
    except BrokenSource as error:
        return Folder(site, None, f"{error}.")
    contents = {
        deployment_id: file.content
        for file in files
        if (deployment_id := deployment_of(file.path)) is not None and deployment_id in snapshot.desired
    }
    folder = Folder(site, snapshot, contents=contents)
    marker = next(file for file in files if file.path == marker_path(site))
    try:
        return replace(folder, labels=read_labels(marker.content, marker.path))
    except PermanentError as error:
        return replace(folder, label_complaint=f"{error}; its labels have not changed")
