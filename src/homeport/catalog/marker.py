"""`deployments/<site>/site.yaml`: marks the folder as a site's, and carries the site's labels.

    site: line-7
    labels:
      region: eu

The file must be valid and name its own site: a folder that was copied, renamed or merged badly has a marker too, and
must not count as this site's desired state. A mistake in the labels affects only the labels: the folder still counts
with all its files.
"""

from collections.abc import Mapping

from homeport.catalog.containment import contained
from homeport.catalog.documents import Document, dump, load
from homeport.core.values.selectors import label_problem
from homeport.errors import InvalidInput, Problem
from homeport.vocabulary import SiteName

LABELS_MAX = 64


@contained
def check_marker(content: bytes, path: str, site: SiteName) -> None:
    """Raises TooLarge, or InvalidInput with file and line, unless it marks the folder of this site."""
    if content == render_marker(site):
        return  # fast path: nearly all look like this, and thousands are read at once
    document = load(content, path)
    if not isinstance(document.data, dict):
        raise InvalidInput(problems=[document.problem((), "must be a mapping (site: name).")])
    # A site may be called 7 or `on`, written without quotes.
    named = document.texts.get(("site",)) or document.data.get("site")
    if named != site:
        said = f'is "{named}"' if "site" in document.data else "is missing"
        message = f'{said}, but this is the folder of site "{site}".'
        raise InvalidInput(problems=[document.problem(("site",), message)])


@contained
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
    """The marker file: it makes the folder authoritative, so that what is not in it is not wanted."""
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
