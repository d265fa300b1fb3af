"""What a Margo client keeps durably: the adopted manifest, and how far it has reported."""

import json
from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any, Final

import anyio

from homeport.core.margo.client import Adopted
from homeport.lazy_dataclass import dataclass
from homeport.ports import Store

KEY: Final = "margo_client"
"""In the role's own values."""


NOTHING_YET: Final = Adopted()


@dataclass(frozen=True, slots=True)
class MargoClientState:
    adopted: Adopted = NOTHING_YET
    commit: str = ""
    """The commit in the site's own repository that has the files of the adopted manifest."""
    capabilities: str = ""
    """The digest of what was last reported."""
    cursor: int | None = None
    """The last event whose state was reported."""
    components: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The component names of each deployment, for reports about its removal."""
    refusals: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What of the adopted manifest this site cannot take at all, and has not reported yet."""
    announced: Mapping[str, str] = field(default_factory=dict)
    """What the fleet manager calls deployments whose id is not a UUID in small letters."""
    forgotten: int = 0
    """The `--wfm-forget` with which the newest manifest was adopted. It has no effect any more, even when that
    version comes again."""


@dataclass(slots=True)
class ClientMemory:
    store: Store
    kept: MargoClientState = field(default_factory=MargoClientState)
    adopting: anyio.Lock = field(default_factory=anyio.Lock)
    """Held while the site takes over a manifest: what happens meanwhile is reported with its version."""
    _saving: anyio.Lock = field(default_factory=anyio.Lock)

    async def load(self) -> bool:
        """False where what was kept cannot be read any more."""
        async with self.store.read() as reader:
            text = await reader.value(KEY)
        try:
            self.kept = _read(text) if text else self.kept
        except (ValueError, KeyError, TypeError, AttributeError):
            return False
        return True

    async def save(self, **changes: Any) -> None:
        async with self._saving:
            kept = replace(self.kept, **changes)
            text = json.dumps(
                {
                    "version": kept.adopted.version,
                    "etag": kept.adopted.etag,
                    "digest": kept.adopted.digest,
                    "commit": kept.commit,
                    "capabilities": kept.capabilities,
                    "cursor": kept.cursor,
                    "components": {key: list(names) for key, names in kept.components.items()},
                    "refusals": dict(kept.refusals),
                    "announced": dict(kept.announced),
                    "forgotten": kept.forgotten,
                }
            )
            await self.store.write(lambda tx: tx.set_value(KEY, text))
            self.kept = kept


def _read(text: str) -> MargoClientState:
    data = json.loads(text)
    return MargoClientState(
        Adopted(int(data["version"]), str(data["etag"]), str(data.get("digest", ""))),
        str(data["commit"]),
        str(data["capabilities"]),
        None if data["cursor"] is None else int(data["cursor"]),
        {key: tuple(names) for key, names in data["components"].items()},
        # Not there in what an older release has written.
        dict(data.get("refusals", {})),
        dict(data.get("announced", {})),
        int(data.get("forgotten", 0)),
    )
