"""Reads a site's folder at one commit into its desired state.

Absence from a verified snapshot is the only signal to delete anything. So a folder whose marker is missing, invalid
or another site's is a broken source that changes nothing, an invalid file leaves its own deployment unchanged, and so
does anything else with a deployment's id in its name: it was renamed, not removed.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Final, Protocol

from homeport.catalog.deployment import marker_path, parse_deployment
from homeport.catalog.marker import check_marker
from homeport.core.model.deployment import Desired, digest_of_bytes
from homeport.core.model.report import FileProblem
from homeport.errors import InvalidInput, PermanentError, TooLarge
from homeport.lazy_dataclass import dataclass
from homeport.ports import TreeFile
from homeport.vocabulary import Commit, DeploymentId, Digest, SiteName

FILE_SIZE_MAX: Final = 1024 * 1024
UNKNOWN_FILES_SHOWN_MAX: Final = 20
"""How many unexpected files are reported as problems."""
_UUID: Final = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_FILE: Final = re.compile(rf"deployments/[^/]+/({_UUID})\.yaml")
_ANYWHERE: Final = re.compile(rf"(?<![0-9a-f]){_UUID}(?![0-9a-f])")


class BrokenSource(PermanentError):
    """The deployments repository cannot be followed; everything stays as it is."""

    code = "broken-source"


class Known(Protocol):
    """What the caller already has of a deployment: its `Desired`, or only its row."""

    @property
    def name(self) -> str: ...
    @property
    def revision(self) -> Digest: ...


@dataclass(frozen=True, slots=True)
class Snapshot:
    commit: Commit
    desired: Mapping[DeploymentId, Desired]
    contents: Mapping[DeploymentId, bytes]
    """Of the files that differ from the known ones."""
    unreadable: frozenset[DeploymentId]
    problems: tuple[FileProblem, ...]
    unchanged: frozenset[DeploymentId] = frozenset()
    """Those that match a row, for callers without a `Desired`."""

    @property
    def present(self) -> frozenset[DeploymentId]:
        """All deployments that were not removed."""
        return self.unreadable | self.unchanged | self.desired.keys()


def site_folder(site: SiteName) -> str:
    return f"deployments/{site}"


def read_snapshot(
    site: SiteName, commit: Commit, files: Sequence[TreeFile], known: Mapping[DeploymentId, Known]
) -> Snapshot:
    """`known` are the deployments already parsed; a file with the same bytes is not parsed again."""
    _check_marker(site, commit, files)
    reading = _Reading(site, known)
    proper = {file.path: DeploymentId(match[1]) for file in files if (match := _FILE.fullmatch(file.path))}
    for file in files:
        if file.path in proper:
            reading.take(file, proper[file.path])
        elif file.path != marker_path(site):
            reading.misnamed(file.path, set(proper.values()))
    reading.settle_names()
    return Snapshot(
        commit,
        reading.desired,
        reading.contents,
        frozenset(reading.unreadable),
        tuple(reading.problems),
        frozenset(reading.unchanged),
    )


def is_marked(site: SiteName, files: Sequence[TreeFile]) -> bool:
    """Whether the folder is this site's own."""
    try:
        _check_marker(site, Commit(""), files)
    except BrokenSource:
        return False
    return True


def _check_marker(site: SiteName, commit: Commit, files: Sequence[TreeFile]) -> None:
    path = marker_path(site)
    marker = next((file for file in files if file.path == path and file.is_regular), None)
    if marker is None:
        raise BrokenSource(
            f"{path} is missing at commit {commit[:8]}, so this is not taken for an empty site",
            hint=f"Bring the folder back, or add the marker with the line `site: {site}` if it is as it should be.",
        )
    try:
        check_marker(marker.content, path, site)
    except PermanentError as error:
        raise BrokenSource(
            f"The marker of {site_folder(site)} at commit {commit[:8]} is not valid ({error}), so nothing is changed",
            hint=f"Bring the site's own folder back; its marker has the line `site: {site}`.",
        ) from error


@dataclass(slots=True)
class _Reading:
    """One folder, file by file."""

    site: SiteName
    known: Mapping[DeploymentId, Known]
    desired: dict[DeploymentId, Desired] = field(default_factory=dict)
    contents: dict[DeploymentId, bytes] = field(default_factory=dict)
    unchanged: set[DeploymentId] = field(default_factory=set)
    unreadable: set[DeploymentId] = field(default_factory=set)
    problems: list[FileProblem] = field(default_factory=list)
    paths: dict[DeploymentId, str] = field(default_factory=dict)
    unknown_files: int = 0

    def take(self, file: TreeFile, deployment_id: DeploymentId) -> None:
        self.paths[deployment_id] = file.path
        if not file.is_regular:
            self._keep(deployment_id, file.path, "is a link or a submodule; put the file itself there")
            return
        before = self.known.get(deployment_id)
        if before is not None and before.revision == digest_of_bytes(file.content):
            if isinstance(before, Desired):
                self.desired[deployment_id] = before
            else:
                self.unchanged.add(deployment_id)
            return
        try:
            if len(file.content) > FILE_SIZE_MAX:
                raise TooLarge(f"{file.path} is larger than {FILE_SIZE_MAX // 1024} KiB")
            self.desired[deployment_id] = parse_deployment(file.content, file.path, self.site)
            self.contents[deployment_id] = file.content
        except PermanentError as error:
            self.unreadable.add(deployment_id)
            self.problems.extend(_problems(error, file.path, deployment_id))

    def misnamed(self, path: str, proper: set[DeploymentId]) -> None:
        """A file that is not named like a deployment. It counts for a deployment that has no proper file."""
        named = DeploymentId(match[0]) if (match := _ANYWHERE.search(path.lower())) else None
        if named is None or named in proper:
            self.unknown_files += 1
            if self.unknown_files <= UNKNOWN_FILES_SHOWN_MAX:
                self.problems.append(FileProblem(path, "is not named like a deployment: <uuid>.yaml"))
        elif named not in self.unreadable:
            wanted = f"{site_folder(self.site)}/{named}.yaml"
            self._keep(named, path, f"is not named like a deployment; call it {wanted}, or remove it")

    def settle_names(self) -> None:
        """A name is unique within a site. Of two deployments, the one that had it before keeps it."""
        by_name: dict[str, list[DeploymentId]] = {}
        for deployment_id in sorted(self.desired.keys() | self.unchanged):
            by_name.setdefault(self._name(deployment_id), []).append(deployment_id)
        for name, sharing in by_name.items():
            first = min(sharing, key=lambda each: (not self._had(each, name), each))
            for deployment_id in sharing if len(sharing) > 1 else ():
                if deployment_id != first:
                    self._give_way(deployment_id, f'metadata.name: "{name}" is the name of {first} at this site too')

    def _name(self, deployment_id: DeploymentId) -> str:
        return (self.desired.get(deployment_id) or self.known[deployment_id]).name

    def _had(self, deployment_id: DeploymentId, name: str) -> bool:
        before = self.known.get(deployment_id)
        return before is not None and before.name == name

    def _give_way(self, deployment_id: DeploymentId, message: str) -> None:
        self.desired.pop(deployment_id, None)
        self.contents.pop(deployment_id, None)
        self.unchanged.discard(deployment_id)
        self._keep(deployment_id, self.paths[deployment_id], f"{message}; rename or remove one of the two")

    def _keep(self, deployment_id: DeploymentId, path: str, message: str) -> None:
        self.unreadable.add(deployment_id)
        self.problems.append(FileProblem(path, message, deployment_id))


def deployment_of(path: str) -> DeploymentId | None:
    """The deployment of a file; None for a path that is not named like one."""
    match = _FILE.fullmatch(path)
    return None if match is None else DeploymentId(match[1])


def _problems(error: PermanentError, path: str, deployment_id: DeploymentId) -> Iterator[FileProblem]:
    if not isinstance(error, InvalidInput) or not error.problems:
        yield FileProblem(path, str(error), deployment_id)
        return
    for item in error.problems:
        message = f"{item.field}: {item.message}" if item.field else item.message
        yield FileProblem(path, message, deployment_id, item.line)
