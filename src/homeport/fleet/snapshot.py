"""Reads a site's folder of one commit into what is wanted there.

Absence from a verified snapshot is the only signal to delete anything. So a folder without its marker is a
broken source that changes nothing, and a file that cannot be read keeps its own deployment as it is.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from homeport.catalog.deployment import parse_deployment
from homeport.core.model.deployment import Desired, digest_of_bytes
from homeport.core.model.report import FileProblem
from homeport.errors import InvalidInput, PermanentError, TooLarge
from homeport.ports import TreeFile
from homeport.vocabulary import Commit, DeploymentId, SiteName

FILE_SIZE_MAX: Final = 1024 * 1024
_UUID: Final = re.compile(r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")


class BrokenSource(PermanentError):
    """The deployments repository cannot be followed; everything stays as it is."""

    code = "broken-source"


@dataclass(frozen=True, slots=True)
class Snapshot:
    commit: Commit
    desired: Mapping[DeploymentId, Desired]
    contents: Mapping[DeploymentId, bytes]
    """Of the files that differ from what was known."""
    kept: frozenset[DeploymentId]
    problems: tuple[FileProblem, ...]


def site_folder(site: SiteName) -> str:
    return f"deployments/{site}"


def read_snapshot(
    site: SiteName, commit: Commit, files: Sequence[TreeFile], known: Mapping[DeploymentId, Desired]
) -> Snapshot:
    """`known` are the deployments already parsed; a file with the same bytes is not parsed again."""
    marker = f"{site_folder(site)}/site.yaml"
    if marker not in {file.path for file in files if file.is_regular}:
        raise BrokenSource(
            f"{marker} is missing at commit {commit[:8]}, so this is not taken for an empty site",
            hint=f"Bring the folder back, or add the marker with the line `site: {site}` if it is as it should be.",
        )
    desired: dict[DeploymentId, Desired] = {}
    contents: dict[DeploymentId, bytes] = {}
    kept: set[DeploymentId] = set()
    problems: list[FileProblem] = []
    for file in files:
        if file.path == marker:
            continue
        deployment_id = _id_of(file.path)
        if deployment_id is None:
            problems.append(FileProblem(file.path, "is not named like a deployment: <uuid>.yaml"))
            continue
        if not file.is_regular:
            kept.add(deployment_id)
            problems.append(
                FileProblem(file.path, "is a link or a submodule; put the file itself there", deployment_id)
            )
            continue
        before = known.get(deployment_id)
        if before is not None and before.revision == digest_of_bytes(file.content):
            desired[deployment_id] = before
            continue
        try:
            if len(file.content) > FILE_SIZE_MAX:
                raise TooLarge(f"{file.path} is larger than {FILE_SIZE_MAX // 1024} KiB")
            desired[deployment_id] = parse_deployment(file.content, file.path, site)
            contents[deployment_id] = file.content
        except PermanentError as error:
            kept.add(deployment_id)
            problems.extend(_problems(error, file.path, deployment_id))
    return Snapshot(commit, desired, contents, frozenset(kept), tuple(problems))


def _id_of(path: str) -> DeploymentId | None:
    name = PurePosixPath(path)
    if name.suffix != ".yaml" or len(name.parts) != 3 or not _UUID.match(name.stem):
        return None
    return DeploymentId(name.stem)


def _problems(error: PermanentError, path: str, deployment_id: DeploymentId) -> list[FileProblem]:
    if isinstance(error, InvalidInput) and error.problems:
        return [
            FileProblem(
                path, f"{item.field}: {item.message}" if item.field else item.message, deployment_id, item.line
            )
            for item in error.problems
        ]
    return [FileProblem(path, str(error), deployment_id)]
