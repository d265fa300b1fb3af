"""`deployments/<site>/site.yaml`: marks the folder as real, and carries the site's labels.

    site: line-7
    labels:
      region: eu

A mistake in the labels spoils the labels alone: the folder stays real, and what is in it counts.
"""

from collections.abc import Mapping

from homeport.catalog.documents import Document, dump, load
from homeport.core.selectors import label_problem
from homeport.errors import InvalidInput, Problem
from homeport.vocabulary import SiteName

LABELS_MAX = 64


def read_labels(content: bytes, path: str) -> dict[str, str]:
    """Raises TooLarge, or InvalidInput with each problem's file and line."""
    if b"labels" not in content:
        return {}  # most have none, and thousands are read at once
    document = load(content, path)
    problems = _problems(document)
    if problems:
        raise InvalidInput(problems=problems)
    return {key: str(value) for key, value in (document.data.get("labels") or {}).items()}


def render_marker(site: SiteName, labels: Mapping[str, str] | None = None) -> bytes:
    """The file that says: this folder is real, so that what is not in it is not wanted."""
    data: dict[str, object] = {"site": str(site)}
    if labels:
        data["labels"] = dict(sorted(labels.items()))
    return dump(data)


def _problems(document: Document) -> list[Problem]:
    if not isinstance(document.data, dict):
        return [document.problem((), "must be a mapping (site: name).")]
    labels = document.data.get("labels")
    if labels is None:
        return []
    if not isinstance(labels, dict):
        return [document.problem(("labels",), "must be a mapping (name: value).")]
    if len(labels) > LABELS_MAX:
        return [document.problem(("labels",), f"has {len(labels)} entries, and {LABELS_MAX} are the most.")]
    problems = []
    for key, value in labels.items():
        place = ("labels", key)
        if not isinstance(value, str):
            written = document.texts.get(place, "")
            problems.append(document.problem(place, f'must be text: put it in quotes ("{written}").'))
            continue
        message = label_problem(key, value)
        if message is not None:
            problems.append(document.problem(place, message))
    return problems
