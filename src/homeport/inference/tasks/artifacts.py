"""Artifacts: documents by the digest of their content. Tasks leave their transcript as one."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from homeport.core.inference.records import StoredArtifact
from homeport.errors import InvalidInput


def artifact_of(
    kind: str,
    content: Mapping[str, Any],
    *,
    created_ms: int,
    tags: Sequence[str] = (),
    parent: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    owner: str = "",
) -> StoredArtifact:
    """The id is that of kind, content, tags, parent and metadata: the same posted twice is one. Raises InvalidInput
    for what cannot be stored: it would take everything with it that is written at the same time."""
    document = {"kind": kind, "content": content, "tags": [*tags], "parent": parent, "metadata": metadata or {}}
    try:
        canonical = json.dumps(document, separators=(",", ":"), sort_keys=True, allow_nan=False).encode()
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidInput(f"This document cannot be kept: {error}.") from error
    digest = hashlib.sha256(canonical).hexdigest()
    return StoredArtifact(digest, kind, created_ms, tuple(tags), document, owner, len(canonical))


def shown(artifact: StoredArtifact, *, whole: bool) -> dict[str, Any]:
    found = {
        "id": artifact.id,
        "kind": artifact.kind,
        "digest": f"sha256:{artifact.id}",
        "created_ms": artifact.created_ms,
        "tags": list(artifact.tags),
    }
    return {**found, **artifact.document} if whole else found
