"""The values of secrets in the journal: encrypted with the node's own key, so that workloads restart after a power
cut without an uplink, and a copy of the database alone reveals nothing.
"""

import json
from collections.abc import Mapping
from dataclasses import replace

from homeport.core.model.deployment import Release
from homeport.core.node.entry import JournalEntry
from homeport.errors import InvalidInput, WorkFailed
from homeport.ports import Vault
from homeport.vocabulary import Code

Values = Mapping[str, Mapping[str, str]]
"""By component, then by the secret's name."""


def sealed_values(entry: JournalEntry, vault: Vault | None) -> bytes | None:
    """None for an entry without secrets."""
    content = {"order": _values(entry.order.release), "good": _values(entry.good)}
    if not any(content.values()):
        return None
    if vault is None:
        raise WorkFailed(Code.INTERNAL, "This node has no vault to keep secrets in.")
    return vault.seal(json.dumps(content).encode(), context=_context(entry))


def with_values(entry: JournalEntry, sealed: bytes | None, vault: Vault | None) -> JournalEntry:
    """The entry with its secrets. Raises InvalidInput when they cannot be decrypted."""
    if not _uses(entry.order.release) and not _uses(entry.good):
        return entry
    if sealed is None or vault is None:
        raise InvalidInput("The secrets of this order are not in the journal.")
    content = json.loads(vault.open(sealed, context=_context(entry)))
    return replace(
        entry,
        order=replace(entry.order, release=_with(entry.order.release, content["order"])),
        good=_with(entry.good, content["good"]),
    )


def _context(entry: JournalEntry) -> str:
    return f"journal/{entry.order.key}"


def _uses(release: Release | None) -> bool:
    return release is not None and any(part.secrets for part in release.components)


def _values(release: Release | None) -> dict[str, dict[str, str]]:
    parts = release.components if release else ()
    return {part.name: dict(part.secret_values) for part in parts if part.secret_values}


def _with(release: Release | None, values: Values) -> Release | None:
    if release is None:
        return None
    parts = tuple(replace(part, secret_values=values.get(part.name, {})) for part in release.components)
    return replace(release, components=parts)
